# A job to send files to: one task per shell, which does what the test says.
#
# Each task runs scripts/task, which reports its rank, its tmpdir and the
# process id of its shell, then obeys commands from a named pipe and answers
# through another one. So a test looks at every rank with the rank's own eyes,
# on any provider, and never waits for anything but an event.
# shellcheck shell=sh

# job_start NAME SHELLS [OPTION...]: submits the job, with the plugin loaded,
# and returns when all its tasks run. Sets JOBID, and JOB for the functions
# below; `job_use NAME` goes back to an earlier job.
job_start() {
	job_prepare "$1" "$2" &&
	shift 2 &&
	job_submit -o userrc="$BCAST_RC" "$@" &&
	job_wait_ready
}

# job_start_plain NAME SHELLS [OPTION...]: the same without the plugin.
job_start_plain() {
	job_prepare "$1" "$2" &&
	shift 2 &&
	job_submit "$@" &&
	job_wait_ready
}

# job_prepare NAME SHELLS, job_submit [OPTION...] and job_wait_ready are the
# steps of job_start, for tests that want to see what is between them.
job_prepare() {
	JOB=$PWD/job.$1 JOB_SHELLS=$2
	rm -rf "$JOB" && mkdir "$JOB" && echo "$2" >"$JOB/shells" || return 1
	for r in $(job_ranks); do
		mkfifo "$JOB/command.$r" "$JOB/reply.$r" || return 1
	done
}
job_submit() {
	JOBID=$(run_timeout 60 flux submit -N "$JOB_SHELLS" -n "$JOB_SHELLS" "$@" \
		setpriv --pdeathsig=KILL "$BCAST_SCRIPTS/task" "$JOB") &&
	echo "$JOBID" >"$JOB/id"
}
job_wait_ready() {
	for r in $(job_ranks); do
		run_timeout 60 cat "$JOB/reply.$r" || return 1
	done
}

# job_use NAME: makes it the job of the next calls.
job_use() {
	JOB=$PWD/job.$1
	JOBID=$(cat "$JOB/id") &&
	JOB_SHELLS=$(cat "$JOB/shells")
}

# job_ranks: all shell ranks of the job.
job_ranks() {
	test_seq 0 $((JOB_SHELLS - 1))
}

# job_tmpdir RANK, job_shell RANK: FLUX_JOB_TMPDIR of that rank, process id of
# that shell.
job_tmpdir() {
	cat "$JOB/tmpdir.$1"
}
job_shell() {
	cat "$JOB/shell.$1"
}

# job_exec RANK COMMAND: the task of RANK evaluates COMMAND (sh); prints its
# output and returns its exit status.
job_exec() {
	run_timeout 60 "$BCAST_SCRIPTS/tell" "$JOB" "$1" "$2"
}

# job_exec_all COMMAND: the same on every rank, one after the other.
job_exec_all() {
	for r in $(job_ranks); do
		job_exec "$r" "$1" || return 1
	done
}

# job_has FILE PATH [RANKS]: the tasks of RANKS (default all) see PATH with the
# contents of FILE. PATH is a word of sh, such as '$FLUX_JOB_TMPDIR/f'.
job_has() {
	sum=$(sha256sum <"$1") || return 1
	for r in ${3:-$(job_ranks)}; do
		got=$(job_exec "$r" "sha256sum <\"$2\"") || return 1
		if test "$got" != "$sum"; then
			echo >&2 "rank $r: $2 differs from $1"
			return 1
		fi
	done
}

# job_lacks PATH [RANKS]: no such file there.
job_lacks() {
	for r in ${2:-$(job_ranks)}; do
		job_exec "$r" "test ! -e \"$1\" -a ! -L \"$1\"" || return 1
	done
}

# job_clean_tmpdir [NAME...]: every rank's tmpdir has just these names in it, so
# nothing temporary was left behind.
job_clean_tmpdir() {
	for name; do
		echo "$name"
	done | sort >"$JOB/want" || return 1
	for r in $(job_ranks); do
		if test -e "$(job_tmpdir "$r")"; then
			job_exec "$r" 'ls -A "$FLUX_JOB_TMPDIR"' >"$JOB/list.$r" &&
			sort "$JOB/list.$r" >"$JOB/have" &&
			test_cmp "$JOB/want" "$JOB/have" || return 1
		fi
	done
}

# job_finish: the tasks exit with 0; returns the exit status of the job.
job_finish() {
	for r in $(job_ranks); do
		run_timeout 60 "$BCAST_SCRIPTS/tell" "$JOB" "$r" || return 1
	done
	run_timeout 60 flux job attach "$JOBID"
}

# job_end: cancels the job and waits until nothing of it is left.
job_end() {
	run_timeout 60 flux cancel "$JOBID"
	job_wait_clean
}

# job_wait_clean [SECONDS]: waits until nothing of the job is left.
job_wait_clean() {
	run_timeout "${1:-60}" flux job wait-event "$JOBID" clean >/dev/null
}
