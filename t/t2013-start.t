#!/bin/sh

test_description='-o bcast: the file is there before any task starts'

. "$(dirname "$0")/sharness.sh"

# Nobody here is ever killed by force, nor given up as silent where a transfer fails
# (bcast.stall=1000): a job ends since its shells are told that it failed, and leave. So
# that it ends at all says that nothing is waited for; a bound of a second on the clock
# would only say how busy the machine is. How long it took is in the log.
printf '[exec]\nkill-timeout = "1000s"\n' >"$FLUX_BCAST_TEST_ROOT/patient.toml"
test_under_flux 8 -o,--config-path="$FLUX_BCAST_TEST_ROOT/patient.toml"

# run SHELLS OPTION... COMMAND...
run() {
	shells=$1
	shift
	run_timeout 100 flux run -N "$shells" -n "$shells" -o userrc="$BCAST_RC" "$@"
}

test_expect_success 'set up' '
	data_library library.so &&
	data_random 8000000 random &&
	sha256sum <library.so >library.sum &&
	mkdir started
'

for shells in 1 2 8; do
	test_expect_success "tasks of $shells shells find the file and its path" "
		run $shells -o bcast=\"\$PWD/library.so\" \
			sh -c 'sha256sum <\"\$FLUX_BCAST_PATH\"; echo \"path \$FLUX_BCAST_PATH\"; echo \"want \$FLUX_JOB_TMPDIR/library.so\"' >out &&
		test \"\$(grep -c -x -F \"\$(cat library.sum)\" out)\" = $shells &&
		sed -n 's/^path //p' out | sort >paths &&
		sed -n 's/^want //p' out | sort >wanted &&
		test_cmp wanted paths &&
		test \"\$(sort -u paths | wc -l)\" = $shells
	"
done

test_expect_success 'every task of a shell has the path' '
	run_timeout 100 flux run -N2 -n8 --oversubscribe -o userrc="$BCAST_RC" -o bcast="$PWD/random" \
		sh -c "cmp \"\$FLUX_BCAST_PATH\" \"$PWD/random\" && echo same" >out ||
	run_timeout 100 flux run -N2 -n4 -o userrc="$BCAST_RC" -o bcast="$PWD/random" \
		sh -c "cmp \"\$FLUX_BCAST_PATH\" \"$PWD/random\" && echo same" >out &&
	test "$(sort -u out)" = same
'

test_expect_success 'a relative source is relative to where the job was submitted' '
	run 2 -o bcast=random sh -c "cmp \"\$FLUX_BCAST_PATH\" \"$PWD/random\""
'

test_expect_success 'a program from the copy: it runs' '
	printf "#!/bin/sh\necho started from \$0\n" >program && chmod 755 program &&
	run 4 -o bcast="$PWD/program" sh -c "\"\$FLUX_BCAST_PATH\"" >out &&
	test "$(grep -c "^started from .*/program$" out)" = 4
'

test_expect_success 'the object form: several keys' '
	run 4 -o bcast.source="$PWD/random" -o bcast.dest=other -o bcast.env=MY_FILE -o bcast.k=1 \
		sh -c "test -z \"\$FLUX_BCAST_PATH\" && cmp \"\$MY_FILE\" \"$PWD/random\" &&
			test \"\$MY_FILE\" = \"\$FLUX_JOB_TMPDIR/other\""
'

