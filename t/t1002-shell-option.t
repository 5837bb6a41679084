#!/bin/sh

test_description='-o bcast: what is not understood is refused by name, before any task starts'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2

test_expect_success 'set up' '
	data_random 1000 file &&
	mkdir started
'

# refused WORD OPTION...: the job fails at once, its error names WORD.
refused() {
	word=$1
	shift
	words=
	for argument; do
		words="$words '$argument'"
	done
	test_expect_success "refused: $*" "
		test_must_fail run_timeout 60 flux run -N2 -n2 -o userrc=\"\$BCAST_RC\" $words \
			sh -c ': >started/\$FLUX_TASK_RANK' 2>err &&
		cat err &&
		grep -F -e '$word' err &&
		has_only started
	"
}

refused /nofile -o bcast=/nofile
refused frob -o bcast.source="$PWD/file" -o bcast.frob=1
refused 'unknown option bcast.forse (did you mean bcast.force?); known are' \
	-o bcast.source="$PWD/file" -o bcast.forse
refused 'unknown option bcast.sorce (did you mean bcast.source?); known are' -o bcast.sorce="$PWD/file"
refused source -o bcast.k=2
refused source -o bcast.dest=x
refused bcast -o bcast=
refused bcast.k -o bcast.source="$PWD/file" -o bcast.k=0
refused bcast.k -o bcast.source="$PWD/file" -o bcast.k=many
refused bcast.chunk -o bcast.source="$PWD/file" -o bcast.chunk=0
refused bcast.chunk -o bcast.source="$PWD/file" -o bcast.chunk=1G
refused 'bcast.pace 0 is not within' -o bcast.source="$PWD/file" -o bcast.pace=0
refused bcast.pace -o bcast.source="$PWD/file" -o bcast.pace=fast
refused bcast.timeout -o bcast.source="$PWD/file" -o bcast.timeout=soon
refused bcast.ranks -o bcast.source="$PWD/file" -o bcast.ranks=7-3
refused bcast.ranks -o bcast.source="$PWD/file" -o bcast.ranks=
refused bcast.hosts -o bcast.source="$PWD/file" -o bcast.hosts=
refused bcast.dest -o bcast.source="$PWD/file" -o bcast.dest=
refused bcast.batch -o bcast.source="$PWD/file" -o bcast.batch=1k
refused bcast.env -o bcast.source="$PWD/file" -o bcast.env=A=B
refused ../out -o bcast.source="$PWD/file" -o bcast.dest=../out

test_expect_success 'without the plugin the option does nothing' '
	run_timeout 60 flux run -N2 -n2 -o bcast="$PWD/file" \
		sh -c "test -z \"\$FLUX_BCAST_PATH\""
'

test_done
