#!/bin/sh

test_description='Every PMI command, bad clients and dying ranks'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2

lines() {
	printf "%s\n" "$@"
}

shell_knows EXIT_STATUS

test_expect_success 'build the client' '
	pmi_build pmi-talk
'

test_expect_success 'the handshake has four lines in the order that clients need' '
	pmi_run -N 2 -n 2 --label-io ./pmi-talk @hello cmd=finalize >out &&
	for rank in 0 1; do
		grep "^$rank: " out | sed "s/^[0-9]: //" >lines.$rank &&
		lines cmd=initack "cmd=set size=2" "cmd=set rank=$rank" \
			"cmd=set debug=0" "cmd=finalize_ack rc=0" >want &&
		test_cmp want lines.$rank || return 1
	done
'

# exchange REPLY REQUEST: one more request for the client, and what must come.
exchange() {
	printf "%s\n" "$1" >>want
	set_words="$set_words '$2'"
}

test_expect_success 'each command is answered as documented' '
	set_words= && : >want &&
	exchange "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1" \
		"cmd=init pmi_version=1 pmi_subversion=1" &&
	exchange "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024" cmd=get_maxes &&
	exchange "cmd=appnum rc=0 appnum=0" cmd=get_appnum &&
	exchange "cmd=universe_size rc=0 size=1" cmd=get_universe_size &&
	exchange "cmd=put_result rc=0" "cmd=put kvsname=k key=a value=b c=d" &&
	exchange "cmd=get_result rc=0 value=b c=d" "cmd=get kvsname=k key=a" &&
	exchange "cmd=put_result rc=0" "cmd=put kvsname=k key=e value=" &&
	exchange "cmd=get_result rc=0 value=" "cmd=get kvsname=k key=e" &&
	exchange "cmd=put_result rc=0" "cmd=put kvsname=k key=local::x value=1" &&
	exchange "cmd=get_result rc=0 value=1" "cmd=get kvsname=k key=local::x" &&
	exchange "cmd=get_result rc=4 msg=key_not_found" "cmd=get kvsname=k key=none" &&
	exchange "cmd=getbyidx_results rc=0 nextidx=1 key=a val=b c=d" \
		"cmd=getbyidx kvsname=k idx=0" &&
	exchange "cmd=getbyidx_results rc=-1 reason=no_more_keyvals" \
		"cmd=getbyidx kvsname=k idx=2" &&
	exchange "cmd=barrier_out rc=0" cmd=barrier_in &&
	exchange "cmd=publish_result rc=0" "cmd=publish_name service=s port=p#1" &&
	exchange "cmd=lookup_result rc=0 port=p#1" "cmd=lookup_name service=s" &&
	exchange "cmd=unpublish_result rc=0" "cmd=unpublish_name service=s" &&
	exchange "cmd=lookup_result rc=1 msg=service_not_found" "cmd=lookup_name service=s" &&
	exchange "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1" \
		"cmd=init pmi_version=2 pmi_subversion=0" &&
	exchange "cmd=get_ranks2hosts_result rc=-1 msg=unknown_command" cmd=get_ranks2hosts &&
	exchange "cmd=finalize_ack rc=0" cmd=finalize &&
	eval "pmi_run -n 1 ./pmi-talk @hello $set_words" >out 2>err &&
	sed 1,4d out >replies &&
	test_cmp want replies &&
	grep "unknown command .get_ranks2hosts. from rank 0" err
'

test_expect_success 'spawn of several segments is refused once' '
	pmi_run -n 1 ./pmi-talk @hello \
		@send mcmd=spawn @send nprocs=1 @send execname=./a @send totspawns=2 \
		@send spawnssofar=1 @send "arg1=cmd=finalize x" @send argcnt=1 @send endcmd \
		@send mcmd=spawn @send nprocs=2 @send execname=./b @send totspawns=2 \
		@send spawnssofar=2 @send argcnt=0 endcmd cmd=finalize >out &&
	sed 1,4d out >replies &&
	lines "cmd=spawn_result rc=-1 msg=spawn_not_supported" \
		"cmd=finalize_ack rc=0" >want &&
	test_cmp want replies
'

