#!/bin/sh

test_description='The built files load, and export what they should'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2

test_expect_success 'flux is there and runs a job' '
	run_timeout 60 flux run -N2 -n2 true &&
	test_expect_code 3 run_timeout 60 flux run -N2 -n2 sh -c "exit 3"
'

test_expect_success 'flux is that of the provider' '
	if test_have_prereq EMBEDDED; then
		test "$(command -v flux)" -ef "$FLUX_BCAST_BUILD/flux"
	else
		! test "$(command -v flux)" -ef "$FLUX_BCAST_BUILD/flux"
	fi
'

test_expect_success 'the shell loads the plugin, which is inert without its options' '
	run_timeout 60 flux run -N2 -n2 -o userrc="$BCAST_RC" sh -c "echo out; env" >out 2>err &&
	test_must_be_empty err &&
	grep -c "^out$" out &&
	! grep FLUX_BCAST_PATH= out
'

test_expect_success 'the exit status of a job with the plugin is the tasks'\'' own' '
	test_expect_code 3 run_timeout 60 flux run -N2 -n2 -o userrc="$BCAST_RC" sh -c "exit 3"
'

test_expect_success 'the library stays mapped after dlclose, and has a versioned name' '
	readelf -d "$BCAST_PLUGIN" >dynamic &&
	grep "FLAGS_1.*NODELETE" dynamic &&
	grep "SONAME.*libflux-bcast.so.0" dynamic
'

test_expect_success 'it needs nothing but the C library' '
	grep NEEDED dynamic >needed &&
	! grep -v -E "\[(libc|libm|libgcc_s|ld-linux[-a-z0-9_]*|libdl|libpthread|librt)\.so" needed &&
	nm -D --undefined-only "$BCAST_PLUGIN" >undefined &&
	! grep -i -E "flux|json_" undefined
'

test_expect_success 'it exports only public names' '
	nm -D --defined-only "$BCAST_PLUGIN" >defined &&
	awk "{ print \$3 }" defined | sed "s/@.*//" >names &&
	grep -x flux_plugin_init names &&
	! grep -v -E "^(flux_plugin_init|flux_bcast_[a-z_]+|FLUX_BCAST_[A-Z0-9_.]+)$" names
'

test_expect_success 'it loads outside of Flux' '
	run_timeout 60 python3 -c "import ctypes, sys; ctypes.CDLL(sys.argv[1])" "$BCAST_PLUGIN"
'

test_expect_success 'flux finds the command' '
	bcast --version >out &&
	grep -E "^flux[- ]bcast [0-9]+\.[0-9]+" out &&
	bcast --help >help &&
	for word in --jobid --force --ranks --fanout --timeout; do
		grep -q -e "$word" help || return 1
	done
'

test_done
