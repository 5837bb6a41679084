#!/bin/sh

test_description='flux pmi-port starts and serves programs without a resource manager'

. "$(dirname "$0")/sharness.sh"

PORT=$FLUX_BCAST_BUILD/flux-pmi-port

# An rsh command that behaves like the real one: joins its words, has another
# shell evaluate them, and passes no environment on.
cat >fake-rsh <<-\EOT
	#!/bin/sh
	host=$1
	shift
	case $host in
	broken) echo >&2 "fake-rsh: no route to broken"; exit 255 ;;
	esac
	exec env -i PATH="$PATH" HOME="$HOME" FAKE_HOST=$host sh -c "$*"
EOT
chmod +x fake-rsh

serve() {
	run_timeout 60 "$PORT" serve "$@"
}

test_expect_success 'build the clients' '
	pmi_build pmi-talk pmi-lanes
'

# port_refuses TEXT ARGUMENT...: exit status 2 and one line, which has TEXT in it.
port_refuses() {
	text=$1
	shift
	test_expect_code 2 "$PORT" "$@" 2>err &&
	grep -F -e "$text" err &&
	grep "^flux-pmi-port: ERROR: " err &&
	test "$(wc -l <err)" = 1
}

test_expect_success 'wrong words are refused in the form of all errors' '
	port_refuses "one of serve, exec and check" &&
	port_refuses bogus bogus &&
	port_refuses --frobnicate --frobnicate &&
	port_refuses COMMAND serve -n 1 &&
	port_refuses "flux pmi-port serve --help" serve -n 0 true &&
	port_refuses --size serve -n x true &&
	port_refuses "unexpected argument '"'--lable'"' found (did you mean --label?); see" \
		serve -n 1 --lable true &&
	port_refuses "(did you mean serve?)" sreve -n 1 true &&
	port_refuses --bind serve --bind=localhost -n 1 true &&
	port_refuses --allow serve --allow=172.17.0.1/16 -b 0.0.0.0 -n 1 true &&
	port_refuses "no other host can connect where this listens, at 127.0.0.1: give a --bind" \
		serve --allow=172.17.0.0/16 -n 1 true &&
	port_refuses "no other host can connect where this listens, at 127.0.0.2: give a --bind" \
		serve --allow=192.0.2.1 -b 127.0.0.2 -n 1 true &&
	port_refuses --hostlist serve --script true &&
	port_refuses --rsh-command serve -n 1 -r ssh true &&
	port_refuses -oProxyCommand=x serve --hostlist=a,-oProxyCommand=x true &&
	port_refuses COMMAND serve -n 1 "" &&
	port_refuses --handshake-timeout serve -n 1 --handshake-timeout=0 true &&
	port_refuses --timeout check --port=127.0.0.1:1 --id=0 --timeout=0 &&
	port_refuses PROGRAM exec &&
	port_refuses "(did you mean --rank?)" exec --rnak=1 true &&
	port_refuses --id check --id=x &&
	port_refuses junk check junk &&
	port_refuses soon check --timeout=soon &&
	serve -n2 -l sh -c "echo \$0" -n3 >out && test "$(sort out | tr -d "\n")" = "0: -n31: -n3" &&
	"$PORT" --version && "$PORT" serve --help >out && grep "Exit status" out
'

test_expect_success 'help and bad usage' '
	"$PORT" --help >out && grep serve out &&
	test_expect_code 2 "$PORT" serve true 2>err &&
	grep "flux-pmi-port: ERROR: give --size or --hostlist" err &&
	test_expect_code 2 "$PORT" serve -n 0 true &&
	test_expect_code 2 "$PORT" serve -n 1 &&
	test_expect_code 2 "$PORT" serve -H "foo[1" true 2>err &&
	grep "unbalanced bracket in .foo\[1." err &&
	test_expect_code 2 "$PORT" serve -n 1 -H "a,b" true 2>err &&
	grep "2 hosts for 1 ranks" err &&
	test_expect_code 2 env -u PMI_ID -u PMI_PORT -u PMI_SECRET "$PORT" exec true 2>err &&
	grep "PMI_PORT and PMI_ID are not set: .*-o pmi=port.*serve" err &&
	test_expect_code 2 env -u PMI_ID -u PMI_SECRET PMI_PORT=127.0.0.1:1 "$PORT" exec true 2>err &&
	grep "neither PMI_ID nor PMI_SECRET" err &&
	test_expect_code 2 "$PORT" check --port=foo --id=0 2>err &&
	grep "ERROR: --port: .foo. is not HOST:PORT$" err &&
	test_expect_code 2 env PMI_ID=0 "$PORT" check 2>err &&
	grep "PMI_PORT is not set" err &&
	test_expect_code 2 env -u PMI_ID -u PMI_PORT "$PORT" check 2>err &&
	grep "PMI_PORT and PMI_ID are not set: .*-o pmi=port.*--port=HOST:PORT.*--id=ID" err &&
	test "$(wc -l <err)" = 1
