# What the benchmarks share: an instance of their own, the tests' job and data
# helpers, and a clock. Read by each bench-* script, first thing:
#
#	bench_shells=8
#	. "$(dirname "$0")/setup.sh"
#
# From the environment: TMPDIR (a tmpfs takes the disk out of the measurement),
# FLUX_BCAST_PROVIDER and FLUX_BCAST_BUILD as in ../sharness.d/00-provider.sh.
# shellcheck shell=sh
set -u

BCAST_TOP=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
BCAST_SCRIPTS=$BCAST_TOP/t/scripts
: "${FLUX_BCAST_BUILD:=$BCAST_TOP/target/release}"
BCAST_PLUGIN=$FLUX_BCAST_BUILD/libflux_bcast.so

error() {
	echo "$(basename "$0"): $*" >&2
	exit 1
}
test_seq() {
	seq "$1" "$2"
}
test_cmp() {
	diff -u "$@"
}
test_set_prereq() {
	:
}

test -e "$BCAST_PLUGIN" || error "$BCAST_PLUGIN does not exist: build first (cargo build --release)"
if test -z "${BENCH_AREA:-}"; then
	BENCH_AREA=$(mktemp -d "${TMPDIR:-/tmp}/flux-bench.XXXXXX") || exit 1
	export BENCH_AREA FLUX_BCAST_BUILD
	mkdir "$BENCH_AREA/bin" "$BENCH_AREA/cmd" || exit 1
	ln -s "$FLUX_BCAST_BUILD/flux-bcast" "$BENCH_AREA/cmd/flux-bcast" || exit 1
	if test "${FLUX_BCAST_PROVIDER:-}" = embedded || ! "$BCAST_TOP/t/scripts/real-flux"; then
		export FLUX_BCAST_PROVIDER=embedded
		ln -s "$FLUX_BCAST_BUILD/flux" "$BENCH_AREA/bin/flux" || exit 1
		PATH=$BENCH_AREA/bin:$PATH
	else
		export FLUX_BCAST_PROVIDER=flux
	fi
	export FLUX_EXEC_PATH="$BENCH_AREA/cmd${FLUX_EXEC_PATH:+:$FLUX_EXEC_PATH}"
	echo "# $(uname -srm), $(nproc) cores, $FLUX_BCAST_PROVIDER: $(flux version 2>/dev/null | head -n 1 | sed 's/.*[[:space:]]//')"
	flux start -s "${bench_shells:-8}" /bin/sh "$0" "$@"
	status=$?
	rm -rf "$BENCH_AREA"
	exit $status
fi
cd "$BENCH_AREA" || exit 1
BCAST_RC=$BENCH_AREA/userrc.lua
printf 'plugin.load { file = "%s", conf = {} }\n' "$BCAST_PLUGIN" >"$BCAST_RC" || exit 1

for part in 10-flux 30-job 40-data; do
	# shellcheck disable=SC1090
	. "$BCAST_TOP/t/sharness.d/$part.sh"
done

# seconds COMMAND...: runs it and prints how long it took; its output goes to
# standard error.
seconds() {
	begin=$(date +%s%N)
	"$@" >&2 || return 1
	end=$(date +%s%N)
	awk -v ns=$((end - begin)) 'BEGIN { printf "%.3f\n", ns / 1e9 }'
}
