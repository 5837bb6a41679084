#!/bin/sh

test_description='Each wish of the design discussion of file broadcast, by name

Other files test the same things in depth; this one says that all are there.'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

test_expect_success 'start a job of 8 shells and make a file of 25 chunks and a bit' '
	job_start main 8 &&
	data_random 103000 file
'

test_expect_success '1. a C API copies files to a job' '
	capi_prefix &&
	capi_compile t/examples/bcast-blocking.c &&
	run_timeout 60 ./bcast-blocking "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/file"
'

test_expect_success '2. the service belongs to the job: another job has another one' '
	job_start other 2 &&
	data_random 100 other &&
	bcast "$JOBID" other &&
	job_has other "\$FLUX_JOB_TMPDIR/other" &&
	job_end &&
	job_use main &&
	job_lacks "\$FLUX_JOB_TMPDIR/other"
'

test_expect_success '3. options come from the jobspec' '
	run_timeout 60 flux run -N3 -n3 -o userrc="$BCAST_RC" \
		-o bcast.source="$PWD/file" -o bcast.env=WHERE -o bcast.dest=there \
		sh -c "sha256sum <\"\$WHERE\"; basename \"\$WHERE\"" >out &&
	test "$(grep -c "^$(sha256sum <file)$" out)" = 3 &&
	test "$(grep -c "^there$" out)" = 3
'

test_expect_success '4. RPCs address shell ranks: a rank that is not there is refused' '
	bcast --ranks=5 --dest=ranked "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/ranked" 5 &&
	bcast_fails 1 --ranks=8 "$JOBID" file &&
	error_says "rank 8"
'

test_expect_success '5. a virtual k-ary tree: every arity reaches every rank' '
	for k in 1 2 7 100; do
		bcast -k $k --dest=k$k "$JOBID" file &&
		job_has file "\$FLUX_JOB_TMPDIR/k$k" || return 1
	done
'

# A file that no window holds, on its way to to/RANK; shell 1 is stopped.
send_past_1() {
	kill -STOP "$(job_shell 1)" &&
	bcast_background past -k "$1" --batch=4k --window=256k --force \
		"$JOBID" large "$PWD/to/{{node.id}}"
}

test_expect_success '5. the tree is that of -k: in a star nobody waits for shell 1, ...' '
	mkdir to && data_random 3000000 large &&
	test_when_finished "kill -CONT $(job_shell 1)" &&
	send_past_1 7 &&
	for r in 0 2 3 4 5 6 7; do
		transfer_begun $r "$PWD/to" || return 1
	done &&
	kill -CONT "$(job_shell 1)" &&
	bcast_ends past 0
'

test_expect_success '5. ... of three children, only those below it, ...' '
	test_when_finished "kill -CONT $(job_shell 1)" &&
	send_past_1 3 &&
	for r in 0 2 3 7; do
		transfer_begun $r "$PWD/to" || return 1
	done &&
	nothing_open "$PWD/to" "4 5 6" &&
	kill -CONT "$(job_shell 1)" &&
	bcast_ends past 0
'

# The first shell has much of what it may be ahead of the one that it feeds.
test_expect_success '5. ... and in a chain everybody' '
	test_when_finished "kill -CONT $(job_shell 1)" &&
	send_past_1 1 &&
	transfer_begun 0 "$PWD/to" 131072 &&
	nothing_open "$PWD/to" "2 3 4 5 6 7" &&
	kill -CONT "$(job_shell 1)" &&
	bcast_ends past 0 &&
	for r in $(job_ranks); do
		cmp large to/$r || return 1
	done
'

test_expect_success '6. the name of the service is in the eventlog of the job' '
	flux job eventlog -p guest.exec.eventlog "$JOBID" >log &&
	grep "shell.init" log | grep "service=\"*[0-9]*-shell-"
'

test_expect_success '7. chunks of 4 KiB, which may be sent alone' '
	bcast --batch=4k --dest=chunks "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/chunks" &&
	bcast_fails 2 --batch=4095 --dest=chunks "$JOBID" file &&
	error_says "one chunk (4096)"
'

test_expect_success '8. the per-job directory FLUX_JOB_TMPDIR is the default' '
	bcast -v --force "$JOBID" file >out &&
	for r in $(job_ranks); do
		grep "$(job_tmpdir "$r")/file$" out || return 1
	done
'

# Sends what comes through the pipe `growing`, in the background.
send_growing() {
	bcast --dest=streamed "$JOBID" - <growing &
	growing_pid=$!
}

test_expect_success '9. data streams: what a pipe without an end has is with the last rank' '
	mkfifo growing &&
	send_growing &&
	exec 9>growing &&
	cat large >&9 &&
	transfer_begun 7 "$(job_tmpdir 7)" &&
	job_lacks "\$FLUX_JOB_TMPDIR/streamed" &&
	cat file >&9 &&
	exec 9>&- &&
	wait "$growing_pid" &&
	cat large file >both &&
	job_has both "\$FLUX_JOB_TMPDIR/streamed"
'

test_expect_success '10. the service is the same on every rank: any of them can be the first' '
	for r in 0 4 7; do
		bcast --ranks=$r-7 --dest=from$r "$JOBID" file &&
		job_has file "\$FLUX_JOB_TMPDIR/from$r" "$r 7" || return 1
	done &&
	job_lacks "\$FLUX_JOB_TMPDIR/from4" "0 1 2 3"
'

test_expect_success '11. errors of every rank come back, and open flags can be given' '
	data_random 50 old &&
	job_exec 3 "cp \"$PWD/old\" \"\$FLUX_JOB_TMPDIR/flags\"" &&
	bcast_fails 1 --dest=flags "$JOBID" file &&
	error_says "rank 3" "File exists" &&
	job_has old "\$FLUX_JOB_TMPDIR/flags" 3 &&
	job_lacks "\$FLUX_JOB_TMPDIR/flags" "0 1 2 4 5 6 7" &&
	bcast --force --dest=flags "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/flags" &&
	bcast --append --dest=flags "$JOBID" old &&
	cat file old >both &&
	job_has both "\$FLUX_JOB_TMPDIR/flags"
'

test_expect_success '12. a subset of ranks, any path, or one that the service chooses' '
	mkdir elsewhere &&
	bcast --ranks=2,6 --dest="$PWD/elsewhere/on-{{node.id}}" "$JOBID" file &&
	cmp file elsewhere/on-2 &&
	cmp file elsewhere/on-6 &&
	test "$(ls elsewhere | wc -l)" = 2 &&
	run_timeout 60 flux run -N2 -n2 -o userrc="$BCAST_RC" \
		-o bcast.source="$PWD/file" -o bcast.unique -o bcast.env=CHOSEN \
		sh -c "sha256sum <\"\$CHOSEN\"; case \"\$CHOSEN\" in \"\$FLUX_JOB_TMPDIR\"/*/file) echo inside;; esac" >out &&
	test "$(grep -c "^$(sha256sum <file)$" out)" = 2 &&
	test "$(grep -c "^inside$" out)" = 2
'

test_expect_success 'nothing temporary is left' '
	job_exec_all "ls -A \"\$FLUX_JOB_TMPDIR\" | grep flux-bcast && exit 1; true" &&
	job_end
'

test_done