test_expect_success 'the longest value comes back, one byte more is refused' '
	v=$(printf "%01024d" 7) && k=$(printf "%064d" 7) &&
	pmi_run -n 1 ./pmi-talk @hello "cmd=put kvsname=k key=$k value=$v" \
		"cmd=get kvsname=k key=$k" "cmd=put kvsname=k key=a value=${v}7" \
		"cmd=put kvsname=k key=${k}7 value=1" cmd=finalize >out &&
	sed 1,4d out >replies &&
	lines "cmd=put_result rc=0" "cmd=get_result rc=0 value=$v" \
		"cmd=put_result rc=7 msg=value_too_long" \
		"cmd=put_result rc=5 msg=invalid_key_length" "cmd=finalize_ack rc=0" >want &&
	test_cmp want replies
'

test_expect_success 'requests may come byte by byte or all at once' '
	pmi_run -n 1 ./pmi-talk @hello @slow "cmd=put kvsname=k key=a value=1" \
		@both "cmd=get kvsname=k key=a|cmd=barrier_in|cmd=get_appnum|cmd=finalize" >out &&
	sed 1,4d out >replies &&
	lines "cmd=put_result rc=0" "cmd=get_result rc=0 value=1" \
		"cmd=barrier_out rc=0" "cmd=appnum rc=0 appnum=0" "cmd=finalize_ack rc=0" >want &&
	test_cmp want replies
'

test_expect_success 'names are known on every shell' '
	cat >names <<-\EOT &&
	#!/bin/sh
	if test $PMI_RANK = 1; then
		exec ./pmi-talk @hello "cmd=publish_name service=s port=here" cmd=barrier_in \
			cmd=barrier_in cmd=finalize
	fi
	exec ./pmi-talk @hello cmd=barrier_in "cmd=lookup_name service=s" \
		"cmd=unpublish_name service=s" cmd=barrier_in cmd=finalize
	EOT
	chmod +x names &&
	pmi_run -N 2 -n 2 ./names >out &&
	grep "^cmd=lookup_result rc=0 port=here\$" out &&
	grep "^cmd=unpublish_result rc=0\$" out
'

test_expect_success 'groups of PMI 1.2 are kept apart and carry their tags' '
	cat >groups <<-\EOT &&
	#!/bin/sh
	hello="cmd=init pmi_version=1 pmi_subversion=1"
	case $PMI_RANK in
	0) exec ./pmi-talk @hello "$hello" "cmd=put kvsname=k key=a value=zero" \
		"cmd=barrier_in group=0,3:77" "cmd=barrier_in group=WORLD:5" cmd=finalize ;;
	3) exec ./pmi-talk @hello "$hello" "cmd=barrier_in group=0,3:77" \
		"cmd=get kvsname=k key=a" "cmd=barrier_in group=WORLD:5" cmd=finalize ;;
	*) exec ./pmi-talk @hello "$hello" "cmd=barrier_in group=$PMI_RANK:9" \
		"cmd=barrier_in group=WORLD:5" cmd=finalize ;;
	esac
	EOT
	chmod +x groups &&
	pmi_run -N 2 -n 4 -o pmi-port.pmi12 ./groups >out &&
	test $(grep -c "^cmd=barrier_out rc=0 tag=5\$" out) = 4 &&
	test $(grep -c "^cmd=barrier_out rc=0 tag=77\$" out) = 2 &&
	test $(grep -c "^cmd=barrier_out rc=0 tag=9\$" out) = 2 &&
	grep "^cmd=get_result rc=0 value=zero\$" out
'

test_expect_success 'where ranks run is told, unless nomap is given' '
	set -- @hello "cmd=get kvsname=k key=PMI_process_mapping" \
		"cmd=get kvsname=k key=flux.taskmap" cmd=finalize &&
	pmi_run -N 2 -n 4 ./pmi-talk "$@" >out &&
	test $(grep -c "^cmd=get_result rc=0 value=(vector,(0,2,2))\$" out) = 4 &&
	grep "^cmd=get_result rc=0 value={" out | sort -u >taskmap &&
	lines "cmd=get_result rc=0 value={\"version\":1,\"map\":[[0,2,2,1]]}" >want &&
	test_cmp want taskmap &&
	pmi_run -N 2 -n 4 -o pmi-port.nomap ./pmi-talk "$@" >out &&
	test $(grep -c "^cmd=get_result rc=4 msg=key_not_found\$" out) = 8 &&
	test $(grep -c "^cmd=finalize_ack rc=0" out) = 4
