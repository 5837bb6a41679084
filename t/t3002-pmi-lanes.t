#!/bin/sh

test_description='Independent PMI clients of one rank are kept apart'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'build the clients' '
	pmi_build pmi-lanes pmi-talk
'

# right FILE RANKS VALUES: all ranks have read that many right values.
right() {
	test "$(grep -c "^rank [0-9]*: $3 values\$" "$1")" = "$2"
}

test_expect_success 'two threads per rank, 1000 rounds, on 2 shells' '
	pmi_run -N 2 -n 4 ./pmi-lanes 2 1000 >out &&
	right out 4 8000
'

test_expect_success 'two threads per rank on 4 shells of 2 ranks' '
	pmi_run -N 4 --tasks-per-node=2 ./pmi-lanes 2 200 >out &&
	right out 8 3200
'

test_expect_success 'eight threads per rank' '
	pmi_run -N 3 -n 3 ./pmi-lanes 8 50 >out &&
	right out 3 1200
'

test_expect_success 'with random ids and a chain of shells' '
	pmi_run -N 4 -n 4 -o pmi-port.id=random -o pmi-port.k=1 ./pmi-lanes 3 50 >out &&
	right out 4 600
'

test_expect_success 'more lanes than offered are refused' '
	test_must_fail pmi_run -n 1 -o pmi-port.lanes=2 ./pmi-lanes 3 1 2>err &&
	grep "gave an id that no rank of this shell has" err
'

test_expect_success 'options of a provider that is not asked for: the first shell warns' '
	for list in "-o pmi=simple" ""; do
		run_timeout 60 flux run -N 2 -n 2 -o userrc="$BCAST_RC" $list \
			-o pmi-port.lanes=2 -o pmi-port.nomap true 2>err &&
		test "$(grep -c "pmi-port.lanes, pmi-port.nomap: no effect without" err)" = 1 ||
			return 1
	done &&
	pmi_run -n 1 -o pmi-port.lanes=2 true 2>err &&
	! grep "no effect" err
'

test_expect_success 'lanes have key spaces of their own' '
	pmi_run -n 1 ./pmi-talk @id 0 cmd=get_my_kvsname "cmd=put kvsname=k key=a value=zero" \
		@new @id 1 cmd=get_my_kvsname "cmd=get kvsname=k key=a" cmd=finalize >out &&
	grep "^cmd=get_result rc=4 msg=key_not_found" out &&
	test $(grep "kvsname=" out | sort -u | wc -l) = 2
'

test_done
