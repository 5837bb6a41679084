#!/bin/sh

test_description='-o bcast.…: each option does at the start of a job what it says'

. "$(dirname "$0")/sharness.sh"
# shellcheck disable=SC2046 # several words
test_under_flux 4 $(named_hosts "node[0-3]")

# run OPTION... COMMAND...: a job of four shells and as many tasks. Copies that are to
# be looked at after the job go to to/RANK.
run() {
	run_timeout 100 flux run -N4 -n4 -o userrc="$BCAST_RC" "$@"
}

test_expect_success 'set up' '
	data_random 50000 one && data_random 3000 two && data_random 8000000 big &&
	mkdir to &&
	cat >look <<-"EOT" && chmod +x look
	#!/bin/sh
	# look WHAT FILE...: what a task finds.
	hex() { printf %s "$1" | od -An -v -tx1 | tr -d " \n"; }
	what=$1 file=$2
	shift 2
	case $what in
	named) # HEX: the variable is a name of these bytes in the tmpdir.
		test "$(hex "$FLUX_BCAST_PATH")" = "$(hex "$FLUX_JOB_TMPDIR/")$1" &&
			cmp "$file" "$FLUX_BCAST_PATH"
		;;
	several) # FILE2 DIRECTORY: the variable is the directory of both.
		test "$FLUX_BCAST_PATH" = "$2" && cmp "$file" "$2/$file" && cmp "$1" "$2/$1"
		;;
	whose) # Who has it? Without a copy, there is no variable either.
		if test -n "${FLUX_BCAST_PATH+set}"; then
			cmp "$file" "$FLUX_BCAST_PATH" && echo "$FLUX_TASK_RANK"
		else
			test ! -e "$FLUX_JOB_TMPDIR/$file"
		fi
		;;
	esac
	EOT
'

