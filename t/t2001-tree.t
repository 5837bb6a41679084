#!/bin/sh

test_description='Any number of shells, any arity of the tree, any unit of transfer'

. "$(dirname "$0")/sharness.sh"
# shellcheck disable=SC2046 # several words
test_under_flux 16 $(named_hosts "node[0-15]")

test_expect_success 'set up a file that is no multiple of anything' '
	data_random 700001 file
'

for shells in 1 2 3 4 5 7 8 11 16; do
	test_expect_success "$shells shells, arity 1, 2, 3, 16 and the default" "
		job_start s$shells $shells &&
		for k in 1 2 3 16; do
			bcast -k \$k \"\$JOBID\" file k\$k || return 1
		done &&
		bcast \"\$JOBID\" file default &&
		for name in k1 k2 k3 k16 default; do
			job_has file \"\\\$FLUX_JOB_TMPDIR/\$name\" || return 1
		done &&
		job_clean_tmpdir k1 k2 k3 k16 default &&
		job_finish &&
		job_wait_clean
	"
done

test_expect_success 'a job for the units' '
	job_start units 8
'

for units in --chunk=1 --chunk=4095 --chunk=1M --batch=4096 --batch=1M --window=4096 \
	--window=16M "--chunk=512 --batch=512 --window=512" "--chunk=4096 --batch=4096 -k1"; do
	test_expect_success "units: $units" "
		data_random 50001 small &&
		bcast --force $units \"\$JOBID\" small &&
		job_has small '\$FLUX_JOB_TMPDIR/small' &&
		job_clean_tmpdir small
	"
done

test_expect_success 'only the ranks asked for get the file' '
	bcast --ranks=1,4-5 "$JOBID" file subset &&
	job_has file "\$FLUX_JOB_TMPDIR/subset" "1 4 5" &&
	job_lacks "\$FLUX_JOB_TMPDIR/subset" "0 2 3 6 7" &&
	bcast --exclude=0-6 "$JOBID" file last &&
	job_has file "\$FLUX_JOB_TMPDIR/last" 7 &&
	job_lacks "\$FLUX_JOB_TMPDIR/last" "0 1 2 3 4 5 6"
'

# chosen RANKS OPTION...: the job of 8 shells, on node0 to node7, has it on these.
chosen() {
	chosen_ranks=$1
	shift
	chosen_options=$*
	test_expect_success "ranks and hosts: $*" '
		bcast --json --force --dest=chosen $chosen_options "$JOBID" file >out &&
		jq -r ".ranks[] | \"\(.rank) \(.host)\"" out >have &&
		for r in $chosen_ranks; do
			echo "$r node$r"
		done >want &&
		test_cmp want have &&
		job_has file "\$FLUX_JOB_TMPDIR/chosen" "$chosen_ranks" &&
		bcast --remove $chosen_options "$JOBID" chosen &&
		job_lacks "\$FLUX_JOB_TMPDIR/chosen"
	'
}
chosen '3' --hosts=node3
chosen '1 4 5' '--hosts=node[1,4-5]'
chosen '0 6 7' --hosts=node7,node0,node6
chosen '0 1 3' '--exclude=node2,node[4-7]'
chosen '2 3' --ranks=0-3 '--hosts=node[2-6]'
chosen '2 6' '--hosts=node[2-6]' --exclude=3-5
chosen '0 1 2 3 4 5 6 7' '--hosts=node[0-7]'

test_expect_success 'hosts that are not in the job, or no hosts at all: refused' '
	bcast_fails 1 --hosts="node[6-8]" "$JOBID" file hosts &&
	error_says "host node8 is not in the job" &&
	bcast_fails 1 --exclude=node9 "$JOBID" file hosts &&
	error_says "host node9 is not in the job" &&
	bcast_fails 1 --hosts=node1 --exclude=node1 "$JOBID" file hosts &&
	error_says "no rank" &&
	test_expect_code 2 bcast --hosts="node[1-" "$JOBID" file hosts 2>err &&
	error_says "node[1-" &&
	job_lacks "\$FLUX_JOB_TMPDIR/hosts"
'

# written RANK: bytes that the shell has written so far, to its copy and to others.
written() {
	awk '$1 == "wchar:" { print $2 }' "/proc/$(job_shell "$1")/io"
}

# most_written OPTION...: sends 4 MB, sets MOST, the bytes that the busiest shell has
# written for that.
most_written() {
	for r in $(job_ranks); do
		written "$r" >"written.$r" || return 1
	done &&
	bcast --force "$@" "$JOBID" large &&
	MOST=$(for r in $(job_ranks); do
		echo $(($(written "$r") - $(cat "written.$r")))
	done | sort -n | tail -n 1) &&
	echo "$*: at most $MOST bytes by one shell"
}

# (The stand-in's shells do not write(2) what they send.)
test_expect_success REAL_FLUX 'in a tree no shell has the work that the first has in a star' '
	data_random 4000000 large &&
	most_written -k 7 && test "$MOST" -gt $((8 * 4000000)) &&
	most_written -k 2 && test "$MOST" -gt $((3 * 4000000)) && test "$MOST" -lt $((4 * 4000000)) &&
	most_written -k 1 && test "$MOST" -gt $((2 * 4000000)) && test "$MOST" -lt $((3 * 4000000))
'

test_expect_success 'the leader need not be among them, at any depth' '
	for k in 1 2 16; do
		bcast -k $k --ranks=3,5-7 "$JOBID" file deep$k &&
		job_has file "\$FLUX_JOB_TMPDIR/deep$k" "3 5 6 7" &&
		job_lacks "\$FLUX_JOB_TMPDIR/deep$k" "0 1 2 4" || return 1
	done
'

test_expect_success 'the job ends well' '
	job_finish
'

test_expect_success 'a job whose leader is not on broker 0' '
	job_prepare offset 4 &&
	job_submit -o userrc="$BCAST_RC" --requires=rank:9-12 &&
	job_wait_ready &&
	bcast "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/file" &&
	job_finish
'

test_done
