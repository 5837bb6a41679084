#!/bin/sh

test_description='C programs: shared objects, digests, sources on a rank, dry runs, fetching, listing, removing'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

command -v valgrind >/dev/null && test_set_prereq VALGRIND

# tasks CHECK [ARGUMENT...]: one check of t/src/capi-tasks.c.
tasks() {
	run_timeout 60 ./capi-tasks "$@"
}

test_expect_success 'install, compile without a warning, start a job' '
	capi_prefix &&
	capi_compile t/src/capi-tasks.c -Wall -Wextra -Werror &&
	job_start main 4 &&
	data_random 2000000 file &&
	for r in 0 1 2 3; do
		data_random $((r * 100001 + 7)) own.$r &&
		cp own.$r "$(job_tmpdir $r)/own" || return 1
	done
'

test_expect_success 'options without a meaning are refused, and it is said why' '
	tasks options
'

test_expect_success 'not in a job: no enclosing job' '
	tasks no-enclosing
'

test_expect_success 'CHECKSUM: ranks that have the files get nothing' '
	job_exec_all "mkdir \"\$FLUX_JOB_TMPDIR/checksum\"" &&
	tasks checksum "$JOBID" file >out && cat out &&
	test "$(grep -c "^[0-3] 0 /.*/checksum/by-memory$" out)" = 4 &&
	tasks checksum "$JOBID" file >out && cat out &&
	test "$(grep -c "^[0-3] 1 /.*/checksum/by-memory$" out)" = 4 &&
	job_exec 2 "echo more >>\"\$FLUX_JOB_TMPDIR/checksum/by-fd\"" &&
	tasks checksum "$JOBID" file >out && cat out &&
	grep "^2 0 " out && test "$(grep -c "^[013] 1 " out)" = 3 &&
	job_has file "\$FLUX_JOB_TMPDIR/checksum/by-fd"
'

test_expect_success 'COMPRESS: the same file arrives' '
	yes "the same line again and again" | head -c 3000000 >lines &&
	tasks compress "$JOBID" lines &&
	job_has lines "\$FLUX_JOB_TMPDIR/compressed"
'

test_expect_success 'SEND_LIBS: a program runs with what came with it' '
	mkdir lib &&
	echo "int answer(void) { return 42; }" >answer.c &&
	echo "int answer(void); int main(void) { return answer() - 42; }" >prog.c &&
	cc -shared -fPIC -o lib/libanswer.so.1 -Wl,-soname,libanswer.so.1 answer.c &&
	ln -s libanswer.so.1 lib/libanswer.so &&
	cc -o prog prog.c -Llib -lanswer -Wl,-rpath,"\$ORIGIN/lib" &&
	tasks libs "$JOBID" run - >out && cat out &&
	for r in 0 1 2 3; do
		grep -x "$r $(job_tmpdir $r)/run_libs" out || return 1
	done &&
	job_exec_all "LD_LIBRARY_PATH=\$FLUX_JOB_TMPDIR/run_libs \"\$FLUX_JOB_TMPDIR/run\""
'

test_expect_success 'SEND_LIBS: in a directory of another name, none at all, all of them' '
	tasks libs "$JOBID" run2 objects >out &&
	grep -x "3 $(job_tmpdir 3)/objects" out &&
	tasks exclude-libs "$JOBID" >dir &&
	job_exec 0 "ls -A \"$(cat dir)\"" >objects &&
	grep "^libc\." objects
'

test_expect_success 'SEND_LIBS: what is missing here is a note' '
	mv lib gone &&
	test_when_finished "mv gone lib" &&
	tasks libs "$JOBID" run3 - >out && cat out &&
	grep "libanswer.so.1, which prog needs" out
'

test_expect_success 'from a rank to the others' '
	tasks from "$JOBID" own copy >out && cat out &&
	test "$(wc -l <out)" = 3 && ! grep "^1 " out &&
	grep -x "3 $(job_tmpdir 3)/copy" out &&
	job_has own.1 "\$FLUX_JOB_TMPDIR/copy" "0 2 3"
'

test_expect_success 'from a rank: no such source, no such rank' '
	tasks from-error "$JOBID" missing copy2 >out && cat out &&
	grep "^2 rank 1.*missing: No such file" out &&
	tasks from-bad-rank "$JOBID" own copy2 >out && cat out &&
	grep "^22 .*99" out
'

test_expect_success 'a dry run: where the copies would be, and who would fail' '
	tasks dry-run "$JOBID" file dry >out && cat out &&
	for r in 0 1 2 3; do
		grep -x "$r 0 0 1 -1 $(job_tmpdir $r)/dry" out || return 1
	done &&
	job_lacks "\$FLUX_JOB_TMPDIR/dry" &&
	tasks dry-run "$JOBID" file own >out && cat out &&
	grep -x "3 1 17 1 300010 $(job_tmpdir 3)/own" out &&
	tail -n 1 out | grep "^ranks 0-3.*File exists"
'

test_expect_success 'a dry run: of a stream, of what is not here, with shared objects' '
	tasks dry-sources "$JOBID" &&
	job_lacks "\$FLUX_JOB_TMPDIR/dry_libs"
'

test_expect_success 'gather: each rank'\''s file in a directory of its own' '
	tasks gather "$JOBID" own new/out >out && cat out &&
	for r in 0 1 2 3; do
		cmp own.$r new/out/$r/own &&
		grep -x "$r $PWD/new/out/$r/own" out || return 1
	done
'

