#!/bin/sh
# Runs the scenario in the instance that FLUX_URI names, and prints what can be
# seen, without what differs from run to run. Its output must be the same on the
# embedded provider and on Flux:
#
#	flux start -s 4 sh run.sh PLUGIN.so CLIENT >out && diff expected out
set -u
LC_ALL=C.UTF-8 # the order of sort
export LC_ALL
plugin=$1
client=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
printf 'plugin.load { file = "%s" }\n' "$plugin" >rc.lua

# Leaves out ids, times, process ids; on request the order of lines.
clean() {
	sed -e 's/ƒ[0-9A-Za-z]*/JOBID/g' -e 's/-shell-f[0-9A-Za-z]*/-shell-JOBID/g' \
		-e 's/^[0-9]*\.[0-9]*s: //' -e 's/^[0-9]*\.[0-9]* //' \
		-e 's/pid=[0-9]*/pid=PID/' -e "s/(on $(uname -n))/(on HOST)/" \
		-e "s/host $(uname -n)/host HOST/" -e 's/[0-9]*-shell-/UID-shell-/' \
		-e 's/userid=[0-9]*/userid=UID/'
}

title() {
	echo
	echo "== $*"
}

# What a job printed, as a set of lines. The disconnect of one of its own shells is
# left out: nothing makes the leader wait for it, so it may come too late for the log.
printed() {
	clean <out | sort -u
	clean <err | grep -v "disconnect of a client whose request is answered" | sort -u
}

# What the events of a job are, without what is in them.
events() {
	flux job eventlog "$1" | cut -d' ' -f2 | tr '\n' ' '
	echo
	flux job eventlog -p guest.exec.eventlog "$1" | cut -d' ' -f2 |
		grep -v -x log | tr '\n' ' '
	echo
}

# run OPTION... -- SHELL-COMMAND: a job with the plugin, and all about it.
run() {
	flux run -o userrc=rc.lua "$@" >out 2>err </dev/null
	echo "exit $?"
	printed
	events "$(flux job last)"
}

# logged TEXT [N]: waits until the plugin has logged it, N times.
logged() {
	flux job wait-event -q -t 60 -p guest.output -m "message=\"$1\"" -c "${2:-1}" "$JOBID" log ||
		echo "never logged: $1"
}

# ask TEST: what the client sees of that job.
ask() {
	"$client" "$JOBID" "$1" 2>&1 | clean
}

# submit OPTION... -- COMMAND: starts a job with the plugin, sets JOBID.
submit() {
	JOBID=$(flux submit -o userrc=rc.lua "$@") &&
	flux job wait-event -q -p guest.exec.eventlog "$JOBID" shell.start
}

# finish: what the job said in the end.
finish() {
	flux job attach -r "$JOBID" >out 2>err </dev/null
	echo "exit $?"
	printed
	events "$JOBID"
}

title "life cycle"
run -N2 -n2 sh -c 'echo "$FLUX_TASK_RANK of $SC_SIZE: $SC_TASK ${SC_GONE-gone}"'
title "exit codes"
run -N4 -n4 sh -c 'exit $FLUX_TASK_RANK'
title "one shell fails in shell.init"
# What the others logged before they are stopped may be lost.
run -N2 -n2 -o scenario.init-fails=1 true | grep -v "flux-shell.0.: scenario:"
title "one shell fails in shell.post-init"
run -N2 -n2 -o scenario.post-init-fails=0 true
title "a fatal error in shell.post-init"
run -N2 -n2 -o scenario.post-init-dies=1 true

title "messages"
submit -N2 -n2 sleep 600
ask messages
title "futures"
ask futures
title "a client that had its answers goes"
logged "disconnect of a client whose request is answered"
title "foreign credentials"
(
	FLUX_HANDLE_USERID=4711 FLUX_HANDLE_ROLEMASK=2
	export FLUX_HANDLE_USERID FLUX_HANDLE_ROLEMASK
	ask sc.cred
)
(
	FLUX_HANDLE_ROLEMASK=2
	export FLUX_HANDLE_ROLEMASK
	ask sc.cred
)
title "a client dies in the middle of a request"
"$client" "$JOBID" hold &
logged "hold: one more" 2
kill -9 $!
wait $! 2>/dev/null
# The first one was that of "messages".
logged "disconnect of a client whose request is held" 2
title "the end of that job"
flux cancel "$JOBID"
finish
ask sc.echo

title "a shell dies"
submit -N2 -n2 -o exit-timeout=0.5s sleep 600
ask die
finish

title "a fatal error while running"
submit -N2 -n2 sleep 600
"$client" "$JOBID" sc.fatal &
client_pid=$!
finish
kill $client_pid
title "an exception while running"
submit -N2 -n2 sleep 600
ask sc.raise
finish
