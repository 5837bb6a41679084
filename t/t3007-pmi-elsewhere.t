#!/bin/sh

test_description='Clients of PMI_PORT that come from another host'

# In a network and with a host name of its own. There this host is 192.0.2.7 by
# name; its addresses are 127.0.0.1 and 198.51.100.1; and programs can connect
# from all of 192.0.2.*, which for a server are addresses of other hosts.
apart='ip link set lo up && ip address add 198.51.100.1/32 dev lo &&
	ip route add local 192.0.2.0/24 dev lo && hostname 192.0.2.7'
if test -z "$BCAST_APART"; then
	BCAST_APART=no
	export BCAST_APART
	if unshare --net --uts sh -c "$apart" 2>/dev/null; then
		BCAST_APART=yes
		exec unshare --net --uts sh -c "$apart"' && exec /bin/sh "$0" "$@"' "$0" "$@"
	fi
fi

. "$(dirname "$0")/sharness.sh"

if test "$BCAST_APART" = no; then
	skip_all='no network namespaces, or no ip command, on this machine'
	test_done
fi
test_under_flux 2

PORT=$FLUX_BCAST_BUILD/flux-pmi-port

test_expect_success 'build the client' '
	pmi_build pmi-talk
'

# What each rank does: strangers first, then as itself.
cat >clients <<-\EOT
	#!/bin/sh
	PMI_FROM=192.0.2.8 ./pmi-talk @send "cmd=initack pmiid=$PMI_ID" @eof
	PMI_FROM=192.0.2.7 ./pmi-talk @send "cmd=initack pmiid=$PMI_RANK" @eof
	PMI_FROM=192.0.2.7 exec ./pmi-talk @hello cmd=barrier_in cmd=finalize
EOT
chmod +x clients

# served OUT ERR: the strangers were closed, and the ranks served.
served() {
	cat "$1" "$2"
	test "$(grep -c "^eof" "$1")" = 4 &&
	test "$(grep -c "^cmd=set rank=" "$1")" = 2 &&
	test "$(grep -c "^cmd=finalize_ack rc=0" "$1")" = 2 &&
	test "$(grep -c "refused a client from 192\.0\.2\.8:[0-9]*: it comes from no host of ours" "$2")" = 2
}

for check in on off; do
	test_expect_success "only hosts of the job, and only with the id (uid-check=$check)" '
		pmi_run -N 2 -n 2 -o pmi-port.bind=0.0.0.0 -o pmi-port.uid-check='$check' \
			./clients >out 2>err &&
		served out err &&
		! grep "cannot be resolved" err
	'
done

test_expect_success 'an address of this host can be the one to listen at' '
	pmi_run -N 2 -n 2 -o pmi-port.bind=198.51.100.1 sh -c \
		"echo \$PMI_PORT; exec ./clients" >out 2>err &&
	served out err &&
	test $(grep -c "^198\.51\.100\.1:[0-9]*\$" out) = 2
'

test_expect_success 'with the default nobody from elsewhere is admitted' '
	pmi_run -n 1 sh -c "PMI_FROM=192.0.2.7 ./pmi-talk @send \"cmd=initack pmiid=0\" @eof
		PMI_FROM=198.51.100.1 ./pmi-talk @send \"cmd=initack pmiid=0\" @eof
		exec ./pmi-talk @hello cmd=finalize" >out 2>err &&
	cat out err &&
	test $(grep -c "^eof" out) = 2 &&
	grep "^cmd=finalize_ack rc=0" out &&
	test $(grep -c "it comes from no host of ours" err) = 2
'

# An address of this host does not make a foreign process one of another host.
test_expect_success OTHER_USER 'another user of this host is refused at each of its addresses' '
	cat >others <<-EOT &&
	#!/bin/sh
	export PMI_FROM
	for PMI_FROM in 127.0.0.1 198.51.100.1; do
		"$BCAST_SCRIPTS/stranger" ./pmi-talk @send "cmd=initack pmiid=\$PMI_ID" @eof
	done
	exec ./pmi-talk @hello cmd=finalize
	EOT
	chmod +x others &&
	pmi_run -n 1 -o pmi-port.bind=0.0.0.0 ./others >out 2>err &&
	cat out err &&
	test $(grep -c "^eof" out) = 2 &&
	grep "^cmd=finalize_ack rc=0" out &&
	test $(grep -c "it belongs to uid 65534" err) = 2
