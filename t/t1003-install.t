#!/bin/sh

test_description='What make install installs is found, loads and links'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2

test_expect_success 'make install' '
	run_timeout 300 make -C "$BCAST_TOP" install PREFIX=/usr/local DESTDIR="$PWD/root" \
		BUILD="$FLUX_BCAST_BUILD" >out 2>&1 || { cat out && false; } &&
	(cd root && find . -printf "%y %p\n" | sort)
'

test_expect_success 'library, link for the linker, header, pkg-config file' '
	prefix=$PWD/root/usr/local &&
	test -f "$prefix/lib/libflux-bcast.so.0" &&
	test -L "$prefix/lib/libflux-bcast.so" &&
	test -f "$prefix/include/flux-bcast.h" &&
	test -f "$prefix/lib/pkgconfig/flux-bcast.pc"
'

test_expect_success 'the plugin is the library, under the name bcast.so' '
	find root -name bcast.so >plugins &&
	test "$(wc -l <plugins)" = 1 &&
	cmp "$(cat plugins)" "$BCAST_PLUGIN"
'

test_expect_success 'pkg-config knows where they are, and what they need' '
	capi_flux "$FLUX_BCAST_TEST_ROOT/stand-in" &&
	PKG_CONFIG_PATH=$prefix/lib/pkgconfig:$PKG_CONFIG_PATH &&
	pkg-config --cflags --libs flux-bcast >flags &&
	grep -e "-lflux-bcast" flags && grep "flux-core" flags &&
	pkg-config --modversion flux-bcast >version &&
	bcast --version | grep -F "$(cat version)"
'

command -v groff >/dev/null && test_set_prereq GROFF

test_expect_success 'each function of the header has a manual page' '
	grep -o "flux_bcast_[a-z_]* (" "$BCAST_TOP/include/flux-bcast.h" | tr -d " (" | sort -u >functions &&
	test "$(wc -l <functions)" -gt 50 &&
	(cd "$prefix/share/man/man3" && ls) | sed "s/\.3$//" | sort >pages &&
	test_cmp functions pages &&
	grep "^\.so man3/flux_bcast_get_rank.3$" "$prefix/share/man/man3/flux_bcast_get_rank_path.3"
'

test_expect_success GROFF 'the manual pages are formatted without a warning' '
	for page in "$prefix"/share/man/man*/*; do
		(cd "$prefix/share/man" && groff -s -ww -man -Tascii -z "$page" 2>&1) || return 1
	done >warnings &&
	cat warnings && test_must_be_empty warnings &&
	(cd "$prefix/share/man" && groff -s -man -Tascii man3/flux_bcast_cancel.3) >text &&
	grep "FLUX_BCAST_START(3)" text
'

test_expect_success 'the commands run from there' '
	find root -type f -name "flux-bcast" >commands &&
	test "$(wc -l <commands)" = 1 &&
	run_timeout 20 "$(cat commands)" --version
'

test_expect_success 'the installed plugin serves a job' '
	printf "plugin.load { file = \"%s\", conf = {} }\n" "$PWD/$(cat plugins)" >rc.lua &&
	data_random 5000 file &&
	run_timeout 60 flux run -N2 -n2 -o userrc="$PWD/rc.lua" -o bcast="$PWD/file" \
		sh -c "cmp \"\$FLUX_BCAST_PATH\" \"$PWD/file\""
'

test_expect_success 'the installed plugin serves a job by FLUX_SHELL_RC_PATH' '
	mkdir rc && cp rc.lua rc/bcast.lua &&
	same="cmp file \"\$FLUX_BCAST_PATH\"" &&
	run_timeout 60 env FLUX_SHELL_RC_PATH="$PWD/rc" flux run -N2 -n2 -o bcast=file \
		sh -c "$same" &&
	test_must_fail run_timeout 60 flux run -N2 -n2 -o bcast=file sh -c "$same"
'

test_expect_success 'uninstall leaves no file' '
	make -C "$BCAST_TOP" uninstall PREFIX=/usr/local DESTDIR="$PWD/root" &&
	find root ! -type d >left &&
	test_must_be_empty left
'

test_done
