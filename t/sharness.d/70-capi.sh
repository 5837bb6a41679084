# C programs that use the library, built the way any user builds them.
# shellcheck shell=sh

# capi_prefix: installs to a place without spaces in its name, and lets pkg-config,
# compiler and loader find what is there and the Flux that the tests run on.
capi_prefix() {
	capi_prefix=$FLUX_BCAST_TEST_ROOT/prefix
	run_timeout 300 make -s -C "$BCAST_TOP" install PREFIX="$capi_prefix" \
		BUILD="$FLUX_BCAST_BUILD" &&
	LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$capi_prefix/lib &&
	capi_flux "$capi_prefix/stand-in" &&
	PKG_CONFIG_PATH=$capi_prefix/lib/pkgconfig:$PKG_CONFIG_PATH
}

# capi_flux DIR: lets them find that Flux; DIR gets made for it where it is a
# stand-in, or has no development files.
capi_flux() {
	PKG_CONFIG_PATH=
	if test "$PROVIDER" = flux; then
		prefix_flux=$(dirname "$(dirname "$(command -v flux)")") || return 1
		for dir in "$prefix_flux"/lib "$prefix_flux"/lib64 "$prefix_flux"/lib/*-linux-gnu*; do
			test -e "$dir/libflux-core.so.2" || continue
			PKG_CONFIG_PATH=$PKG_CONFIG_PATH:$dir/pkgconfig
			LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
		done
	fi
	export PKG_CONFIG_PATH LD_LIBRARY_PATH
	if test "$PROVIDER" = embedded || ! pkg-config --exists flux-core; then
		mkdir -p "$1" &&
		cat >"$1/flux-core.pc" <<-EOT &&
		Name: flux-core
		Description: what the tests run on
		Version: 0
		Libs: $(echo "$LD_LIBRARY_PATH" | sed "s/^/-L/; s/:/ -L/g") -l:libflux-core.so.2
		Cflags: -I$BCAST_TOP/t/sandbox/include
		EOT
		PKG_CONFIG_PATH=$1:$PKG_CONFIG_PATH
	fi
}

# capi_compile SOURCE OPTION...: makes a program of the source's name, in the
# area of the test.
capi_compile() {
	capi_source=$1
	shift
	# shellcheck disable=SC2046 # several words
	run_timeout 60 cc -o "$(basename "$capi_source" .c)" "$@" "$BCAST_TOP/$capi_source" \
		$(pkg-config --cflags --libs flux-bcast)
}

# capi_check CHECK [ARGUMENT...]: one check of t/src/capi-check.c.
capi_check() {
	run_timeout 60 ./capi-check "$@"
}
