#!/bin/sh

test_description='From a node, back from the nodes, and what has been put there'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'start a job with a file of its own on each rank' '
	job_start main 4 &&
	for r in $(job_ranks); do
		data_random $((r * 100000 + 1)) own.$r &&
		cp own.$r "$(job_tmpdir $r)/own" || return 1
	done
'

for rank in 0 3; do
	test_expect_success "--from: the file of rank $rank goes to all others" "
		bcast --from=$rank \"\$JOBID\" own from$rank &&
		for r in \$(job_ranks); do
			if test \$r = $rank; then
				job_lacks '\$FLUX_JOB_TMPDIR/from$rank' \$r
			else
				job_has own.$rank '\$FLUX_JOB_TMPDIR/from$rank' \$r
			fi || return 1
		done
	"
done

test_expect_success '--from: with --ranks the source gets one as well' '
	bcast --from=1 --ranks=0-1 "$JOBID" own both &&
	job_has own.1 "\$FLUX_JOB_TMPDIR/both" "0 1" &&
	job_lacks "\$FLUX_JOB_TMPDIR/both" "2 3"
'

test_expect_success '--from: a file that is not there, a rank that is not there' '
	bcast_fails 1 --from=2 "$JOBID" nofile x &&
	error_says "rank 2" nofile &&
	bcast_fails 1 --from=7 "$JOBID" own x &&
	error_says 7 &&
	job_lacks "\$FLUX_JOB_TMPDIR/x"
'

test_expect_success '--gather: each file comes back under its rank' '
	bcast --gather --mkdir "$JOBID" own gathered &&
	for r in $(job_ranks); do
		cmp own.$r gathered/$r/own || return 1
	done
'

test_expect_success '--gather of some ranks, one of which has no such file: nothing is left' '
	job_exec 2 "rm \"\$FLUX_JOB_TMPDIR/own\"" &&
	mkdir some &&
	bcast_fails 1 --gather --ranks=1-3 "$JOBID" own some &&
	error_says "rank 2" own &&
	find some -type f >left &&
	test_must_be_empty left
'

test_expect_success '--list: what was put there, with size and digest, and nothing else' '
	data_random 1234 listed &&
	bcast "$JOBID" listed &&
	bcast --list "$JOBID" >out &&
	cat out &&
	for r in $(job_ranks); do
		grep "^$r [^ ]* 1234 [0-9a-f]\{64\} $(job_tmpdir $r)/listed$" out || return 1
	done &&
	grep "/from0$" out &&
	! grep "/own$" out
'

test_expect_success '--remove PATH removes that, --remove all of ours, but nothing else' '
	bcast --remove --ranks=1 "$JOBID" "$(job_tmpdir 1)/from0" &&
	job_lacks "\$FLUX_JOB_TMPDIR/from0" 1 &&
	job_has own.0 "\$FLUX_JOB_TMPDIR/from0" "2 3" &&
	bcast --remove "$JOBID" &&
	job_lacks "\$FLUX_JOB_TMPDIR/listed" &&
	job_lacks "\$FLUX_JOB_TMPDIR/from3" &&
	job_has own.3 "\$FLUX_JOB_TMPDIR/own" 3 &&
	bcast --list "$JOBID" >out &&
	test_must_be_empty out
'

test_expect_success '--remove leaves alone what was changed since' '
	bcast "$JOBID" listed changed &&
	job_exec 2 "echo more >>\"\$FLUX_JOB_TMPDIR/changed\"" &&
	bcast --remove "$JOBID" || true &&
	job_exec 2 "test -e \"\$FLUX_JOB_TMPDIR/changed\"" &&
	job_lacks "\$FLUX_JOB_TMPDIR/changed" "0 1 3"
'

test_expect_success 'options that mean nothing there are refused by name' '
	bcast_fails 2 --list --force "$JOBID" &&
	error_says --force --list &&
	bcast_fails 2 --remove --mode=644 "$JOBID" &&
	error_says --mode
'

test_expect_success 'the job ends well' '
	job_finish
'

test_done
