#!/bin/sh

test_description='Flux instances boot over PMI_PORT'

. "$(dirname "$0")/sharness.sh"

PORT=$FLUX_BCAST_BUILD/flux-pmi-port
mkdir methods && ln -s "$BCAST_PLUGIN" methods/port.so

cat >inside <<-\EOT
	#!/bin/sh
	echo "size $(flux getattr size) by $(flux getattr broker.boot-method)"
	flux run -N 3 -n 3 sh -c 'echo task $FLUX_TASK_RANK'
EOT
chmod +x inside

# booted FILE METHOD: an instance of three was there and ran a job on all.
booted() {
	grep "^size 3 by $2\$" "$1" &&
	test "$(grep -c "^task [012]\$" "$1")" = 3
}

test_expect_success 'three brokers by serve and exec' '
	run_timeout 120 "$PORT" serve -n 3 "$PORT" exec flux start ./inside >out &&
	booted out simple
'

test_expect_success REAL_FLUX 'three brokers by serve and the bootstrap method "port"' '
	FLUX_PMI_CLIENT_SEARCHPATH=$PWD/methods FLUX_PMI_CLIENT_METHODS=port \
		run_timeout 120 "$PORT" serve -n 3 flux start ./inside >out &&
	booted out port
'

test_expect_success REAL_FLUX 'in a job with -o pmi=port, by the method "port"' '
	cat >nested <<-EOT &&
	#!/bin/sh
	FLUX_PMI_CLIENT_SEARCHPATH="$PWD/methods" FLUX_PMI_CLIENT_METHODS=port \
		timeout 150 flux run -o userrc=$BCAST_RC -o pmi=port -N 3 -n 3 \
		flux start ./inside
	EOT
	chmod +x nested &&
	run_timeout 180 flux start -s 3 ./nested >out &&
	booted out port
'

test_expect_success 'and by exec' '
	cat >nested <<-EOT &&
	#!/bin/sh
	timeout 150 flux run -o userrc=$BCAST_RC -o pmi=port -N 3 -n 3 \
		$PORT exec flux start sh -c "./inside; flux getattr jobid; flux getattr instance-level"
	EOT
	chmod +x nested &&
	run_timeout 180 flux start -s 3 ./nested >out &&
	booted out simple &&
	grep "^1\$" out
'

test_expect_success 'the exit status of the program comes out' '
	test_expect_code 3 run_timeout 120 "$PORT" serve -n 2 "$PORT" exec flux start sh -c "exit 3"
'

test_expect_success REAL_FLUX 'flux pmi works by every method' '
	for method in port simple; do
		exec=
		test $method = port || exec="$PORT exec"
		FLUX_PMI_CLIENT_SEARCHPATH=$PWD/methods run_timeout 120 "$PORT" serve -n 4 \
			$exec flux pmi --method=$method exchange --count 5 >out &&
		grep "completed pmi exchange on 4 tasks" out || return 1
	done
'

test_expect_success REAL_FLUX 'without PMI_PORT the method steps aside' '
	FLUX_PMI_CLIENT_SEARCHPATH=$PWD/methods FLUX_PMI_CLIENT_METHODS="port single" \
		run_timeout 60 env -u PMI_PORT flux pmi -v barrier >out 2>err &&
	grep "PMI_PORT not found in environ" err &&
	grep "completed pmi barrier on 1 tasks" out
'

test_done
