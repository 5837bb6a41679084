# C programs that use the library, built the way any user builds them.
# shellcheck shell=sh

# capi_prefix: installs to a place without spaces in its name, and lets pkg-config, compiler and loader
# find what is there and the Flux that the tests run on.
capi_prefix() {
	capi_prefix=$FLUX_BCAST_TEST_ROOT/prefix
	run_timeout 300 make -s -C "$BCAST_TOP" install PREFIX="$capi_prefix" \
		BUILD="$FLUX_BCAST_BUILD" || return 1
	PKG_CONFIG_PATH=$capi_prefix/lib/pkgconfig
	LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$capi_prefix/lib
	if test "$PROVIDER" = flux; then
		capi_flux=$(dirname "$(dirname "$(command -v flux)")") &&
		for dir in "$capi_flux"/lib "$capi_flux"/lib64 "$capi_flux"/lib/*-linux-gnu*; do
			test -e "$dir/libflux-core.so.2" || continue
			PKG_CONFIG_PATH=$PKG_CONFIG_PATH:$dir/pkgconfig
			LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$dir
		done
	fi
	export PKG_CONFIG_PATH LD_LIBRARY_PATH
	# A stand-in, or a Flux without its development files.
	if test "$PROVIDER" = embedded || ! pkg-config --exists flux-core; then
		mkdir -p "$capi_prefix/stand-in" &&
		cat >"$capi_prefix/stand-in/flux-core.pc" <<-EOT &&
		Name: flux-core
		Description: what the tests run on
		Version: 0
		Libs: $(echo "$LD_LIBRARY_PATH" | sed "s/^/-L/; s/:/ -L/g") -l:libflux-core.so.2
		Cflags: -I$BCAST_TOP/t/sandbox/include
		EOT
		PKG_CONFIG_PATH=$capi_prefix/stand-in:$PKG_CONFIG_PATH
	fi
}

# capi_compile SOURCE OPTION...: makes a program of the source's name, in the
# area of the test.
capi_compile() {
	capi_source=$1
	shift
	# shellcheck disable=SC2046 # several words
	run_timeout 60 cc -o "$(basename "$capi_source" .c)" "$@" "$BCAST_TOP/$capi_source" \
		$(pkg-config --cflags --libs flux-bcast flux-core)
}

# capi_check CHECK [ARGUMENT...]: one check of t/src/capi-check.c.
capi_check() {
	run_timeout 60 ./capi-check "$@"
}