'

test_expect_success 'what cannot be reached or run is named, with the reason alone' '
	test_expect_code 1 "$PORT" check --port=127.0.0.1:1 --id=0 2>err &&
	grep "ERROR: connect to PMI_PORT 127.0.0.1:1: Connection refused$" err &&
	test_expect_code 1 "$PORT" serve -H 127.0.0.2 -r ./no-rsh true 2>err &&
	grep "ERROR: start ./no-rsh: No such file or directory (see --rsh-command)$" err &&
	test_expect_code 127 "$PORT" serve -n 1 no-program 2>err &&
	grep "ERROR: rank 0: no-program: command not found$" err &&
	test_expect_code 127 "$PORT" serve -H 127.0.0.2 -r ./fake-rsh no-program 2>err &&
	grep "ERROR: rank 0: no-program: command not found$" err &&
	: >closed && chmod 644 closed &&
	test_expect_code 126 "$PORT" serve -n 1 ./closed 2>err &&
	grep "ERROR: rank 0: ./closed: Permission denied$" err &&
	test_expect_code 126 "$PORT" serve -H 127.0.0.2 -r ./fake-rsh "$PWD" 2>err &&
	grep "ERROR: rank 0: $PWD: Is a directory$" err &&
	echo "#!/no/such/interpreter" >lost && chmod 755 lost &&
	test_expect_code 127 "$PORT" serve -n 1 ./lost 2>err &&
	grep "^flux-pmi-port: ERROR: rank 0: .*lost" err && ! grep setsid err &&
	test_expect_code 127 "$PORT" serve -n 1 "$PORT" exec no-program 2>err &&
	grep "ERROR: no-program: No such file or directory$" err &&
	test_expect_code 126 "$PORT" serve -n 1 "$PORT" exec /etc/passwd 2>err &&
	grep "ERROR: /etc/passwd: Permission denied$" err &&
	test_expect_code 1 env PMI_ID=0 PMI_PORT=127.0.0.1:1 "$PORT" exec true 2>err &&
	grep "Connection refused$" err
'

cat >asked <<-\EOT
	# asked COUNT PROGRAM...: runs PROGRAM beside a name server that answers, of any
	# name, that there is no such host; but not before it was asked for COUNT of them.
	import socket, subprocess, sys, threading
	server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
	server.bind(("127.0.0.1", 53))
	def serve(count):
	    names, waiting = set(), []
	    while True:
	        query, client = server.recvfrom(512)
	        end = query.index(0, 12) + 1
	        if len(names) < count:
	            names.add(query[12:end])
	            if len(names) == count:
	                print("all were asked for", flush=True)
	        no_such = query[:2] + b"\x81\x83\0\1\0\0\0\0\0\0" + query[12 : end + 4]
	        waiting.append((no_such, client))
	        while len(names) == count and waiting:
	            server.sendto(*waiting.pop())
	threading.Thread(target=serve, args=[int(sys.argv[1])], daemon=True).start()
	sys.exit(subprocess.call(sys.argv[2:]))
EOT
cat >dns-alone <<-\EOT
	#!/bin/sh
	# Nobody asks a second time, or another.
	printf "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n" >resolv.conf
	echo "hosts: dns" >nsswitch.conf
	for file in resolv.conf nsswitch.conf; do
		mount --bind $file /etc/$file || exit 1
	done
	ip link set lo up && exec "$@"
EOT
chmod +x dns-alone
unshare --mount --net ./dns-alone true 2>/dev/null && test_set_prereq DNS

test_expect_success DNS 'hosts are looked up side by side' '
	run_timeout 60 unshare --mount --net ./dns-alone python3 asked 5 \
		"$PORT" serve -H "h[1-3].example" -b 0.0.0.0 --allow h4.example --allow h5.example \
		-r ./fake-rsh true >out 2>err &&
	cat out err &&
	echo "all were asked for" >want && test_cmp want out &&
	for host in h4 h5; do
		grep "host $host.example has no address here, so its clients are refused" err ||
			return 1
	done &&
	test "$(wc -l <err)" = 2