'

test_expect_success 'a client of PMI 2 is refused with one warning, and can go on with 1' '
	pmi_run -n 1 ./pmi-talk @hello "cmd=init pmi_version=2 pmi_subversion=0" \
		"cmd=init pmi_version=1 pmi_subversion=1" cmd=finalize >out 2>err &&
	sed 1,4d out >replies &&
	lines "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1" \
		"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1" \
		"cmd=finalize_ack rc=0" >want &&
	test_cmp want replies &&
	cat err &&
	grep "rank 0 asked for PMI version 2.0; only 1.1 is served here" err &&
	test $(grep -c pmi-port err) = 1
'

test_expect_success REAL_FLUX 'the preset keys are those of the shell itself' '
	cat >keys <<-\EOT &&
	#!/bin/sh
	for key in PMI_process_mapping flux.taskmap flux.instance-level; do
		./pmi-talk @hello "cmd=get kvsname=k key=$key" cmd=finalize | grep "^cmd=get_result"
	done
	EOT
	chmod +x keys &&
	pmi_run -N 2 -n 3 ./keys | sort -u | sed "s/.*value=//" >ours &&
	run_timeout 60 flux run -N 2 -n 3 -o exit-timeout=none sh -c "
		test \$PMI_RANK = 0 && exec flux pmi get PMI_process_mapping flux.taskmap \
			flux.instance-level" | sort -u >theirs &&
	test_cmp theirs ours
'

test_expect_success 'flux pmi-port check is content' '
	pmi_run -N 2 -n 2 flux pmi-port check --barrier >out &&
	grep "^rank 1 of 2\$" out &&
	test $(grep -c "cmd=barrier_out rc=0" out) = 2
'

test_expect_success 'another address of the loopback interface' '
	pmi_run -N 2 -n 2 -o pmi-port.bind=127.0.0.2 sh -c \
		"echo \$PMI_PORT; exec ./pmi-talk @hello cmd=barrier_in cmd=finalize" >out &&
	test $(grep -c "^127\.0\.0\.2:[0-9]*\$" out) = 2 &&
	test $(grep -c "^cmd=finalize_ack rc=0" out) = 2
'

test_expect_success 'unknown and bad options are refused by name' '
	test_must_fail pmi_run -n 1 -o pmi-port.lane=1 true 2>err &&
	grep "option pmi-port.lane: unknown (did you mean lanes?); known are bind" err &&
	test_must_fail pmi_run -n 1 -o pmi-port.k=0 true 2>err &&
	grep "option pmi-port.k: .0. is not a number" err &&
	test_must_fail pmi_run -n 1 -o pmi-port.bind=192.0.2.1 true 2>err &&
	grep "listen on 192.0.2.1: Cannot assign requested address" err &&
	test_must_fail pmi_run -n 1 -o pmi-port.bind=0.0.0.0 -o pmi-port.id=rank true 2>err &&
	grep "option pmi-port.id=rank: .*pmi-port.bind=0.0.0.0: use id=random or a bind" err &&
	test_must_fail pmi_run -n 1 -o pmi-port.allow=172.17.0.0/16 true 2>err &&
	grep "option pmi-port.allow: .*pmi-port.bind=127.0.0.1: use a bind address" err &&
	test_must_fail pmi_run -n 1 -o pmi-port.bind=0.0.0.0 -o pmi-port.allow=172.17.0.1/16 \
		true 2>err &&
	grep "option pmi-port.allow: .172.17.0.1/16. has bits after the first 16: use" err &&
	test_must_fail pmi_run -n 1 -o pmi-port.bind=0.0.0.0 -o pmi-port.allow=172.17.0.0/16 \
		-o pmi-port.id=rank true 2>err &&
	grep "option pmi-port.id=rank: " err
'

