#!/bin/sh

test_description='A file reaches every shell of a job, whole, whatever its size'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

test_expect_success 'start a job of 8 shells' '
	job_start main 8
'

for size in 0 1 4095 4096 4097 122879 122880 122881 1048576; do
	test_expect_success "a file of $size bytes" "
		data_random $size f$size &&
		bcast \"\$JOBID\" f$size &&
		job_has f$size '\$FLUX_JOB_TMPDIR/f$size' &&
		job_exec_all 'rm \"\$FLUX_JOB_TMPDIR/f$size\"' &&
		job_clean_tmpdir
	"
done

test_expect_success 'success is silent' '
	data_random 5000 quiet &&
	bcast "$JOBID" quiet >out 2>err &&
	test_must_be_empty out &&
	test_must_be_empty err
'

test_expect_success '-v prints rank, host and path of each copy, and the paths are right' '
	data_random 5000 loud &&
	bcast -v "$JOBID" loud >out 2>err &&
	cat out &&
	for r in 0 1 2 3 4 5 6 7; do
		grep "^ *$r  *[^ ][^ ]*  *$(job_tmpdir $r)/loud$" out || return 1
	done &&
	test "$(wc -l <out)" = 8
'

test_expect_success '--json prints one object with the state of each rank' '
	data_random 70000 json &&
	bcast --json "$JOBID" json >out &&
	jq -e ".bytes == 70000 and .seconds > 0 and (.ranks | length) == 8" out &&
	jq -e "[.ranks[] | select(.state == \"done\" and .host != \"\")] | length == 8" out &&
	jq -e "[.ranks[].rank] | sort == [0, 1, 2, 3, 4, 5, 6, 7]" out &&
	for r in 0 3 7; do
		jq -r ".ranks[] | select(.rank == $r) | .paths[0]" out >path &&
		test "$(cat path)" = "$(job_tmpdir $r)/json" || return 1
	done
'

test_expect_success 'the executable bit is kept: a script runs from the copy' '
	printf "#!/bin/sh\necho I am %s\n" copy >script && chmod 755 script &&
	bcast "$JOBID" script &&
	job_exec_all "\"\$FLUX_JOB_TMPDIR/script\"" >out &&
	test "$(grep -c "^I am copy$" out)" = 8
'

test_expect_success 'the mode is that of the source, without set-user-id' '
	data_random 10 mode && chmod 4640 mode &&
	bcast "$JOBID" mode &&
	job_exec_all "stat -c %a \"\$FLUX_JOB_TMPDIR/mode\"" >out &&
	test "$(sort -u out)" = 640
'

test_expect_success 'a shared library of this machine' '
	data_library library.so &&
	bcast "$JOBID" library.so &&
	job_has library.so "\$FLUX_JOB_TMPDIR/library.so"
'

test_expect_success 'the copies stay when the source goes' '
	data_random 100000 gone && cp gone kept &&
	bcast "$JOBID" gone &&
	rm gone &&
	job_has kept "\$FLUX_JOB_TMPDIR/gone"
'

test_expect_success 'names with spaces, quotes, newlines and other bytes' '
	data_random 1000 plain &&
	for name in "two words" "-dash" "quote\"s" "tab	" "comma,equals=" "$(printf "line\nbreak")" \
		"$(printf "latin\351")" "{braces}" "back\\slash"; do
		cp -- plain "./$name" &&
		bcast --jobid="$JOBID" -- "./$name" &&
		cp -- "./$name" same &&
		for r in 0 7; do
			cmp plain "$(job_tmpdir $r)/$name" || return 1
		done || return 1
	done
'

test_expect_success 'the forms of the job id are understood' '
	for form in dec hex kvs f58; do
		id=$(run_timeout 30 flux job id --to=$form "$JOBID") &&
		data_random 100 id.$form &&
		bcast "$id" id.$form &&
		job_has id.$form "\$FLUX_JOB_TMPDIR/id.$form" || return 1
	done
'

test_expect_success REAL_FLUX 'its form in words, too' '
	id=$(run_timeout 30 flux job id --to=words "$JOBID") &&
	data_random 100 id.words &&
	bcast "$id" id.words &&
	job_has id.words "\$FLUX_JOB_TMPDIR/id.words"
'

test_expect_success REAL_FLUX 'by flux proxy, as somebody would from outside the instance' '
	data_random 5000 proxied &&
	run_timeout 60 env -u FLUX_URI flux proxy "$FLUX_URI" flux bcast "$JOBID" proxied &&
	job_has proxied "\$FLUX_JOB_TMPDIR/proxied"
'

test_expect_success 'a hundred small transfers, no error' '
	for i in $(test_seq 1 100); do
		echo "transfer $i" >small &&
		bcast --force "$JOBID" small || return 1
	done &&
	job_has small "\$FLUX_JOB_TMPDIR/small"
'

test_expect_success 'no shell holds anything open; the job ends well' '
	for r in $(job_ranks); do
		nothing_open "$(job_tmpdir $r)" $r || return 1
	done &&
	job_finish &&
	job_wait_clean
'

test_done
