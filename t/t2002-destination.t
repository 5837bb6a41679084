#!/bin/sh

test_description='Where copies go, and what happens to what is there already'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

test_expect_success 'start a job, make files' '
	job_start main 4 &&
	data_random 20000 file &&
	data_random 30000 newer &&
	mkdir shared
'

test_expect_success 'no destination: the tmpdir of each shell' '
	bcast "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/file"
'

test_expect_success 'a relative destination is below the tmpdir' '
	job_exec_all "mkdir \"\$FLUX_JOB_TMPDIR/sub\"" &&
	bcast "$JOBID" file sub/name &&
	job_has file "\$FLUX_JOB_TMPDIR/sub/name"
'

test_expect_success 'a destination ending in / is a directory' '
	bcast "$JOBID" file sub/ &&
	job_has file "\$FLUX_JOB_TMPDIR/sub/file"
'

test_expect_success 'a dot that stays inside is fine' '
	bcast "$JOBID" file ./sub/./dotted &&
	job_has file "\$FLUX_JOB_TMPDIR/sub/dotted"
'

test_expect_success 'an absolute destination, shared by all shells' '
	bcast "$JOBID" file "$PWD/shared/abs" &&
	cmp file shared/abs &&
	has_only shared abs
'

test_expect_success 'an absolute destination, one per shell by a mustache tag' '
	bcast "$JOBID" file "$PWD/shared/per.{{node.id}}" &&
	for r in 0 1 2 3; do
		cmp file shared/per.$r || return 1
	done &&
	bcast "$JOBID" file "{{tmpdir}}/must" &&
	job_has file "\$FLUX_JOB_TMPDIR/must"
'

test_expect_success '--mkdir makes the directories on the way' '
	bcast --mkdir "$JOBID" file new/dirs/f &&
	job_has file "\$FLUX_JOB_TMPDIR/new/dirs/f" &&
	bcast --mkdir "$JOBID" file "$PWD/shared/made/by/f" &&
	cmp file shared/made/by/f
'

test_expect_success 'a missing directory: what makes it is said' '
	bcast_fails 1 "$JOBID" file missing/f &&
	error_says "missing" "--mkdir (or bcast.mkdir) makes it"
'

test_expect_success 'an existing file is refused and left as it is' '
	bcast_fails 1 "$JOBID" newer sub/name &&
	error_says sub/name "File exists" &&
	job_has file "\$FLUX_JOB_TMPDIR/sub/name"
'

test_expect_success 'an existing directory: what --force does is said' '
	mkdir -p twice && cp file twice/ && bcast "$JOBID" twice &&
	test_when_finished "bcast --remove \"\$JOBID\" twice" &&
	bcast_fails 1 "$JOBID" twice &&
	error_says "a directory of this name is there; --force puts the files of another into it"
'

test_expect_success 'existing on one rank only: nobody gets the new one' '
	job_exec 2 "echo old >\"\$FLUX_JOB_TMPDIR/only2\"" &&
	bcast_fails 1 "$JOBID" newer only2 &&
	error_says "rank 2" "File exists" &&
	job_lacks "\$FLUX_JOB_TMPDIR/only2" "0 1 3" &&
	test "$(job_exec 2 "cat \"\$FLUX_JOB_TMPDIR/only2\"")" = old
'

test_expect_success '--partial: the others get it' '
	bcast_fails 1 --partial "$JOBID" newer only2 &&
	error_says "rank 2" "File exists" &&
	job_has newer "\$FLUX_JOB_TMPDIR/only2" "0 1 3" &&
	test "$(job_exec 2 "cat \"\$FLUX_JOB_TMPDIR/only2\"")" = old
'

test_expect_success '--force replaces it, by another file' '
	before=$(stat -c %i "$(job_tmpdir 1)/sub/name") &&
	job_exec_all "exec 9<\"\$FLUX_JOB_TMPDIR/sub/name\"; ln \"\$FLUX_JOB_TMPDIR/sub/name\" \"\$FLUX_JOB_TMPDIR/sub/old\"" &&
	bcast --force "$JOBID" newer sub/name &&
	job_has newer "\$FLUX_JOB_TMPDIR/sub/name" &&
	job_has file "\$FLUX_JOB_TMPDIR/sub/old" &&
	test "$before" != "$(stat -c %i "$(job_tmpdir 1)/sub/name")"
'

test_expect_success '--force of all shells on one shared path' '
	bcast --force "$JOBID" newer "$PWD/shared/abs" &&
	cmp newer shared/abs
'

