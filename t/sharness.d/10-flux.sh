# Runs a test file under a Flux instance, and bounds the time of each command.
# shellcheck shell=sh

# test_under_flux SIZE [OPTION...]: re-executes the test file as the initial
# program of an instance of so many brokers, with these options of `flux start`.
# Call it right after sharness.sh, before the first test.
#
# root passes every permission check, which would void the tests of refused
# access: so root gives up the two capabilities for that (and keeps the others,
# for mounts). Where that works the prerequisite DAC is set; it is set as well
# for everybody else.
test_under_flux() {
	if test -n "$BCAST_UNDER_FLUX"; then
		BCAST_SIZE=$1
		return
	fi
	bcast_size=$1
	shift
	BCAST_UNDER_FLUX=t
	export BCAST_UNDER_FLUX
	bcast_drop=
	# shellcheck disable=SC2086 # several words
	if test "$(id -u)" = 0; then
		bcast_drop="setpriv $BCAST_DROP"
		$bcast_drop true 2>/dev/null || bcast_drop=
	fi
	# Not the directory that the test removes: the brokers stay in it.
	cd "$SHARNESS_TEST_SRCDIR" || error "cannot go to $SHARNESS_TEST_SRCDIR"
	trap - EXIT
	# shellcheck disable=SC2086 # several words
	exec $bcast_drop flux start -s "$bcast_size" "$@" /bin/sh \
		"$SHARNESS_TEST_SRCDIR/${SHARNESS_TEST_FILE##*/}" \
		--root="$FLUX_BCAST_TEST_ROOT" \
		${debug:+--debug} ${verbose:+--verbose} ${immediate:+--immediate}
}
BCAST_DROP="--bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search"

# named_hosts HOSTLIST: options for test_under_flux, with which each broker takes
# itself for another one of these hosts.
named_hosts() {
	cat >"$FLUX_BCAST_TEST_ROOT/hosts.toml" <<-EOT
	[resource]
	noverify = true
	[[resource.config]]
	hosts = "$1"
	cores = "0-$(($(nproc) - 1))"
	EOT
	echo "--test-hosts=$1 -o,--config-path=$FLUX_BCAST_TEST_ROOT/hosts.toml"
}

# shell_knows NAME...: sets the prerequisites of these names where the job shell of this
# Flux has in its program what older ones lack:
#   POST_INIT    topic shell.post-init: plugins can work before the tasks start
#   FINISH       topic shell.finish: plugins are told that all tasks have ended
#   EXIT_STATUS  flux_shell_raise_exit_status: they can say how a job ends
shell_knows() {
	for known; do
		case "$known" in
		POST_INIT) known_text=shell.post-init ;;
		FINISH) known_text=shell.finish ;;
		EXIT_STATUS) known_text=flux_shell_raise_exit_status ;;
		esac
		# shellcheck disable=SC2016 # for the task
		if run_timeout 60 flux run -n1 sh -c 'grep -aqF -e "$0" "/proc/$PPID/exe"' "$known_text"; then
			test_set_prereq "$known"
		fi
	done 2>/dev/null
}

# run_timeout SECONDS COMMAND...: the exit status of COMMAND, or 154 when it had
# to be stopped, which test_must_fail does not take for a refusal. COMMAND
# cannot be a shell function. The signal is one that no command of Flux forwards
# to its job, and not SIGALRM, which timeout itself needs to kill in the end.
run_timeout() {
	limit=$1
	shift
	timeout --signal=VTALRM --kill-after=10 --preserve-status "$limit" "$@"
}
