#!/bin/sh

test_description='flux bcast: help, modes, and what happens to existing files'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success '--help is in the form of Flux, --version names the version' '
	bcast --help >out &&
	head -n 1 out | grep "^Usage: flux bcast " &&
	grep "^  -j, --jobid=JOBID  *[A-Z]" out &&
	grep "^      --send-libs\[=DIR\]  *[A-Z]" out &&
	bcast --version | grep -E "flux bcast [0-9]+\.[0-9]+"
'

test_expect_success 'options without a meaning in a mode are refused by name' '
	bcast_fails 2 --list --mkdir f58 &&
	error_says --mkdir --list &&
	bcast_fails 2 --gather --append f58 a d &&
	error_says --append --gather &&
	bcast_fails 2 --from=1 --checksum f58 a &&
	error_says --checksum --from &&
	bcast_fails 2 --gather --compress f58 a d &&
	error_says --compress --gather &&
	bcast_fails 2 --gather --direct f58 a d &&
	error_says --direct --gather &&
	bcast_fails 2 --list --stats f58 &&
	error_says --stats --list &&
	bcast_fails 2 --remove --progress=always f58 &&
	error_says --progress --remove &&
	bcast_fails 2 --list --remove f58 &&
	error_says --list --remove &&
	bcast_fails 2 --gather f58 a &&
	error_says PATH DIR &&
	bcast_fails 2 --list f58 word &&
	error_says JOBID
'

test_expect_success 'start a job' '
	job_start main 4 &&
	echo one >one && echo two >two && cat one two >both
'

test_expect_success '--append adds, and creates what is missing' '
	bcast --append --ranks=0-2 "$JOBID" one file &&
	bcast --append "$JOBID" two file &&
	job_has both "\$FLUX_JOB_TMPDIR/file" "0 1 2" &&
	job_has two "\$FLUX_JOB_TMPDIR/file" 3
'

test_expect_success '--truncate writes in place' '
	before=$(stat -c %i "$(job_tmpdir 1)/file") &&
	bcast --truncate "$JOBID" one file &&
	job_has one "\$FLUX_JOB_TMPDIR/file" &&
	test "$(stat -c %i "$(job_tmpdir 1)/file")" = "$before"
'

test_expect_success '--force, --append and --truncate contradict each other' '
	bcast_fails 2 --force --append "$JOBID" one file &&
	error_says --force --append &&
	bcast_fails 2 --truncate --append "$JOBID" one file
'

test_expect_success '--unique: a new directory each time, and its path' '
	bcast --unique "$JOBID" one two >first &&
	bcast --unique "$JOBID" one two >second &&
	! cmp first second &&
	for r in 0 1 2 3; do
		dir=$(grep -F "$(job_tmpdir $r)" first | sed "s|^rank.*: ||") &&
		cmp one "$dir/one" && cmp two "$dir/two" &&
		test "$(stat -c %a "$dir")" = 700 || return 1
	done &&
	bcast_fails 2 --unique --dest=d "$JOBID" one &&
	error_says --unique --dest
'

test_expect_success '--checksum leaves out the ranks that have the file' '
	data_random 1000000 big &&
	bcast --ranks=1,3 "$JOBID" big &&
	before=$(stat -c %i "$(job_tmpdir 3)/big") &&
	bcast --checksum --json "$JOBID" big >out &&
	jq -e "[.ranks[] | .state] == [\"done\", \"unchanged\", \"done\", \"unchanged\"]" out &&
	job_has big "\$FLUX_JOB_TMPDIR/big" &&
	test "$(stat -c %i "$(job_tmpdir 3)/big")" = "$before" &&
	jq -e "[.bytes, (.ranks[] | .bytes)] == [1000000, 1000000, 0, 1000000, 0]" out &&
	bcast --checksum -v "$JOBID" big >out &&
	test "$(grep -c "(unchanged)$" out)" = 4
'

test_expect_success '--checksum: what was not sent is not counted' '
	bcast --checksum --json "$JOBID" big >out &&
	jq -e "[.bytes, (.ranks[] | .bytes)] == [0, 0, 0, 0, 0]" out &&
	bcast --checksum --stats "$JOBID" big >out &&
	grep -E "^2 [^ ]+ unchanged 0 0 " out &&
	grep "^0 .* to 0 of 4 ranks in " out
'

test_expect_success '-v beside --json: where the copies are, on standard error' '
	bcast --json -v "$JOBID" big beside/ --mkdir >out 2>err &&
	jq -e ".errno == 0" out &&
	grep -E "^flux-bcast: 3 [^ ]+ $(job_tmpdir 3)/beside/big$" err
'

test_expect_success '--stats beside --json: on standard error' '
	bcast --json --stats --force "$JOBID" big beside/ >out 2>err &&
	jq -e ".errno == 0" out &&
	grep -E "^flux-bcast: 3 [^ ]+ done 0 1000000 [0-9.]+ $(job_tmpdir 3)/beside/big$" err
'

test_expect_success 'two files: that the second is taken for the name of the copy is said' '
	data_random 1000 first && data_random 1000 second && data_random 1000 third &&
	bcast "$JOBID" first second 2>err &&
	test_when_finished "bcast --remove \"\$JOBID\" second third" &&
	grep "^flux-bcast: .second. is taken for the name of the copy" err &&
	test "$(wc -l <err)" = 1 &&
	job_has first "\$FLUX_JOB_TMPDIR/second" &&
	bcast --force "$JOBID" first second ./ 2>err &&
	job_has second "\$FLUX_JOB_TMPDIR/second" &&
	bcast --force "$JOBID" first first 2>>err &&
	bcast --dest=third "$JOBID" first 2>>err &&
	test_must_be_empty err
