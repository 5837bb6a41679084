#!/bin/sh

test_description='flux bcast --dry-run: tells what would be, and changes nothing'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'start a job' '
	job_start main 4 &&
	data_random 100000 file &&
	everything="ls -lAR --time-style=full-iso \"\$FLUX_JOB_TMPDIR\"" &&
	job_exec_all "$everything" >before
'

test_expect_success 'a copy that can be made' '
	bcast --dry-run "$JOBID" file >out &&
	for r in 0 1 2 3; do
		grep -E "^$r [^ ]+ new [0-9.]+[A-Za-z]+-free $(job_tmpdir $r)/file$" out ||
			return 1
	done
'

test_expect_success 'nothing was changed' '
	job_exec_all "$everything" >after &&
	test_cmp before after
'

test_expect_success 'a name that is taken on one rank' '
	job_exec 2 "echo x >\"\$FLUX_JOB_TMPDIR/file\"" &&
	test_expect_code 1 bcast --dry-run "$JOBID" file >out 2>err &&
	grep "^flux-bcast: ERROR: rank 2 (.*File exists" err &&
	test "$(grep -c ERROR err)" = 1 &&
	grep "^2 .* refused " out && grep "^3 .* new " out &&
	bcast --dry-run --force "$JOBID" file >out &&
	grep "^2 .* replace " out &&
	bcast --dry-run --append "$JOBID" file >out &&
	grep "^2 .* append " out &&
	bcast --dry-run --truncate "$JOBID" file >out &&
	grep "^2 .* overwrite " out &&
	bcast --dry-run --exclude=2 "$JOBID" file >out &&
	test "$(wc -l <out)" = 3
'

test_expect_success 'directories that are missing' '
	bcast_fails 1 --dry-run "$JOBID" file no/such/f &&
	error_says "ranks 0-3" "No such file" no/such &&
	bcast --dry-run --mkdir "$JOBID" file no/such/f >out &&
	grep "^0 .* new .*/no/such/f$" out &&
	job_lacks "\$FLUX_JOB_TMPDIR/no"
'

test_expect_success 'a directory that is missing on one rank: the others are told of as well' '
	for r in 0 1 3; do job_exec $r "mkdir \"\$FLUX_JOB_TMPDIR/most\"" || return 1; done &&
	test_expect_code 1 bcast --dry-run "$JOBID" file most/f >out 2>err &&
	grep "^flux-bcast: ERROR: rank 2 (.*No such file" err &&
	for r in 0 1 3; do grep "^$r .* new .*/most/f$" out || return 1; done &&
	grep -E "^2 [^ ]+ refused - -$" out &&
	test "$(wc -l <out)" = 4
'

test_expect_success DAC 'a directory that may not be written' '
	mkdir closed && chmod 555 closed &&
	bcast_fails 1 --dry-run "$JOBID" file "$PWD/closed/f" &&
	error_says "Permission denied" closed
'

test_expect_success TMPFS 'too little space' '
	(
		test_cleanup=: &&
		mount_tmpfs small size=64k &&
		bcast_fails 1 --dry-run "$JOBID" file "$PWD/small/f"
	) &&
	test_when_finished "unmount small" &&
	error_says "No space left" small needed
'

test_expect_success '--json' '
	test_expect_code 1 bcast --dry-run --json "$JOBID" file >out 2>err &&
	jq -e ".[\"dry-run\"] and .bytes == 100000" out &&
	jq -e "[.ranks[] | .errno] == [0, 0, 17, 0]" out &&
	jq -e "[.ranks[] | .copies[0].exists] == [false, false, true, false]" out &&
	jq -e "all(.ranks[]; .free > 0)" out
'

test_expect_success 'a source that is missing' '
	bcast_fails 1 --dry-run "$JOBID" nosuchfile &&
	error_says nosuchfile
'

test_expect_success 'directories: as it would really go' '
	mkdir -p dir/sub && : >dir/sub/f &&
	bcast "$JOBID" dir && bcast "$JOBID" file plain &&
	bcast_fails 1 --dry-run "$JOBID" dir && error_says "File exists" &&
	bcast --dry-run --force "$JOBID" dir && bcast --force "$JOBID" dir &&
	bcast_fails 1 --dry-run --force "$JOBID" dir plain && error_says "in the way" &&
	bcast_fails 1 --force "$JOBID" dir plain && error_says "in the way"
'

