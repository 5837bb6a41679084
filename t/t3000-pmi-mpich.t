#!/bin/sh

test_description='MPICH programs start over PMI_PORT in a job'

# For many tasks on few processors; the real Flux needs no telling.
FLUX_SANDBOX_CORES=16
export FLUX_SANDBOX_CORES

. "$(dirname "$0")/sharness.sh"
test_under_flux 8

if ! test_have_prereq MPICH; then
	skip_all='no MPICH compiler on this machine'
	test_done
fi

shell_knows EXIT_STATUS

test_expect_success 'build the program' '
	pmi_build mpi-sum pmi-talk
'

# sums FILE SIZE: every rank has added up all of them.
sums() {
	want=$(($2 * ($2 - 1) / 2)) &&
	test "$(grep -c "^rank [0-9]* of $2: sum $want, PMI_FD unset\$" "$1")" = "$2"
}

for shape in 1:1 1:2 2:1 2:2 4:1 4:2 4:4 8:1 8:2 8:4; do
	shells=${shape%:*} per=${shape#*:}
	test_expect_success "$per ranks on each of $shells shells" '
		pmi_run -N $shells --tasks-per-node=$per ./mpi-sum >out &&
		sums out $((shells * per))
	'
done

for option in k=1 k=16 id=random nomap lanes=1 pmi12 bind=127.0.0.2 bind=0.0.0.0; do
	test_expect_success "with -o pmi-port.$option" '
		pmi_run -N 4 --tasks-per-node=2 -o pmi-port.$option ./mpi-sum >out &&
		sums out 8
	'
done

test_expect_success REAL_FLUX 'with ranks dealt out to shells one by one' '
	pmi_run -N 4 --tasks-per-node=2 --taskmap=cyclic ./mpi-sum >out &&
	sums out 8 &&
	pmi_run -N 2 -n 4 --taskmap=cyclic ./pmi-talk \
		@hello "cmd=get kvsname=k key=PMI_process_mapping" >out &&
	test $(grep -c "value=(vector,(0,2,1),(0,2,1))" out) = 4
'

test_expect_success 'ranks of unequal number per shell' '
	pmi_run -N 3 -n 5 ./mpi-sum >out &&
	sums out 5
'

test_expect_success 'a wrapper that closes all inherited descriptors does no harm' '
	cat >closer <<-\EOT &&
	#!/bin/bash
	for fd in /proc/$$/fd/*; do
		fd=${fd##*/}
		test $fd -gt 2 && test $fd -lt 255 && eval "exec $fd>&-"
	done
	exec "$@"
	EOT
	chmod +x closer &&
	pmi_run -N 2 -n 4 ./closer ./mpi-sum >out &&
	sums out 4
'

test_expect_success MOUNTNS 'no name has to be resolved, not even that of the host' '
	cat >nameless <<-\EOT &&
	#!/bin/sh
	for file in hosts resolv.conf nsswitch.conf; do
		test ! -e /etc/$file || mount --bind /dev/null /etc/$file || exit 1
	done
	hostname nameless-$$ || exit 1
	exec "$@"
	EOT
	chmod +x nameless &&
	pmi_run -N 2 -n 4 unshare --mount --uts ./nameless ./mpi-sum >out &&
	sums out 4
'

test_expect_success 'nothing but PMI_PORT and PMI_ID in the environment is needed' '
	pmi_run -N 2 -n 4 sh -c \
		"exec env -i PMI_PORT=\$PMI_PORT PMI_ID=\$PMI_ID ./mpi-sum" >out &&
	sums out 4
'

test_expect_success 'PMI_PORT is numeric and on the loopback interface' '
	pmi_run -N 2 -n 2 sh -c "echo \$PMI_PORT \$PMI_ID \$PMI_RANK \$PMI_SIZE" >out &&
	sort -k 2 out >sorted &&
	grep "^127\.0\.0\.1:[0-9]* 0 0 2\$" sorted &&
	grep "^127\.0\.0\.1:[0-9]* 1 1 2\$" sorted
'

test_expect_success 'variables that mislead a client do not reach the tasks' '
	PMI_SPAWNED=1 PMI_TOTALVIEW=1 PMIX_NAMESPACE=x PMI_FD=9 PMI_ID=7 PMI_PORT=h:1 \
		pmi_run -N 1 -n 2 ./mpi-sum >out &&
	sums out 2 &&
	PMI_SPAWNED=1 PMI_TOTALVIEW=1 PMIX_NAMESPACE=x PMI_FD=9 \
		pmi_run -n 1 env >vars &&
	! grep -E "^(PMI_FD|PMI_SPAWNED|PMI_TOTALVIEW|PMIX_NAMESPACE)=" vars
'

for list in simple,port port,simple; do
	test_expect_success REAL_FLUX "-o pmi=$list: both are offered, MPICH takes PMI_FD" '
		PMI_LIST=$list pmi_run -N 2 -n 4 ./mpi-sum >out &&
		test $(grep -c "of 4: sum 6, PMI_FD set" out) = 4 &&
		PMI_LIST=$list pmi_run -N 2 -n 4 env -u PMI_FD -u PMI_RANK -u PMI_SIZE ./mpi-sum >out &&
		sums out 4
	'
done

test_expect_success 'a job that does not ask gets none of it' '
	run_timeout 60 flux run -o userrc="$BCAST_RC" -n 1 env >vars &&
	! grep "^PMI_PORT=" vars
'

test_expect_success 'MPI_Abort ends the job, and says who' '
	pmi_fails -N 2 -n 4 ./mpi-sum 42 3 2>err &&
	grep "rank 3 called PMI abort ([^()]" err
'

test_expect_success EXIT_STATUS 'MPI_Abort ends the job with its code' '
	test_expect_code 42 pmi_run -N 2 -n 4 ./mpi-sum 42 3 2>err &&
	grep "rank 3 called PMI abort" err
'

test_expect_success 'jobs one after the other and at once do not disturb each other' '
	for i in 1 2 3; do
		flux submit -N 2 -n 2 --output=out.$i -o userrc="$BCAST_RC" -o pmi=port \
			./mpi-sum >>ids || return 1
	done &&
	for id in $(cat ids); do
		run_timeout 120 flux job attach $id || return 1
	done &&
	for i in 1 2 3; do
		sums out.$i 2 || return 1
	done
'

# Not every container lets a debugger trace processes.
gdb -q -batch -ex run --args true </dev/null 2>/dev/null | grep -q "exited normally" &&
	test_set_prereq GDB

test_expect_success GDB 'a debugger may start the ranks' '
	cat >debugger <<-\EOT &&
	#!/bin/sh
	exec gdb -q -batch -ex run --args ./mpi-sum </dev/null
	EOT
	chmod +x debugger &&
	pmi_run -N 2 -n 2 ./debugger >out 2>&1 &&
	test $(grep -c "exited normally" out) = 2 &&
	test $(grep -c "of 2: sum 1, PMI_FD unset" out) = 2
'

test_expect_success '256 clients connect to one shell at once' '
	cat >many <<-\EOT &&
	#!/bin/sh
	# As many clients as there are lanes, all at the same time.
	for lane in $(seq 0 127); do
		id=$((PMI_ID + PMI_SIZE * lane))
		./pmi-talk @id $id cmd=barrier_in cmd=finalize >out.$id &
	done
	wait
	EOT
	chmod +x many &&
	pmi_run -N 1 -n 2 -o pmi-port.lanes=128 ./many &&
	test $(cat out.[0-9]* | grep -c "^cmd=finalize_ack rc=0") = 256
'

test_done
