#!/bin/sh

test_description='A panic in the plugin: the job fails once and clearly, and no shell crashes'

. "$(dirname "$0")/sharness.sh"
test_under_flux 3

# failed_once TEXT: the job has ended with one exception, which says TEXT, and
# nothing of it is left. With a second word others may follow: those of shells
# that are ended while they start tasks.
failed_once() {
	test_must_fail run_timeout 60 flux job attach "$JOBID" >out 2>err
	cat err &&
	grep "flux-bcast: internal error: $1 (at .*faulty.*lib.rs:[0-9]*" err >said &&
	test "$(wc -l <said)" = 1 &&
	run_timeout 60 flux job eventlog "$JOBID" >events &&
	cat events &&
	grep " exception " events >exceptions &&
	test "$(grep -c "internal error" exceptions)" = 1 &&
	test -n "$2" -o "$(grep -c severity=0 exceptions)" = 1 &&
	grep -F "$1" exceptions &&
	if grep -iE "panicked|abort|segmentation|core dump|signal (4|6|11)|lost" err events; then
		return 1
	fi &&
	job_wait_clean
}
shells_are_gone() {
	cat "$JOB"/shell.* >pids &&
	run_timeout 60 "$BCAST_SCRIPTS/gone" pids
}
job_start_faulty() {
	job_prepare "$1" 3 &&
	job_submit -o userrc="$PWD/faulty.lua" -o fault="$1" -o fault-when="$PWD/go" &&
	job_wait_ready
}

test_expect_success 'build a plugin with faults' '
	cc -Wall -shared -fPIC -o faulty.so "$SHARNESS_TEST_SRCDIR/src/faulty.c" -ldl \
		-DFAULTY="\"$FLUX_BCAST_BUILD/libflux_bcast_faulty.so\"" &&
	echo "plugin.load { file = \"$PWD/faulty.so\", conf = {} }" >faulty.lua &&
	capi_prefix &&
	capi_compile t/src/hostile.c -Wall -Wextra -Werror
'

test_expect_success 'without a fault it works as always' '
	job_start_faulty none &&
	data_random 100000 file &&
	run_timeout 60 flux bcast "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/file" &&
	job_finish
'

test_expect_success 'in a request: it and later ones are answered, the job fails' '
	job_start_faulty request &&
	run_timeout 60 ./hostile panic "$JOBID" &&
	failed_once "a fault in a request" &&
	shells_are_gone
'

test_expect_success 'in a timer' '
	job_start_faulty timer &&
	: >go &&
	failed_once "a fault in a timer" &&
	shells_are_gone
'

test_expect_success 'in a client: its broadcast ends' '
	job_start_faulty request &&
	data_random 1000000 file &&
	run_timeout 60 ./hostile panic "$JOBID" &&
	test_must_fail run_timeout 60 flux bcast --timeout=30s "$JOBID" file &&
	failed_once "a fault in a request" &&
	shells_are_gone
'

shell_knows FINISH

for topic in task.fork shell.finish; do
	needs=
	test $topic != shell.finish || needs=FINISH
	test_expect_success ${needs:+"$needs"} "in $topic" '
		job_prepare $topic 3 &&
		JOBID=$(run_timeout 60 flux submit -N3 -n3 -o userrc="$PWD/faulty.lua" \
			-o fault=$topic true) &&
		failed_once "a fault in $topic" starting
	'
done

test_done
