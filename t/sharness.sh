# Loads sharness (https://github.com/felipec/sharness; Debian package
# `sharness`) and, through it, the set-up in sharness.d. Every test file begins
#
#	test_description='...'
#	. "$(dirname "$0")/sharness.sh"
#
# The area a test works in is made outside of the source tree, so that a tree
# owned by somebody else, or on a read-only medium, can be tested as well.
# shellcheck shell=sh disable=SC2034
SHARNESS_TEST_SRCDIR=$(cd "$(dirname "$0")" && pwd) || exit 1
if test -z "$FLUX_BCAST_TEST_ROOT"; then
	FLUX_BCAST_TEST_ROOT=$(mktemp -d "${TMPDIR:-/tmp}/flux-bcast.XXXXXX") || exit 1
	export FLUX_BCAST_TEST_ROOT
fi
root=$FLUX_BCAST_TEST_ROOT
SHARNESS_TEST_DIRECTORY=$SHARNESS_TEST_SRCDIR
SHARNESS_BUILD_DIRECTORY=$FLUX_BCAST_TEST_ROOT/bin # goes to the front of PATH
# Without a harness, sharness would keep counts in the source tree.
: "${HARNESS_ACTIVE:=t}"
# shellcheck disable=SC1090,SC1091
. "${SHARNESS:-/usr/share/sharness/sharness.sh}"