test_expect_success 'gather: two sources in their order, under a tag' '
	tasks gather-two "$JOBID" own "two.{{rank}}" >out && cat out &&
	test "$(sed -n 3p out)" = "2 $PWD/two.2/own" &&
	test "$(sed -n 4p out)" = "2 $PWD/two.2/by-fd" &&
	cmp own.2 two.2/own && cmp file two.0/by-fd && test ! -e two.1
'

test_expect_success 'gather: a file that exists, a missing source, a bad place' '
	tasks gather-error "$JOBID" own new/out >out && cat out &&
	grep "^17 rank 0.*new/out/0/own: File exists" out &&
	tasks gather-error "$JOBID" missing none >out && cat out &&
	grep "^2 rank.*missing" out && test ! -e none/0 &&
	tasks gather-error "$JOBID" own no/where/at/all >out && cat out &&
	grep "^2 .*no/where/at" out &&
	tasks gather-error "$JOBID" own "x.{{what}}" >out && cat out &&
	grep "^22 .*unknown tag" out
'

test_expect_success 'a list: kinds, sizes, digests' '
	mkdir tree && echo one >tree/one && ln -s one tree/two &&
	run_timeout 60 flux bcast "$JOBID" tree tree &&
	tasks list "$JOBID" >out && cat out &&
	for r in 0 1 2 3; do
		grep -E "^$r 0 2000000 0 \[[0-9a-f]{64}\] $(job_tmpdir $r)/checksum/by-fd$" out &&
		grep -E "^$r 1 4 2 \[\] $(job_tmpdir $r)/tree$" out || return 1
	done &&
	tasks list-then "$JOBID"
'

test_expect_success 'a removal: of one path, of one that is not there, of all' '
	tasks remove "$JOBID" tree >out && cat out &&
	test "$(wc -l <out)" = 4 && grep -x "3 $(job_tmpdir 3)/tree" out &&
	job_lacks "\$FLUX_JOB_TMPDIR/tree" &&
	tasks remove-partly "$JOBID" compressed &&
	job_lacks "\$FLUX_JOB_TMPDIR/compressed" &&
	tasks remove-all "$JOBID" >out && grep "/checksum/by-memory$" out &&
	tasks list "$JOBID" >out && test_must_be_empty out &&
	job_has own.3 "\$FLUX_JOB_TMPDIR/own" 3
'

test_expect_success 'names that are no text' '
	tasks bytes "$JOBID"
'

test_expect_success 'no such job: ENOENT' '
	tasks no-job 123456 own nowhere >out && cat out &&
	test "$(grep -c "^2 .*does not exist" out)" = 5
'

test_expect_success 'a pending job: the time limit, and EAGAIN by flag' '
	held=$(run_timeout 60 flux submit --urgency=hold -N1 -n1 -o userrc="$BCAST_RC" true) &&
	tasks pending "$held" own nowhere &&
	run_timeout 60 flux cancel "$held"
'

test_expect_success 'in the middle: destroyed, called off' '
	for r in 0 1 2 3; do
		truncate -s 150000000 "$(job_tmpdir $r)/huge" &&
		tr "\\0" x <"$(job_tmpdir $r)/huge" >"$(job_tmpdir $r)/huge.x" &&
		mv "$(job_tmpdir $r)/huge.x" "$(job_tmpdir $r)/huge" || return 1
	done &&
	tasks halfway "$JOBID" huge half &&
	for r in 0 2 3; do
		nothing_open "$(job_tmpdir "$r")" "$r" || return 1
	done &&
	job_lacks "\$FLUX_JOB_TMPDIR/half" "0 2 3" &&
	test "$(find half ! -type d | wc -l)" = 0
'

test_expect_success 'futures of every kind may be destroyed at any time' '
	tasks destroyed "$JOBID" huge half2 &&
	job_lacks "\$FLUX_JOB_TMPDIR/half2" "0 2 3"
'

test_expect_success 'lists, removals and dry runs that are called off' '
	tasks called-off "$JOBID" huge half
'

# clean_of_ours: no lost memory and no bad access with our code in it.
memcheck() {
	run_timeout 150 valgrind --leak-check=full --show-leak-kinds=definite,indirect \
		--errors-for-leak-kinds=definite,indirect --log-file=log ./capi-tasks "$@" &&
	cat log &&
	grep "ERROR SUMMARY" log &&
	! grep -E "(at|by) 0x.*flux_bcast" log
}

test_expect_success VALGRIND 'no memory is lost or misused' '
	memcheck options &&
	memcheck dry-sources "$JOBID" &&
	rm -r by* &&
	memcheck bytes "$JOBID" &&
	memcheck libs "$JOBID" run9 - &&
	memcheck gather "$JOBID" own checked
'

test_expect_success VALGRIND 'no memory is lost or misused: destroyed, called off' '
	memcheck destroyed "$JOBID" huge half3 &&
	memcheck called-off "$JOBID" huge half3
'

test_expect_success 'the job ends well; then there is nothing to list' '
	job_finish &&
	tasks no-job "$JOBID" own nowhere >out && cat out &&
	test "$(grep -c "^108 .*ended" out)" = 5
'

test_expect_success 'all of it in the enclosing job' '
	cat >inner <<-EOT &&
	cd "$PWD" && ./capi-tasks enclosing
	EOT
	run_timeout 100 flux run -N2 -n2 -o userrc="$BCAST_RC" flux start sh "$PWD/inner" >out &&
	cat out &&
	test "$(cat outer/1/inner)" = inner
'

test_done