# A job whose ranks wait until "go" exists, then need each other.
start_waiting() {
	rm -f go port.* && cat >waiting <<-\EOT &&
	#!/bin/sh
	echo $PMI_PORT >tmp.$PMI_RANK && mv tmp.$PMI_RANK port.$PMI_RANK
	exec ./pmi-talk @hello "cmd=put kvsname=k key=r$PMI_RANK value=v$PMI_RANK" cmd=barrier_in \
		@file go cmd=barrier_in "cmd=get kvsname=k key=r0" "cmd=get kvsname=k key=r1" \
		cmd=finalize
	EOT
	chmod +x waiting &&
	id=$(flux submit -N 2 -n 2 --output=waiting.out --error=waiting.err \
		-o userrc="$BCAST_RC" -o pmi=port "$@" ./waiting) &&
	for rank in 0 1; do
		run_timeout 60 "$BCAST_SCRIPTS/wait-file" port.$rank || return 1
	done
}

finish_waiting() {
	touch go &&
	run_timeout 60 flux job attach "$id" 2>attach.err &&
	cat attach.err >>waiting.err &&
	test "$(grep -c "^cmd=get_result rc=0 value=v0" waiting.out)" = 2 &&
	test "$(grep -c "^cmd=get_result rc=0 value=v1" waiting.out)" = 2 &&
	test "$(grep -c "^cmd=finalize_ack rc=0" waiting.out)" = 2
}

test_expect_success 'strangers of all kinds cost only their own connection' '
	start_waiting -o pmi-port.handshake-timeout=5s &&
	PMI_PORT=$(cat port.0) && export PMI_PORT &&
	./pmi-talk @part "" &&
	./pmi-talk @eof >out && grep eof out &&
	./pmi-talk @send "GET / HTTP/1.1" @eof >out && grep eof out &&
	./pmi-talk @junk 200000 @eof >out && grep eof out &&
	./pmi-talk @send "cmd=get_my_kvsname" @eof >out && grep eof out &&
	./pmi-talk @send "cmd=abort exitcode=1" @eof >out && grep eof out &&
	./pmi-talk @send "cmd=initack pmiid=99" cmd= @eof >out && grep rc=-1 out &&
	./pmi-talk @part "cmd=initack pmi" @rst &&
	./pmi-talk @send "" @eof >out && grep eof out &&
	for i in $(seq 1 200); do
		./pmi-talk @rst || return 1
	done &&
	unset PMI_PORT &&
	finish_waiting
'

test_expect_success 'a bad line of a real rank costs that connection, a new one goes on' '
	pmi_run -n 1 ./pmi-talk @hello @junk 200000 @eof @new @hello cmd=get_appnum \
		@send nonsense @eof @new @hello cmd=finalize >out 2>err &&
	test $(grep -c "^eof" out) = 2 &&
	grep "^cmd=finalize_ack rc=0" out &&
	grep "closed the connection of rank 0: line longer than" err &&
	grep "closed the connection of rank 0: line without a command" err
'

test_expect_success OTHER_USER 'a process of another user is refused' '
	start_waiting &&
	PMI_PORT=$(cat port.0) "$BCAST_SCRIPTS/stranger" ./pmi-talk @send "cmd=initack pmiid=0" \
		@eof >out &&
	lines eof >want &&
	test_cmp want out &&
	finish_waiting &&
	grep "it belongs to uid 65534" waiting.err
'

test_expect_success OTHER_USER 'unless the check is turned off' '
	start_waiting -o pmi-port.uid-check=off &&
	PMI_PORT=$(cat port.0) "$BCAST_SCRIPTS/stranger" ./pmi-talk @id 2 cmd=finalize >out &&
	grep "^cmd=finalize_ack rc=0" out &&
	finish_waiting
'

test_expect_success 'with random ids a rank cannot be claimed by its number' '
	start_waiting -o pmi-port.id=random &&
	PMI_PORT=$(cat port.0) ./pmi-talk @send "cmd=initack pmiid=0" @eof >out &&
	grep eof out &&
	finish_waiting
'

# dies COMMAND: rank 1 does COMMAND while rank 0 waits for it in a barrier. Nothing
# but that wait ends the job.
dies() {
	rm -f begun &&
	cat >dying <<-EOT &&
	#!/bin/sh
	if test \$PMI_RANK = 1; then
		$1
	fi
	exec ./pmi-talk @hello cmd=barrier_in cmd=finalize
	EOT
	chmod +x dying &&
	pmi_fails -N 2 -n 2 -o exit-timeout=none ./dying 2>err
}

