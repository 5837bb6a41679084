#!/bin/sh

test_description='C programs that link the library'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

command -v valgrind >/dev/null && test_set_prereq VALGRIND

test_expect_success 'install, start a job' '
	capi_prefix &&
	job_start main 4 &&
	data_random 3000000 file &&
	data_random 20000000 large
'

test_expect_success 'the examples are compiled as their heads say, without a warning' '
	capi_compile t/examples/bcast-blocking.c -Wall -Wextra -Werror &&
	capi_compile t/examples/bcast-reactive.c -Wall -Wextra -Werror &&
	capi_compile t/src/capi-check.c -Wall -Wextra -Werror -pthread
'

test_expect_success 'options are checked as they are said' '
	capi_check options
'

test_expect_success 'blocking: the file is on every rank, where the result says' '
	run_timeout 60 ./bcast-blocking "$JOBID" file >out 2>err &&
	job_has file "\$FLUX_JOB_TMPDIR/file" &&
	test "$(wc -l <out)" = 4 &&
	for r in 0 1 2 3; do
		path=$(sed -n "s/^$r [^ ]* //p" out) &&
		test "$path" = "$(job_tmpdir $r)/file" || return 1
	done
'

test_expect_success 'blocking: exit status 1 and a line for each error' '
	test_expect_code 1 run_timeout 60 ./bcast-blocking "$JOBID" file >out 2>err &&
	grep "File exists" err
'

test_expect_success 'reactive: three transfers at once, beside a timer' '
	cp file file2 && cp large large2 &&
	run_timeout 60 ./bcast-reactive "$JOBID" file2 large2 large >out </dev/null &&
	grep "^file2: on 4 ranks" out && grep "^large2: on 4 ranks" out &&
	grep "^the timer fired meanwhile" out &&
	for f in file2 large2 large; do
		job_has $f "\$FLUX_JOB_TMPDIR/$f" || return 1
	done
'

# The program reads its orders from a pipe, and says nothing before the end. While
# rank 1 is stopped, rank 2 gets as much as may be under way; the rest takes the
# program, which obeys first.
order_when_begun() {
	begin_and_hold "$2" &&
	echo "$1" >&7 &&
	kill -CONT "$(job_shell 1)" &&
	end_reactive
}
begin_and_hold() {
	kill -STOP "$(job_shell 1)" &&
	test_when_finished "kill -CONT $(job_shell 1) || true" &&
	begin_reactive "$1" &&
	transfer_begun 2 "$(job_tmpdir 2)"
}
begin_reactive() {
	rm -f orders && mkfifo orders || return 1
	{ run_timeout 60 ./bcast-reactive "$JOBID" "$1" <orders >out 2>err; echo $? >status; } &
	reactive=$!
	exec 7>orders
}
end_reactive() {
	wait "$reactive"
	exec 7>&-
	cat out err
}

test_expect_success 'reactive: cancel ends it everywhere' '
	data_random 200000000 huge &&
	order_when_begun cancel huge &&
	test "$(cat status)" = 1 &&
	grep "^huge: told to stop" out &&
	job_lacks "\$FLUX_JOB_TMPDIR/huge"
'

test_expect_success 'reactive: so does the end of the future' '
	order_when_begun destroy huge &&
	test "$(cat status)" = 1 &&
	for r in $(job_ranks); do
		nothing_open "$(job_tmpdir "$r")" "$r" || return 1
	done &&
	job_lacks "\$FLUX_JOB_TMPDIR/huge"
'

test_expect_success 'paths, descriptors, memory and streams are sources' '
	capi_check sources "$JOBID" file >out &&
	printf "from memory\n" >memory && printf "from a stream\n" >stream &&
	job_has file "\$FLUX_JOB_TMPDIR/sources/by-path" &&
	job_has file "\$FLUX_JOB_TMPDIR/sources/by-fd" &&
	job_has memory "\$FLUX_JOB_TMPDIR/sources/by-memory" &&
	job_has stream "\$FLUX_JOB_TMPDIR/sources/by-stream" &&
	test "$(job_exec 2 "stat -c %a \"\$FLUX_JOB_TMPDIR/sources/by-memory\"")" = 640 &&
	grep "^3 $(job_tmpdir 3)/sources/by-stream$" out
'

test_expect_success 'ranks that are not targets get nothing' '
	capi_check targets "$JOBID" &&
	job_lacks "\$FLUX_JOB_TMPDIR/targets" "0 2" &&
	job_exec 1 "test -e \"\$FLUX_JOB_TMPDIR/targets\"" &&
	job_exec 3 "test -e \"\$FLUX_JOB_TMPDIR/targets\""
'

