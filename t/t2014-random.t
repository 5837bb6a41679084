#!/bin/sh

test_description='Something goes wrong at a random moment, again and again

FLUX_BCAST_MOMENTS is the number of moments in all (default 240), and
FLUX_BCAST_SEED what the moments follow from (default: the time).'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4

seed=${FLUX_BCAST_SEED:-$(date +%s)}
part=$(((${FLUX_BCAST_MOMENTS:-240} + 7) / 8))

# moments KIND: an eighth of all moments.
moments() {
	run_timeout 600 python3 "$BCAST_SCRIPTS/random-moments" --kind "$1" --count $part \
		--seed "$seed" --userrc "$BCAST_RC" --dir "$PWD/$1"
}

for kind in client-killed client-interrupted shell-killed interior-killed leader-killed job-cancelled tasks-end; do
	test_expect_success "$kind, $part times (seed $seed)" "
		moments $kind
	"
done

test_expect_success TMPFS "disk-full, $part times (seed $seed)" '
	mount_tmpfs "$PWD/disk" size=9m &&
	moments disk-full
'

test_done
