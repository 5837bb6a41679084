#!/bin/sh

test_description='flux pmi-port serve by way of a real sshd'

. "$(dirname "$0")/sharness.sh"

PORT=$FLUX_BCAST_BUILD/flux-pmi-port
SSHD=/usr/sbin/sshd

if ! test -x $SSHD || ! command -v ssh >/dev/null; then
	skip_all='no sshd or ssh on this machine'
	test_done
fi

# A server of our own with throw-away keys, on a port that nobody knows.
port=$((20000 + $$ % 10000))
# shellcheck disable=SC2015 # as meant
keys=$(mktemp -d) && ssh-keygen -q -t ed25519 -N '' -f "$keys/host" &&
	ssh-keygen -q -t ed25519 -N '' -f "$keys/user" || error 'cannot make keys'
cat >"$keys/sshd_config" <<-EOT
	Port $port
	ListenAddress 127.0.0.2
	ListenAddress 127.0.0.3
	ListenAddress 127.0.0.4
	HostKey $keys/host
	AuthorizedKeysFile $keys/user.pub
	PidFile $keys/pid
	StrictModes no
	UsePAM no
	PasswordAuthentication no
	MaxStartups 100
EOT
test "$(id -u)" != 0 || mkdir -p /run/sshd
# Bound to this process, so that it cannot be left behind.
setpriv --pdeathsig=TERM $SSHD -D -f "$keys/sshd_config" -E "$keys/log" &
for i in $(seq 1 50); do
	test -s "$keys/pid" && break
	sleep 0.1
done
test -s "$keys/pid" || error "sshd does not start: $(cat "$keys/log")"
cleanup 'kill "$(cat "$keys/pid")"; rm -rf "$keys"'

RSH="ssh -q -p $port -i $keys/user -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -F none"

test_expect_success 'build the client' '
	pmi_build pmi-lanes
'

test_expect_success 'a command on each of three hosts' '
	run_timeout 60 "$PORT" serve -H "127.0.0.[2-4]" -r "$RSH" ./pmi-lanes 2 50 >out &&
	test $(grep -c "^rank [0-2]: 300 values" out) = 3
'

test_expect_success MPICH 'an MPI program' '
	pmi_build mpi-sum &&
	run_timeout 60 "$PORT" serve -n 6 -H "127.0.0.[2-4]" -r "$RSH" ./mpi-sum >out &&
	test $(grep -c "of 6: sum 15, PMI_FD unset" out) = 6
'

test_expect_success 'a Flux instance of three brokers, and a job in it' '
	run_timeout 60 "$PORT" serve -H "127.0.0.[2-4]" -r "$RSH" env PATH="$PATH" "$PORT" exec \
		flux start flux run -N 3 -n 3 sh -c "echo task \$FLUX_TASK_RANK" >out &&
	test $(grep -c "^task [012]" out) = 3
'

test_expect_success 'the exit status of the remote command' '
	test_expect_code 9 run_timeout 60 "$PORT" serve -H "127.0.0.[2-3]" -r "$RSH" \
		sh -c "exit \$((PMI_RANK * 9))"
'

test_expect_success 'the remote processes end with the command' '
	cat >long <<-EOT &&
	#!/bin/sh
	sleep 600 &
	echo \$\$ \$! >>"$PWD/pids"
	wait
	EOT
	chmod +x long &&
	{ setsid env --default-signal=INT "$PORT" serve -H "127.0.0.[2-4]" -r "$RSH" "$PWD/long" & } &&
	server=$! &&
	for i in $(seq 1 200); do
		test "$(cat pids 2>/dev/null | wc -l)" = 3 && break; sleep 0.1
	done &&
	test "$(wc -l <pids)" = 3 &&
	kill -INT $server &&
	for i in $(seq 1 100); do
		left=
		for pid in $(cat pids); do
			! kill -0 $pid 2>/dev/null || left=t
		done
		test -z "$left" && break; sleep 0.1
	done &&
	test -z "$left"
'

test_done
