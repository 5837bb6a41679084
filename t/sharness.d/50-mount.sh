# Small file systems: one that gets full, one that is read-only.
# shellcheck shell=sh

# mount_tmpfs DIR OPTIONS: mounts a tmpfs on DIR (which gets made) until the end
# of the test that calls it. Needs the prerequisite TMPFS.
mount_tmpfs() {
	mkdir -p "$1" &&
	mount -t tmpfs -o "$2" none "$1" &&
	test_when_finished "umount '$1'"
}