test_expect_success 'a directory that the service chooses and names' '
	capi_check unique "$JOBID" file >out &&
	test "$(wc -l <out)" = 4 &&
	for r in 0 1 2 3; do
		job_has file "$(sed -n "s/^$r //p" out)" $r || return 1
	done
'

# Values of the header: EXCL 1, TRUNC 2, APPEND 4, IN_PLACE 8, PARTIAL 128.
# flags_give FLAGS WANT: the result of a transfer of a line to flags/f.
flags_give() {
	capi_check flags "$JOBID" "$1" >out && cat out && test "$(cat out)" = "$2"
}
inode() {
	job_exec 1 "stat -c %i \"\$FLUX_JOB_TMPDIR/flags/f\""
}

test_expect_success 'open flags: what happens to a file that exists' '
	job_exec_all "mkdir \"\$FLUX_JOB_TMPDIR/flags\"" &&
	flags_give 1 "0 0 0 0 0" &&
	flags_give 0 "17 1 1 1 1" &&
	first=$(inode) &&
	flags_give 4 "0 0 0 0 0" &&
	test "$(inode)" = "$first" &&
	printf "line\nline\n" >twice && printf "line\n" >once &&
	job_has twice "\$FLUX_JOB_TMPDIR/flags/f" &&
	flags_give 10 "0 0 0 0 0" &&
	test "$(inode)" = "$first" &&
	job_has once "\$FLUX_JOB_TMPDIR/flags/f" &&
	flags_give 2 "0 0 0 0 0" &&
	test "$(inode)" != "$first" &&
	job_has once "\$FLUX_JOB_TMPDIR/flags/f"
'

test_expect_success 'PARTIAL: ranks that are well have the file, and it is an error all the same' '
	for r in 0 3; do
		job_exec $r "rm \"\$FLUX_JOB_TMPDIR/flags/f\"" || return 1
	done &&
	flags_give 128 "17 0 1 1 0" &&
	job_has once "\$FLUX_JOB_TMPDIR/flags/f"
'

test_expect_success 'a directory, in small pieces, with its times; hosts' '
	mkdir -p tree/sub && data_random 300000 tree/sub/data && ln -s sub/data tree/link &&
	touch -d 2001-02-03 tree/sub/data &&
	capi_check directory "$JOBID" tree &&
	job_has tree/link "\$FLUX_JOB_TMPDIR/copy/link" &&
	test "$(job_exec 3 "date -r \"\$FLUX_JOB_TMPDIR/copy/sub/data\" +%F")" = 2001-02-03
'

test_expect_success 'progress never falls and ends with the total' '
	capi_check progress "$JOBID" large &&
	echo begin >holes && truncate -s 300000000 holes && echo end >>holes &&
	capi_check progress "$JOBID" holes
'

test_expect_success 'a pace is kept to, and does not outlive the future' '
	capi_check paced "$JOBID" &&
	for r in $(job_ranks); do
		nothing_open "$(job_tmpdir "$r")" "$r" || return 1
	done
'

test_expect_success 'functions about a result do not wait for it' '
	capi_check accessors "$JOBID" file
'

test_expect_success 'EEXIST on one rank: which, and that the others gave up' '
	data_random 2000000 there &&
	job_exec 2 "echo mine >\"\$FLUX_JOB_TMPDIR/there\"" &&
	capi_check exists "$JOBID" there >out &&
	cat out &&
	test "$(sed -n 5p out)" = "$(tail -n 1 out)" &&
	grep "^2 1 17 .*$(job_tmpdir 2)/there: File exists" out &&
	test "$(grep -c "^[013] 2 0 $" out)" = 3 &&
	tail -n 1 out | grep "^rank 2 (.*): .*$(job_tmpdir 2)/there: File exists" &&
	job_lacks "\$FLUX_JOB_TMPDIR/there" "0 1 3"
'

test_expect_success TMPFS 'ENOSPC on one rank' '
	job_exec_all "mkdir \"\$FLUX_JOB_TMPDIR/small\"" &&
	mount_tmpfs "$(job_tmpdir 1)/small" size=64k &&
	capi_check error "$JOBID" small/data >out &&
	cat out &&
	grep "^28 rank 1 (.*): .*No space left" out &&
	job_lacks "\$FLUX_JOB_TMPDIR/small/data"
'

test_expect_success 'EPERM for a way out of the tmpdir, ENOENT for a missing directory' '
	capi_check error "$JOBID" ../data >out && grep "^1 .*" out &&
	capi_check error "$JOBID" missing/data >out && grep "^2 rank.*missing" out
'

test_expect_success 'no such job: ENOENT' '
	capi_check error 123456 data >out && grep "^2 .*does not exist" out
'

test_expect_success 'not in a job: no enclosing job' '
	test_expect_code 2 run_timeout 20 ./bcast-blocking - file 2>err &&
	grep "No such file" err
'

