#!/bin/sh

test_description='flux bcast without JOBID: the job that encloses us'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

q="'"

test_expect_success 'set up' '
	data_random 100000 file &&
	job_start main 4
'

test_expect_success 'an instance that is no job itself: says what to do' '
	bcast_fails 2 file &&
	error_says JOBID
'

test_expect_success 'a task of a job: refused, and both right commands are named' '
	test_expect_code 2 job_exec 1 "cd \"$PWD\"; flux bcast file" 2>err &&
	cat err &&
	error_says task "${q}flux bcast $JOBID …$q" "${q}flux bcast JOBID …$q"
'

test_expect_success 'a task of a job with a JOBID, on the last rank' '
	job_exec 3 "cd \"$PWD\"; flux bcast \$FLUX_JOB_ID file" &&
	job_has file "\$FLUX_JOB_TMPDIR/file"
'

test_expect_success 'a task of another job' '
	job_start other 2 &&
	job_use main &&
	main=$JOBID &&
	job_use other &&
	job_exec 1 "cd \"$PWD\"; flux bcast $main file from-other" &&
	job_finish &&
	job_use main &&
	job_has file "\$FLUX_JOB_TMPDIR/from-other"
'

test_expect_success 'the initial program of an instance: all nodes of its job' '
	cat >initial <<-"EOT" &&
	#!/bin/sh
	# The job tmpdirs are those of the shells that run the brokers, which the
	# initial program itself does not see.
	flux bcast -v "$1/file" >"$1/placed" &&
	flux --parent bcast --force "$(flux getattr jobid)" "$1/file" &&
	while read -r rank host path; do
		sha256sum <"$path" || exit 1
	done <"$1/placed" >"$1/sums"
	EOT
	chmod +x initial &&
	run_timeout 120 flux run -N4 -n4 -o userrc="$BCAST_RC" flux start "$PWD/initial" "$PWD" &&
	test "$(wc -l <sums)" = 4 &&
	test "$(sort -u sums)" = "$(sha256sum <file)"
'

test_expect_success 'a batch script' '
	cat >batch <<-"EOT" &&
	#!/bin/sh
	flux bcast -v file >placed.batch &&
	while read -r rank host path; do
		sha256sum <"$path" || exit 1
	done <placed.batch >sums.batch
	EOT
	id=$(run_timeout 60 flux batch -N2 -n2 -o userrc="$BCAST_RC" --output=batch.out batch) &&
	run_timeout 120 flux job attach "$id" &&
	test "$(wc -l <sums.batch)" = 2 &&
	test "$(sort -u sums.batch)" = "$(sha256sum <file)"
'

# Has a task in an instance that is a job try without JOBID, and then both commands
# that are named to it. What they placed is in in.KIND.1 and in.KIND.2.
test_expect_success 'a task in an instance, which does as it is told' '
	cat >inside <<-"EOT" && cat >as-told <<-"EOT" && chmod +x inside as-told
	#!/bin/sh
	# inside KIND USERRC
	flux getattr jobid >"in.$1.jobid" &&
	flux run -n1 -o userrc="$2" ./as-told "$1"
	EOT
	#!/bin/sh
	# as-told KIND
	echo "$FLUX_JOB_ID" >"in.$1.own" &&
	flux bcast file 2>"in.$1.err"
	test $? = 2 || exit 1
	tr "\047" "\n" <"in.$1.err" | sed -n "s/^\(flux .*bcast .*\) …\$/\1/p" >"in.$1.commands"
	n=0
	while read -r command; do
		n=$((n + 1))
		$command -v --dest="told.$n" file >"in.$1.$n" || exit 1
	done <"in.$1.commands"
	EOT
'

# as_told KIND NODES: both commands were named and did what is said of them: to the
# one node of the task, and to all nodes of the job around it.
as_told() {
	cat "in.$1.err" &&
	echo "flux bcast $(cat "in.$1.own")" >want &&
	echo "flux --parent bcast $(cat "in.$1.jobid")" >>want &&
	test_cmp want "in.$1.commands" &&
	grep "/told.1\$" "in.$1.1" && test "$(wc -l <"in.$1.1")" = 1 &&
	grep "/told.2\$" "in.$1.2" && test "$(wc -l <"in.$1.2")" = "$2"
}

test_expect_success 'a task in a batch job: both right commands are named' '
	printf "#!/bin/sh\nexec ./inside batch \"%s\"\n" "$BCAST_RC" >inner &&
	id=$(run_timeout 60 flux batch -N2 -n2 -o userrc="$BCAST_RC" --output=inner.out inner) &&
	run_timeout 120 flux job attach "$id" &&
	cat inner.out &&
	as_told batch 2
'

test_expect_success 'an allocation' '
	run_timeout 120 flux alloc -N2 -n2 -o userrc="$BCAST_RC" \
		flux bcast -v "$PWD/file" allotted >placed.alloc &&
	test "$(grep -c "^[01] .*/allotted\$" placed.alloc)" = 2
'

test_expect_success 'a task in an allocation: the same as in a batch job' '
	run_timeout 120 flux alloc -N2 -n2 -o userrc="$BCAST_RC" ./inside alloc "$BCAST_RC" &&
	as_told alloc 2
'

test_expect_success 'the job ends well' '
	job_finish
'

test_done
