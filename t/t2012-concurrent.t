#!/bin/sh

test_description='Several transfers at once do not get in each other'\''s way'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

test_expect_success 'start a job' '
	job_start main 8
'

test_expect_success 'two at once' '
	for i in 1 2; do
		data_random 10000000 two$i &&
		bcast_background two$i "$JOBID" two$i || return 1
	done &&
	for i in 1 2; do
		bcast_ends two$i 0 &&
		job_has two$i "\$FLUX_JOB_TMPDIR/two$i" || return 1
	done
'

test_expect_success 'eight at once, of different sizes and arities' '
	for i in 1 2 3 4 5 6 7 8; do
		data_random $((i * i * 50000 + i)) eight$i &&
		bcast_background eight$i -k $i "$JOBID" eight$i || return 1
	done &&
	for i in 1 2 3 4 5 6 7 8; do
		bcast_ends eight$i 0 &&
		job_has eight$i "\$FLUX_JOB_TMPDIR/eight$i" || return 1
	done
'

test_expect_success 'four at once to one name: one of them, whole, and the others are refused' '
	for i in 1 2 3 4; do
		data_random 2000000 name$i &&
		bcast_background name$i "$JOBID" name$i one || return 1
	done &&
	won=0 &&
	for i in 1 2 3 4; do
		if bcast_ends name$i 0; then
			won=$((won + 1)) && winner=$i
		else
			grep "File exists" name$i.err || return 1
		fi
	done &&
	test $won -le 1 &&
	if test $won = 1; then
		job_has name$winner "\$FLUX_JOB_TMPDIR/one"
	else
		job_lacks "\$FLUX_JOB_TMPDIR/one"
	fi
'

test_expect_success 'four at once to one name with --force: each rank has one of them, whole' '
	for i in 1 2 3 4; do
		bcast_background force$i --force "$JOBID" name$i forced || return 1
	done &&
	for i in 1 2 3 4; do
		bcast_ends force$i 0 || return 1
	done &&
	for r in $(job_ranks); do
		copy=$(job_tmpdir $r)/forced &&
		{ cmp -s name1 "$copy" || cmp -s name2 "$copy" || cmp -s name3 "$copy" ||
			cmp name4 "$copy"; } || return 1
	done
'

# All shells are on one host here, and so write to one file.
test_expect_success 'eight shells with one path: it is whole, whoever comes last' '
	mkdir shared &&
	for i in 1 2 3 4; do
		bcast_background shared$i --force "$JOBID" name$i "$PWD/shared/one" || return 1
	done &&
	for i in 1 2 3 4; do
		bcast_ends shared$i 0 || return 1
	done &&
	has_only shared one &&
	{ cmp -s name1 shared/one || cmp -s name2 shared/one || cmp -s name3 shared/one ||
		cmp name4 shared/one; } &&
	bcast "$JOBID" two1 "$PWD/shared/two" &&
	cmp two1 shared/two &&
	has_only shared one two
'

test_expect_success 'one that fails does not touch the others' '
	job_exec 4 "echo in the way >\"\$FLUX_JOB_TMPDIR/way\"" &&
	bcast_background good "$JOBID" two1 good &&
	bcast_background bad "$JOBID" two2 way &&
	bcast_ends bad 1 &&
	bcast_ends good 0 &&
	job_has two1 "\$FLUX_JOB_TMPDIR/good" &&
	job_lacks "\$FLUX_JOB_TMPDIR/way" "0 1 2 3 5 6 7"
'

test_expect_success 'two jobs at once' '
	job_start second 8 &&
	bcast_background other "$JOBID" two2 other &&
	job_use main &&
	bcast "$JOBID" two1 other &&
	bcast_ends other 0 &&
	job_has two1 "\$FLUX_JOB_TMPDIR/other" &&
	job_use second &&
	job_has two2 "\$FLUX_JOB_TMPDIR/other" &&
	job_finish &&
	job_use main
'

test_expect_success 'the tasks write much and get signals meanwhile' '
	job_exec_all "{ seq 1 200000; echo written >\"\$FLUX_JOB_TMPDIR/written\"; } >&2 &" &&
	bcast "$JOBID" two1 meanwhile &&
	run_timeout 30 flux job kill -s CONT "$JOBID" &&
	job_has two1 "\$FLUX_JOB_TMPDIR/meanwhile" &&
	job_finish
'

test_done
