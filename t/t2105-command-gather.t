#!/bin/sh

test_description='flux bcast --gather: the files of all ranks, here'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

test_expect_success 'start a job with a file on each rank' '
	job_start main 8 &&
	for r in 0 1 2 3 4 5 6 7; do
		data_random $((r * 300001)) file.$r &&
		cp file.$r "$(job_tmpdir $r)/result" &&
		data_random $((r * 5001)) small.$r &&
		cp small.$r "$(job_tmpdir $r)/small" || return 1
	done
'

# gathered DIR: each rank has its own file in DIR/RANK/result.
gathered() {
	for r in 0 1 2 3 4 5 6 7; do
		cmp file.$r "$1/$r/result" || return 1
	done
}

test_expect_success 'each file in a directory of its rank' '
	bcast --gather -v "$JOBID" result out >lines &&
	gathered out &&
	test "$(wc -l <lines)" = 8 &&
	grep "^3 [^ ]* $PWD/out/3/result$" lines &&
	test "$(find out -type f | wc -l)" = 8
'

test_expect_success '--stats and --json: each rank has its own bytes, the whole has all' '
	sum=$((28 * 300001)) &&
	bcast --gather --stats "$JOBID" result out.stats >lines &&
	bcast --gather --json "$JOBID" result out.json >json &&
	for r in 0 1 2 3 4 5 6 7; do
		grep "^$r [^ ]* done 0 $((r * 300001)) " lines &&
		jq -e ".ranks[$r].bytes == $((r * 300001))" json || return 1
	done &&
	grep -E "^8.0 MiB from 8 ranks in [0-9.]+ s, [^ ]+ [KMG]iB/s$" lines &&
	jq -e ".bytes == $sum" json &&
	rm -r out.stats out.json
'

test_expect_success 'one after the other, in small pieces' '
	bcast --gather -k 1 --chunk=512 --batch=512 --window=1k "$JOBID" small slow &&
	for r in 0 1 2 3 4 5 6 7; do
		cmp small.$r slow/$r/small || return 1
	done
'

test_expect_success 'existing files are refused, and nothing is changed' '
	rm -r out/0 && echo mine >out/7/result &&
	bcast_fails 1 --gather "$JOBID" result out &&
	error_says "File exists" &&
	test ! -e out/0 &&
	test "$(cat out/7/result)" = mine &&
	test "$(ls -A out | wc -l)" = 7
'

test_expect_success '--force replaces them' '
	bcast --gather --force "$JOBID" result out &&
	gathered out
'

test_expect_success 'a rank without the file: nobody'\''s appears' '
	job_exec 6 "mv \"\$FLUX_JOB_TMPDIR/result\" \"\$FLUX_JOB_TMPDIR/away\"" &&
	bcast_fails 1 --gather "$JOBID" result none &&
	error_says "rank 6 (" "No such file" result &&
	has_only none
'

test_expect_success 'a directory without its parents: what makes them is said' '
	bcast_fails 1 --gather "$JOBID" result no/such/dir &&
	error_says no/such/dir "(--mkdir makes its parents)"
'

test_expect_success 'a directory that is none: it is named as it was given' '
	echo >plain && ln -s nowhere dangling &&
	bcast_fails 1 --gather "$JOBID" result plain &&
	error_says "make a directory in plain: Not a directory" &&
	bcast_fails 1 --gather "$JOBID" result dangling &&
	error_says "make a directory in dangling: No such file"
'

test_expect_success '--partial takes the others' '
	test_expect_code 1 bcast --gather --partial --json "$JOBID" result some >out.json 2>err &&
	jq -e "[.ranks[] | select(.state == \"done\")] | length == 7" out.json &&
	jq -e "[.ranks[] | select(.errno == 2) | .rank] == [6]" out.json &&
	cmp file.5 some/5/result && test ! -e some/6 &&
	bcast --gather --exclude=6 "$JOBID" result rest &&
	test "$(find rest -type f | wc -l)" = 7 &&
	rm rest/2/result &&
	test_expect_code 1 bcast --gather --partial --exclude=6 "$JOBID" result rest 2>err &&
	test "$(grep -c "File exists" err)" = 6 &&
	cmp file.2 rest/2/result
'

# As on NFS, where renaming cannot be told to spare what has the name, nor to exchange
# two names.
without_flags() {
	run_timeout 120 strace --seccomp-bpf -f -qq -e signal=none -e trace=renameat2 \
		-e inject=renameat2:error=EINVAL -o renames flux bcast "$@" 2>err
}

test_expect_success STRACE 'a file system that renames without flags only' '
	without_flags --gather --exclude=6 "$JOBID" result nfs &&
	grep -q INJECTED renames &&
	for r in 0 1 2 3 4 5 7; do
		cmp file.$r nfs/$r/result || return 1
	done &&
	test "$(find nfs | wc -l)" = 15
'

