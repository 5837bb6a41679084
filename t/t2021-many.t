#!/bin/sh

test_description='A thousand transfers to one job: none fails, and nothing grows'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2

test_expect_success 'set up' '
	capi_prefix &&
	capi_compile t/src/capi-many.c -Wall -Wextra -Werror &&
	job_start main 2
'

# holds RANK: descriptors and KiB of memory that the shell has.
holds() {
	holds_pid=$(job_shell "$1") &&
	find "/proc/$holds_pid/fd" -type l | wc -l &&
	awk '$1 == "VmRSS:" { print $2 }' "/proc/$holds_pid/status"
}

# holds_no_more_than DESCRIPTORS RANK: waits until that is so: the thread of the last
# transfer may close what it has a moment after the client has its answer.
holds_no_more_than() {
	run_timeout 60 sh -c 'until test "$(ls "/proc/$0/fd" | wc -l)" -le "$1"; do sleep 0.05; done' \
		"$(job_shell "$2")" "$1"
}

# The first ones fill what is kept for use again.
test_expect_success 'the first hundred' '
	run_timeout 120 ./capi-many "$JOBID" 100 &&
	nothing_open "$(job_tmpdir 0)" 0 && nothing_open "$(job_tmpdir 1)" 1 &&
	for r in 0 1; do
		holds $r >before.$r || return 1
	done
'

test_expect_success 'a thousand more' '
	run_timeout 300 ./capi-many "$JOBID" 1000 &&
	echo "transfer 1000" >last &&
	job_has last "\$FLUX_JOB_TMPDIR/many"
'

# 4 MiB are 4 KiB for each of them.
test_expect_success 'no shell holds more than before' '
	nothing_open "$(job_tmpdir 0)" 0 && nothing_open "$(job_tmpdir 1)" 1 &&
	for r in 0 1; do
		holds_no_more_than "$(head -n1 before.$r)" $r &&
		holds $r >after.$r &&
		paste before.$r after.$r &&
		test "$(head -n1 after.$r)" -le "$(head -n1 before.$r)" &&
		test "$(tail -n1 after.$r)" -lt "$(($(tail -n1 before.$r) + 4096))" || return 1
	done
'

test_expect_success 'the job ends well' '
	job_clean_tmpdir many &&
	job_finish
'

test_done
