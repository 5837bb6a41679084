# The command under test, and what is checked after each failure.
# shellcheck shell=sh

# bcast ARGUMENT...: `flux bcast`, bounded in time.
bcast() {
	run_timeout 120 flux bcast "$@"
}

# bcast_fails STATUS ARGUMENT...: must end with STATUS and say why; what it
# said is in the file `err`, every line of it an error in the agreed form.
bcast_fails() {
	want_status=$1
	shift
	test_expect_code "$want_status" run_timeout 120 flux bcast "$@" 2>err
	fails_code=$?
	cat err >&2
	test $fails_code = 0 &&
	grep -q "^flux-bcast: ERROR: ." err || return 1
	if grep -v "^flux-bcast: " err; then
		echo >&2 "these lines do not say who speaks"
		return 1
	fi
}

# error_says TEXT...: `err` names each TEXT (fixed strings) in an error line.
error_says() {
	grep "^flux-bcast: ERROR: " err >errors || return 1
	for text; do
		if ! grep -qF -- "$text" errors; then
			echo >&2 "no error says '$text'"
			return 1
		fi
	done
}

# bcast_background NAME ARGUMENT...: starts `flux bcast` in the background. Its
# output will be in NAME.out and NAME.err.
bcast_background() {
	background=$1
	shift
	rm -f "$background.pid"
	run_timeout 120 "$BCAST_SCRIPTS/as" "$background.pid" flux bcast "$@" \
		>"$background.out" 2>"$background.err" </dev/null &
	eval "bcast_pid_$background=\$!"
}

# bcast_wait NAME: waits for its end; sets STATUS, its exit status.
bcast_wait() {
	eval "wait \$bcast_pid_$1"
	STATUS=$?
	echo "$1 ended with $STATUS: $(cat "$1.out" "$1.err")"
}

# bcast_ends NAME STATUS: waits for its end; it must have that exit status.
bcast_ends() {
	bcast_wait "$1"
	test "$STATUS" = "$2"
}

# bcast_client NAME: process id of a client in the background.
bcast_client() {
	cat "$1.pid"
}

# transfer_begun RANK DIR [BYTES]: waits until the shell of RANK has some data, or so
# much, for a file below DIR (which then has no name yet).
transfer_begun() {
	run_timeout 60 python3 "$BCAST_SCRIPTS/staged" "--wait${3:+=$3}" "$(job_shell "$1")" "$2"
}

# writer_of DIR: waits until some process has some data for a file below DIR, and
# prints its process id.
writer_of() {
	run_timeout 60 python3 "$BCAST_SCRIPTS/staged" --who "$1"
}

# nothing_open DIR [RANKS]: no shell has a file below DIR open.
nothing_open() {
	for r in ${2:-$(job_ranks)}; do
		run_timeout 60 python3 "$BCAST_SCRIPTS/staged" --none "$(job_shell "$r")" "$1" ||
			return 1
	done
}

# has_only DIR NAME...: DIR holds these names and nothing else, hidden files
# included.
has_only() {
	only_dir=$1
	shift
	for name; do
		echo "$name"
	done | sort >names.want &&
	find "$only_dir" -mindepth 1 -printf '%P\n' >names.found &&
	sort names.found >names.have &&
	test_cmp names.want names.have
}
