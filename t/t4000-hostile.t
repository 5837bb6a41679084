#!/bin/sh

test_description='Senders that keep to no rule: clear errors, and the shells live on'

. "$(dirname "$0")/sharness.sh"
test_under_flux 3

attack() {
	run_timeout 100 ./hostile "$@" "$JOBID"
}

# All shells answer, have no more threads than at the beginning, and take files.
unharmed() {
	count=$((${count:-0} + 1)) &&
	data_random 300000 "good$count" &&
	run_timeout 60 flux bcast "$JOBID" "good$count" &&
	job_has "good$count" "\$FLUX_JOB_TMPDIR/good$count" &&
	for r in 0 1 2; do
		retry 600 idle "$(job_shell $r)" || return 1
	done
}
idle() {
	test "$(threads "$1")" -le "$THREADS"
}
retry() {
	tries=$1 && shift &&
	until "$@"; do
		tries=$((tries - 1)) && test $tries -gt 0 && sleep 0.1 || return 1
	done
}
threads() {
	sed -n 's/^Threads:[^0-9]*//p' /proc/"$1"/status
}
memory() {
	sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' /proc/"$1"/status
}

test_expect_success 'start a job' '
	capi_prefix &&
	capi_compile t/src/hostile.c -Wall -Wextra -Werror &&
	job_start main 3 &&
	THREADS=$(threads $(job_shell 0)) &&
	unharmed
'

test_expect_success 'requests that are none' '
	attack junk && unharmed
'

test_expect_success 'limits of what can be asked for' '
	attack limits && unharmed
'

test_expect_success 'streams that are none' '
	attack streams && unharmed &&
	job_exec_all "test ! -e \$FLUX_JOB_TMPDIR/../escaped && test ! -e /tmp/escaped" &&
	job_lacks "\$FLUX_JOB_TMPDIR/f"
'

test_expect_success 'a transfer of somebody else is out of reach' '
	attack others && unharmed
'

test_expect_success 'a byte that changes on the way: no rank has the file, each error says why' '
	attack damage >out && cat out &&
	test "$(wc -l <out)" = 3 &&
	for r in 0 1 2; do
		failed="{\"rank\":$r,\"outcome\":{\"failed\":{\"rank\":0,\"errno\":[0-9]*,\"text\"" &&
		test "$(grep -c "$failed:\"damaged message: checksum mismatch" out)" = 3 ||
			return 1
	done &&
	job_lacks "\$FLUX_JOB_TMPDIR/damaged" &&
	unharmed
'

test_expect_success 'data that is not what the source had: every rank finds out by itself' '
	attack digest >out && cat out &&
	for r in 0 1 2; do
		failed="{\"rank\":$r,\"outcome\":{\"failed\":{\"rank\":$r,\"errno\":[0-9]*,\"text\"" &&
		grep "$failed:\"verify altered: [^\"]*the digest differs" out || return 1
	done &&
	job_lacks "\$FLUX_JOB_TMPDIR/altered" &&
	unharmed
'

test_expect_success 'data that were not granted are not kept' '
	mkfifo hold &&
	before=$(memory $(job_shell 0)) &&
	kill -STOP $(job_shell 1) &&
	{ attack flood <hold >flood.out & } && flood=$! &&
	exec 8>hold &&
	retry 600 grep broken flood.out &&
	after=$(memory $(job_shell 0)) &&
	kill -CONT $(job_shell 1) &&
	echo "$before kB before, $after kB after" &&
	test $after -lt $((before + 40000)) &&
	exec 8>&- &&
	wait $flood &&
	unharmed
'

# By TCP.
feed() {
	run_timeout 100 "$BCAST_SCRIPTS/tcp-feed" "$@" "$JOBID"
}

test_expect_success 'connections that end, or prove nothing' '
	feed stages && unharmed
'

test_expect_success 'junk by TCP' '
	feed junk && unharmed
'

test_expect_success 'a sender by TCP that keeps to no window and takes no credit' '
	before=$(memory $(job_shell 0)) &&
	feed flood >flood.out &&
	after=$(memory $(job_shell 0)) &&
	cat flood.out &&
	echo "$before kB before, $after kB after" &&
	test $after -lt $((before + 40000)) &&
	unharmed
'

test_expect_success 'thousands of transfers at once: 64 are open, the others are refused' '
	attack crowd && unharmed
'

test_expect_success 'clients that ask for files and are silent then are given up' '
	attack silent && unharmed
'

shell_knows POST_INIT

test_expect_success POST_INIT 'nobody but the leader lets a job start' '
	job_finish &&
	cc -Wall -Wextra -Werror -shared -fPIC -I"$BCAST_TOP/include" -o held.so \
		"$BCAST_TOP/t/src/held.c" &&
	printf "plugin.load { file = \"%s\", conf = {} }\n" "$PWD/held.so" "$BCAST_PLUGIN" \
		>held.lua &&
	data_random 300000 slow &&
	JOBID=$(HELD=$PWD/held run_timeout 60 flux submit -N3 -n3 -o userrc="$PWD/held.lua" \
		-o bcast.source="$PWD/slow" sh -c "cmp \"\$FLUX_BCAST_PATH\" slow") &&
	run_timeout 60 "$BCAST_SCRIPTS/wait-file" held &&
	attack release &&
	kill -CONT "$(cat held)" &&
	run_timeout 60 flux job attach "$JOBID"
'

test_done