'

test_expect_success 'hosts that cannot be resolved are warned about' '
	run_timeout 120 flux start -s 2 $(named_hosts 192.0.2.7,no-such-host.invalid) \
		flux run -N 2 -n 2 -o userrc="$BCAST_RC" -o pmi=port -o pmi-port.bind=0.0.0.0 \
		./clients >out 2>err &&
	served out err &&
	grep "WARN: pmi-port: no-such-host.invalid cannot be resolved here within 10s: clients from there are refused" err &&
	test $(grep -c "cannot be resolved" err) = 1
'

# networks OUT ERR OPTION: 192.0.2.8 and .12 were refused with a hint at OPTION, and
# .10 and .11 served.
networks() {
	cat "$1" "$2"
	test "$(grep -c "^eof" "$1")" = 2 &&
	test "$(grep -c "^cmd=finalize_ack rc=0" "$1")" = 2 &&
	for last in 8 12; do
		grep "refused a client from 192\.0\.2\.$last:[0-9]*: it comes from no host of ours; see $3" \
			"$2" || return 1
	done &&
	test "$(grep -c "refused a client" "$2")" = 2
}

# What each rank does: a stranger from beside 192.0.2.10/31 first, then itself from
# within.
cat >within <<-\EOT
	#!/bin/sh
	PMI_FROM=192.0.2.$((8 + PMI_RANK * 4)) ./pmi-talk @send "cmd=initack pmiid=$PMI_ID" @eof
	PMI_FROM=192.0.2.$((10 + PMI_RANK)) exec ./pmi-talk @hello cmd=barrier_in cmd=finalize
EOT
chmod +x within

test_expect_success 'a job admits the networks and addresses that it is told to' '
	pmi_run -N 2 -n 2 -o pmi-port.bind=0.0.0.0 -o pmi-port.allow=192.0.2.10/31 \
		./within >out 2>err &&
	networks out err pmi-port.allow &&
	pmi_run -N 2 -n 2 -o pmi-port.bind=198.51.100.1 \
		-o pmi-port.allow="[\"192.0.2.11\",\"fd00::/8\",\"192.0.2.10/32\"]" ./within >out 2>err &&
	networks out err pmi-port.allow
'

cat >knowing <<-\EOT
	#!/bin/sh
	printf "127.0.0.1 localhost\n192.0.2.10 ten\n192.0.2.11 eleven\n" >hosts
	mount --bind hosts /etc/hosts && exec "$@"
EOT
chmod +x knowing

test_expect_success MOUNTNS 'names are looked up, by a job and by serve' '
	run_timeout 120 unshare --mount ./knowing flux start -s 2 \
		flux run -N 2 -n 2 -o userrc="$BCAST_RC" -o pmi=port -o pmi-port.bind=0.0.0.0 \
		-o pmi-port.allow="[\"ten\",\"no-such-host.invalid\",\"eleven\"]" \
		./within >out 2>err &&
	networks out err pmi-port.allow &&
	test $(grep -c "no-such-host.invalid cannot be resolved here within 10s" err) = 2 &&
	run_timeout 60 unshare --mount ./knowing "$PORT" serve -n 2 -b 198.51.100.1 \
		--allow ten --allow no-such-host.invalid --allow eleven ./within >out 2>err &&
	networks out err --allow &&
	grep "host no-such-host.invalid has no address here, so its clients are refused" err
'

test_expect_success 'an allowed network does not replace the id' '
	pmi_run -n 1 -o pmi-port.bind=0.0.0.0 -o pmi-port.allow=192.0.2.8/29 sh -c \
		"PMI_FROM=192.0.2.9 ./pmi-talk @send \"cmd=initack pmiid=\$PMI_RANK\" @eof
		PMI_FROM=192.0.2.9 exec ./pmi-talk @hello cmd=finalize" >out 2>err &&
	cat out err &&
	test $(grep -c "^eof" out) = 1 &&
	grep "^cmd=finalize_ack rc=0" out
'