test_expect_success 'several sources: the variable names their directory' '
	run -o bcast=one,two sh -c "./look several one two \"\$FLUX_JOB_TMPDIR\"" &&
	run -o bcast.source=one,two -o bcast.dest="$PWD/to/{{node.id}}/" -o bcast.mkdir \
		sh -c "./look several one two \"$PWD/to/\$FLUX_TASK_RANK\"" &&
	rm -r to/*
'

test_expect_success 'tags: the rank and the host of each shell' '
	run -o bcast.source=one -o bcast.dest="$PWD/to/{{node.id}}.{{node.name}}" true &&
	has_only to 0.node0 1.node1 2.node2 3.node3 &&
	rm -r to/*
'

# A Flux that does not know these tags asks the plugin.
test_expect_success EMBEDDED 'an older Flux: the same, and only for what is sent' '
	cat >older <<-EOT && chmod +x older &&
	#!/bin/sh -e
	flux run -N4 -n4 -o userrc="$BCAST_RC" -o bcast.source="$PWD/one" \
		-o bcast.dest="$PWD/to/{{node.id}}.{{node.name}}" true
	flux run -n1 -o userrc="$BCAST_RC" echo "{{node.id}} {{node.name}}" >left
	if flux run -n1 -o userrc="$BCAST_RC" -o bcast.source="$PWD/one" \
		-o bcast.dest="$PWD/to/{{node.cores}}" true; then
		exit 1
	fi
	EOT
	FLUX_SANDBOX_NO_NODE_TAGS=1 run_timeout 120 \
		flux start -s 4 $(named_hosts "node[0-3]") ./older 2>err &&
	cat err && grep "this Flux does not know the tag {{node.cores}}" err &&
	test "$(cat left)" = "{{node.id}} {{node.name}}" &&
	has_only to 0.node0 1.node1 2.node2 3.node3 &&
	rm -r to/*
'

# named WHAT HEX OPTION...: with these options, whose source has a name of the bytes
# HEX, the copy has it, too.
named() {
	named_what=$1 named_hex=$2 named_option=$3
	test_expect_success "a name with $named_what" '
		python3 -c "import os, sys; os.link(b\"one\", bytes.fromhex(sys.argv[1]))" \
			$named_hex &&
		run -o "$named_option" ./look named one $named_hex
	'
}
named 'a comma' 612c62 'bcast.source=["a,b"]'
named 'a space' 612062 'bcast=a b'
named 'an equals sign' 613d62 'bcast=a=b'
named 'a newline' 610a62 'bcast.source=a
b'
named 'digits only' 3432 'bcast.source=42'
named 'a byte that is not UTF-8' 6361e9 'bcast.source={"hex":"6361e9"}'
named 'a byte that is not UTF-8, in the short form' 6361ea 'bcast={"hex":"6361ea"}'

test_expect_success 'a destination with a byte that is not UTF-8' '
	run -o bcast.source=one -o "bcast.dest={\"hex\":\"e964\"}" ./look named one e964
'

# whose RANKS OPTION...: just these have the copy.
whose() {
	whose_ranks=$1
	shift
	whose_options=$*
	test_expect_success "ranks and hosts: $*" '
		run -o bcast.source=one $whose_options ./look whose one >out &&
		sort out >have &&
		printf "%s\n" $whose_ranks >want &&
		test_cmp want have
	'
}
whose '1 3' -o bcast.ranks=1,3
whose '2' -o bcast.ranks=2
whose '0 2' -o 'bcast.hosts=node[0,2]'
whose '3' -o bcast.hosts=node3
whose '0 3' -o bcast.exclude=1-2
whose '0 1' -o 'bcast.exclude=node[2-3]'
whose '2' -o bcast.ranks=0-2 -o 'bcast.hosts=node[2-3]'
whose '3' -o 'bcast.hosts=node[1-3]' -o bcast.exclude=1-2

test_expect_success 'a host that the job does not have: refused by name' '
	test_must_fail run -o bcast.source=one -o bcast.hosts=node[3-4] ./look whose one 2>err &&
	cat err && grep "node4" err
'

# after OPTIONS CHECK: the job ends well, and CHECK says so of each rank r.
after() {
	after_options=$1 after_check=$2
	test_expect_success "after $1" '
		run -o bcast.source=one -o "bcast.dest=$PWD/to/{{node.id}}" $after_options true &&
		for r in 0 1 2 3; do
			eval "$after_check" || return 1
		done
	'
}
test_expect_success 'the source is old, and others may read it' '
	chmod 644 one && touch -d "2001-02-03 04:05:06 UTC" one
'
after '-o bcast.preserve' 'test "$(stat -c %Y to/$r)" = "$(stat -c %Y one)"'
after '-o bcast.force' 'test to/$r -nt one'
after '-o bcast.force -o bcast.mode=640' 'test "$(stat -c %a to/$r)" = 640'
after '-o bcast.force -o bcast.mode=0751' 'test "$(stat -c %a to/$r)" = 751'

test_expect_success 'hard links to what is there' '
	cat one one >twice &&
	for r in 0 1 2 3; do
		ln to/$r to/link.$r || return 1
	done
'
after '-o bcast.append' 'cmp twice to/$r && cmp twice to/link.$r'
after '-o bcast.truncate' 'cmp one to/$r && cmp one to/link.$r'
after '-o bcast.force' 'cmp one to/$r && test ! to/$r -ef to/link.$r'
test_expect_success 'this can be looked at' 'rm -r to/*'
after '-o bcast.mkdir -o bcast.dest=new/of/{{node.id}}' 'test ! -e to/$r'
after '-o bcast.timeout=1h' 'cmp one to/$r'

test_expect_success 'mkdir: the directories on the way are made' '
	run -o bcast.source=one -o bcast.mkdir -o bcast.dest=new/of/one ./look named one \
		"$(printf new/of/one | od -An -tx1 | tr -d " \n")" &&
	test_must_fail run -o bcast.source=one -o bcast.dest=new/of/one true
'

test_expect_success 'exclude-libs: these objects stay behind, and no others' '
	mkdir lib &&
	echo "int answer(void) { return 42; }" >answer.c &&
	echo "int answer(void); int main(void) { return answer() - 42; }" >prog.c &&
	cc -shared -fPIC -o lib/libanswer.so.1 -Wl,-soname,libanswer.so.1 answer.c &&
	cc -o prog prog.c lib/libanswer.so.1 -Wl,-rpath,"$PWD/lib" &&
	run -o bcast.source=prog -o bcast.send-libs -o bcast.exclude-libs="$PWD/lib" \
		sh -c "ls \"\$FLUX_BCAST_LIBS\"" >out &&
	test "$(grep -c "^libc\." out)" = 4 &&
	test_must_fail grep libanswer out
'

# Nobody can see on a file whether fsync(2) was called.
test_expect_success STRACE 'sync: file and directory are synchronized, and only if asked' '
	mkdir synced hurried &&
	cat >both <<-EOT && chmod +x both &&
	#!/bin/sh -e
	for way in synced hurried; do
		flux run -n1 -o userrc="$BCAST_RC" -o bcast.source="$PWD/one" \\
			-o bcast.dest="$PWD/\$way/one" -o bcast.sync=\$(test \$way = synced && echo 1 || echo 0) true
	done
	EOT
	run_timeout 120 $TRACE_SYNC -o calls flux start -s 1 sh ./both &&
	cmp one synced/one && cmp one hurried/one &&
	grep "<$PWD/synced/.*) *= 0" calls && grep "<$PWD/synced>) *= 0" calls &&
	test_must_fail grep "$PWD/hurried" calls
'

# So many round trips that no transfer ends by itself in the time of a test.
SLOW="-o bcast.chunk=1 -o bcast.batch=1 -o bcast.window=1"

test_expect_success 'timeout: at the end of it the job fails before its tasks start' '
	test_must_fail run -o bcast.source=big $SLOW -o bcast.timeout=1s sh -c ": >started" 2>err &&
	cat err && grep "time limit has expired" err &&
	test ! -e started
'

# under_way OPTION...: a job whose files are under way to to/RANK; SHELLS are the
# process ids of its shells, by rank.
under_way() {
	# shellcheck disable=SC2086 # several words
	job_prepare slow 4 &&
	job_submit -o userrc="$BCAST_RC" -o bcast.source=big $SLOW \
		-o "bcast.dest=$PWD/to/{{node.id}}/copy" -o bcast.mkdir "$@" &&
	SHELLS= &&
	for r in 0 1 2 3; do
		SHELLS="$SHELLS $(writer_of "$PWD/to/$r")" || return 1
	done &&
	test "$(echo "$SHELLS" | wc -w)" = 4
}
nth() {
	shift "$1"
	echo "$1"
}

test_expect_success 'stall: a shell that is silent for so long is lost' '
	rm -r to/* && mkdir to/0 to/1 to/2 to/3 &&
	under_way -o bcast.stall=9 &&
	silent=$(nth 3 $SHELLS) &&
	kill -STOP "$silent" &&
	run_timeout 60 flux job wait-event "$JOBID" exception &&
	kill -KILL "$silent" &&
	test_must_fail run_timeout 60 flux job attach "$JOBID" 2>err &&
	cat err && grep "rank 2 (node2).*no sign of life for 9 s" err
'

test_expect_success 'the job ends, nothing is left' '
	job_wait_clean && has_only to 0 1 2 3
'

# connections RANK: how many the shell has by which data goes.
connections() {
	# shellcheck disable=SC2086 # several words
	run_timeout 60 python3 "$BCAST_SCRIPTS/tcp" count "$(nth $(($1 + 1)) $SHELLS)"
}

# fed OPTION 0 1 2 3: with OPTION the shells have so many connections. A shell that
# gets no processor for a second is fed through the brokers, which is no fault, so
# that a few tries are allowed: a tree that is wrong is wrong in each.
fed() {
	fed_option=$1
	shift
	fed_by=$*
	test_expect_success "who feeds whom: $fed_option" '
		for attempt in 1 2 3; do
			under_way -o bcast.direct -o "$fed_option" &&
			fed=$(for r in 0 1 2 3; do connections $r; done) &&
			run_timeout 20 flux cancel "$JOBID" &&
			job_wait_clean || return 1
			test "$(echo $fed)" != "$fed_by" || break
			echo "attempt $attempt: $(echo $fed)"
		done &&
		test "$(echo $fed)" = "$fed_by"
	'
}
fed bcast.fanout=1 1 2 2 1
fed bcast.fanout=3 3 1 1 1
fed bcast.k=1 1 2 2 1
fed bcast.k=2 2 2 1 1

test_done
