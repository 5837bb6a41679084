#!/bin/sh

test_description='flux pmi-port serve by way of a real sshd'

. "$(dirname "$0")/sharness.sh"

PORT=$FLUX_BCAST_BUILD/flux-pmi-port
SSHD=/usr/sbin/sshd

if ! test -x $SSHD || ! command -v ssh >/dev/null; then
	skip_all='no sshd or ssh on this machine'
	test_done
fi

# shellcheck disable=SC2015 # as meant
keys=$(mktemp -d) && ssh-keygen -q -t ed25519 -N '' -f "$keys/host" &&
	ssh-keygen -q -t ed25519 -N '' -f "$keys/user" || error 'cannot make keys'
cleanup 'kill $sshd; rm -rf "$keys"'
test "$(id -u)" != 0 || mkdir -p /run/sshd

# sshd_starts PORT: a server of our own with throw-away keys; its process is
# $sshd, bound to this one, so that it cannot be left behind.
sshd_starts() {
	cat >"$keys/sshd_config" <<-EOT
		Port $1
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
	setpriv --pdeathsig=TERM $SSHD -D -f "$keys/sshd_config" -E "$keys/log" &
	sshd=$!
	# It writes its process id when it listens, and ends where it cannot.
	until test -s "$keys/pid"; do
		kill -0 $sshd 2>/dev/null && sleep 0.1 || return 1
	done
	test "$(grep -c "^Server listening on" "$keys/log")" = 3 && return
	kill $sshd && wait $sshd
	rm -f "$keys/pid"
	return 1
}

# On a port that nobody has.
for port in $(shuf -i 20000-29999 -n 20); do
	: >"$keys/log"
	sshd_starts "$port" && break
	port=
done
test -n "$port" || error "sshd does not start: $(cat "$keys/log")"

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
	echo \$\$ \$! >"$PWD/tmp.\$PMI_RANK" && mv "$PWD/tmp.\$PMI_RANK" "$PWD/pids.\$PMI_RANK"
	wait
	EOT
	chmod +x long &&
	{ setsid env --default-signal=INT "$PORT" serve -H "127.0.0.[2-4]" -r "$RSH" "$PWD/long" & } &&
	server=$! &&
	for r in 0 1 2; do
		run_timeout 60 "$BCAST_SCRIPTS/wait-file" pids.$r || return 1
	done &&
	kill -INT $server &&
	cat pids.* >pids &&
	run_timeout 60 "$BCAST_SCRIPTS/gone" pids
'

test_done