# The address of a bridge is in the network of its containers, and both may be
# younger than the provider.
cat >late <<-EOT
	#!/bin/sh
	ip address add 203.0.113.1/32 dev lo || exit 1
	PMI_FROM=203.0.113.1 "$BCAST_SCRIPTS/stranger" ./pmi-talk \
		@send "cmd=initack pmiid=\$PMI_ID" @eof
	PMI_FROM=203.0.113.1 ./pmi-talk @hello cmd=finalize
	ip address del 203.0.113.1/32 dev lo
EOT
chmod +x late

late() {
	cat "$1" "$2"
	test "$(grep -c "^eof" "$1")" = 1 &&
	grep "^cmd=finalize_ack rc=0" "$1" &&
	grep "refused a client from 203\.0\.113\.1:[0-9]*: it belongs to uid 65534" "$2"
}

test_expect_success OTHER_USER 'another user of this host is refused in an allowed network too' '
	pmi_run -n 1 -o pmi-port.bind=0.0.0.0 -o pmi-port.allow=203.0.113.0/24 ./late \
		>out 2>err &&
	late out err &&
	run_timeout 60 "$PORT" serve -n 1 -b 0.0.0.0 --allow 203.0.113.0/24 ./late \
		>out 2>err &&
	late out err
'

# A bridge as container engines make it, and behind it the network of a container,
# where it is 172.17.0.2. It is made once, and with all link addresses: what the
# kernel has to find out by asking, it finds out too early or too late.
bridge() {
	ip link add pmi0 address 02:00:00:00:00:01 type bridge &&
	ip address add 172.17.0.1/16 dev pmi0 && ip link set pmi0 up &&
	ip link add pmi1 type veth peer name pmi2 address 02:00:00:00:00:02 netns "$1" &&
	ip link set pmi1 master pmi0 up &&
	nsenter --target="$1" --net ip address add 172.17.0.2/16 dev pmi2 &&
	nsenter --target="$1" --net ip link set pmi2 up &&
	nsenter --target="$1" --net ip neighbour replace 172.17.0.1 \
		lladdr 02:00:00:00:00:01 dev pmi2 nud permanent &&
	ip neighbour replace 172.17.0.2 lladdr 02:00:00:00:00:02 dev pmi0 nud permanent &&
	run_timeout 30 sh -c \
		'until ip -d link show pmi1 | grep -q "state forwarding"; do sleep 0.05; done'
}
mkfifo apart
setpriv --pdeathsig=KILL unshare --net sh -c 'echo >apart; exec sleep 3600' &
container=$!
read -r _ <apart
cleanup 'kill $container'
if bridge $container 2>bridge.err; then
	test_set_prereq BRIDGE
else
	sed 's/^/# no bridge: /' bridge.err
fi
printf '#!/bin/sh\nexec nsenter --target=%s --net "$@"\n' $container >contain
chmod +x contain

# contained OUT ERR: the container and the other rank were served, and none refused.
contained() {
	cat "$1" "$2"
	test "$(grep -c "^cmd=barrier_out" "$1")" = 2 &&
	test "$(grep -c "^cmd=finalize_ack rc=0" "$1")" = 2 &&
	! grep "refused a client" "$2"
}
cat >mixed <<-\EOT
	#!/bin/sh
	test $PMI_RANK = 1 || set -- ./contain "$@"
	exec "$@"
EOT
chmod +x mixed

test_expect_success BRIDGE 'a container on a bridge is from elsewhere, on whichever host' '
	set -- ./mixed ./pmi-talk @hello cmd=barrier_in cmd=finalize &&
	pmi_run -N 2 -n 2 -o pmi-port.bind=172.17.0.1 -o pmi-port.allow=172.17.0.0/16 "$@" \
		>out 2>err &&
	contained out err &&
	run_timeout 60 "$PORT" serve -n 2 -b 172.17.0.1 --allow 172.17.0.0/16 "$@" >out 2>err &&
	contained out err &&
	pmi_run -n 1 -o pmi-port.bind=172.17.0.1 ./contain \
		./pmi-talk @send "cmd=initack pmiid=0" @eof >out 2>err &&
	grep "^eof" out &&
	grep "refused a client from 172\.17\.0\.2:[0-9]*: it comes from no host of ours" err
'