test_expect_success 'a rank that exits before it uses PMI ends the job, and is named' '
	dies "exit 0" &&
	grep "rank 1 exited before it used PMI while" err
'

# The end of the connection or that of the process may be seen first.
test_expect_success 'so does one that exits without finalize' '
	dies "exec ./pmi-talk @hello cmd=get_appnum @exit 0" &&
	grep -E "rank 1 (closed its PMI connection|exited) without (PMI )?finalize while" err
'

test_expect_success 'and one that closes its connection without finalize' '
	dies "./pmi-talk @hello cmd=get_appnum @exit 0; sleep 200" &&
	grep "rank 1 closed its PMI connection without finalize while" err
'

test_expect_success 'and one that is killed in the middle of a line' '
	dies "./pmi-talk @hello @part cmd=put @touch begun @file never &
		until test -e begun; do sleep 0.1; done; kill -9 \$!; sleep 200" &&
	grep "rank 1 closed its PMI connection without finalize while" err
'

test_expect_success 'and one that has finalized already' '
	dies "exec ./pmi-talk @hello cmd=finalize" &&
	grep "rank 1 exited while" err
'

test_expect_success 'a second connection of a rank supersedes the first one' '
	pmi_run -N 2 -n 2 ./pmi-talk @hello "cmd=put kvsname=k key=a value=1" cmd=barrier_in \
		@new @hello "cmd=get kvsname=k key=a" cmd=barrier_in cmd=finalize >out &&
	test $(grep -c "^cmd=barrier_out rc=0" out) = 4 &&
	test $(grep -c "^cmd=get_result rc=0 value=1" out) = 2
'

test_expect_success 'the shell does not grow with what a client sends' '
	cat >flood <<-\EOT &&
	#!/bin/sh
	shell=$PPID
	rss() { awk "/VmRSS/ { print \$2 }" /proc/$shell/status; }
	./pmi-talk @hello cmd=get_appnum >/dev/null
	before=$(rss)
	for i in $(seq 1 30); do
		./pmi-talk @junk 2000000 2>/dev/null
		./pmi-talk @hello @junk 2000000 >/dev/null 2>&1
	done
	./pmi-talk @hello cmd=finalize >/dev/null
	echo grown $(($(rss) - before)) KiB
	EOT
	chmod +x flood &&
	pmi_run -n 1 ./flood >out 2>err &&
	cat out && test "$(sed "s/grown \([-0-9]*\) KiB/\1/" out)" -lt 8192
'

# Where Flux does not notice that a shell is killed, nobody can tell the plugin: there
# the job of this probe would go on for ever.
shell_loss_ends() {
	cat >probe <<-\EOT && chmod +x probe || return 1
	#!/bin/sh
	if test $FLUX_TASK_RANK = 1; then
		until test -e probing; do sleep 0.1; done
		kill -KILL $PPID
	fi
	: >probing
	exec sleep 1000
	EOT
	id=$(run_timeout 60 flux submit -N 2 -n 2 -o exit-timeout=1s \
		setpriv --pdeathsig=KILL ./probe) || return 1
	run_timeout 60 flux job wait-event "$id" clean >/dev/null
	ends_code=$?
	flux cancel "$id" 2>/dev/null
	return $ends_code
}
shell_loss_ends && test_set_prereq SHELL_LOST

test_expect_success SHELL_LOST 'a shell that is lost while ranks wait ends the job at once' '
	cat >losing <<-\EOT &&
	#!/bin/sh
	if test $PMI_RANK = 1; then
		until test -e waiting; do sleep 0.1; done
		kill -9 $PPID
		exec sleep 200
	fi
	exec ./pmi-talk @hello @send cmd=barrier_in @touch waiting @eof
	EOT
	chmod +x losing && rm -f waiting &&
	test_must_fail pmi_run -N 2 -n 2 -o exit-timeout=none \
		setpriv --pdeathsig=KILL ./losing 2>err &&
	grep "shell 1 was lost while ranks wait in a barrier" err
'

test_done