test_expect_success '--checksum: who has the file already, and who would get it' '
	job_exec_all "mkdir \"\$FLUX_JOB_TMPDIR/sums\"" &&
	bcast --ranks=1,3 "$JOBID" file sums/ &&
	job_exec_all "$everything" >before &&
	bcast --dry-run --checksum "$JOBID" file sums/ >out &&
	for r in 1 3; do
		grep -E "^$r [^ ]+ unchanged [0-9.]+[A-Za-z]+-free $(job_tmpdir $r)/sums/file$" out ||
			return 1
	done &&
	grep "^0 .* new " out && grep "^2 .* new " out && test "$(wc -l <out)" = 4 &&
	bcast --dry-run --checksum --json "$JOBID" file sums/ >out &&
	jq -e "[.ranks[] | .unchanged] == [false, true, false, true]" out &&
	jq -e ".errno == 0 and .bytes == 100000 and all(.ranks[]; .errno == 0)" out &&
	bcast --dry-run --force --json "$JOBID" file sums/ >out &&
	jq -e "all(.ranks[]; .unchanged == false)" out &&
	job_exec_all "$everything" >after &&
	test_cmp before after
'

test_expect_success '--checksum: the same ranks fail as would really' '
	job_exec 2 "head -c 100000 /dev/zero >\"\$FLUX_JOB_TMPDIR/sums/file\"" &&
	test_expect_code 1 bcast --dry-run --checksum "$JOBID" file sums/ >out 2>err &&
	grep "^flux-bcast: ERROR: rank 2 (.*File exists" err &&
	test "$(grep -c ERROR err)" = 1 &&
	grep "^0 .* new " out && grep "^1 .* unchanged " out &&
	grep "^2 .* refused " out && grep "^3 .* unchanged " out &&
	bcast_fails 1 --checksum "$JOBID" file sums/ && error_says "rank 2 (" "File exists" &&
	bcast --dry-run --checksum --force "$JOBID" file sums/ >out &&
	grep "^2 .* replace " out && test "$(grep -c " unchanged " out)" = 2 &&
	bcast --checksum --force "$JOBID" file sums/ &&
	bcast --dry-run --checksum "$JOBID" file sums/ >out &&
	test "$(grep -c " unchanged " out)" = 4 &&
	bcast --dry-run --checksum --json "$JOBID" file sums/ >out &&
	jq -e ".bytes == 0 and all(.ranks[]; .unchanged)" out
'

test_expect_success '--checksum: of several files all must be there' '
	data_random 1000 other &&
	bcast --ranks=0 "$JOBID" other sums/ &&
	bcast --dry-run --checksum --force "$JOBID" file other sums/ >out &&
	test "$(grep -c "^0 .* unchanged " out)" = 2 &&
	test "$(grep -c "^[123] .* replace .*/file$" out)" = 3 &&
	test "$(grep -c "^[123] .* new .*/other$" out)" = 3
'

test_expect_success '--checksum: a directory is not compared, which is said' '
	bcast --dry-run --checksum --force "$JOBID" dir >out 2>err &&
	grep "^flux-bcast: dir is a directory, which is not compared" err &&
	test "$(wc -l <err)" = 1 &&
	test "$(grep -c "^[0-3] .* replace " out)" = 4 &&
	bcast_fails 2 --dry-run --checksum "$JOBID" - name <file &&
	error_says --checksum "standard input"
'

test_expect_success '--checksum: a source that is missing, and a rank that is' '
	bcast_fails 1 --dry-run --checksum "$JOBID" nosuchfile &&
	error_says nosuchfile &&
	bcast_fails 1 --dry-run --checksum --ranks=7 "$JOBID" file &&
	error_says 7
'

test_expect_success 'a tag that is none' '
	for option in --dry-run --checksum --partial --direct --from=1; do
		source=file &&
		case $option in
		--from=*) source=$PWD/file ;;
		esac &&
		bcast_fails 1 $option "$JOBID" "$source" "$PWD/{{node.id}}/{{nonsense}}/" &&
		error_says "$PWD/{{node.id}}/{{nonsense}}/: this Flux does not know the tag" &&
		test "$(wc -l <err)" = 1 || return 1
	done &&
	error_says "ranks 0,2-3 (" &&
	bcast_fails 1 "$JOBID" file "$PWD/{{nonsense}}" &&
	error_says "ranks 0-3 (" "{{nonsense}}" &&
	test "$(wc -l <err)" = 1 &&
	find . -name "*nonsense*" >found &&
	test_must_be_empty found
'

test_expect_success 'the job ends well' '
	job_finish
'

test_done
