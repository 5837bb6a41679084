#!/bin/sh

test_description='flux bcast refuses what it cannot mean, before it does anything'

. "$(dirname "$0")/sharness.sh"
test_under_flux 1

test_expect_success 'set up a file' '
	data_random 10 file
'

# refused WORD ARGUMENT...: usage error, exit status 2, and the error names WORD.
# (test_expect_success evaluates its text within itself, where "$@" would be its
# own arguments: so ours become part of the text.)
refused() {
	word=$1
	shift
	words=
	for argument; do
		words="$words '$argument'"
	done
	test_expect_success "refused: flux bcast $*" "
		bcast_fails 2 $words &&
		error_says '$word' &&
		test \"\$(grep -c ERROR err)\" = 1
	"
}

refused source
refused source f58
refused --frobnicate --frobnicate f58 file
refused '(did you mean --force?); see' --forse f58 file
refused '(did you mean --dry-run?); see' --dryrun=1 f58 file
refused 'found; see' --frobnicate f58 file
refused 0 -k 0 f58 file
refused -1 --fanout=-1 f58 file
refused two --fanout=two f58 file
refused 0 --chunk=0 f58 file
refused 12q --chunk=12q f58 file
refused chunk --chunk=1G f58 file
refused 0 --batch=0 f58 file
refused 0 --window=0 f58 file
refused 0 --pace=0 f58 file
refused fast --pace=fast f58 file
refused '--pace 2147483648000 is not within' --pace=2000G f58 file
refused --pace --list --pace=1M f58
refused soon --timeout=soon f58 file
refused -5 --timeout=-5 f58 file
refused 9999 --mode=9999 f58 file
refused rwx --mode=rwx f58 file
refused 3-1 --ranks=3-1 f58 file
refused foo --ranks=foo f58 file
refused 'bar[' '--exclude=bar[' f58 file
refused 'host[' '--hosts=host[' f58 file
refused 'rank such as 0' --from=a f58 file
refused 'on a rank' --jobid=f58 --from=0 -
refused maybe --progress=maybe f58 file
refused '%%' --jobid=%% file
refused --name --jobid=f58 -
refused a/b --jobid=f58 --name=a/b -
refused --name --jobid=f58 --name=one --dest=d/ file other
refused '--name=one and DEST' --jobid=f58 --name=one file other
refused --preserve --jobid=f58 --preserve - name
refused 'not the name of a file' --jobid=f58 --name=.. file
refused 'no rank' --ranks= f58 file
refused 'no host' --hosts= f58 file
refused 'no host' --hosts=, f58 file
refused DEST --jobid=f58 file ''
refused DEST --jobid=f58 --dest= file
refused DEST --gather --jobid=f58 file ''
refused PATH --remove --jobid=f58 ''
refused 'no-such-job' --list no-such-job
refused 'not the first word' file f58
refused '--batch 1024' --batch=1k f58 file
refused --window --window=1G f58 file
refused --exclude-libs --exclude-libs=/x f58 file

test_expect_success 'control characters in what is refused are shown: the error is one line' '
	word=$(printf "a\nb\033[31m") &&
	bcast_fails 2 --jobid="$word" file &&
	error_says "a\nb\u{1b}[31m" &&
	test "$(wc -l <err)" = 1
'

test_expect_success '--json: what is refused is an object, too, and still said' '
	for words in "--forse --json f58 file" "--json f58" "--list --js --mkdir f58" \
		"--json --chunk=0 f58 file" "--json --list no-such-job"; do
		test_expect_code 2 bcast $words >out 2>err &&
		cat out err &&
		test "$(wc -l <err)" = 1 &&
		jq -e -s "length == 1 and .[0].errno == 22 and .[0].ranks == []" out &&
		test "flux-bcast: ERROR: $(jq -r .error out)" = "$(cat err)" || return 1
	done &&
	bcast_fails 2 --forse f58 -- --json >out &&
	test_must_be_empty out
'

test_expect_success 'a file that could be a job: refused, and says how to say which' '
	data_random 10 f58 &&
	bcast_fails 2 f58 file &&
	error_says --jobid=f58 ./f58
'

test_expect_success 'usage errors need no Flux at all' '
	(unset FLUX_URI && bcast_fails 2 -k 0 f58 file)
'

test_expect_success '--json: no Flux, and no job, are an object, too' '
	(
		test_cleanup=: &&
		FLUX_URI=local:///no/such/socket && export FLUX_URI &&
		test_expect_code 1 bcast --json --jobid=f58 file >out 2>err
	) &&
	cat out err &&
	jq -e -s "length == 1 and .[0].errno != 0 and .[0].ranks == []" out &&
	jq -e ".error | contains(\"/no/such/socket\")" out &&
	test_expect_code 1 bcast --json --list --jobid=1234 >out 2>err &&
	jq -e -s "length == 1 and .[0].errno != 0 and .[0].ranks == []" out
'

test_done
