#!/bin/sh

test_description='Options of flux bcast about what is there, and what is sent'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'start a job' '
	job_start main 4 &&
	data_random 50000 one &&
	data_random 60000 two &&
	cat one two >both
'

test_expect_success '--append adds to what is there, or makes the file' '
	bcast "$JOBID" one appended --ranks=0,2 &&
	bcast --append "$JOBID" two appended &&
	job_has both "\$FLUX_JOB_TMPDIR/appended" "0 2" &&
	job_has two "\$FLUX_JOB_TMPDIR/appended" "1 3"
'

test_expect_success '--truncate writes in place: other names of the file see it' '
	bcast "$JOBID" two inplace &&
	job_exec_all "ln \"\$FLUX_JOB_TMPDIR/inplace\" \"\$FLUX_JOB_TMPDIR/other\"" &&
	bcast --truncate "$JOBID" one inplace &&
	job_has one "\$FLUX_JOB_TMPDIR/inplace" &&
	job_has one "\$FLUX_JOB_TMPDIR/other"
'

test_expect_success 'only one of --force, --append, --truncate' '
	bcast_fails 2 --force --append "$JOBID" one x &&
	bcast_fails 2 --append --truncate "$JOBID" one x
'

test_expect_success '--checksum leaves alone what is the same, and says so' '
	bcast "$JOBID" one sum &&
	job_exec 2 "echo other >\"\$FLUX_JOB_TMPDIR/sum\"" &&
	before=$(stat -c %i.%Y "$(job_tmpdir 1)/sum") &&
	bcast -v --checksum --force "$JOBID" one sum >out &&
	cat out &&
	test "$(grep -c unchanged out)" = 3 &&
	! grep "^2 .*unchanged" out &&
	job_has one "\$FLUX_JOB_TMPDIR/sum" &&
	test "$before" = "$(stat -c %i.%Y "$(job_tmpdir 1)/sum")"
'

test_expect_success '--unique: a new directory each time, the same on no two transfers' '
	bcast --unique "$JOBID" one >first &&
	bcast --unique --jobid="$JOBID" one two >second &&
	cat first second &&
	dir=$(sed -n "s/^rank 1 ([^)]*): //p" second) &&
	case "$dir" in "$(job_tmpdir 1)"/*) ;; *) false ;; esac &&
	cmp one "$dir/one" && cmp two "$dir/two" &&
	! grep -F "$dir" first
'

test_expect_success '--send-libs: the copy runs with the libraries that were sent' '
	bcast --send-libs --exclude-libs= "$JOBID" /bin/ls >out &&
	cat out &&
	for r in $(job_ranks); do
		libs=$(job_tmpdir $r)/ls_libs &&
		test -d "$libs" &&
		ls "$libs" | grep "^libc\.so" &&
		job_exec $r "LD_LIBRARY_PATH=\"$libs\" ldd \"\$FLUX_JOB_TMPDIR/ls\"" >ldd &&
		grep -F "$libs/" ldd || return 1
	done &&
	grep -F "LD_LIBRARY_PATH=$(job_tmpdir 3)/ls_libs" out
'

test_expect_success '--send-libs of a file that is no program changes nothing' '
	bcast --send-libs "$JOBID" one data &&
	job_has one "\$FLUX_JOB_TMPDIR/data"
'

test_expect_success '--send-libs leaves the libraries of the system out by default' '
	bcast --send-libs=few "$JOBID" /bin/cat >out &&
	job_lacks "\$FLUX_JOB_TMPDIR/few/libc.so.6"
'

test_expect_success '--dry-run with a path per rank: all are told, none is made' '
	job_exec 1 "echo there >\"\$FLUX_JOB_TMPDIR/dry\"" &&
	bcast_fails 1 --dry-run "$JOBID" one dry &&
	error_says "rank 1 (" "File exists" &&
	bcast --dry-run --force "$JOBID" one dry >out &&
	grep "^1 .* replace .*$(job_tmpdir 1)/dry" out &&
	grep "^0 .* new .*$(job_tmpdir 0)/dry" out &&
	job_lacks "\$FLUX_JOB_TMPDIR/dry" "0 2 3"
'

test_expect_success 'the job ends well' '
	job_finish
'

test_done
