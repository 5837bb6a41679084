#!/bin/sh

test_description='The helpers that the other tests stand on tell success from failure'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'run_timeout passes the exit status on' '
	run_timeout 10 true &&
	test_expect_code 3 run_timeout 10 sh -c "exit 3"
'

test_expect_success 'run_timeout reports a stopped command as such' '
	test_expect_code 154 run_timeout 0.1 sleep 100 &&
	! test_must_fail run_timeout 0.1 sleep 100
'

test_expect_success 'it stops commands that forward signals to their job' '
	test_expect_code 154 run_timeout 2 flux run -n1 sleep 20
'

test_expect_success 'generated data has the length asked for' '
	for size in 0 1 4097 1048576; do
		data_random $size data &&
		test "$(wc -c <data)" = $size || return 1
	done &&
	data_tar 3000001 data &&
	test "$(wc -c <data)" = 3000001 &&
	data_library lib.so &&
	test "$(wc -c <lib.so)" -gt 524288
'

test_expect_success 'a job without the plugin runs and answers' '
	job_start_plain plain 4 &&
	for r in 0 1 2 3; do
		job_exec $r "echo rank \$FLUX_TASK_RANK in \$PWD" >out &&
		grep "^rank $r in " out || return 1
	done
'

test_expect_success 'each task has a tmpdir of its own' '
	for r in 0 1 2 3; do
		test -d "$(job_tmpdir $r)" &&
		job_tmpdir $r >>tmpdirs || return 1
	done &&
	test "$(sort -u tmpdirs | wc -l)" = 4
'

test_expect_success 'the shell of each task is known' '
	for r in 0 1 2 3; do
		kill -0 "$(job_shell $r)" &&
		tr "\0" " " </proc/"$(job_shell $r)"/cmdline | grep shell || return 1
	done
'

test_expect_success 'exit status and errors of a command in the job come back' '
	test_expect_code 7 job_exec 2 "echo broken >&2; exit 7" 2>err &&
	grep broken err
'

test_expect_success 'job_has and job_lacks see files and differences' '
	data_random 5000 one && data_random 5000 two &&
	for r in 0 1 2 3; do
		cp one "$(job_tmpdir $r)/f" || return 1
	done &&
	job_has one "\$FLUX_JOB_TMPDIR/f" &&
	! job_has two "\$FLUX_JOB_TMPDIR/f" &&
	! job_has one "\$FLUX_JOB_TMPDIR/missing" &&
	job_lacks "\$FLUX_JOB_TMPDIR/missing" &&
	! job_lacks "\$FLUX_JOB_TMPDIR/f" &&
	job_clean_tmpdir f &&
	cp two "$(job_tmpdir 3)/.temporary" &&
	! job_clean_tmpdir f
'

test_expect_success 'the job ends as the tasks say' '
	job_finish &&
	job_wait_clean
'

test_expect_success 'a cancelled job is gone with its tmpdirs' '
	job_start_plain cancelled 2 &&
	job_end &&
	test ! -e "$(job_tmpdir 0)" &&
	test ! -e "$(job_tmpdir 1)"
'

test_expect_success DAC 'a forbidden directory refuses even root' '
	mkdir closed && chmod 555 closed &&
	test_must_fail touch closed/file
'

test_expect_success TMPFS 'a small file system fills up and goes away' '
	(
		test_cleanup=: &&
		mount_tmpfs small size=64k &&
		test_must_fail head -c 100000 /dev/zero >small/file
	) 2>err &&
	test_when_finished "unmount small" &&
	grep "No space" err
'

test_expect_success 'what a failed test did is shown, and what a file that broke off did last' '
	cat >x.log <<-EOT &&
	expecting success: first
	output 1

	skipping test: second

	expecting success: third
	output 3

	checking known breakage: fourth
	output 4
	EOT
	cat >x.tap <<-EOT &&
	ok 1 - first
	ok 2 # skip second
	not ok 3 - third
	not ok 4 - fourth # TODO known breakage
	1..4
	EOT
	"$BCAST_SCRIPTS/failures" x.tap x.log >out &&
	grep "x: test 3 failed" out &&
	test "$(grep output out)" = "output 3" &&
	sed "s/^not ok 3/ok 3/" x.tap >y.tap &&
	"$BCAST_SCRIPTS/failures" y.tap x.log >out &&
	test ! -s out &&
	sed "/1\.\./d" y.tap >z.tap &&
	"$BCAST_SCRIPTS/failures" z.tap x.log >out &&
	test "$(grep output out)" = "output 4"
'

test_expect_success 'a file that fails is run once more, and what failed at first is named' '
	mkdir -p tree/t/scripts results &&
	for s in tap recheck failures summary; do
		cp "$BCAST_SCRIPTS/$s" tree/t/scripts || return 1
	done &&
	cat >tree/t/t1-once.t <<-\EOT &&
	#!/bin/sh
	mkdir "$FLUX_BCAST_RESULTS/been" 2>/dev/null &&
		echo "not ok 1 - once" && echo 1..1 && exit 1
	echo "ok 1 - once" && echo 1..1
	EOT
	printf "#!/bin/sh\necho ok 1 - good && echo 1..1\n" >tree/t/t2-good.t &&
	chmod +x tree/t/*.t &&
	cat >run <<-\EOT &&
	cd tree || exit 1
	FLUX_BCAST_RESULTS=$(pwd)/../results FLUX_BCAST_RESULTS_BASE=$(pwd)/..
	export FLUX_BCAST_RESULTS FLUX_BCAST_RESULTS_BASE
	for f in t/*.t; do t/scripts/tap "$f"; done
	t/scripts/recheck
	t/scripts/summary "$FLUX_BCAST_RESULTS"
	EOT
	sh run >out &&
	grep "==> t1-once once more" out &&
	! grep "t2-good once more" out &&
	grep -A1 "^Failed when run for the first time" out | grep "results/t1-once: 1 - once" &&
	test "$(tail -n 1 out)" = "2 passed, 0 failed, 0 skipped"
'

test_expect_success 'one that fails twice has failed, and so have many' '
	printf "#!/bin/sh\necho ok 1 - bad && echo not ok 2 - bad && echo 1..2 && exit 1\n" \
		>tree/t/t3-bad.t &&
	chmod +x tree/t/t3-bad.t &&
	rm -r results && mkdir results && test_must_fail sh run >out &&
	grep -x "  results/t3-bad: 2 - bad" out &&
	test "$(tail -n 1 out)" = "3 passed, 1 failed, 0 skipped" &&
	for i in 4 5 6; do
		cp tree/t/t3-bad.t tree/t/t$i-bad.t || return 1
	done &&
	rm -r results && mkdir results && test_must_fail sh run >out &&
	! grep "once more" out &&
	test "$(tail -n 1 out)" = "5 passed, 5 failed, 0 skipped"
'

test_done