# Ids are guessed from one host until it is barred; others, and this one, are not.
cat >guesses <<-\EOT
	#!/bin/sh
	guess() { PMI_FROM=$1 ./pmi-talk @send "cmd=initack pmiid=$2" @eof; }
	for i in $(seq 100); do
		guess 192.0.2.7 $PMI_RANK
	done
	echo barred
	guess 192.0.2.7 $PMI_ID
	for i in $(seq 101); do
		guess 198.51.100.1 $PMI_RANK
	done
	PMI_FROM=198.51.100.1 exec ./pmi-talk @hello cmd=finalize
EOT
chmod +x guesses

guessed() {
	cat "$2" && uniq -c "$1" | awk "{ print \$1, \$2 }" >got
	cat >want <<-\EOT
	100 eof
	1 barred
	102 eof
	1 cmd=initack
	1 cmd=set
	1 cmd=set
	1 cmd=set
	1 cmd=finalize_ack
	EOT
	test_cmp want got &&
	grep "192\.0\.2\.7 is barred: too many clients from there gave a wrong id" "$2" &&
	test "$(grep -c "refused a client from 192\.0\.2\.7:[0-9]*: its host is barred" "$2")" = 1
}

test_expect_success 'ids cannot be guessed from another host for long' '
	pmi_run -n 1 -o pmi-port.bind=0.0.0.0 ./guesses >out 2>err &&
	guessed out err
'

test_expect_success 'nor with many addresses of an allowed network' '
	cat >many <<-\EOT &&
	#!/bin/sh
	for last in $(seq 16 25); do
		for i in $(seq 100); do
			PMI_FROM=192.0.2.$last ./pmi-talk @send "cmd=initack pmiid=$PMI_RANK" @eof
		done
	done
	PMI_FROM=192.0.2.26 ./pmi-talk @send "cmd=initack pmiid=$PMI_ID" @eof
	exec ./pmi-talk @hello cmd=finalize
	EOT
	chmod +x many &&
	pmi_run -n 1 -o pmi-port.bind=0.0.0.0 -o pmi-port.allow=192.0.2.16/28 ./many >out 2>err &&
	cat err && tail -n 5 out &&
	test $(grep -c "^eof" out) = 1001 &&
	grep "^cmd=finalize_ack rc=0" out &&
	grep "192\.0\.2\.16/28 is barred: too many clients from there" err &&
	grep "refused a client from 192\.0\.2\.26:[0-9]*: its network is barred" err
'

cat >fake-rsh <<-\EOT
	#!/bin/sh
	shift
	exec sh -c "$*"
EOT
chmod +x fake-rsh

test_expect_success 'serve admits its hosts and those that it is told to' '
	set -- run_timeout 60 "$PORT" serve -n 2 -H 192.0.2.7 -b 198.51.100.1 -r ./fake-rsh &&
	"$@" ./clients >out 2>err &&
	served out err &&
	grep "192\.0\.2\.8:[0-9]*: it comes from no host of ours; see --allow" err &&
	"$@" --allow 192.0.2.8 --allow 192.0.2.9 sh -c \
		"PMI_FROM=192.0.2.\$((8 + PMI_RANK)) exec ./pmi-talk @hello cmd=finalize" >out 2>err &&
	test $(grep -c "^cmd=finalize_ack rc=0" out) = 2 &&
	! grep refused err
'

test_expect_success 'nor those of serve' '
	run_timeout 60 "$PORT" serve -H 192.0.2.7 -b 198.51.100.1 -r ./fake-rsh ./guesses \
		>out 2>err &&
	guessed out err
'

test_expect_success 'serve admits networks' '
	run_timeout 60 "$PORT" serve -n 2 -b 198.51.100.1 --allow 192.0.2.10/31 ./within \
		>out 2>err &&
	networks out err --allow &&
	run_timeout 60 "$PORT" serve -n 2 -b 198.51.100.1 --allow 192.0.2.10 \
		--allow 192.0.2.11/32 ./within >out 2>err &&
	networks out err --allow
'

test_expect_success 'it listens where the host reaches it' '
	run_timeout 60 "$PORT" serve -H 198.51.100.1 -r ./fake-rsh sh -c \
		"echo \$PMI_HOST; exec ./pmi-talk @hello cmd=finalize" >out &&
	grep "^198\.51\.100\.1\$" out &&
	grep "^cmd=finalize_ack rc=0" out
'

test_done