'

test_expect_success 'ranks on this host find each other' '
	serve -n 5 ./pmi-lanes 3 20 >out &&
	test $(grep -c "^rank [0-4]: 300 values" out) = 5
'

test_expect_success MPICH 'an MPI program needs nothing but this' '
	pmi_build mpi-sum &&
	serve -n 4 ./mpi-sum >out &&
	test $(grep -c "of 4: sum 6, PMI_FD unset" out) = 4
'

test_expect_success MPICH 'MPI_Abort gives its code' '
	test_expect_code 42 "$PORT" serve -n 3 ./mpi-sum 42 1 2>err &&
	grep "flux-pmi-port: ERROR: rank 1 called PMI abort" err
'

test_expect_success 'it listens where it is told to' '
	for option in --bind -b; do
		serve -n 2 $option 127.0.0.3 sh -c "echo \$PMI_HOST \${PMI_PORT%:*}
			exec ./pmi-talk @hello cmd=barrier_in cmd=finalize" >out &&
		test $(grep -c "^127\.0\.0\.3 127\.0\.0\.3\$" out) = 2 &&
		test $(grep -c "^cmd=finalize_ack rc=0" out) = 2 || return 1
	done &&
	test_expect_code 1 "$PORT" serve -n 1 -b 192.0.2.1 true 2>err &&
	grep "flux-pmi-port: ERROR: listen on 192.0.2.1: Cannot assign requested address" err &&
	test_expect_code 2 "$PORT" serve -n 1 -b localhost true
'

test_expect_success 'PMI 1.2 is there for those who ask' '
	init="cmd=init pmi_version=1 pmi_subversion=1" &&
	serve -n 2 --pmi12 ./pmi-talk @hello "$init" "cmd=barrier_in group=0,1:77" \
		cmd=finalize >out &&
	test $(grep -c "^cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\$" out) = 2 &&
	test $(grep -c "^cmd=barrier_out rc=0 tag=77\$" out) = 2 &&
	serve -n 1 ./pmi-talk @hello "$init" cmd=finalize >out &&
	grep "^cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\$" out
'

test_expect_success 'a client that says nothing is closed in time' '
	serve -n 1 --handshake-timeout=0.2s ./pmi-talk @eof >out 2>err &&
	grep "^eof" out &&
	grep "closed a connection that sent no handshake in time" err
'

test_expect_success OTHER_USER 'a process of another user is refused, unless the check is off' '
	serve -n 1 "$BCAST_SCRIPTS/stranger" ./pmi-talk @send hello @eof >out 2>err &&
	echo eof >want && test_cmp want out &&
	grep "refused a client from 127.0.0.1:[0-9]*: it belongs to uid 65534" err &&
	serve -n 1 --no-uid-check "$BCAST_SCRIPTS/stranger" ./pmi-talk @hello cmd=finalize >out &&
	grep "^cmd=finalize_ack rc=0" out
'

test_expect_success OTHER_USER 'refused clients do not fill the log' '
	again=$(for i in $(seq 40); do echo @new; done) &&
	serve -n 1 "$BCAST_SCRIPTS/stranger" ./pmi-talk $again @eof 2>err &&
	test $(grep -c "refused a client" err) = 32 &&
	grep "belongs to uid 65534; later ones are not told\$" err
'

test_expect_success 'it can say what happens' '
	serve -n 2 true 2>quiet &&
	test_must_be_empty quiet &&
	for option in -v --verbose; do
		serve -n 2 $option true 2>err &&
		grep "listening on 127.0.0.1:[0-9]* for 2 ranks" err || return 1
	done
'

test_expect_success 'each host gets its command with the variables of the job' '
	serve -n 4 -H "127.0.0.[2-3]" -r ./fake-rsh sh -c \
		"echo \$FAKE_HOST \$PMI_RANK \$PMI_SIZE \$PMI_HOSTLIST \${PMI_PORT%:*} \$PMI_HOST" >out &&
	sort out >sorted &&
	cat >want <<-\EOT &&
	127.0.0.2 0 4 127.0.0.[2-3] 127.0.0.1 127.0.0.1
	127.0.0.2 1 4 127.0.0.[2-3] 127.0.0.1 127.0.0.1
	127.0.0.3 2 4 127.0.0.[2-3] 127.0.0.1 127.0.0.1
	127.0.0.3 3 4 127.0.0.[2-3] 127.0.0.1 127.0.0.1
	EOT
	test_cmp want sorted