test_expect_success 'the handle may be closed first' '
	capi_check closed-first "$JOBID" file &&
	capi_check closed-first-blocking "$JOBID" file
'

test_expect_success 'progress that is not read is not queued' '
	capi_check unread "$JOBID" large
'

test_expect_success 'a future may be destroyed in its continuation' '
	cp huge huge2 &&
	capi_check destroyed "$JOBID" huge2 &&
	for r in $(job_ranks); do
		nothing_open "$(job_tmpdir "$r")" "$r" || return 1
	done &&
	job_lacks "\$FLUX_JOB_TMPDIR/huge2"
'

test_expect_success 'and before anybody has waited' '
	capi_check never-waited "$JOBID" huge2
'

test_expect_success 'one future is waited for in one way' '
	capi_check mixed "$JOBID" file
'

test_expect_success 'after an orderly end every rank has answered' '
	capi_check cancelled "$JOBID" huge2 &&
	job_lacks "\$FLUX_JOB_TMPDIR/huge2"
'

test_expect_success 'threads with handles of their own' '
	capi_check threads "$JOBID" file &&
	for f in one two three; do
		job_has file "\$FLUX_JOB_TMPDIR/$f" || return 1
	done
'

# What a thread that is about to end still holds is "possibly lost" to valgrind.
memcheck() {
	run_timeout 120 valgrind --leak-check=full --show-leak-kinds=definite,indirect \
		--errors-for-leak-kinds=definite,indirect --log-file=log "$@"
}

# clean_of_ours LOG: no lost memory and no bad access with our code in it.
clean_of_ours() {
	cat "$1" &&
	grep "ERROR SUMMARY" "$1" &&
	! grep -E "(at|by) 0x.*flux_bcast" "$1"
}

test_expect_success VALGRIND 'no memory is lost or misused: success' '
	memcheck ./bcast-reactive "$JOBID" file </dev/null &&
	clean_of_ours log
'

test_expect_success VALGRIND 'no memory is lost or misused: errors' '
	test_expect_code 1 memcheck ./bcast-blocking "$JOBID" file &&
	clean_of_ours log &&
	memcheck ./capi-check error 123456 data &&
	clean_of_ours log
'

test_expect_success VALGRIND 'no memory is lost or misused: destroyed halfway' '
	memcheck ./capi-check destroyed "$JOBID" huge2 &&
	clean_of_ours log
'

test_expect_success 'the job ends in mid-transfer: the future says so' '
	begin_and_hold huge2 &&
	run_timeout 60 flux cancel "$JOBID" &&
	kill -CONT "$(job_shell 1)" &&
	job_wait_clean &&
	end_reactive &&
	test "$(cat status)" = 1 &&
	grep "^huge2: " out
'

test_expect_success 'a pending job: EAGAIN by flag, else the wait has its limit' '
	held=$(run_timeout 60 flux submit --urgency=hold -N1 -n1 -o userrc="$BCAST_RC" true) &&
	capi_check nowait "$held" file &&
	capi_check pending "$held" file &&
	run_timeout 60 flux cancel "$held"
'

test_expect_success 'no plugin: ENOSYS, and what to do' '
	job_start_plain plain 1 &&
	capi_check error "$JOBID" data >out &&
	cat out &&
	grep "^38 .*plugin" out &&
	job_end
'

test_expect_success 'a job that has ended: ESHUTDOWN' '
	capi_check error "$JOBID" data >out &&
	cat out &&
	grep "^108 " out
'

test_expect_success 'to the enclosing job' '
	cat >inner <<-EOT &&
	exec "$PWD/bcast-blocking" - "$PWD/file" enclosing
	EOT
	run_timeout 100 flux run -N2 -n2 -o userrc="$BCAST_RC" flux start sh "$PWD/inner" >out &&
	cat out &&
	test "$(grep "/enclosing$" out | sort -u | wc -l)" = 2
'

# broker_dies CHECK: runs a check that kills the broker it is connected to.
broker_dies() {
	rm -f status
	cat >inner <<-EOT &&
	id=\$(flux submit -N1 -n1 -o userrc="$BCAST_RC" setpriv --pdeathsig=KILL sleep 100) &&
	flux job wait-event -p guest.exec.eventlog \$id shell.start >/dev/null &&
	BROKER=\$PPID timeout 60 ./capi-check $1 \$id huge2
	echo \$? >status.new && mv status.new status
	EOT
	test_might_fail run_timeout 60 flux start -s 1 sh ./inner
	run_timeout 60 "$BCAST_SCRIPTS/wait-file" status &&
	test "$(cat status)" = 0
}

test_expect_success 'the broker goes away: the reactor fails, nothing hangs or crashes' '
	broker_dies orphan
'

test_expect_success 'the same while blocking' '
	broker_dies orphan-blocking
'

test_done
