#!/bin/sh

test_description='One rank cannot write: everybody is told, nobody is left with half a file'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

# The directory d of each shell's tmpdir is where the files go.
test_expect_success 'start a job with a directory on each shell' '
	job_start main 8 &&
	job_exec_all "mkdir \"\$FLUX_JOB_TMPDIR/d\"" &&
	data_random 3000000 file
'

# everybody_clean [RANKS]: nothing in d, nothing open, the service works.
everybody_clean() {
	for r in ${1:-$(job_ranks)}; do
		nothing_open "$(job_tmpdir "$r")" "$r" &&
		has_only "$(job_tmpdir "$r")/d" || return 1
	done
}

test_expect_success DAC 'a directory on rank 3 that may not be written' '
	chmod 555 "$(job_tmpdir 3)/d" &&
	test_when_finished "chmod 755 \"$(job_tmpdir 3)/d\"" &&
	bcast_fails 1 "$JOBID" file d/f &&
	error_says "rank 3 (" "Permission denied" "$(job_tmpdir 3)/d" &&
	everybody_clean
'

test_expect_success 'a directory on rank 5 that is a file' '
	job_exec 5 "rmdir \"\$FLUX_JOB_TMPDIR/d\"; : >\"\$FLUX_JOB_TMPDIR/d\"" &&
	test_when_finished "rm \"$(job_tmpdir 5)/d\" && mkdir \"$(job_tmpdir 5)/d\"" &&
	bcast_fails 1 "$JOBID" file d/f &&
	error_says "rank 5 (" "Not a directory" &&
	everybody_clean "0 1 2 3 4 6 7"
'

test_expect_success 'a directory that is missing on ranks 2, 3 and 6: said once' '
	for r in 2 3 6; do
		job_exec $r "rmdir \"\$FLUX_JOB_TMPDIR/d\"" || return 1
	done &&
	test_when_finished "for r in 2 3 6; do mkdir \"\$(job_tmpdir \$r)/d\" || return 1; done" &&
	bcast_fails 1 "$JOBID" file "{{tmpdir}}/d/f" &&
	error_says "No such file" &&
	everybody_clean "0 1 4 5 7"
'

test_expect_success 'a directory in the way of the file on all ranks but one: said once' '
	for r in 1 2 3 4 5 6 7; do
		job_exec $r "mkdir \"\$FLUX_JOB_TMPDIR/file\"" || return 1
	done &&
	test_when_finished "for r in 1 2 3 4 5 6 7; do rmdir \"\$(job_tmpdir \$r)/file\" || return 1; done" &&
	bcast_fails 1 --force --partial "$JOBID" file &&
	test "$(wc -l <err)" = 1 &&
	error_says "ranks 1-7 (" "open \$FLUX_JOB_TMPDIR/file: Is a directory" &&
	job_exec 0 "rm \"\$FLUX_JOB_TMPDIR/file\""
'

test_expect_success TMPFS 'a file system on rank 1 that gets full' '
	mount_tmpfs "$(job_tmpdir 1)/d" size=1m &&
	bcast_fails 1 "$JOBID" file d/f &&
	error_says "rank 1 (" "No space left" &&
	everybody_clean
'

test_expect_success TMPFS 'a file system that gets full in mid-transfer' '
	mount_tmpfs "$(job_tmpdir 6)/d" size=4m &&
	data_random 3900000 almost &&
	head -c 3000000 /dev/zero >"$(job_tmpdir 6)/ballast" &&
	bcast "$JOBID" almost d/almost &&
	bcast_fails 1 "$JOBID" file d/f &&
	error_says "rank 6 (" "No space left" &&
	for r in $(job_ranks); do
		has_only "$(job_tmpdir "$r")/d" almost || return 1
	done &&
	job_has almost "\$FLUX_JOB_TMPDIR/d/almost" &&
	job_exec_all "rm \"\$FLUX_JOB_TMPDIR/d/almost\""
'

test_expect_success TMPFS 'standard input, whose length nobody knows, to a full file system' '
	mount_tmpfs "$(job_tmpdir 7)/d" size=1m &&
	test_expect_code 1 bcast --jobid="$JOBID" --name=f --dest=d/ - <file 2>err &&
	error_says "rank 7 (" "No space left" &&
	everybody_clean
'

test_expect_success TMPFS 'a read-only file system on the leader' '
	mount_tmpfs "$(job_tmpdir 0)/d" ro &&
	bcast_fails 1 "$JOBID" file d/f &&
	error_says "rank 0 (" "Read-only" &&
	everybody_clean
'

test_expect_success TMPFS 'a file system out of inodes' '
	mount_tmpfs "$(job_tmpdir 4)/d" size=10m,nr_inodes=1 &&
	bcast_fails 1 "$JOBID" file d/f &&
	error_says "rank 4 (" "No space left" &&
	everybody_clean
'

test_expect_success TMPFS '--force to a full file system keeps the old file' '
	job_exec_all "echo old >\"\$FLUX_JOB_TMPDIR/keep\"" &&
	mount_tmpfs "$(job_tmpdir 2)/d" size=1m &&
	for r in $(job_ranks); do
		echo old >"$(job_tmpdir $r)/d/f" || return 1
	done &&
	bcast_fails 1 --force "$JOBID" file d/f &&
	error_says "rank 2 (" "No space left" &&
	for r in $(job_ranks); do
		has_only "$(job_tmpdir "$r")/d" f &&
		test "$(cat "$(job_tmpdir $r)/d/f")" = old &&
		rm "$(job_tmpdir $r)/d/f" || return 1
	done
'

test_expect_success TMPFS '--partial: the others have it' '
	mount_tmpfs "$(job_tmpdir 2)/d" size=1m &&
	bcast_fails 1 --partial "$JOBID" file d/f &&
	error_says "rank 2 (" "No space left" &&
	job_has file "\$FLUX_JOB_TMPDIR/d/f" "0 1 3 4 5 6 7" &&
	has_only "$(job_tmpdir 2)/d" &&
	job_exec_all "rm -f \"\$FLUX_JOB_TMPDIR/d/f\""
'

test_expect_success TMPFS '--json tells the failed rank from the cancelled ones' '
	mount_tmpfs "$(job_tmpdir 3)/d" size=1m &&
	test_expect_code 1 bcast --json "$JOBID" file d/f >out &&
	jq -e ".ranks[] | select(.rank == 3) | .state == \"failed\" and .errno == 28" out &&
	jq -e "[.ranks[] | select(.rank != 3 and .state == \"cancelled\")] | length == 7" out
'

test_expect_success 'links in a circle' '
	job_exec 1 "ln -s loop \"\$FLUX_JOB_TMPDIR/loop\"" &&
	bcast_fails 1 "$JOBID" file "{{tmpdir}}/loop/f" &&
	error_says "rank 1" &&
	job_exec 1 "rm \"\$FLUX_JOB_TMPDIR/loop\""
'

test_expect_success 'after all this the service works and the job ends well' '
	bcast "$JOBID" file d/f &&
	job_has file "\$FLUX_JOB_TMPDIR/d/f" &&
	job_finish
'

test_done
