#!/bin/sh

test_description='flux bcast --send-libs: a program and its shared objects'

. "$(dirname "$0")/sharness.sh"
if ! command -v cc >/dev/null; then
	skip_all='no C compiler'
	test_done
fi
test_under_flux 2

# The library is found by the program's search path here, and not once the
# directory is gone.
test_expect_success 'a program with a library of its own' '
	mkdir lib &&
	echo "int answer(void) { return 42; }" >answer.c &&
	echo "int answer(void); int main(void) { return answer() - 42; }" >prog.c &&
	cc -shared -fPIC -o lib/libanswer.so.1 -Wl,-soname,libanswer.so.1 answer.c &&
	ln -s libanswer.so.1 lib/libanswer.so &&
	cc -o prog prog.c -Llib -lanswer -Wl,-rpath,"\$ORIGIN/lib" &&
	./prog &&
	echo data >data
'

test_expect_success 'start a job' '
	job_start main 2
'

test_expect_success 'it runs where they were sent' '
	bcast --send-libs "$JOBID" prog >out &&
	test "$(grep -c "LD_LIBRARY_PATH=.*/prog_libs$" out)" -ge 1 &&
	job_exec_all "ls -A \"\$FLUX_JOB_TMPDIR/prog_libs\"" >libs &&
	test "$(sort -u libs)" = libanswer.so.1 &&
	job_exec_all "! \"\$FLUX_JOB_TMPDIR/prog\" 2>/dev/null" &&
	job_exec_all "LD_LIBRARY_PATH=\$FLUX_JOB_TMPDIR/prog_libs \"\$FLUX_JOB_TMPDIR/prog\""
'

test_expect_success 'a destination names the program, and so the directory' '
	bcast --send-libs --mkdir "$JOBID" prog "$PWD/there/run-me" >out &&
	echo "LD_LIBRARY_PATH=$PWD/there/run-me_libs" >want &&
	test_cmp want out &&
	LD_LIBRARY_PATH=$PWD/there/run-me_libs there/run-me
'

test_expect_success 'a directory of another name' '
	bcast --send-libs=objects "$JOBID" prog data d/ --mkdir >out &&
	grep "/d/objects$" out &&
	job_has lib/libanswer.so.1 "\$FLUX_JOB_TMPDIR/d/objects/libanswer.so.1" &&
	bcast_fails 2 --send-libs=a/b "$JOBID" prog other &&
	error_says a/b
'

test_expect_success 'the objects of the system are sent on request' '
	bcast --send-libs --exclude-libs= "$JOBID" prog all >out &&
	job_exec 0 "ls -A \"\$FLUX_JOB_TMPDIR/all_libs\"" >libs &&
	grep libanswer libs && grep "^libc\." libs
'

test_expect_success 'nothing is left of an exclusion' '
	bcast --send-libs --exclude-libs="/usr/lib,/lib,$PWD/lib" "$JOBID" prog bare >out 2>err &&
	test_must_be_empty out &&
	grep "^flux-bcast: no shared objects are sent.*LD_LIBRARY_PATH.* below /usr/lib:/lib:$PWD/lib$" err &&
	test "$(wc -l <err)" = 1 &&
	job_lacks "\$FLUX_JOB_TMPDIR/bare_libs"
'

test_expect_success 'a data file goes as ever' '
	bcast --send-libs "$JOBID" data >out 2>err &&
	test_must_be_empty out &&
	grep "^flux-bcast: no shared objects are sent.*LD_LIBRARY_PATH.* no source is a program" err &&
	test "$(wc -l <err)" = 1 &&
	bcast --send-libs --dry-run "$JOBID" data other >out 2>err &&
	grep "^flux-bcast: no shared objects are sent" err &&
	job_has data "\$FLUX_JOB_TMPDIR/data" &&
	job_lacks "\$FLUX_JOB_TMPDIR/data_libs"
'

test_expect_success 'an object that is missing here is said, and is no failure' '
	mv lib gone &&
	test_when_finished "mv gone lib" &&
	bcast --send-libs "$JOBID" prog lacking >out 2>err &&
	grep "libanswer.so.1, which prog needs" err &&
	grep "^flux-bcast: no shared objects are sent.* that were found are below /lib:" err &&
	job_has prog "\$FLUX_JOB_TMPDIR/lacking"
'

test_expect_success 'at job start: -o bcast.send-libs' '
	run_timeout 60 flux run -N2 -n2 -o userrc="$BCAST_RC" \
		-o bcast.source="$PWD/prog" -o bcast.send-libs \
		sh -c "LD_LIBRARY_PATH=\$FLUX_BCAST_LIBS \"\$FLUX_BCAST_PATH\" &&
		       echo \$FLUX_BCAST_LIBS" >out &&
	test "$(grep -c "/prog_libs$" out)" = 2
'

test_expect_success 'at job start: -o bcast.unique' '
	run_timeout 60 flux run -N2 -n2 -o userrc="$BCAST_RC" \
		-o bcast.source="$PWD/data" -o bcast.unique \
		sh -c "cat \"\$FLUX_BCAST_PATH\"; echo \"\$FLUX_BCAST_PATH\" >&2" >out 2>err &&
	test "$(grep -c "^data$" out)" = 2 &&
	test "$(grep -c "/bcast-[0-9a-f]*/data$" err)" = 2
'

test_expect_success 'a file of data with all that can be asked for at once' '
	for way in first again; do
		bcast --send-libs --compress --checksum --direct --preserve --sync --mkdir \
			--mode=640 --partial --force -k 1 --chunk=512 --batch=1k --window=64k --pace=1G \
			--timeout=1h --progress=always --stats --json -v \
			--dest=every/option/there "$JOBID" data >out 2>err || { cat out err && return 1; }
	done &&
	job_has data "\$FLUX_JOB_TMPDIR/every/option/there" &&
	job_lacks "\$FLUX_JOB_TMPDIR/every/option/there_libs" &&
	run_timeout 60 flux run -N2 -n2 -o userrc="$BCAST_RC" -o bcast.source=data \
		-o bcast.send-libs -o bcast.compress -o bcast.direct -o bcast.preserve \
		-o bcast.sync -o bcast.mkdir -o bcast.mode=640 -o bcast.partial -o bcast.force \
		-o bcast.k=1 -o bcast.chunk=512 -o bcast.batch=1k -o bcast.window=64k -o bcast.pace=1G \
		-o bcast.timeout=1h -o bcast.dest=every/option/there \
		sh -c "cmp data \"\$FLUX_BCAST_PATH\""
'

test_expect_success 'the job ends well' '
	job_finish
'

test_done
