# Files to send.
# shellcheck shell=sh

# find_files [CONDITION...]: sizes and names of the files of /usr/share and
# /usr/lib that may be read, the largest excepted. (find fails over a directory
# that it may not read; what counts is that it found something.)
find_files() {
	{
		find /usr/share /usr/lib -xdev -type f -readable -size -16384k "$@" \
			-printf '%s %p\n' 2>/dev/null
		true
	} >found &&
	test -s found &&
	cat found
}

# data_random BYTES FILE: that many bytes that cannot be guessed or compressed.
data_random() {
	head -c "$1" /dev/urandom >"$2" &&
	test "$(stat -c %s "$2")" = "$1"
}

# data_library FILE: a copy of a large shared library of this machine.
data_library() {
	lib=$(find /usr/lib /lib -type f -name '*.so*' -size +512k -size -65536k \
		-printf '%s %p\n' | sort -n | awk 'END { sub(/^[^ ]* /, ""); print }') &&
	cp "$lib" "$1" &&
	test -s "$1"
}

# data_tar BYTES FILE: the first BYTES of an archive of /usr/share (and of
# /usr/lib where that is too small). Made once for all test files of a run.
data_tar() {
	cache=${FLUX_BCAST_TEST_CACHE:-$PWD}/usr-share.$1.tar
	if ! test -e "$cache"; then
		find_files >files.all &&
		awk -v want="$1" '
			{ size = $1; sub(/^[^ ]* /, ""); print; sum += size }
			sum > want { exit }' files.all >files.some &&
		tar -cf "$cache.$$" --verbatim-files-from -T files.some 2>/dev/null &&
		truncate -s "$1" "$cache.$$" &&
		mv "$cache.$$" "$cache" || return 1
	fi
	ln -f "$cache" "$2" 2>/dev/null || cp "$cache" "$2"
}

# peak_memory FILE COMMAND...: runs COMMAND and writes the peak of its resident
# memory in KiB to FILE.
peak_memory() {
	peak_out=$1
	shift
	run_timeout 300 python3 "$BCAST_SCRIPTS/peak-memory" "$peak_out" "$@"
}