# failing WORD OPTION...: the job fails soon, says WORD, and no task starts.
failing() {
	word=$1
	shift
	words=
	for argument; do
		words="$words '$argument'"
	done
	test_expect_success "the job fails before its tasks: $*" "
		rm -f started/* &&
		test_must_fail run 4 $words sh -c ': >started/\$FLUX_TASK_RANK' 2>err &&
		cat err &&
		grep -F -e '$word' err &&
		has_only started
	"
}

failing nofile -o bcast.source=/nofile -o bcast.stall=1000
failing "$PWD" -o bcast.source="$PWD"/no/such/file -o bcast.stall=1000
failing frob -o bcast.source=/bin/sh -o bcast.frob=1
failing source -o bcast.k=2
failing k -o bcast.source=/bin/sh -o bcast.k=0
failing k -o bcast.source=/bin/sh -o bcast.k=many
failing chunk -o bcast.source=/bin/sh -o bcast.chunk=0
failing ../out -o bcast.source=/bin/sh -o bcast.dest=../out -o bcast.stall=1000

# took: prints how long the last job ran until it failed.
took() {
	flux job eventlog "$(flux job last)" | awk "
		\$2 == \"start\" { start = \$1 }
		\$2 == \"exception\" { printf \"failed %.3f s after its start\n\", \$1 - start; found = 1 }
		END { exit !found }"
}

test_expect_success 'a file that exists already on one rank: fails, and says which' '
	mkdir fresh && echo old >fresh/2 &&
	test_must_fail run 4 -o bcast.source="$PWD/random" -o "bcast.dest=$PWD/fresh/{{node.id}}" \
		-o bcast.stall=1000 sh -c ": >started/\$FLUX_TASK_RANK" 2>err &&
	cat err &&
	took &&
	grep "rank 2" err && grep "File exists (bcast.force replaces it)" err &&
	has_only started &&
	has_only fresh 2
'

test_expect_success TMPFS 'a full file system on one rank: fails soon, nothing is left' '
	mkdir -p full/0 full/1 full/2 full/3 &&
	mount_tmpfs full/2 size=1m &&
	test_must_fail run 4 -o bcast.source="$PWD/random" -o "bcast.dest=$PWD/full/{{node.id}}/f" \
		-o bcast.stall=1000 sh -c ": >started/\$FLUX_TASK_RANK" 2>err &&
	cat err &&
	took &&
	grep "rank 2" err && grep "No space left" err &&
	has_only started &&
	has_only full 0 1 2 3
'

# In pieces of this size the transfer takes long enough to find shell 2 in the middle
# of it and to stop it there.
test_expect_success 'a job that is cancelled during the transfer ends soon' '
	data_random 134217728 big &&
	mkdir -p to/0 to/1 to/2 to/3 &&
	job_prepare cancelled 4 &&
	job_submit -o userrc="$BCAST_RC" -o bcast.source="$PWD/big" \
		-o "bcast.dest=$PWD/to/{{node.id}}/f" -o bcast.stall=1000 \
		-o bcast.chunk=512 -o bcast.batch=512 -o bcast.window=512 &&
	shell=$(writer_of "$PWD/to/2") &&
	kill -STOP "$shell" &&
	has_only to 0 1 2 3 &&
	run_timeout 30 flux cancel "$JOBID" &&
	kill -CONT "$shell" &&
	job_wait_clean &&
	has_only to 0 1 2 3
'

test_expect_success 'the service works in a job that was started so' '
	job_start both 4 -o bcast="$PWD/random" &&
	job_has random "\$FLUX_BCAST_PATH" &&
	bcast "$JOBID" library.so &&
	job_has library.so "\$FLUX_JOB_TMPDIR/library.so" &&
	job_finish
'

test_expect_success REAL_FLUX 'with flux bulksubmit, and by a directive in a batch script' '
	data_random 5000 bulk &&
	run_timeout 60 flux bulksubmit --quiet --watch -N2 -n2 -o userrc="$BCAST_RC" \
		-o bcast.source="$PWD/bulk" sh -c "sha256sum <\"\$FLUX_BCAST_PATH\"; : {}" ::: 1 2 >out &&
	test "$(grep -c "^$(sha256sum <bulk)$" out)" = 4 &&
	cat >batch.sh <<-EOT &&
	#!/bin/sh
	#flux: -N2
	#flux: -o bcast.source="$PWD/bulk"
	sha256sum <"\$FLUX_BCAST_PATH"
	EOT
	id=$(run_timeout 20 flux batch -o userrc="$BCAST_RC" --output="$PWD/batch.out" batch.sh) &&
	run_timeout 60 flux job wait-event "$id" clean &&
	grep "^$(sha256sum <bulk)$" batch.out
'

# As up to Flux 0.58.
flux mini run --help >/dev/null 2>&1 && test_set_prereq FLUX_MINI

test_expect_success FLUX_MINI 'with flux mini run, which older versions have' '
	run_timeout 100 flux mini run -N4 -n4 -o userrc="$BCAST_RC" -o bcast="$PWD/random" \
		sh -c "cmp \"\$FLUX_BCAST_PATH\" \"$PWD/random\" && echo same" >out &&
	test "$(grep -c "^same$" out)" = 4
'

test_expect_success 'partial: the job starts, and says who has no copy' '
	mkdir part && : >part/1 &&
	run_timeout 60 flux run -N2 -n2 -o userrc="$BCAST_RC" -o bcast.source="$PWD/random" \
		-o bcast.dest="$PWD/part/{{node.id}}" -o bcast.partial \
		sh -c "echo \$FLUX_TASK_RANK=\$FLUX_BCAST_PATH" >out 2>err &&
	cat out err &&
	grep "^0=$PWD/part/0\$" out && grep "^1=\$" out &&
	grep "WARN.*rank 1 (.*File exists" err
'

test_done
