# What this machine can do, as prerequisites of tests.
#   NONROOT   not run by root
#   DAC       file permissions are enforced (see test_under_flux)
#   TMPFS     may mount file systems (a file system of a few KiB can be made)
#   NETNS     may make network namespaces
#   MOUNTNS   may have mounts and a host name of its own
#   STRACE    may trace processes, and have their system calls fail
#   SPACE4G   4 GiB are free where the tests work, and what the next test file needs
#   LONG      FLUX_BCAST_TEST_LONG=t asks for it, see 00-provider.sh
# shellcheck shell=sh

test "$(id -u)" = 0 || test_set_prereq NONROOT

probe=$FLUX_BCAST_TEST_ROOT/probe.$$
if ! { mkdir -p "$probe" && : >"$probe/closed" && chmod 0 "$probe/closed"; }; then
	error "cannot write to $FLUX_BCAST_TEST_ROOT"
fi
cat "$probe/closed" >/dev/null 2>&1 || test_set_prereq DAC
if mount -t tmpfs -o size=64k none "$probe" 2>/dev/null; then
	umount "$probe" || error "cannot unmount $probe"
	test_set_prereq TMPFS
fi
rm -rf "$probe"

TRACE_SYNC="strace --seccomp-bpf -f -qq -y -e signal=none -e trace=fsync,fdatasync"
# shellcheck disable=SC2086 # several words
$TRACE_SYNC -e inject=fsync:error=EIO -o /dev/null true 2>/dev/null && test_set_prereq STRACE

unshare -n true 2>/dev/null && test_set_prereq NETNS
unshare --mount --uts true 2>/dev/null && test_set_prereq MOUNTNS

if test "$(df -Pk "$FLUX_BCAST_TEST_ROOT" | awk 'NR == 2 { print $4 }')" -gt 6291456; then
	test_set_prereq SPACE4G
fi

if test "$FLUX_BCAST_TEST_LONG" = t; then
	test_set_prereq LONG
fi
