#!/bin/sh

test_description='Jobs in an instance of another user: only what their owner signed'

. "$(dirname "$0")/sharness.sh"

# On real Flux this needs a guest: run it as a user of a system instance that
# has flux-security. The stand-in plays both.
if test "$PROVIDER" = flux && {
	test -z "$FLUX_URI" || test "$(flux getattr security.owner)" = "$(id -u)"
}; then
	skip_all='needs to be run by a guest of an instance of another user'
	test_done
fi
if test "$PROVIDER" = embedded; then
	if test -z "$BCAST_UNDER_FLUX"; then
		FLUX_BCAST_LIBFLUX_SECURITY=$FLUX_BCAST_TEST_ROOT/signing.so
		SIGNING_KEY=$FLUX_BCAST_TEST_ROOT/key
		FLUX_SANDBOX_OWNER=$(($(id -u) + 1))
		export FLUX_BCAST_LIBFLUX_SECURITY SIGNING_KEY FLUX_SANDBOX_OWNER
		head -c 16 /dev/urandom | od -An -tx8 | tr -d ' ' >"$SIGNING_KEY"
		if ! cc -shared -fPIC -Wall -Wextra -Werror -I"$BCAST_TOP/include" \
			-o "$FLUX_BCAST_LIBFLUX_SECURITY" "$BCAST_TOP/t/src/signing.c"; then
			error "cannot build t/src/signing.c"
		fi
	fi
	test_under_flux 4
fi

test_expect_success 'set up' '
	test "$(flux getattr security.owner)" != "$(id -u)" &&
	data_random 2000000 file &&
	mkdir -p tree/sub && data_random 5000 tree/sub/one && ln -s sub/one tree/link &&
	job_start main 4
'

test_expect_success 'a file to all ranks' '
	bcast "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/file"
'

test_expect_success 'down a chain, compressed, from standard input' '
	bcast -k 1 --compress --name piped "$JOBID" - <file &&
	job_has file "\$FLUX_JOB_TMPDIR/piped"
'

test_expect_success 'past the brokers' '
	bcast --direct -k 2 --dest=past "$JOBID" file &&
	job_has file "\$FLUX_JOB_TMPDIR/past"
'

test_expect_success 'a directory to some ranks' '
	bcast --ranks 1,3 "$JOBID" tree &&
	job_has tree/sub/one "\$FLUX_JOB_TMPDIR/tree/link" "1 3" &&
	job_lacks "\$FLUX_JOB_TMPDIR/tree" "0 2"
'

test_expect_success 'an empty file' '
	: >empty && bcast "$JOBID" empty && job_has empty "\$FLUX_JOB_TMPDIR/empty"
'

test_expect_success 'ranks that have the file are left out; a dry run sends nothing' '
	bcast --force --checksum -v "$JOBID" file >out 2>&1 && cat out &&
	bcast --dry-run "$JOBID" file dry && job_lacks "\$FLUX_JOB_TMPDIR/dry"
'

test_expect_success 'from a rank, to a rank, listed and removed' '
	bcast --from 2 "$JOBID" piped again &&
	job_has file "\$FLUX_JOB_TMPDIR/again" "0 1 3" &&
	bcast --gather "$JOBID" file gathered &&
	for r in 0 1 2 3; do test_cmp file "gathered/$r/file" || return 1; done &&
	bcast --list "$JOBID" >list && cat list && grep /again list &&
	bcast --remove --exclude 2 "$JOBID" again &&
	job_lacks "\$FLUX_JOB_TMPDIR/again"
'

test_expect_success 'at job start' '
	run_timeout 60 flux run -N4 -n4 -o userrc="$BCAST_RC" -o bcast="$PWD/file" \
		sh -c "sha256sum <\$FLUX_BCAST_PATH" >sums &&
	test "$(sort -u sums)" = "$(sha256sum <file)" && test "$(wc -l <sums)" = 4
'

test_expect_success 'from an allocation to its nodes' '
	cat >initial <<-EOT &&
	flux bcast -v "$PWD/file" inner.file >"$PWD/placed" &&
	while read -r rank host path; do
		sha256sum <"\$path" || exit 1
	done <"$PWD/placed" >"$PWD/sums"
	EOT
	run_timeout 100 flux run -N4 -n4 -o userrc="$BCAST_RC" flux start sh "$PWD/initial" &&
	test "$(sort -u sums)" = "$(sha256sum <file)" && test "$(wc -l <sums)" = 4
