#!/bin/sh

test_description='a limit on bytes per second: it holds, and nobody waits for it in vain'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

# Times have lower bounds only, which hold on the slowest machine as well: so many
# bytes at so many per second, less the last message, which need not be waited for.
FILE=1000000 PACE=500k SECONDS_LEAST=1.85

test_expect_success 'start a job, with files on each rank' '
	data_random $FILE file && data_random 4000000 big && data_random 20000 short &&
	mkdir to && job_start main 4 &&
	for r in 0 1 2 3; do
		data_random 300000 part.$r && cp part.$r "$(job_tmpdir $r)/part" &&
		cp file "$(job_tmpdir $r)/source" && cp big "$(job_tmpdir $r)/huge" || return 1
	done
'

# slow_enough SECONDS: so says the result of a transfer, in `out`.
slow_enough() {
	cat out && jq -e ".seconds >= $1" out
}

# paced NAME OPTION...: the copies are called NAME.
paced() {
	paced_name=$1
	shift
	bcast --json --pace=$PACE --dest="$paced_name" "$@" >out &&
	slow_enough $SECONDS_LEAST
}

test_expect_success 'the client keeps to it' '
	paced send "$JOBID" file && job_has file "\$FLUX_JOB_TMPDIR/send"
'

test_expect_success 'by TCP as well' '
	paced direct --direct "$JOBID" file && job_has file "\$FLUX_JOB_TMPDIR/direct"
'

test_expect_success 'so does the shell that has the source' '
	paced from --from=2 "$JOBID" source && job_has file "\$FLUX_JOB_TMPDIR/from" "0 1 3"
'

test_expect_success 'ranks that are fetched from share it' '
	bcast --gather --json --pace=$PACE "$JOBID" part parts >out &&
	slow_enough 2.24 &&
	for r in 0 1 2 3; do
		cmp part.$r parts/$r/part || return 1
	done
'

# Uncompressed it would take more than twice the time that bcast has.
test_expect_success 'what counts is what is left when it is compressed' '
	yes | head -c 64M >dull &&
	bcast --pace=256k --compress "$JOBID" dull && job_has dull "\$FLUX_JOB_TMPDIR/dull" &&
	rm dull && job_exec_all "rm \"\$FLUX_JOB_TMPDIR/dull\""
'

now_ms() {
	python3 -c "import time; print(time.monotonic_ns() // 1000000)"
}

test_expect_success 'at the start of a job; who is slow is not silent, nor lost' '
	begun=$(now_ms) &&
	run_timeout 100 flux run -N4 -n4 -o userrc="$BCAST_RC" -o bcast.source="$PWD/short" \
		-o bcast.chunk=16k -o bcast.pace=2500 -o bcast.stall=5 \
		sh -c "cmp \"$PWD/short\" \"\$FLUX_BCAST_PATH\"" &&
	took=$(($(now_ms) - begun)) &&
	echo "took $took ms" && test "$took" -ge 7500
'

# With these the second message has to wait for a quarter of an hour.
CRAWL="--pace=1k --chunk=1M"

# reads RANK: that shell reads a source. reads_no_more: none does, sooner or later.
reads() {
	grep -qs "^bcast-reader$" /proc/"$(job_shell "$1")"/task/*/comm
}
reads_no_more() {
	for r in 0 1 2 3; do
		run_timeout 60 sh -c "while grep -qs \"^bcast-reader$\" \"\$0\"/task/*/comm; do
			sleep 0.05
		done" /proc/"$(job_shell $r)" || return 1
	done
}

# nothing_left: no shell has a part of a copy.
nothing_left() {
	nothing_open "$PWD/to" && has_only to
}

test_expect_success 'an interrupted client does not wait' '
	bcast_background send $CRAWL --dest="$PWD/to/{{node.id}}" "$JOBID" big &&
	transfer_begun 0 "$PWD/to" &&
	kill -INT "$(bcast_client send)" &&
	bcast_ends send 1 && grep interrupted send.err &&
	nothing_left
'

test_expect_success 'a time limit ends the wait' '
	bcast_fails 1 $CRAWL --timeout=2s --dest="$PWD/to/{{node.id}}" "$JOBID" big &&
	error_says "time limit" &&
	nothing_left
'

# reader_ends SIGNAL RANK OPTION...: shell RANK reads for a client, which gets the
# signal.
reader_ends() {
	ends_signal=$1 ends_rank=$2
	shift 2
	# shellcheck disable=SC2086 # several words
	bcast_background remote $CRAWL "$@" &&
	run_timeout 60 python3 "$BCAST_SCRIPTS/wait-file" remote.pid &&
	if test -d fetched; then
		run_timeout 60 python3 "$BCAST_SCRIPTS/staged" --wait "$(bcast_client remote)" \
			"$PWD/fetched"
	else
		transfer_begun 0 "$PWD/to"
	fi &&
	reads "$ends_rank" &&
	kill -"$ends_signal" "$(bcast_client remote)" &&
	bcast_wait remote && test "$STATUS" != 0 &&
	reads_no_more && nothing_left
}

test_expect_success 'a shell that waits does so no more when the client is interrupted' '
	reader_ends INT 1 --from=1 --dest="$PWD/to/{{node.id}}" "$JOBID" huge
'

test_expect_success 'nor when it is killed' '
	reader_ends KILL 1 --from=1 --dest="$PWD/to/{{node.id}}" "$JOBID" huge
'

test_expect_success 'the same for one that is fetched from' '
	mkdir fetched &&
	reader_ends INT 3 --gather --ranks=3 "$JOBID" huge fetched &&
	reader_ends KILL 3 --gather --ranks=3 "$JOBID" huge fetched
'

test_expect_success 'the job is well' '
	paced well "$JOBID" file && job_finish
'

test_expect_success 'a job that is cancelled while it starts' '
	job_prepare start 4 &&
	job_submit -o userrc="$BCAST_RC" -o bcast.source="$PWD/big" \
		-o "bcast.dest=$PWD/to/{{node.id}}" -o bcast.pace=1k -o bcast.chunk=1M &&
	writer_of "$PWD/to" &&
	run_timeout 20 flux cancel "$JOBID" &&
	job_wait_clean &&
	has_only to
'

test_done
