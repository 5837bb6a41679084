#!/bin/sh

test_description='Clients of PMI_PORT that come from another host'

# In a network and with a host name of its own. There this host is 192.0.2.7 by
# name; its addresses are 127.0.0.1 and 198.51.100.1; and programs can connect
# from all of 192.0.2.*, which for a server are addresses of other hosts.
apart='ip link set lo up && ip address add 198.51.100.1/32 dev lo &&
	ip route add local 192.0.2.0/24 dev lo && hostname 192.0.2.7'
if test -z "$PMI_APART"; then
	PMI_APART=no
	export PMI_APART
	if unshare --net --uts sh -c "$apart" 2>/dev/null; then
		PMI_APART=yes
		exec unshare --net --uts sh -c "$apart"' && exec /bin/sh "$0" "$@"' "$0" "$@"
	fi
fi

. "$(dirname "$0")/sharness.sh"

if test "$PMI_APART" = no; then
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

test_expect_success 'it listens where the host reaches it' '
	run_timeout 60 "$PORT" serve -H 198.51.100.1 -r ./fake-rsh sh -c \
		"echo \$PMI_HOST; exec ./pmi-talk @hello cmd=finalize" >out &&
	grep "^198\.51\.100\.1\$" out &&
	grep "^cmd=finalize_ack rc=0" out
'

test_done
