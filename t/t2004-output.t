#!/bin/sh

test_description='What flux bcast prints'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'start a job' '
	job_start main 4 &&
	data_random 4000000 file
'

test_expect_success 'no progress where there is no terminal' '
	bcast "$JOBID" file auto >out 2>err &&
	test_must_be_empty out && test_must_be_empty err &&
	bcast --progress=never "$JOBID" file never >out 2>err &&
	test_must_be_empty out && test_must_be_empty err
'

test_expect_success '--progress=always shows it, on standard error' '
	bcast --progress=always "$JOBID" file always >out 2>err &&
	test_must_be_empty out &&
	test -s err
'

test_expect_success '--stats prints bytes, ranks and time' '
	bcast --stats "$JOBID" file stats >out &&
	grep -E "3\.[0-9]+ ?Mi?B? to 4 ranks in [0-9.]+ s" out
'

test_expect_success 'equal errors of several ranks are one line' '
	bcast "$JOBID" file same &&
	mkdir shared && : >shared/f &&
	bcast_fails 1 "$JOBID" file "$PWD/shared/f" &&
	error_says "$PWD/shared/f: File exists" "ranks 0-3 (" &&
	test "$(wc -l <err)" = 1
'

test_expect_success '--json after a failure is one object, too' '
	test_expect_code 1 bcast --json "$JOBID" file same >out 2>err &&
	jq -e -s "length == 1 and .[0].errno == 17" out &&
	jq -e "[.ranks[] | select(.state == \"failed\" and .errno == 17)] | length > 0" out
'

test_expect_success 'names that are no text are hex in JSON, and whole' '
	name=$(printf "not\377text") &&
	cp file "$name" &&
	bcast --json "$JOBID" "$name" >out &&
	jq -e ".ranks[0].paths[0].hex | endswith(\"6e6f74ff74657874\")" out
'

test_expect_success 'the job ends well' '
	job_finish
'

test_done
