#!/bin/sh

test_description='Jobs, sources and destinations that cannot be: one clear line, nothing changed'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'set up a job and a file' '
	data_random 10000 file &&
	job_start main 4
'

test_expect_success 'a job that never was' '
	bcast_fails 1 --jobid=1234 file &&
	error_says 1234
'

test_expect_success 'a job that has ended' '
	ended=$(run_timeout 30 flux submit -o userrc="$BCAST_RC" true) &&
	run_timeout 30 flux job wait-event "$ended" clean &&
	bcast_fails 1 --jobid="$ended" file &&
	error_says "$ended" ended
'

test_expect_success 'a job without the plugin: says how to load it' '
	job_start_plain plain 2 &&
	bcast_fails 1 "$JOBID" file &&
	error_says "$JOBID" plugin &&
	job_clean_tmpdir &&
	job_end &&
	job_use main
'

test_expect_success 'no Flux instance' '
	(
		unset FLUX_URI &&
		FLUX_URI=local:///nowhere/at/all &&
		export FLUX_URI &&
		bcast_fails 1 --jobid="$JOBID" file &&
		error_says "connect to Flux at local:///nowhere/at/all (FLUX_URI)"
	)
'

test_expect_success 'a source that does not exist' '
	bcast_fails 1 "$JOBID" nofile &&
	error_says nofile "No such file"
'

test_expect_success DAC 'a source that may not be read' '
	data_random 10 closed && chmod 0 closed &&
	bcast_fails 1 "$JOBID" closed &&
	error_says closed "Permission denied"
'

test_expect_success 'sources that are no files: a pipe does not hang' '
	mkfifo pipe &&
	bcast_fails 1 "$JOBID" pipe &&
	error_says pipe &&
	bcast_fails 1 "$JOBID" /dev/null &&
	error_says /dev/null
'

test_expect_success 'one bad source among good ones: nothing is sent' '
	bcast_fails 1 --jobid="$JOBID" --dest=some/ --mkdir file nofile &&
	error_says nofile &&
	job_clean_tmpdir
'

test_expect_success 'two sources of one name' '
	mkdir -p other && data_random 5 other/file &&
	bcast_fails 1 --jobid="$JOBID" --dest=some/ --mkdir file other/file &&
	error_says file &&
	job_clean_tmpdir
'

for dest in ../escaped a/../../escaped sub/../../escaped ..; do
	test_expect_success "a destination that leaves the tmpdir: $dest" "
		bcast_fails 1 \"\$JOBID\" file $dest &&
		error_says $dest &&
		job_lacks '\$FLUX_JOB_TMPDIR/../escaped' &&
		job_clean_tmpdir
	"
done

test_expect_success 'a destination that leaves the tmpdir by a symbolic link' '
	mkdir -p outside &&
	for r in 0 1 2 3; do
		ln -s "$PWD/outside" "$(job_tmpdir $r)/link" || return 1
	done &&
	bcast_fails 1 "$JOBID" file link/f &&
	error_says link &&
	has_only outside &&
	job_exec_all "rm \"\$FLUX_JOB_TMPDIR/link\""
'

test_expect_success 'a destination in a directory that is missing' '
	bcast_fails 1 "$JOBID" file no/such/f &&
	error_says "/no: No such file" &&
	bcast_fails 1 "$JOBID" file "$PWD/not/here/f" &&
	error_says "/not: No such file" &&
	job_clean_tmpdir
'

test_expect_success 'a name that is too long' '
	long=$(printf "%0300d" 0) &&
	bcast_fails 1 "$JOBID" file "$long" &&
	error_says "too long" &&
	job_clean_tmpdir
'

test_expect_success 'ranks that the job does not have' '
	bcast_fails 1 --ranks=2-5 "$JOBID" file &&
	error_says "ranks 4-5" 0-3 &&
	bcast_fails 1 --exclude=0-3 "$JOBID" file &&
	bcast_fails 1 --hosts=nosuchhost "$JOBID" file &&
	error_says nosuchhost &&
	job_clean_tmpdir
'

test_expect_success 'after all this the service still works' '
	bcast "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/file" &&
	job_clean_tmpdir file &&
	job_finish
'

test_done
