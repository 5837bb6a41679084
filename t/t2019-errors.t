#!/bin/sh

test_description='What goes wrong on one rank reaches the caller as errno, path, rank and host'

. "$(dirname "$0")/sharness.sh"
# shellcheck disable=SC2046 # several words
test_under_flux 4 $(named_hosts "node[0-3]")

# d of rank 2 is where things go wrong.
test_expect_success 'set up' '
	data_random 300000 file &&
	job_start main 4 &&
	job_exec_all "mkdir \"\$FLUX_JOB_TMPDIR/d\"" &&
	D=$(job_tmpdir 2)/d
'

# rank_2_says ERRNO TEXT OPTION...: a transfer with these options fails since rank 2
# has this errno, whose text is TEXT. The other ranks only gave up.
rank_2_says() {
	says_errno=$1 says_text=$2
	shift 2
	test_expect_code 1 bcast --json --jobid="$JOBID" "$@" file >out 2>err
	says_code=$?
	cat out err
	test $says_code = 0 &&
	jq -e ".ranks[] | select(.rank == 2) | .state == \"failed\" and .host == \"node2\" and
		.errno == $says_errno and (.error | contains(\"$says_text\"))" out &&
	jq -e ".ranks | length == ${says_ranks:-4}" out &&
	jq -e "[.ranks[] | select(.rank != 2)] | all(.state == \"cancelled\" and .errno == 0)" out &&
	error_says "rank 2 (node2)" "$says_text" "$D" &&
	error_says_not "rank 0" "rank 1" "rank 3"
}
error_says_not() {
	for text; do
		test_must_fail grep -F "$text" errors || return 1
	done
}

test_expect_success 'EEXIST: a file is there' '
	echo old >"$D/f" &&
	test_when_finished "rm \"$D/f\"" &&
	rank_2_says 17 "File exists" --dest=d/f
'

test_expect_success 'EISDIR: a directory is there' '
	mkdir "$D/f" &&
	test_when_finished "rmdir \"$D/f\"" &&
	rank_2_says 21 "Is a directory" --force --dest=d/f
'

test_expect_success 'ENOENT: a directory is missing' '
	rmdir "$D" &&
	test_when_finished "mkdir \"$D\"" &&
	rank_2_says 2 "No such file or directory" --dest=d/f
'

test_expect_success 'ENOTDIR: a directory is none' '
	rmdir "$D" && : >"$D" &&
	test_when_finished "rm \"$D\" && mkdir \"$D\"" &&
	rank_2_says 20 "Not a directory" --dest=d/f
'

test_expect_success DAC 'EACCES: a directory may not be written' '
	chmod 555 "$D" &&
	test_when_finished "chmod 755 \"$D\"" &&
	rank_2_says 13 "Permission denied" --dest=d/f
'

test_expect_success 'ELOOP: links in a circle' '
	rmdir "$D" && ln -s d "$D" &&
	test_when_finished "rm \"$D\" && mkdir \"$D\"" &&
	rank_2_says 40 "Too many levels of symbolic links" --dest="{{tmpdir}}/d/f"
'

test_expect_success TMPFS 'ENOSPC: a full file system' '
	mount_tmpfs "$D" size=64k &&
	rank_2_says 28 "No space left on device" --dest=d/f
'

test_expect_success TMPFS 'EROFS: a read-only file system' '
	mount_tmpfs "$D" ro &&
	rank_2_says 30 "Read-only file system" --dest=d/f
'

test_expect_success 'ETXTBSY: a program that runs is written to' '
	for r in 0 1 3; do
		: >"$(job_tmpdir $r)/d/busy" || return 1
	done &&
	cp /bin/sleep "$D/busy" && { "$D/busy" 1000 & } && busy=$! &&
	test_when_finished "kill $busy; wait $busy; rm \"$D/busy\"" &&
	run_timeout 60 sh -c "until cmp -s /proc/$busy/exe \"$D/busy\"; do sleep 0.05; done" &&
	rank_2_says 26 "Text file busy" --truncate --dest=d/busy
'

test_expect_success 'ENAMETOOLONG: a name that no file system takes' '
	says_ranks=1 &&
	test_when_finished "says_ranks=4" &&
	rank_2_says 36 "File name too long" --ranks=2 --dest="d/$(printf "%0300d" 0)"
'

# trace_rank_2 OPTION...: its system calls fail, or are noted in the file `calls`,
# until the end of the test.
trace_rank_2() {
	shell=$(job_shell 2)
	# shellcheck disable=SC2086 # several words
	strace -f -qq -e signal=none "$@" -o calls -p "$shell" &
	tracer=$!
	test_when_finished "kill $tracer; wait $tracer; true" &&
	run_timeout 60 sh -c "while grep -q \"^TracerPid:.0\" /proc/$shell/task/*/status; do
		kill -0 $tracer && sleep 0.05 || exit 1; done"
}

test_expect_success STRACE 'EDQUOT: the quota is used up' '
	trace_rank_2 -e trace=pwrite64 -e inject=pwrite64:error=EDQUOT &&
	rank_2_says 122 "Disk quota exceeded" --dest=d/f
'

test_expect_success STRACE 'EIO: the file cannot be synchronized' '
	trace_rank_2 -e trace=fsync -e inject=fsync:error=EIO &&
	rank_2_says 5 "Input/output error" --sync --dest=d/f
'

# The loader reads as well, but not so often.
test_expect_success STRACE 'EIO: a source that cannot be read to its end' '
	data_random 30000000 long &&
	test_expect_code 1 run_timeout 120 strace --seccomp-bpf -f -qq -e signal=none \
		-e trace=pread64 -e inject=pread64:error=EIO:when=200 -o calls \
		flux bcast --jobid="$JOBID" --json --dest=d/ long >out 2>err &&
	grep -q INJECTED calls &&
	jq -e ".errno == 5" out &&
	error_says "read long: Input/output error" &&
	job_lacks "\$FLUX_JOB_TMPDIR/d/long" && has_only "$D"
'

# More messages wait for the first one to be written than there can be in the default
# window. By TCP, to be there before that.
test_expect_success STRACE 'a disk that is slow for a while is no error, whatever the window' '
	data_random 80000 bytes &&
	trace_rank_2 -e trace=pwrite64 -e inject=pwrite64:delay_enter=8000000:when=1 &&
	bcast --jobid="$JOBID" --ranks=2 --direct --chunk=1 --batch=1 --window=64M \
		--dest=d/bytes bytes &&
	cmp bytes "$D/bytes" && rm "$D/bytes"
'

# The directory is in its place already when the second of these calls fails.
test_expect_success STRACE 'EIO: what fails when it has its name is taken back' '
	mkdir empty && touch -d @1000000000 empty &&
	trace_rank_2 -e trace=utimensat -e inject=utimensat:error=EIO:when=2 &&
	test_expect_code 1 bcast --jobid="$JOBID" --partial --preserve --dest=d/ empty 2>err &&
	error_says "rank 2 (" "Input/output error" &&
	has_only "$D" &&
	job_exec_all "rmdir \"\$FLUX_JOB_TMPDIR/d/empty\" || test \$FLUX_TASK_RANK = 2"
'

test_expect_success STRACE '--sync: file and directory are synchronized, and only if asked' '
	trace_rank_2 -y -e trace=fsync,fdatasync &&
	bcast --jobid="$JOBID" --dest=d/hurried file &&
	test_must_be_empty calls &&
	bcast --jobid="$JOBID" --sync --dest=d/synced file &&
	grep "<$D/.*) *= 0" calls && grep "<$D>) *= 0" calls
'

test_expect_success STRACE '--sync: so are directories that were there and are filled up' '
	mkdir -p tree/sub && echo 1 >tree/sub/f && echo 2 >tree/g &&
	bcast --jobid="$JOBID" --dest=d/ tree && echo 3 >tree/sub/f &&
	trace_rank_2 -y -e trace=fsync,fdatasync &&
	bcast --jobid="$JOBID" --sync --force --dest=d/ tree &&
	for dir in "$D" "$D/tree" "$D/tree/sub"; do
		grep "<$dir>) *= 0" calls || return 1
	done &&
	job_exec_all "rm -r \"\$FLUX_JOB_TMPDIR/d/tree\""
'

test_expect_success 'after all this the service works and the job ends well' '
	bcast "$JOBID" file d/good &&
	job_has file "\$FLUX_JOB_TMPDIR/d/good" &&
	has_only "$D" $(test_have_prereq STRACE && echo hurried synced) good &&
	job_finish
'

test_done
