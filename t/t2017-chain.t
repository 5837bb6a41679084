#!/bin/sh

test_description='A large file through a chain of brokers: their memory stays bounded, all survive'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8 -o,--setattr=tbon.topo=kary:1

# The brokers of the instance, as processes: children of flux-start, or (in the
# stand-in) the one process that passes all messages on.
if test "$PROVIDER" = flux; then
	BROKERS=$(pgrep -P "$(ps -o ppid= -p $PPID | tr -d ' ')")
else
	BROKERS=$PPID
fi

# Their resident memory in KiB, now and at its peak since `forget`.
now() {
	awk '$1 == "VmRSS:" { print $2 }' "/proc/$1/status"
}
peak() {
	awk '$1 == "VmHWM:" { print $2 }' "/proc/$1/status"
}
forget() {
	for broker in $BROKERS; do
		echo 5 >"/proc/$broker/clear_refs" && now "$broker" >"before.$broker" ||
			return 1
	done
}
send() {
	head -c "$1" /dev/urandom >source &&
	run_timeout 120 flux bcast --force "$JOBID" source "$PWD/to/{{node.id}}" &&
	for r in 0 1 2 3 4 5 6 7; do
		cmp source "to/$r" && rm "to/$r" || return 1
	done
}

test_expect_success 'send 64 MiB from the first of 8 brokers to the last' '
	mkdir to &&
	job_start main 8 &&
	send 4194304 &&
	forget &&
	send 67108864
'

test_expect_success 'no broker has held more than 16 MiB of it' '
	echo "brokers: $BROKERS" &&
	for broker in $BROKERS; do
		echo "$broker: $(cat before.$broker) KiB before, $(peak $broker) KiB at most" &&
		test "$(peak $broker)" -lt $(($(cat before.$broker) + 16384)) || return 1
	done
'

test_expect_success REAL_FLUX 'all brokers were looked at, and are online' '
	test "$(echo $BROKERS | wc -w)" = 8 &&
	test "$(flux getattr tbon.topo)" = kary:1 &&
	test "$(run_timeout 20 flux overlay status --summary)" = full
'

test_expect_success 'the job ends well' '
	send 4194304 &&
	job_finish
'

test_done