'

test_expect_success 'the ranks of one host have barriers of their own' '
	cat >nodes <<-\EOT &&
	#!/bin/sh
	init="cmd=init pmi_version=1 pmi_subversion=1"
	# Who is alone on its host enters none.
	test $PMI_RANK != 2 || exec ./pmi-talk @hello cmd=finalize
	exec ./pmi-talk @hello "$init" "cmd=barrier_in group=NODE:7" cmd=finalize
	EOT
	chmod +x nodes &&
	serve -n 3 --pmi12 -H "127.0.0.[2-3]" -r ./fake-rsh ./nodes >out &&
	test $(grep -c "^cmd=barrier_out rc=0 tag=7\$" out) = 2
'

test_expect_success 'without a size there is one rank per host' '
	serve -H "127.0.0.[2-4]" -r ./fake-rsh ./pmi-lanes 1 10 >out &&
	test $(grep -c "^rank [0-2]: 30 values" out) = 3
'

test_expect_success 'words pass through the other shell unharmed' '
	serve -H 127.0.0.2 -r ./fake-rsh printf "%s\n" "a  b" "it'"'"'s" "\$HOME" "*" >out &&
	printf "%s\n" "a  b" "it'"'"'s" "\$HOME" "*" >want &&
	test_cmp want out
'

test_expect_success 'no id or secret shows on a command line' '
	cat >look <<-\EOT &&
	cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" "\n" | grep -qF -f secrets
	EOT
	cat >spy <<-\EOT &&
	#!/bin/sh
	# Through a file, so that none of our own command lines has them.
	printf "%s\n" $PMI_ID $PMI_SECRET >secrets
	test "$(wc -c <secrets)" -gt 8 || exit 1
	sh ./look && echo seen
	# A look that finds nothing must be one that could.
	sh ./look "$(cat secrets)" && echo looked
	EOT
	chmod +x spy &&
	serve -H "127.0.0.2" -r ./fake-rsh ./spy >out &&
	serve --script -H "127.0.0.2" -r sh ./spy >>out &&
	printf "%s\n" looked looked >want &&
	test_cmp want out
'

test_expect_success 'one script starts all ranks; exec works out who it is' '
	cat >fan-out <<-\EOT &&
	#!/bin/sh
	# As pdsh would: the same command for each host, with its number.
	for rank in 0 1 2; do
		flux-pmi-port exec --rank $rank -- "$@" &
	done
	wait
	EOT
	chmod +x fan-out &&
	PATH=$FLUX_BCAST_BUILD:$PATH serve --script -H "127.0.0.[2-4]" -r ./fan-out \
		sh -c "echo \$PMI_RANK of \$PMI_SIZE on \$PMI_FD, \${PMI_PORT:-no port}, \${PMI_SECRET:-no secret}" >out &&
	sort out | sed "s/on [0-9]*/on N/" >sorted &&
	for rank in 0 1 2; do
		echo "$rank of 3 on N, no port, no secret"
	done >want &&
	test_cmp want sorted
'

test_expect_success 'exec reads the secret from its input and leaves the rest' '
	cat >fan-out <<-\EOT &&
	#!/bin/sh
	read -r secret
	unset PMI_SECRET
	{ echo $secret; echo rest; } | flux-pmi-port exec --secret-stdin --rank 0 -- cat
	EOT
	PATH=$FLUX_BCAST_BUILD:$PATH serve --script -H 127.0.0.2 -r ./fan-out x >out &&
	echo rest >want &&
	test_cmp want out
'

test_expect_success 'a wrong secret is refused' '
	cat >fan-out <<-\EOT &&
	#!/bin/sh
	PMI_SECRET=guess flux-pmi-port exec --rank 0 -- true
	EOT
	test_must_fail env PATH="$FLUX_BCAST_BUILD:$PATH" "$PORT" serve --script -H 127.0.0.2 \
		-r ./fan-out x 2>err &&
	grep "PMI handshake: initack: rc=-1 no_such_id" err
'

test_expect_success 'check prints what the server answers, and is content' '
	serve -n 2 "$PORT" check --barrier >out &&
	test $(grep -c "cmd=finalize_ack rc=0" out) = 2
'

