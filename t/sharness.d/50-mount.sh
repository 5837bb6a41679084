# Small file systems: one that gets full, one that is read-only.
# shellcheck shell=sh

# mount_tmpfs DIR OPTIONS: mounts a tmpfs on DIR (which gets made) until the end
# of the test that calls it. Needs the prerequisite TMPFS.
mount_tmpfs() {
	mkdir -p "$1" &&
	mount -t tmpfs -o "$2" none "$1" &&
	test_when_finished "unmount '$1'"
}

# unmount DIR: as soon as nobody has anything open there any more. A shell may
# close what it had open a moment after the client has ended.
unmount() {
	run_timeout 60 sh -c 'until umount "$1"; do sleep 0.05; done' unmount "$1"
}
