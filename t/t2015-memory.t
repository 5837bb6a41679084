#!/bin/sh

test_description='Memory of shells and client does not grow with the file'

. "$(dirname "$0")/sharness.sh"
test_under_flux 3

# peak RANK: peak of the resident memory of that shell in KiB, since `forget`.
peak() {
	awk '$1 == "VmHWM:" { print $2 }' "/proc/$(job_shell "$1")/status"
}
forget() {
	for r in $(job_ranks); do
		echo 5 >"/proc/$(job_shell "$r")/clear_refs" || return 1
	done
}

# A chain, so that one shell only receives, one only relays and one does both.
# measure SIZE: sends that many bytes; leaves the peaks in shell.SIZE.RANK and
# client.SIZE.
measure() {
	head -c "$1" /dev/zero >source &&
	forget &&
	peak_memory "client.$1" flux bcast -k 1 "$JOBID" source "$PWD/to/{{node.id}}" &&
	for r in $(job_ranks); do
		peak "$r" >"shell.$1.$r" &&
		cmp source "to/$r" &&
		rm "to/$r" || return 1
	done
}

# at_most_more SMALL LARGE KIB: the number in LARGE exceeds that in SMALL by KIB
# at most.
at_most_more() {
	echo "$1: $(cat "$1") KiB, $2: $(cat "$2") KiB" &&
	test "$(cat "$2")" -le $(($(cat "$1") + $3))
}

test_expect_success SPACE4G 'send 1 MiB and 1 GiB down a chain of 3 shells' '
	mkdir to &&
	job_start main 3 &&
	measure 1048576 &&
	measure 1048576 &&
	measure 1073741824
'

for rank in 0 1 2; do
	test_expect_success SPACE4G "shell $rank: 1 GiB takes at most 8 MiB more than 1 MiB" "
		at_most_more shell.1048576.$rank shell.1073741824.$rank 8192
	"
done

test_expect_success SPACE4G 'client: 1 GiB takes at most 8 MiB more than 1 MiB' '
	at_most_more client.1048576 client.1073741824 8192
'

test_expect_success SPACE4G 'a second GiB takes nothing more: nothing leaks' '
	cp shell.1073741824.1 first &&
	measure 1073741824 &&
	at_most_more first shell.1073741824.1 2048 &&
	job_finish
'

test_done
