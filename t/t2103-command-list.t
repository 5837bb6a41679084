#!/bin/sh

test_description='flux bcast --list and --remove: what was put on the nodes, and just that'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'start a job' '
	job_start main 4 &&
	data_random 50000 file &&
	mkdir dir && echo one >dir/one && echo two >dir/two
'

test_expect_success 'at first there is nothing' '
	bcast --list "$JOBID" >out &&
	test_must_be_empty out
'

test_expect_success 'everything is listed, with sizes and digests' '
	bcast "$JOBID" file dir d/ --mkdir &&
	bcast --ranks=2 "$JOBID" file "$PWD/outside" &&
	bcast --list "$JOBID" >out &&
	test "$(wc -l <out)" = 9 &&
	for r in 0 1 2 3; do
		grep -E "^$r [^ ]+ 50000 [0-9a-f]{64} $(job_tmpdir $r)/d/file$" out &&
		grep -E "^$r [^ ]+ 8 dir:2 $(job_tmpdir $r)/d/dir$" out || return 1
	done &&
	grep -E "^2 [^ ]+ 50000 [0-9a-f]{64} $PWD/outside$" out &&
	test "$(grep -o -E "[0-9a-f]{64}" out | sort -u | wc -l)" = 1
'

test_expect_success '--json, and some ranks only' '
	bcast --list --json --ranks=2-3 "$JOBID" >out &&
	jq -e "[.ranks[] | .rank] == [2, 3]" out &&
	jq -e ".ranks[0].copies | length == 3" out &&
	jq -e "all(.ranks[].copies[] | select(.kind == \"file\"); .bytes == 50000)" out
'

test_expect_success 'one path is removed, the rest stays' '
	bcast --remove -v "$JOBID" d/file >out &&
	test "$(wc -l <out)" = 4 &&
	job_lacks "\$FLUX_JOB_TMPDIR/d/file" &&
	job_has dir/one "\$FLUX_JOB_TMPDIR/d/dir/one" &&
	bcast --list "$JOBID" >out &&
	test "$(wc -l <out)" = 5
'

test_expect_success 'what was not put there is not removed' '
	job_exec_all "echo mine >\"\$FLUX_JOB_TMPDIR/mine\"" &&
	bcast_fails 1 --remove "$JOBID" mine &&
	error_says "ranks 0-3" mine "No such file" &&
	echo mine >mine && job_has mine "\$FLUX_JOB_TMPDIR/mine"
'

test_expect_success 'what was changed since is not removed' '
	job_exec 1 "echo more >>\"\$FLUX_JOB_TMPDIR/d/dir/one\"" &&
	bcast_fails 1 --remove "$JOBID" d/dir &&
	error_says "rank 1 (" "d/dir/one" &&
	job_exec 1 "test -s \"\$FLUX_JOB_TMPDIR/d/dir/one\"" &&
	job_lacks "\$FLUX_JOB_TMPDIR/d/dir" "0 2 3"
'

test_expect_success 'all the rest' '
	bcast --remove --exclude=1 "$JOBID" &&
	test ! -e outside &&
	bcast --list --exclude=1 "$JOBID" >out &&
	test_must_be_empty out &&
	job_has mine "\$FLUX_JOB_TMPDIR/mine"
'

test_expect_success 'a copy that was appended to is still ours' '
	printf ab >piece &&
	bcast "$JOBID" piece grown && bcast --append "$JOBID" piece grown &&
	bcast --list "$JOBID" >list && cat list &&
	test "$(grep -c "^[0-9]* [^ ]* 4 - .*/grown$" list)" -ge 1 &&
	bcast --list --json "$JOBID" >list &&
	jq -e "[.ranks[].copies[] | select(.path | endswith(\"/grown\")).digest] == [null, null, null, null]" list &&
	bcast --remove "$JOBID" grown &&
	job_lacks "\$FLUX_JOB_TMPDIR/grown" &&
	for r in $(job_ranks); do
		job_exec "$r" "printf x >\"\$FLUX_JOB_TMPDIR/theirs\"" || return 1
	done &&
	bcast --append "$JOBID" piece theirs &&
	bcast_fails 1 --remove "$JOBID" theirs &&
	error_says "only written to"
'

test_expect_success 'a directory that is sent again is removed with all that came into it' '
	mkdir -p again/sub && echo 1 >again/sub/first && echo 2 >again/sub/both &&
	bcast "$JOBID" again &&
	rm again/sub/first && echo 3 >again/sub/both && mkdir again/more && echo 4 >again/more/f &&
	bcast --force "$JOBID" again &&
	bcast --list --ranks=0 "$JOBID" >out &&
	grep -E "^0 [^ ]+ 6 dir:5 $(job_tmpdir 0)/again$" out &&
	bcast --remove "$JOBID" again &&
	job_lacks "\$FLUX_JOB_TMPDIR/again"
'

test_expect_success 'what a task has removed is not listed, and no digest of what it has changed' '
	bcast "$JOBID" file now/ --mkdir && bcast "$JOBID" piece now/ &&
	job_exec 0 "rm \"\$FLUX_JOB_TMPDIR/now/file\"" &&
	job_exec 1 "echo more >>\"\$FLUX_JOB_TMPDIR/now/file\"" &&
	bcast --list "$JOBID" >out && cat out &&
	test "$(grep -c "/now/piece$" out)" = 4 &&
	test "$(grep -c -E " 50000 [0-9a-f]{64} .*/now/file$" out)" = 2 &&
	grep -E "^1 [^ ]+ 50005 - $(job_tmpdir 1)/now/file$" out &&
	test "$(grep -c "/now/file$" out)" = 3
'

test_expect_success 'a path is the one that was asked for, whatever links are in it' '
	mkdir real && ln -s real linked &&
	job_exec_all "mkdir \"\$FLUX_JOB_TMPDIR/real\" && ln -s real \"\$FLUX_JOB_TMPDIR/linked\"" &&
	bcast --ranks=0 "$JOBID" file "$PWD/linked/" && bcast "$JOBID" file linked/ &&
	cmp file real/file &&
	bcast --remove --ranks=0 "$JOBID" "$PWD/linked/file" && test ! -e real/file &&
	bcast --remove "$JOBID" linked/file && job_lacks "\$FLUX_JOB_TMPDIR/real/file"
'

test_expect_success 'files of the start are listed, too' '
	job_finish &&
	job_start started 2 -o bcast.source="$PWD/file" &&
	bcast --list "$JOBID" >out &&
	test "$(grep -c "/file$" out)" = 2 &&
	job_finish
'

test_expect_success 'a job that is over has no list' '
	bcast_fails 1 --list "$JOBID" &&
	error_says "$JOBID" ended
'

test_done