'

test_expect_success '--checksum: a different file is refused, or replaced, as ever' '
	job_exec 2 "echo other >\"\$FLUX_JOB_TMPDIR/big\"" &&
	bcast_fails 1 --checksum "$JOBID" big &&
	error_says "rank 2 (" "File exists" "$(job_tmpdir 2)/big" &&
	bcast --checksum --force "$JOBID" big &&
	job_has big "\$FLUX_JOB_TMPDIR/big"
'

test_expect_success '--checksum: a new directory has nothing' '
	bcast --checksum --unique --json "$JOBID" big >out &&
	jq -e "all(.ranks[]; .state == \"done\")" out &&
	jq -e "all(.ranks[].paths[]; endswith(\"/big\"))" out &&
	path=$(jq -r ".ranks[0].paths[0]" out) &&
	test "$(dirname "$(dirname "$path")")" = "$(job_tmpdir 0)"
'

test_expect_success '--checksum: a directory is not compared, which is said' '
	mkdir tree && cp big tree &&
	bcast --checksum "$JOBID" tree 2>err &&
	grep "^flux-bcast: tree is a directory, which is not compared" err &&
	test "$(wc -l <err)" = 1 &&
	bcast --checksum --force "$JOBID" tree big --json ./ >out 2>err &&
	jq -e "all(.ranks[]; .state == \"done\")" out &&
	test "$(wc -l <err)" = 1
'

test_expect_success '--checksum needs sources that can be read twice' '
	bcast_fails 2 --checksum "$JOBID" - name <one &&
	error_says --checksum "standard input"
'

test_expect_success '--stats says path, bytes, time and error of each rank' '
	bcast --stats "$JOBID" big stats >out &&
	for r in 0 1 2 3; do
		grep -E "^$r [^ ]+ done 0 1000000 [0-9.]+ $(job_tmpdir $r)/stats$" out ||
			return 1
	done &&
	job_exec 1 "echo >\"\$FLUX_JOB_TMPDIR/in-the-way\"" &&
	test_expect_code 1 bcast --stats --partial "$JOBID" big in-the-way >out 2>err &&
	grep -E "^1 [^ ]+ failed 17 0 " out &&
	grep -E "^2 [^ ]+ done 0 1000000 " out
'

test_expect_success '--json has the time of each rank' '
	bcast --json "$JOBID" big json >out &&
	jq -e "[.ranks[] | select(.seconds > 0 and .bytes == 1000000)] | length == 4" out
'

test_expect_success '-vv says what is being done, on standard error' '
	bcast -vv "$JOBID" big loud >out 2>err &&
	test "$(wc -l <out)" = 4 &&
	grep "ranks 0-3; tree from rank" err
'

# util-linux: a terminal for a command.
command -v script >/dev/null && test_set_prereq SCRIPT

test_expect_success SCRIPT 'a bar on a terminal: bytes, rate, time left, ranks' '
	data_random 20000000 large &&
	run_timeout 60 script -qec "TERM=xterm flux bcast $JOBID large bar" typescript >/dev/null &&
	tr "\r" "\n" <typescript >bar.out &&
	grep -a -E "[0-9.]+ [KM]?i?B/19.07 MiB [0-9.]+ .*B/s ETA .* ranks [0-4]/4" bar.out &&
	run_timeout 60 script -qec "TERM=xterm flux bcast --progress=never $JOBID large no-bar" typescript \
		>/dev/null &&
	! grep -a ETA typescript
'

test_expect_success '--no-wait does not mind a job that runs' '
	bcast --no-wait "$JOBID" one no-wait &&
	job_has one "\$FLUX_JOB_TMPDIR/no-wait"
'

test_expect_success REAL_FLUX '--no-wait: a job that has not started is refused at once' '
	pending=$(run_timeout 20 flux submit --urgency=hold -o userrc="$BCAST_RC" true) &&
	bcast_fails 1 --no-wait "$pending" one &&
	error_says "$pending" "has not started" &&
	bcast_background waiting "$pending" one &&
	run_timeout 20 flux cancel "$pending" &&
	bcast_ends waiting 1 &&
	grep "$pending" waiting.err
'

test_expect_success 'the time limit ends before the job starts: that is said' '
	held=$(run_timeout 30 flux submit --urgency=hold -N1 -n1 -o userrc="$BCAST_RC" true) &&
	test_when_finished "run_timeout 20 flux cancel $held" &&
	bcast_fails 1 -t 2s "$held" one &&
	error_says "the time limit of 2 s has expired; the job has not started"
'

test_expect_success 'a word that is no job id: said, and no hint about names' '
	bcast_fails 2 no-such first second &&
	error_says "no-such" "is not a job id, so it is taken as a source; no JOBID is given" &&
	test "$(wc -l <err)" = 1 &&
	bcast_fails 1 "$JOBID" second first &&
	error_says "File exists (--force replaces it)" &&
	! grep "taken for" err
'

test_expect_success '--compress changes nothing but what is on the way' '
	data_library lib &&
	data_random 300000 noise &&
	for file in lib noise; do
		bcast --compress -k2 --dest=squeezed --force "$JOBID" $file &&
		job_has $file "\$FLUX_JOB_TMPDIR/squeezed" || return 1
	done &&
	run_timeout 60 flux run -N2 -n2 -o userrc="$BCAST_RC" \
		-o bcast.source="$PWD/lib" -o bcast.compress \
		sh -c "sha256sum <\"\$FLUX_BCAST_PATH\"" >out &&
	test "$(grep -c "^$(sha256sum <lib)$" out)" = 2
'

test_expect_success 'the job ends well' '
	job_finish
'

test_done
