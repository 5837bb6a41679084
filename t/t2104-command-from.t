#!/bin/sh

test_description='flux bcast --from: files that are on a node of the job'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

test_expect_success 'start a job with a file on rank 5' '
	job_start main 8 &&
	data_random 3000000 file &&
	cp file "$(job_tmpdir 5)/result"
'

test_expect_success 'it gets to all others, under its path' '
	bcast --from=5 --json "$JOBID" result >out &&
	jq -e "[.ranks[] | .rank] | sort == [0, 1, 2, 3, 4, 6, 7]" out &&
	jq -e ".bytes == 3000000" out &&
	job_has file "\$FLUX_JOB_TMPDIR/result"
'

test_expect_success 'under another name, to some, the source included' '
	bcast --from=5 --ranks=0,5,7 -v "$JOBID" result copy >out &&
	test "$(wc -l <out)" = 3 &&
	job_has file "\$FLUX_JOB_TMPDIR/copy" "0 5 7" &&
	job_lacks "\$FLUX_JOB_TMPDIR/copy" "1 2 3 4 6"
'

test_expect_success 'directories, and absolute paths' '
	job_exec 5 "mkdir -p \"\$FLUX_JOB_TMPDIR/tree/sub\" &&
		echo deep >\"\$FLUX_JOB_TMPDIR/tree/sub/f\"" &&
	bcast --from=5 "$JOBID" "$(job_tmpdir 5)/tree" "$PWD/file" both/ --mkdir &&
	echo deep >deep &&
	job_has deep "\$FLUX_JOB_TMPDIR/both/tree/sub/f" "0 1 2 3 4 6 7" &&
	job_has file "\$FLUX_JOB_TMPDIR/both/file" "0 1 2 3 4 6 7"
'

test_expect_success 'from the leader, along a narrow tree' '
	bcast --from=0 -k 1 "$JOBID" result chain &&
	job_has file "\$FLUX_JOB_TMPDIR/chain" "1 2 3 4 5 6 7"
'

test_expect_success 'a source that is missing is missing on its rank' '
	bcast_fails 1 --from=5 "$JOBID" nosuchfile &&
	error_says "rank 5 (" nosuchfile "No such file"
'

test_expect_success 'a rank that the job does not have' '
	bcast_fails 1 --from=8 "$JOBID" result &&
	error_says "rank 8"
'

test_expect_success 'a target that fails: no rank has it' '
	job_exec 3 "echo x >\"\$FLUX_JOB_TMPDIR/taken\"" &&
	bcast_fails 1 --from=5 "$JOBID" result taken &&
	error_says "rank 3 (" "File exists" &&
	job_lacks "\$FLUX_JOB_TMPDIR/taken" "0 1 2 4 5 6 7" &&
	test_expect_code 1 bcast --partial --from=5 "$JOBID" result taken 2>err &&
	job_has file "\$FLUX_JOB_TMPDIR/taken" "0 1 2 4 6 7"
'

# A stopped shell holds the transfer up, since no window is as large as the file; the
# tree is such that shell 7 has data nevertheless.
test_expect_success 'a client that is killed leaves nothing behind' '
	data_random 67108864 huge &&
	cp huge "$(job_tmpdir 5)/huge" &&
	kill -STOP "$(job_shell 3)" &&
	bcast_background killed --from=5 -k 7 "$JOBID" huge &&
	transfer_begun 7 "$(job_tmpdir 7)" &&
	kill -KILL "$(bcast_client killed)" &&
	bcast_wait killed &&
	kill -CONT "$(job_shell 3)" &&
	nothing_open "$(job_tmpdir 7)" 7 &&
	job_lacks "\$FLUX_JOB_TMPDIR/huge" "0 1 2 3 4 6 7"
'

test_expect_success 'the next transfer works' '
	bcast --from=5 "$JOBID" result after &&
	job_has file "\$FLUX_JOB_TMPDIR/after" "0 1 2 3 4 6 7"
'

test_expect_success 'the shell of the source is killed in the middle' '
	kill -STOP "$(job_shell 3)" &&
	bcast_background lost --from=5 -k 7 --timeout=60s "$JOBID" huge &&
	transfer_begun 7 "$(job_tmpdir 7)" &&
	kill -KILL "$(job_shell 5)" &&
	kill -CONT "$(job_shell 3)" &&
	bcast_ends lost 1 &&
	grep "^flux-bcast: ERROR: " lost.err &&
	job_end
'

test_done