test_expect_success 'check waits for an answer as long as it is told' '
	cat >impatient <<-\EOT &&
	#!/bin/sh
	# The other rank enters no barrier.
	test $PMI_RANK = 0 || exec ./pmi-talk @hello @file over cmd=finalize
	timeout 20 flux-pmi-port check -q --barrier --timeout=0.3s 2>check.err
	echo $? >code
	touch over
	EOT
	chmod +x impatient && rm -f over &&
	PATH=$FLUX_BCAST_BUILD:$PATH serve -n 2 ./impatient &&
	cat check.err && test "$(cat code)" = 1 &&
	grep "flux-pmi-port: ERROR: no answer within 300ms; see --timeout\$" check.err
'

test_expect_success 'check fails for a server that deviates' '
	cat >bad-server <<-\EOT &&
	import os, socket
	s = socket.create_server(("127.0.0.1", 0))
	with open("bad.tmp", "w") as f:
	    f.write("127.0.0.1:%d" % s.getsockname()[1])
	os.rename("bad.tmp", "bad.port")
	c, _ = s.accept()
	f = c.makefile("rw")
	replies = dict(
	    initack="cmd=initack\ncmd=set size=1\ncmd=set rank=0\ncmd=set debug=0",
	    init="cmd=response_to_init pmi_version=1 pmi_subversion=1",
	    get_maxes="cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=2048",
	    get_appnum="cmd=appnum rc=0 appnum=0",
	    get_universe_size="cmd=universe_size rc=0 size=1",
	    get_my_kvsname="cmd=my_kvsname rc=0 kvsname=k",
	    put="cmd=put_result rc=0",
	    finalize="cmd=finalize_ack rc=0",
	)
	for line in f:
	    name = line.split()[0].split("=")[1]
	    reply = replies.get(name, "cmd=get_result rc=0 value=")
	    f.write(reply + "\n")
	    f.flush()
	EOT
	{ python3 bad-server & } &&
	run_timeout 60 "$BCAST_SCRIPTS/wait-file" bad.port &&
	test_expect_code 1 run_timeout 60 "$PORT" check -q --port $(cat bad.port) --id 0 2>err &&
	grep "ERROR: the answer to .cmd=init pmi_version=1 pmi_subversion=1. has no rc" err &&
	grep "ERROR: vallen_max=2048 is not from 1 to 1024" err &&
	grep "ERROR: PMI_process_mapping is no (vector,...)" err &&
	grep "ERROR: .cmd=get kvsname=k key=flux-pmi-port-check.none. has rc=0" err
'

test_expect_success 'the worst exit status is passed on' '
	test_expect_code 7 "$PORT" serve -n 3 sh -c "exit \$((PMI_RANK == 1 ? 7 : PMI_RANK))" &&
	test_expect_code 255 "$PORT" serve -H 127.0.0.2,broken -b 0.0.0.0 --allow 127.0.0.9 \
		-r ./fake-rsh true 2>err &&
	grep "no route to broken" err &&
	grep "rank 1: exit status 255" err
'

test_expect_success 'a rank that exits early while others wait ends all, with a reason' '
	cat >early <<-\EOT &&
	#!/bin/sh
	test $PMI_RANK = 1 ||
		exec ./pmi-talk @hello @send cmd=barrier_in @touch waits.$PMI_RANK @eof
	until test -e waits.0 && test -e waits.2; do sleep 0.1; done
	exit $1
	EOT
	chmod +x early &&
	test_expect_code 7 run_timeout 60 "$PORT" serve -n 3 --exit-timeout=10m ./early 7 2>err &&
	grep "ERROR: rank 1 exited before it used PMI while 2 of 3 ranks here wait in a barrier" err &&
	rm waits.* &&
	test_expect_code 1 run_timeout 60 "$PORT" serve -n 3 --exit-timeout=10m ./early 0 2>err &&
	grep "ERROR: rank 1 exited before it used PMI while 2 of 3 ranks here wait in a barrier" err
'

test_expect_success 'what still runs after a failure is ended in time' '
	test_expect_code 3 run_timeout 60 "$PORT" serve -n 2 --exit-timeout=1s \
		sh -c "test \$PMI_RANK = 1 && exit 3; sleep 600 & wait"
'

