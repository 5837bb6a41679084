#!/bin/sh

test_description='flux bcast --direct: data by TCP, past the brokers'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

test_expect_success 'set up' '
	data_random 33554432 big &&
	mkdir -p tree/sub && data_random 300000 tree/sub/one && ln -s sub/one tree/link &&
	mkdir to && job_start main 8
'

# job_shells: the process ids of all shells of the job.
job_shells() {
	for r in $(job_ranks); do
		job_shell "$r"
	done
}

# tcp COMMAND ARGUMENT...: see scripts/tcp.
tcp() {
	run_timeout 60 python3 "$BCAST_SCRIPTS/tcp" "$@"
}

# intrude TIMES PID...: connects to these shells until go is removed; returns when
# it was let in so often.
intrude() {
	rm -f go.in && : >go || return 1
	tcp intrude go "$@" >intruded &
	intruder=$!
	run_timeout 60 "$BCAST_SCRIPTS/wait-file" go.in
}
intrude_no_more() {
	rm go && wait "$intruder" && echo "was let in $(cat intruded) times"
}

# A client that cannot connect: the first shell goes on listening.
apart() {
	run_timeout 60 unshare -n flux bcast --direct -k 2 --force --dest=strange \
		"$JOBID" big &
	client=$!
}

# stalled NAME [OPTION...]: a transfer into to/ that has begun and cannot end, since
# shell 5 is stopped and no window is as large as the file.
stalled() {
	stalled_name=$1
	shift
	kill -STOP "$(job_shell 5)" &&
	bcast_background "$stalled_name" "$@" -k 2 "$JOBID" big "$PWD/to/big.{{node.id}}" &&
	transfer_begun 0 "$PWD/to"
}

# copies RANK...: the copies of these ranks in to/ are right, and there is nothing
# else; takes them away.
copies() {
	for r; do
		test_cmp big "to/big.$r" || return 1
	done
	# shellcheck disable=SC2046 # several words
	has_only to $(printf "big.%s " "$@") && rm to/*
}

test_expect_success 'the shells have connections, and only if asked' '
	stalled brokers &&
	test "$(tcp count $(job_shells))" = 0 &&
	kill -CONT "$(job_shell 5)" && bcast_ends brokers 0 && rm to/* &&
	stalled direct --direct &&
	test "$(tcp count $(job_shells))" -ge 1 &&
	kill -CONT "$(job_shell 5)" && bcast_ends direct 0 && rm to/* &&
	tcp none $(job_shells)
'

for k in 1 2 7; do
	test_expect_success "down a tree of $k" "
		bcast --direct -k $k --dest=k$k \"\$JOBID\" big &&
		job_has big \"\\\$FLUX_JOB_TMPDIR/k$k\"
	"
done

for size in 0 1 4095 4096 4097 1048576; do
	test_expect_success "$size bytes" "
		data_random $size s$size && bcast --direct \"\$JOBID\" s$size &&
		job_has s$size \"\\\$FLUX_JOB_TMPDIR/s$size\"
	"
done

test_expect_success 'one message at a time, compressed, a directory' '
	bcast --direct --chunk=4k --batch=4k --window=4k --compress "$JOBID" tree &&
	job_has tree/sub/one "\$FLUX_JOB_TMPDIR/tree/link"
'

test_expect_success 'from a node' '
	bcast --direct --from 3 "$JOBID" s4097 copied &&
	job_has s4097 "\$FLUX_JOB_TMPDIR/copied" "0 1 2 4 5 6 7"
'

test_expect_success 'at job start' '
	run_timeout 60 flux run -N8 -n8 -o userrc="$BCAST_RC" -o bcast.source="$PWD/big" \
		-o bcast.direct sh -c "sha256sum <\$FLUX_BCAST_PATH" >sums &&
	test "$(sort -u sums)" = "$(sha256sum <big)" && test "$(wc -l <sums)" = 8
'

test_expect_success NETNS 'a client that cannot connect sends through its broker' '
	run_timeout 60 unshare -n flux bcast --direct --dest=apart "$JOBID" big &&
	job_has big "\$FLUX_JOB_TMPDIR/apart"
'

# Shell 5 says where it listens while the one that will connect, 2, is stopped; what
# they do then cannot end before 6 goes on.
test_expect_success 'whoever connects first without the secret is in nobody'"'"'s way' '
	kill -STOP "$(job_shell 6)" &&
	stalled strange --direct &&
	transfer_begun 2 "$PWD/to" &&
	kill -STOP "$(job_shell 2)" &&
	kill -CONT "$(job_shell 5)" &&
	intrude 1 "$(job_shell 5)" &&
	kill -CONT "$(job_shell 2)" &&
	tcp between "$(job_shell 2)" "$(job_shell 5)" &&
	intrude_no_more &&
	kill -CONT "$(job_shell 6)" &&
	bcast_ends strange 0 &&
	copies $(job_ranks) &&
	tcp none $(job_shells)
'

test_expect_success NETNS 'nor is a crowd of them at a port that nobody else uses' '
	kill -STOP "$(job_shell 5)" &&
	apart &&
	intrude 100 "$(job_shell 0)" &&
	kill -CONT "$(job_shell 5)" &&
	wait $client &&
	intrude_no_more &&
	job_has big "\$FLUX_JOB_TMPDIR/strange"
'

tcp break && test_set_prereq BREAK

test_expect_success BREAK 'a connection that breaks is named, soon' '
	stalled broken --direct &&
	transfer_begun 3 "$PWD/to" &&
	tcp break "$(job_shell 3)" &&
	bcast_ends broken 1 &&
	kill -CONT "$(job_shell 5)" &&
	grep "^flux-bcast: ERROR: rank [37] (.*the connection to it broke" broken.err &&
	nothing_open "$PWD/to" &&
	has_only to
'

test_expect_success BREAK '--partial: and its rank alone is lost' '
	stalled apart --direct --partial &&
	transfer_begun 7 "$PWD/to" &&
	tcp break "$(job_shell 7)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends apart 1 &&
	grep "^flux-bcast: ERROR: rank 7 (.*the connection to it broke" apart.err &&
	copies 0 1 2 3 4 5 6 &&
	nothing_open "$PWD/to"
'

test_expect_success 'a shell that is killed is named, nothing is left' '
	job_start killed 8 -o exit-timeout=none &&
	stalled killed --direct &&
	kill -KILL "$(job_shell 1)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends killed 1 &&
	grep "^flux-bcast: ERROR: .*rank 1 (" killed.err &&
	nothing_open "$PWD/to" &&
	{ run_timeout 30 flux cancel "$JOBID" || true; } &&
	job_wait_clean &&
	has_only to
'

test_expect_success '--partial: its children go on with another' '
	job_start adopted 8 -o exit-timeout=none &&
	stalled adopted --direct --partial &&
	kill -KILL "$(job_shell 1)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends adopted 1 &&
	grep "^flux-bcast: ERROR: rank 1 (" adopted.err &&
	copies 0 2 3 4 5 6 7 &&
	{ run_timeout 30 flux cancel "$JOBID" || true; } &&
	job_wait_clean &&
	nothing_open "$PWD/to" &&
	has_only to
'

test_expect_success 'a client that is killed leaves nothing' '
	job_use main &&
	stalled client --direct &&
	kill -KILL "$(bcast_client client)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_wait client &&
	nothing_open "$PWD/to" &&
	has_only to &&
	bcast --direct --dest=again "$JOBID" s4096 &&
	job_finish
'

test_done