test_expect_success '--force does not replace a directory' '
	bcast_fails 1 --force "$JOBID" newer sub &&
	error_says sub &&
	job_exec_all "test -d \"\$FLUX_JOB_TMPDIR/sub\""
'

test_expect_success '--force on a program that runs: the program goes on' '
	cp /bin/sleep runs &&
	bcast "$JOBID" runs &&
	job_exec 1 "\"\$FLUX_JOB_TMPDIR/runs\" 1000 >/dev/null 2>&1 & echo \$! >\"\$FLUX_JOB_TMPDIR/pid\"
		until cmp -s /proc/\$!/exe \"\$FLUX_JOB_TMPDIR/runs\"; do sleep 0.05; done" &&
	bcast --force "$JOBID" newer runs &&
	job_has newer "\$FLUX_JOB_TMPDIR/runs" &&
	kill "$(cat "$(job_tmpdir 1)/pid")"
'

test_expect_success '--mode sets the permissions, whatever the umask' '
	bcast --mode=0751 "$JOBID" file moded &&
	job_exec_all "stat -c %a \"\$FLUX_JOB_TMPDIR/moded\"" >out &&
	test "$(sort -u out)" = 751
'

test_expect_success '--preserve keeps the times' '
	touch -d "2001-02-03 04:05:06.789 UTC" file &&
	bcast --preserve "$JOBID" file timed &&
	job_exec_all "stat -c %.Y \"\$FLUX_JOB_TMPDIR/timed\"" >out &&
	test "$(sort -u out)" = "$(stat -c %.Y file)"
'

test_expect_success '--sync does not change the result' '
	bcast --sync "$JOBID" file synced &&
	job_has file "\$FLUX_JOB_TMPDIR/synced"
'

test_expect_success 'several sources' '
	bcast --jobid="$JOBID" --mkdir --dest=several/ file newer &&
	job_has file "\$FLUX_JOB_TMPDIR/several/file" &&
	job_has newer "\$FLUX_JOB_TMPDIR/several/newer"
'

test_expect_success 'standard input, under a name' '
	bcast --jobid="$JOBID" --name=piped - <newer &&
	job_has newer "\$FLUX_JOB_TMPDIR/piped"
'

test_expect_success 'a directory with all that is in it' '
	mkdir -p dir/a/b dir/empty && chmod 750 dir/a && chmod 700 dir/empty &&
	cp file dir/a/b/file && chmod 755 dir/a/b/file &&
	ln dir/a/b/file dir/hard && ln -s a/b/file dir/soft && ln -s /nowhere dir/dangling &&
	truncate -s 1M dir/sparse && echo end >>dir/sparse && : >dir/zero &&
	(cd dir && find . -printf "%p %y %m %l\n" | sort) >want &&
	bcast "$JOBID" dir &&
	for r in 0 1 2 3; do
		(cd "$(job_tmpdir $r)/dir" && find . -printf "%p %y %m %l\n" | sort) >have &&
		test_cmp want have &&
		diff -r --no-dereference dir "$(job_tmpdir $r)/dir" &&
		test "$(stat -c %h "$(job_tmpdir $r)/dir/hard")" = 2 || return 1
	done
'

test_expect_success 'a rank whose temporary directory is gone is named, with the path' '
	job_exec 2 "mv \"\$FLUX_JOB_TMPDIR\" \"\$FLUX_JOB_TMPDIR.away\"" &&
	bcast_fails 1 "$JOBID" file nowhere &&
	error_says "rank 2" "$(job_tmpdir 2)" "No such file or directory" &&
	job_exec 2 "mv \"\$FLUX_JOB_TMPDIR.away\" \"\$FLUX_JOB_TMPDIR\"" &&
	job_lacks "\$FLUX_JOB_TMPDIR/nowhere"
'

test_expect_success 'another user is refused, and changes nothing' '
	for mask in 2 0; do
		(
			FLUX_HANDLE_USERID=12345 FLUX_HANDLE_ROLEMASK=$mask &&
			export FLUX_HANDLE_USERID FLUX_HANDLE_ROLEMASK &&
			bcast_fails 1 "$JOBID" file foreign
		) || return 1
	done &&
	job_lacks "\$FLUX_JOB_TMPDIR/foreign"
'

test_expect_success 'nothing temporary is left anywhere' '
	find . "$(job_tmpdir 0)" "$(job_tmpdir 1)" "$(job_tmpdir 2)" "$(job_tmpdir 3)" \
		-name ".flux-bcast*" >left &&
	test_must_be_empty left &&
	job_finish
'

test_done