for signal in INT TERM KILL; do
	test_expect_success "nothing is left after SIG$signal" '
		rm -f pids.* && cat >long <<-\EOT &&
		#!/bin/sh
		sleep 600 &
		echo $$ $! >tmp.$PMI_RANK && mv tmp.$PMI_RANK pids.$PMI_RANK
		wait
		EOT
		chmod +x long &&
		{ setsid env --default-signal=INT "$PORT" serve -n 3 -H "127.0.0.[2-4]" -r ./fake-rsh ./long & } &&
		server=$! &&
		for r in 0 1 2; do
			run_timeout 60 "$BCAST_SCRIPTS/wait-file" pids.$r || return 1
		done &&
		kill -'$signal' $server &&
		cat pids.* >pids &&
		run_timeout 60 "$BCAST_SCRIPTS/gone" pids
	'
done

test_expect_success 'junk and wrong ids do not disturb the ranks' '
	cat >disturbed <<-\EOT &&
	#!/bin/sh
	if test $PMI_RANK = 0; then
		./pmi-talk @junk 200000 >/dev/null 2>&1
		./pmi-talk @send "GET / HTTP/1.1" @eof
		./pmi-talk @send "cmd=initack pmiid=0" @eof
		for i in 1 2 3 4 5 6 7 8; do ./pmi-talk @rst; done
	fi
	exec ./pmi-lanes 2 10
	EOT
	chmod +x disturbed &&
	serve -n 3 ./disturbed >out 2>err &&
	test $(grep -c "^rank [0-2]: 60 values" out) = 3 &&
	grep "closed the connection of a client without a handshake" err
'

test_expect_success 'output can be labelled' '
	serve -n 2 -l sh -c "echo out; echo err >&2" >out 2>err &&
	sort out >sorted &&
	printf "%s\n" "0: out" "1: out" >want &&
	test_cmp want sorted &&
	grep "^1: err" err
'

test_expect_success 'each line has a label, also one that does not end and one that never does' '
	serve -n 2 -l printf "%s\n%s" out rest >out &&
	sort out >sorted &&
	printf "%s\n" "0: out" "0: rest" "1: out" "1: rest" >want &&
	test_cmp want sorted &&
	serve -n 1 -l sh -c "head -c 10000000 /dev/zero | tr \"\\0\" x" >out &&
	test "$(tr -cd x <out | wc -c)" = 10000000 &&
	! grep -v "^0: x" out &&
	test "$(head -n 1 out | wc -c)" -le 100000
'

test_expect_success 'a program that leaves others behind ends with them' '
	cat >leaves <<-\EOT &&
	#!/bin/sh
	sleep 600 &
	echo $! >left.pid
	EOT
	chmod +x leaves &&
	serve -n 1 -l ./leaves &&
	run_timeout 60 "$BCAST_SCRIPTS/gone" left.pid
'

test_expect_success 'what leads MPI libraries astray does not leak in' '
	show="echo \${PMI_FD-none} \${PMI_SPAWNED-none} \${PMI_TOTALVIEW-none} \${PMIX_NAMESPACE-none}" &&
	astray="env PMI_FD=9 PMI_SPAWNED=1 PMI_TOTALVIEW=1 PMIX_NAMESPACE=x" &&
	run_timeout 60 $astray "$PORT" serve -n 1 sh -c "$show" >out &&
	echo none none none none >want &&
	test_cmp want out &&
	serve -n 1 $astray "$PORT" exec sh -c "$show" >out &&
	sed "s/^[0-9]*/FD/" out >shown &&
	echo FD none none none >want &&
	test_cmp want shown
'

test_expect_success 'a script is told of no rank that serve itself may be' '
	cat >fan-out <<-\EOT &&
	#!/bin/sh
	echo ${PMI_ID-none} ${PMI_RANK-none}
	PMI_RANK=1 flux-pmi-port exec sh -c "echo \$PMI_RANK of \$PMI_SIZE"
	EOT
	PATH=$FLUX_BCAST_BUILD:$PATH PMI_ID=0 PMI_RANK=0 serve --script -H "127.0.0.[2-3]" \
		-r ./fan-out x >out &&
	printf "%s\n" "none none" "1 of 2" >want &&
	test_cmp want out
'

test_expect_success 'a script that takes no notice of its input is ended after an abort' '
	cat >fan-out <<-\EOT &&
	#!/bin/sh
	flux-pmi-port exec --rank 0 -- python3 -c "
	import os
	os.write(int(os.environ[\"PMI_FD\"]), b\"cmd=abort exitcode=42\n\")"
	exec sleep 600
	EOT
	test_expect_code 42 run_timeout 60 env PATH="$FLUX_BCAST_BUILD:$PATH" "$PORT" serve --script \
		-H 127.0.0.2 -r ./fan-out x 2>err &&
	grep "rank 0 called PMI abort" err
'

test_done
