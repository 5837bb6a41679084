#!/bin/sh

test_description='Shells, clients and jobs that go away in mid-transfer'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

# A stopped shell holds every transfer up at the same point, since no window is
# as large as the file: what is then killed is killed in mid-transfer.
test_expect_success 'set up' '
	data_random 67108864 big &&
	data_random 100000 file &&
	mkdir to
'

# begin NAME [OPTION...]: a job of 8 shells, shell 5 stopped, a transfer into to/
# that shell 0 has data of. The job does not end by itself when a shell is lost: else
# what the client says would depend on what comes first.
begin_options="-o exit-timeout=none"
begin() {
	begin_name=$1
	shift
	# shellcheck disable=SC2086 # several words
	job_start "$begin_name" 8 $begin_options &&
	kill -STOP "$(job_shell 5)" &&
	bcast_background "$begin_name" "$@" "$JOBID" big "$PWD/to/big.{{node.id}}" &&
	transfer_begun 0 "$PWD/to"
}

# after: the job is over, nothing of the transfer is left.
after() {
	job_wait_clean &&
	nothing_open "$PWD/to" &&
	has_only to
}

# over RANK...: the job, which need not end by itself, goes on without these
# ranks; it is cancelled, and nothing of the transfer is left.
over() {
	nothing_open "$PWD/to" "$(job_ranks | grep -vxF "$(printf "%s\n" "$@")")" &&
	{ run_timeout 30 flux cancel "$JOBID" || true; } &&
	after
}

test_expect_success 'a shell without children is killed' '
	begin leaf &&
	kill -KILL "$(job_shell 5)" &&
	bcast_ends leaf 1 &&
	grep "^flux-bcast: ERROR: .*rank 5 (" leaf.err &&
	over 5
'

test_expect_success 'an interior shell is killed: no matter of another job' '
	job_start other 2 &&
	begin struck -k 2 &&
	bcast_background beside "$(cat job.other/id)" big &&
	kill -KILL "$(job_shell 1)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends struck 1 &&
	over 1 &&
	job_use other &&
	bcast_ends beside 0 &&
	job_has big "\$FLUX_JOB_TMPDIR/big" &&
	bcast "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/file" &&
	job_finish
'

test_expect_success 'an interior shell is killed' '
	begin interior -k 2 &&
	kill -KILL "$(job_shell 1)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends interior 1 &&
	grep "^flux-bcast: ERROR: .*rank 1 (" interior.err &&
	over 1
'

test_expect_success 'an interior shell is killed while one below it is stopped' '
	begin below -k 2 &&
	kill -KILL "$(job_shell 2)" &&
	bcast_ends below 1 &&
	grep "^flux-bcast: ERROR: .*rank 2 (" below.err &&
	kill -KILL "$(job_shell 5)" &&
	over 2 5
'

# without NAME RANK...: the transfer begun as NAME lost these ranks, which are named,
# and no other.
without() {
	without_name=$1
	shift
	cat "$without_name.err"
	# In one line or in several: they may have been noticed in different ways.
	sed -n "s/^flux-bcast: ERROR: ranks* \([0-9,-]*\) (.*/\1/p" "$without_name.err" |
		tr , "\n" | while IFS=- read -r first last; do
			test_seq "$first" "${last:-$first}"
		done | sort -n >named
	printf "%s\n" "$@" >lost
	test_cmp lost named || return 1
	for r in $(job_ranks); do
		case " $* " in
		*" $r "*)
			test ! -e "to/big.$r" || return 1
			;;
		*)
			cmp big "to/big.$r" || return 1
			;;
		esac
	done
	rm to/*
}

test_expect_success '--partial: an interior shell is killed, and it alone is lost' '
	begin adopted -k 2 --partial &&
	kill -KILL "$(job_shell 1)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends adopted 1 &&
	without adopted 1 &&
	over 1
'

test_expect_success '--partial: so is one that is killed while a shell below it is stopped' '
	begin held -k 2 --partial &&
	kill -KILL "$(job_shell 2)" &&
	sleep 2 &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends held 1 &&
	without held 2 &&
	over 2
'

test_expect_success '--partial: so are two that feed nobody in common' '
	begin several -k 2 --partial &&
	kill -KILL "$(job_shell 1)" "$(job_shell 2)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends several 1 &&
	without several 1 2 &&
	over 1 2
'

test_expect_success '--partial: so is one that is stopped for good' '
	begin silent -k 2 --partial &&
	kill -STOP "$(job_shell 1)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends silent 1 &&
	grep "^flux-bcast: ERROR: rank 1 (.*no sign of life" silent.err &&
	without silent 1 &&
	kill -KILL "$(job_shell 1)" &&
	over 1
'

test_expect_success 'the leader is killed' '
	begin_options="-o exit-timeout=1s" &&
	begin leader &&
	kill -KILL "$(job_shell 0)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends leader 1 &&
	grep "^flux-bcast: ERROR: " leader.err &&
	over 0
'

test_expect_success 'the job is cancelled' '
	begin cancel &&
	run_timeout 30 flux cancel "$JOBID" &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends cancel 1 &&
	grep "^flux-bcast: ERROR: " cancel.err &&
	after
'

test_expect_success 'the tasks end' '
	begin ends &&
	for r in $(job_ranks); do
		run_timeout 20 "$BCAST_SCRIPTS/tell" "$JOB" "$r" || return 1
	done &&
	kill -CONT "$(job_shell 5)" &&
	bcast_ends ends 1 &&
	grep "^flux-bcast: ERROR: " ends.err &&
	run_timeout 60 flux job attach "$JOBID" &&
	after
'

test_expect_success 'a stopped shell: the client ends at its time limit, and the job goes on' '
	begin stopped --timeout=10 &&
	bcast_ends stopped 1 &&
	grep "^flux-bcast: ERROR: .*time limit" stopped.err &&
	kill -CONT "$(job_shell 5)" &&
	nothing_open "$PWD/to" &&
	has_only to &&
	bcast "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/file"
'

test_expect_success 'the message names the stopped shell, and it alone' '
	grep "^flux-bcast: ERROR: rank 5 (.*no sign of life" stopped.err &&
	test "$(grep -c "^flux-bcast: ERROR: " stopped.err)" = 2
'

for signal in KILL TERM INT; do
	test_expect_success "the client gets SIG$signal: the shells drop the transfer, the job goes on" "
		job_use stopped &&
		kill -STOP \"\$(job_shell 5)\" &&
		bcast_background client \"\$JOBID\" big \"\$PWD/to/big.{{node.id}}\" &&
		transfer_begun 0 \"\$PWD/to\" &&
		kill -$signal \"\$(bcast_client client)\" &&
		bcast_wait client && test \$STATUS -gt 0 &&
		kill -CONT \"\$(job_shell 5)\" &&
		nothing_open \"\$PWD/to\" &&
		has_only to &&
		bcast --force \"\$JOBID\" file &&
		job_has file '\$FLUX_JOB_TMPDIR/file'
	"
done

test_expect_success 'a client that is stopped for a while loses nothing' '
	kill -STOP "$(job_shell 5)" &&
	bcast_background slow "$JOBID" big "$PWD/to/big" &&
	transfer_begun 0 "$PWD/to" &&
	kill -STOP "$(bcast_client slow)" &&
	kill -CONT "$(job_shell 5)" &&
	bcast --force "$JOBID" file &&
	kill -CONT "$(bcast_client slow)" &&
	bcast_ends slow 0 &&
	cmp big to/big &&
	rm to/big
'

test_expect_success 'the job ends well after all that' '
	job_finish &&
	after
'

test_done
