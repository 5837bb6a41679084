#!/bin/sh

test_description='200 MiB of real data to 8 shells, and offsets beyond 32 bits'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

test_expect_success 'set up an archive of /usr/share of 200 MiB' '
	job_start main 8 &&
	data_tar 209715200 usr-share.tar
'

test_expect_success '200 MiB reach 8 shells' '
	run_timeout 300 flux bcast "$JOBID" usr-share.tar &&
	job_has usr-share.tar "\$FLUX_JOB_TMPDIR/usr-share.tar"
'

test_expect_success 'the tasks unpack it and find a file of this machine' '
	tar -tf usr-share.tar 2>/dev/null | sed -n 100p >member &&
	test -s member &&
	job_exec 5 "cd \"\$FLUX_JOB_TMPDIR\" && tar -xf usr-share.tar --occurrence=1 -T \"$PWD/member\"" &&
	cmp "/$(cat member)" "$(job_tmpdir 5)/$(cat member)"
'

test_expect_success SPACE4G 'a sparse file of 5 GiB stays sparse and right' '
	job_exec_all "rm \"\$FLUX_JOB_TMPDIR/usr-share.tar\"" &&
	echo begin >sparse &&
	truncate -s 2147483647 sparse && echo at 2 GiB >>sparse &&
	truncate -s 4294967295 sparse && echo at 4 GiB >>sparse &&
	truncate -s 5368709120 sparse && echo end >>sparse &&
	run_timeout 300 flux bcast --ranks=0,3 "$JOBID" sparse &&
	for r in 0 3; do
		copy=$(job_tmpdir $r)/sparse &&
		test "$(stat -c %s "$copy")" = "$(stat -c %s sparse)" &&
		test "$(stat -c %b "$copy")" -lt 100000 &&
		for offset in 0 2147483640 4294967290 5368709115; do
			cmp -i $offset -n 4096 sparse "$copy" || return 1
		done || return 1
	done
'

# 4.3 GiB of data that is all different, so that each offset counts.
LONG_BYTES=4617089843

test_expect_success LONG '4.3 GiB go whole along a chain of 3 shells' '
	rm -f sparse &&
	job_exec_all "rm -f \"\$FLUX_JOB_TMPDIR/sparse\"" &&
	data_random $LONG_BYTES big &&
	run_timeout 1200 flux bcast --ranks=0-2 -k 1 "$JOBID" big &&
	for r in 0 1 2; do
		cmp big "$(job_tmpdir $r)/big" || return 1
	done
'

test_expect_success LONG 'they come back whole' '
	rm -f "$(job_tmpdir 0)/big" "$(job_tmpdir 2)/big" &&
	run_timeout 1200 flux bcast --gather --ranks=1 "$JOBID" big back &&
	cmp big back/1/big &&
	rm -r back
'

test_expect_success LONG 'they get whole from one shell to another two' '
	run_timeout 1200 flux bcast --from=1 --ranks=0,2 "$JOBID" big &&
	for r in 0 2; do
		cmp big "$(job_tmpdir $r)/big" || return 1
	done &&
	rm -f big && job_exec_all "rm -f \"\$FLUX_JOB_TMPDIR/big\""
'

test_expect_success 'the job ends well' '
	job_finish
'

test_done
