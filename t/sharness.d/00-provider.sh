# Chooses the Flux that the tests run on, and puts it and our commands in place.
#
# Read from the environment:
#   FLUX_BCAST_PROVIDER  `flux` (the real one on PATH) or `embedded` (the
#                        stand-in that t/sandbox builds). Without it: the real
#                        one when there is one.
#   FLUX_BCAST_BUILD     directory of the built files; without it the release
#                        build of this tree, else its debug build.
#   FLUX_BCAST_TEST_LOG  file that takes what each test prints.
#   FLUX_BCAST_TEST_LONG `t` for tests that take minutes and 20 GB of disk, too.
# Set for the tests:
#   BCAST_PLUGIN  the shared library, the very file that gets installed
#   BCAST_RC      shell start-up script that loads it: `-o userrc="$BCAST_RC"`
#   PROVIDER      `flux` or `embedded`; also as prerequisite REAL_FLUX, EMBEDDED
# shellcheck shell=sh

BCAST_TOP=$(cd "$SHARNESS_TEST_SRCDIR/.." && pwd) || exit 1
BCAST_SCRIPTS=$BCAST_TOP/t/scripts

if test -z "$FLUX_BCAST_BUILD"; then
	for FLUX_BCAST_BUILD in "$BCAST_TOP/target/release" "$BCAST_TOP/target/debug"; do
		test -e "$FLUX_BCAST_BUILD/libflux_bcast.so" && break
	done
fi
BCAST_PLUGIN=$FLUX_BCAST_BUILD/libflux_bcast.so
if ! test -e "$BCAST_PLUGIN"; then
	error "$BCAST_PLUGIN does not exist: build first (cargo build --release --workspace)"
fi

# A directory with nothing but the stand-in's `flux` (SHARNESS_BUILD_DIRECTORY,
# on PATH), and one for Flux's command search path with nothing but our commands:
# the build directory itself holds both, and more.
make_command_dirs() {
	mkdir -p "$1/bin" "$1/cmd" || return 1
	if test "$PROVIDER" = embedded; then
		ln -sf "$FLUX_BCAST_BUILD/flux" "$1/bin/flux" || return 1
	fi
	for command in flux-bcast flux-pmi-port; do
		ln -sf "$FLUX_BCAST_BUILD/$command" "$1/cmd/$command" || return 1
	done
}

if test -z "$FLUX_BCAST_PROVIDER"; then
	FLUX_BCAST_PROVIDER=embedded
	"$BCAST_SCRIPTS/real-flux" && FLUX_BCAST_PROVIDER=flux
fi
PROVIDER=$FLUX_BCAST_PROVIDER
make_command_dirs "$FLUX_BCAST_TEST_ROOT" ||
	error "cannot set up $FLUX_BCAST_TEST_ROOT"
case "$PROVIDER" in
embedded)
	test_set_prereq EMBEDDED
	;;
flux)
	test_set_prereq REAL_FLUX
	;;
*)
	error "FLUX_BCAST_PROVIDER is '$PROVIDER': must be embedded or flux"
	;;
esac
command -v flux >/dev/null || error "no flux command for provider '$PROVIDER'"
FLUX_EXEC_PATH=$FLUX_BCAST_TEST_ROOT/cmd${FLUX_EXEC_PATH:+:$FLUX_EXEC_PATH}
export FLUX_EXEC_PATH FLUX_BCAST_PROVIDER FLUX_BCAST_BUILD

# Some tests have two jobs at once, also where there is one processor.
: "${FLUX_SANDBOX_CORES:=4}"
export FLUX_SANDBOX_CORES

BCAST_RC=$FLUX_BCAST_TEST_ROOT/userrc.lua
printf 'plugin.load { file = "%s", conf = {} }\n' "$BCAST_PLUGIN" >"$BCAST_RC" ||
	error "cannot write $BCAST_RC"

# Everything a test prints goes to the log, so that it is there when a test
# fails and the protocol on standard output stays clean.
if test -n "$FLUX_BCAST_TEST_LOG"; then
	exec 3>>"$FLUX_BCAST_TEST_LOG" 4>&3
fi

# The area of the test goes with it; that of a failed test stays for inspection.
leave() {
	leave_code=$?
	if ! test -d "$SHARNESS_TRASH_DIRECTORY"; then
		rm -rf "$FLUX_BCAST_TEST_ROOT"
	fi
	(exit $leave_code)
	die
}
trap leave EXIT