'

test_expect_success 'PMI_PORT' '
	pmi_build pmi-lanes &&
	run_timeout 60 flux run -N4 -n4 -o userrc="$BCAST_RC" -o pmi=port ./pmi-lanes 2 20 >out &&
	test "$(grep -c "values" out)" = 4
'

test_expect_success 'without flux-security: refused, with the reason' '
	(
		FLUX_BCAST_LIBFLUX_SECURITY=/nonexistent.so &&
		export FLUX_BCAST_LIBFLUX_SECURITY &&
		bcast_fails 1 "$JOBID" file unsigned &&
		error_says "must be signed" /nonexistent.so &&
		bcast_fails 1 --remove "$JOBID" file &&
		error_says "must be signed"
	)
'

test_expect_success 'requests without a signature are refused by the shells' '
	capi_prefix &&
	capi_compile t/src/hostile.c -Wall -Wextra -Werror &&
	run_timeout 60 ./hostile unsigned "$JOBID"
'

# Signed by another user; with another key; something else than is asked for.
signed_badly() {
	test_expect_code 1 run_timeout 60 env "$@" flux bcast "$JOBID" file bad 2>err &&
	cat err &&
	job_lacks "\$FLUX_JOB_TMPDIR/bad"
}

test_expect_success EMBEDDED 'the signature of another user is refused' '
	signed_badly SIGNING_UID=4711 &&
	error_says "only the owner of the job"
'

test_expect_success EMBEDDED 'a forged signature is refused' '
	echo other >otherkey &&
	signed_badly SIGNING_KEY="$PWD/otherkey" &&
	error_says forged
'

test_expect_success EMBEDDED 'terms, time and data that were not signed are refused' '
	signed_badly SIGNING_FLIP=\"transfer &&
	error_says "not those that were signed" &&
	signed_badly SIGNING_FLIP=\"time\" &&
	error_says "from another time" &&
	signed_badly SIGNING_FLIP=\"ranks\" &&
	error_says "the signature is for" &&
	signed_badly SIGNING_FLIP=\"digest\" &&
	error_says "not what was signed"
'

test_expect_success EMBEDDED 'what was signed once is done once' '
	SIGNING_LOG=$PWD/token SIGNING_WORD=\"remove\" bcast --remove "$JOBID" empty &&
	bcast "$JOBID" empty &&
	SIGNED=$PWD/token METHOD=remove run_timeout 60 ./hostile replay "$JOBID" &&
	job_has empty "\$FLUX_JOB_TMPDIR/empty"
'

# opening TOKEN: the request of these signed terms, to rank 0 alone.
opening() {
	python3 - "$1" <<-\EOT
		import json, sys
		token = open(sys.argv[1]).read()
		terms = json.loads(bytes.fromhex(token.split(".")[1]))["ask"]
		tree = {"ranks": [0], "parents": [0]}
		print(json.dumps({"version": 1, "tree": tree, "tuning": {}, "warrant": token} | terms))
	EOT
}

test_expect_success EMBEDDED 'nor is a transfer opened twice, even where it began' '
	test_when_finished "rm -f \"$SIGNING_KEY.word\"" &&
	echo \"dest\" >"$SIGNING_KEY.word" &&
	bcast "$JOBID" file twice &&
	opening "$SIGNING_KEY.log" >open.json &&
	SIGNED=open.json run_timeout 60 ./hostile reopen "$JOBID" &&
	rm "$SIGNING_KEY.log" &&
	job_start early 2 -o bcast="$PWD/file" &&
	opening "$SIGNING_KEY.log" >open.json &&
	SIGNED=open.json run_timeout 60 ./hostile reopen "$JOBID" &&
	job_finish &&
	job_use main
'

test_expect_success EMBEDDED 'gathered data must be sealed by the shells' '
	test_when_finished "rm -f \"$SIGNING_KEY.flip\"" &&
	echo \"digest\" >"$SIGNING_KEY.flip" &&
	bcast_fails 1 --gather "$JOBID" /etc/passwd spoiled &&
	error_says "not what was signed" &&
	test ! -e spoiled/0/passwd
'

test_expect_success 'nothing was left behind, and the job ends well' '
	job_use main &&
	nothing_open "" &&
	job_finish
'

test_done
