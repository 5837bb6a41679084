#!/bin/sh

test_description='MPI libraries of many versions start over PMI_PORT'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2

if ! test_have_prereq MPICH; then
	skip_all='no MPICH compiler on this machine'
	test_done
fi

# MPICH's libraries have one binary interface, so the programs are compiled once
# and run with the libraries of PyPI's packages.

# fetch PACKAGE VERSION: unpacks it to lib/PACKAGE-VERSION. Without a registry
# the reason is in fetch.log.
fetch() {
	lib=$PWD/lib/$1-$2
	mkdir -p wheels "$lib" &&
	run_timeout 180 python3 -m pip download -q --no-deps --disable-pip-version-check -d wheels "$1==$2" \
		>fetch.log 2>&1 &&
	python3 - "$lib" wheels/"$(echo "$1" | tr - _)-$2"-*.whl <<-\EOT &&
	import sys, zipfile
	zipfile.ZipFile(sys.argv[2]).extractall(sys.argv[1])
	EOT
	libmpi=$(find "$lib" -name 'libmpi.so.12' -type f | sort | tail -n 1) &&
	ln -s "$libmpi" "$(dirname "$libmpi")/libmpich.so.12" &&
	LIBDIR=$(dirname "$libmpi"):$(dirname "$libmpi")/mpich:$(dirname "$libmpi")/..
}

# uses FILE SIZE LIBRARY: all ranks have found each other, with that library.
uses() {
	test "$(grep -c "of $2: sum $(($2 * ($2 - 1) / 2)), PMI_FD unset" "$1")" = "$2" &&
	grep "library: $3" "$1"
}

test_expect_success 'build the programs' '
	pmi_build mpi-sum mpi-session pmi-talk
'

for version in 3.4.3 4.0.3 4.1.3 4.2.3 4.3.2 5.0.2; do
	if fetch mpich $version; then
		test_set_prereq "V$version"
	else
		say "# mpich $version is left out: $(tail -n 1 fetch.log)"
	fi
	export LIBDIR
	test_expect_success "V$version" "mpich $version: 4 ranks on 2 shells" '
		pmi_run -N 2 -n 4 env LD_LIBRARY_PATH="$LIBDIR" ./mpi-sum >out &&
		uses out 4 "MPICH Version:[[:space:]]*$version"
	'
	test_expect_success "V$version" "mpich $version: random ids, no mapping, PMI 1.2" '
		for option in id=random nomap pmi12; do
			pmi_run -N 2 -n 4 -o pmi-port.$option \
				env LD_LIBRARY_PATH="$LIBDIR" ./mpi-sum >out &&
			uses out 4 "MPICH Version:[[:space:]]*$version" || return 1
		done
	'
	test_expect_success "V$version" "mpich $version: MPI_Abort" '
		! pmi_run -N 2 -n 2 env LD_LIBRARY_PATH="$LIBDIR" ./mpi-sum 42 1 2>err &&
		grep "rank 1 called PMI abort" err
	'
	case $version in
	4.2* | 4.3* | 5.*)
		test_expect_success "V$version" "mpich $version: one session after another" '
			pmi_run -N 2 -n 4 env LD_LIBRARY_PATH="$LIBDIR" ./mpi-session >out &&
			test $(grep -c "^session 2 rank [0-3] of 4: sum 6" out) = 4
		'
		;;
	esac
done

test_expect_success V5.0.2 'mpich 5.0.2: after a killed job, and two jobs at once' '
	id=$(flux submit -N 2 -n 2 -o userrc="$BCAST_RC" -o pmi=port \
		env LD_LIBRARY_PATH="$LIBDIR" \
		sh -c "./mpi-sum & wait; touch ran.\$FLUX_TASK_RANK; exec sleep 600") &&
	for r in 0 1; do
		run_timeout 60 "$BCAST_SCRIPTS/wait-file" ran.$r || return 1
	done &&
	flux job kill -s 9 $id && test_expect_code 137 run_timeout 60 flux job attach $id &&
	for n in 1 2; do
		flux submit -N 2 -n 2 --output=both.$n -o userrc="$BCAST_RC" -o pmi=port \
			env LD_LIBRARY_PATH="$LIBDIR" ./mpi-sum >>ids || return 1
	done &&
	for id in $(cat ids); do
		run_timeout 60 flux job attach $id || return 1
	done &&
	for n in 1 2; do
		test $(grep -c "of 2: sum 1," both.$n) = 2 || return 1
	done
'

version=2021.17.2
if fetch impi-rt $version; then
	test_set_prereq IMPI
else
	say "# impi-rt $version is left out: $(tail -n 1 fetch.log)"
fi
# The shells of this test are on one machine, but the library takes them for
# nodes of their own.
test_expect_success IMPI "Intel MPI $version" '
	pmi_run -N 1 -n 2 env LD_LIBRARY_PATH="$LIBDIR" I_MPI_FABRICS=shm \
		./mpi-sum >out &&
	uses out 2 "Intel(R) MPI Library 2021.17" &&
	pmi_run -N 2 -n 4 env LD_LIBRARY_PATH="$LIBDIR" I_MPI_FABRICS=shm:ofi FI_PROVIDER=tcp \
		FI_PROVIDER_PATH="${LIBDIR%%:*}" ./mpi-sum >out &&
	uses out 4 "Intel(R) MPI Library 2021.17"
'

test_done
