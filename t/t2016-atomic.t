#!/bin/sh

test_description='Nobody ever sees a file that is neither the old one nor the new one'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'set up' '
	job_start main 4 &&
	data_random 5000000 old &&
	data_random 5000000 new &&
	data_random 67108864 big &&
	mkdir to
'

# A reader in each task opens the file again and again, and notes what it got.
# The file is replaced once all of them have read it; they stop when the file `stop`
# is there.
test_expect_success 'readers see the old or the new contents, each of them whole' '
	bcast "$JOBID" old f &&
	job_exec_all "(
		until test -e \"$PWD/stop\"; do
			sha256sum <\"\$FLUX_JOB_TMPDIR/f\" || echo missing
			: >\"\$FLUX_JOB_TMPDIR/reads\"
			sleep 0.02
		done | sort -u >\"\$FLUX_JOB_TMPDIR/seen\"
		: >\"\$FLUX_JOB_TMPDIR/finished\"
	) >/dev/null 2>&1 &" &&
	for r in $(job_ranks); do
		run_timeout 60 python3 "$BCAST_SCRIPTS/wait-file" "$(job_tmpdir $r)/reads" || return 1
	done &&
	for round in 1 2 3 4 5 6; do
		bcast --force "$JOBID" new f &&
		bcast --force "$JOBID" old f || return 1
	done &&
	: >stop &&
	{ sha256sum <old; sha256sum <new; } | sort >allowed &&
	for r in $(job_ranks); do
		run_timeout 60 python3 "$BCAST_SCRIPTS/wait-file" "$(job_tmpdir $r)/finished" &&
		seen=$(job_tmpdir $r)/seen &&
		test -s "$seen" &&
		comm -23 "$seen" allowed >foreign &&
		test_must_be_empty foreign || return 1
	done
'

# changed NAME COMMAND: COMMAND changes the source while it is being sent.
changed() {
	test_expect_success "a source that changes meanwhile: $1" "
		cp big changing &&
		kill -STOP \"\$(job_shell 2)\" &&
		bcast_background $1 \"\$JOBID\" changing \"\$PWD/to/{{node.id}}\" &&
		transfer_begun 0 \"\$PWD/to\" &&
		$2 &&
		kill -CONT \"\$(job_shell 2)\" &&
		bcast_ends $1 1 &&
		grep '^flux-bcast: ERROR: .*changing' $1.err &&
		has_only to &&
		nothing_open \"\$PWD/to\"
	"
}
changed grows 'echo more >>changing'
changed shrinks 'truncate -s 1000000 changing'
changed written 'dd if=new of=changing bs=1M seek=40 conv=notrunc status=none'

test_expect_success 'a source that is replaced meanwhile: the old one arrives' '
	cp big replaced &&
	kill -STOP "$(job_shell 2)" &&
	bcast_background replaced "$JOBID" replaced "$PWD/to/{{node.id}}" &&
	transfer_begun 0 "$PWD/to" &&
	cp new other && mv other replaced &&
	kill -CONT "$(job_shell 2)" &&
	bcast_ends replaced 0 &&
	for r in $(job_ranks); do
		cmp big to/$r || return 1
	done &&
	rm to/*
'

test_expect_success 'the directory of the destination moves meanwhile: nothing goes astray' '
	mkdir moving &&
	kill -STOP "$(job_shell 2)" &&
	bcast_background moved "$JOBID" big "$PWD/moving/{{node.id}}" &&
	transfer_begun 0 "$PWD/moving" &&
	mv moving moved &&
	kill -CONT "$(job_shell 2)" &&
	bcast_wait moved &&
	if test $STATUS = 0; then
		has_only moved 0 1 2 3 &&
		cmp big moved/2
	else
		has_only moved
	fi &&
	test ! -e moving
'

test_expect_success 'the job ends well' '
	job_finish
'

test_done
