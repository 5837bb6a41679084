# Programs for the tests of PMI, and how to run them in a job.
# shellcheck shell=sh

# What the machine has for MPI, as prerequisite MPICH: a compiler wrapper and
# its launcher.
for MPICC in mpicc.mpich mpicc; do
	command -v $MPICC >/dev/null && $MPICC -show 2>/dev/null | grep -q mpich && break
	MPICC=
done
test -z "$MPICC" || test_set_prereq MPICH
test "$(id -u)" != 0 || ! setpriv --reuid=65534 true 2>/dev/null || test_set_prereq OTHER_USER

# pmi_build PROGRAM...: compiles them from t/src into the current directory.
pmi_build() {
	for program; do
		case "$program" in
		mpi-*) "$MPICC" -o "$program" "$SHARNESS_TEST_SRCDIR/src/$program.c" ;;
		*) cc -Wall -o "$program" "$SHARNESS_TEST_SRCDIR/src/$program.c" -lpthread ;;
		esac || return 1
	done
}

# pmi_run [OPTION...] COMMAND...: a job with -o pmi=port (or $PMI_LIST).
pmi_run() {
	run_timeout 120 flux run -o userrc="$BCAST_RC" -o pmi="${PMI_LIST:-port}" "$@"
}

# pmi_fails [OPTION...] COMMAND...: this job must fail; by the SIGTERM that its tasks
# get only where nobody can say with what status it ends.
pmi_fails() {
	pmi_run "$@"
	pmi_code=$?
	if test $pmi_code = 143 && ! test_have_prereq EXIT_STATUS; then
		return 0
	fi
	test_must_fail exit_with $pmi_code
}
exit_with() {
	return "$1"
}