test_expect_success STRACE 'there, too, existing files are refused, and nothing is changed' '
	rm -r nfs/0 && echo mine >nfs/7/result &&
	test_expect_code 1 without_flags --gather --exclude=6 "$JOBID" result nfs &&
	error_says "rank 1 (" "File exists" &&
	test ! -e nfs/0 && test "$(cat nfs/7/result)" = mine &&
	test "$(find nfs | wc -l)" = 13
'

test_expect_success STRACE 'there, too, --force replaces them, or takes it back' '
	echo old >nfs/1/result && rm nfs/7/result && mkdir nfs/7/result &&
	test_expect_code 1 without_flags --gather --force --exclude=6 "$JOBID" result nfs &&
	error_says "rank 7 (" "a directory is not replaced" &&
	test ! -e nfs/0 && test "$(cat nfs/1/result)" = old &&
	rmdir nfs/7/result &&
	without_flags --gather --force --partial --exclude=6 "$JOBID" result nfs &&
	without_flags --gather --force --exclude=6 "$JOBID" result nfs &&
	for r in 0 1 2 3 4 5 7; do
		cmp file.$r nfs/$r/result || return 1
	done &&
	test "$(find nfs | wc -l)" = 15
'

test_expect_success 'directories of a given form' '
	bcast --gather --ranks=2-3 "$JOBID" result "by-{{rank}}.{{host}}/x" &&
	host=$(hostname) &&
	cmp file.2 by-2.$host/x/result && cmp file.3 by-3.$host/x/result &&
	bcast_fails 1 --gather --ranks=2-3 "$JOBID" result "by-{{node}}" &&
	error_says "{{rank}}"
'

test_expect_success 'trees with everything in them, modes and times' '
	job_exec_all "mkdir \"\$FLUX_JOB_TMPDIR/tree\" && cd \"\$FLUX_JOB_TMPDIR/tree\" &&
		echo \$FLUX_TASK_RANK >f && chmod 640 f && touch -d @1000000000 f &&
		ln -s f link && mkdir empty" &&
	bcast --gather --preserve "$JOBID" tree trees &&
	test "$(cat trees/4/tree/f)" = 4 &&
	test "$(stat -c "%a %Y" trees/4/tree/f)" = "640 1000000000" &&
	test "$(readlink trees/4/tree/link)" = f &&
	test -d trees/7/tree/empty
'

test_expect_success STRACE 'trees, and files that go with them, where renaming has no flags' '
	without_flags --gather --exclude=6 "$JOBID" tree small trees.nfs &&
	test "$(cat trees.nfs/4/tree/f)" = 4 && cmp small.4 trees.nfs/4/small &&
	test_expect_code 1 without_flags --gather --exclude=6 "$JOBID" tree trees.nfs &&
	error_says "File exists"
'

test_expect_success TMPFS 'no space here' '
	(
		test_cleanup=: &&
		mount_tmpfs small size=1m &&
		bcast_fails 1 --gather --exclude=6 "$JOBID" result small/out &&
		has_only small/out
	) &&
	test_when_finished "unmount small" &&
	error_says "No space left" "on this side"
'

test_expect_success STRACE '--sync: files and the directories with their names are synchronized' '
	traced() {
		run_timeout 120 strace --seccomp-bpf -f -qq -y -e signal=none \
			-e trace=fsync,fdatasync -o calls flux bcast "$@"
	} &&
	traced --gather --ranks=2 "$JOBID" result hurried &&
	test_must_be_empty calls &&
	traced --gather --sync --ranks=2 "$JOBID" result tree synced &&
	grep "<$PWD/synced/.*> *) *= 0" calls &&
	for dir in /synced/2 /synced ""; do
		grep "<$PWD$dir>) *= 0" calls || return 1
	done
'

# gather_begun NAME DIR: waits until that client has some data of a file for DIR. In
# pieces of this size the rest takes minutes, so what then happens to client or
# shell happens in mid-transfer.
pieces="--chunk=512 --batch=512 --window=512"
gather_begun() {
	run_timeout 60 python3 "$BCAST_SCRIPTS/wait-file" "$1.pid" &&
	run_timeout 60 python3 "$BCAST_SCRIPTS/staged" --wait "$(bcast_client "$1")" "$2"
}

test_expect_success 'an interrupted client leaves nothing' '
	job_exec 5 "head -c 300000000 /dev/zero | tr \"\\\\0\" x >\"\$FLUX_JOB_TMPDIR/huge\"" &&
	bcast_background stopped --gather --ranks=5 $pieces "$JOBID" huge stop &&
	gather_begun stopped "$PWD/stop" &&
	kill -INT "$(bcast_client stopped)" &&
	bcast_ends stopped 1 &&
	grep interrupted stopped.err &&
	has_only stop
'

test_expect_success 'a shell that is killed in the middle is named' '
	bcast_background lost --gather --ranks=5 --timeout=60s $pieces "$JOBID" huge lost &&
	gather_begun lost "$PWD/lost" &&
	kill -KILL "$(job_shell 5)" &&
	bcast_ends lost 1 &&
	grep "^flux-bcast: ERROR: " lost.err &&
	has_only lost &&
	job_end
'

test_done
