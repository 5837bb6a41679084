#!/bin/sh

test_description='What looks like a prerequisite and is none is told from it'

# sharness moves HOME, below which cargo and rustup have their own.
CARGO_HOME=${CARGO_HOME:-$HOME/.cargo}
RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
export CARGO_HOME RUSTUP_HOME
. "$(dirname "$0")/sharness.sh"

PATH=$("$BCAST_SCRIPTS/rust-path") && export PATH

# fake NAME: makes dir NAME/, to be put in front of PATH. The programs in it come from
# `imitates`.
fake() {
	rm -rf "$1" && mkdir "$1" && FAKE=$PWD/$1
}

# imitates PROGRAM: the script on standard input gets that name.
imitates() {
	{ echo "#!/bin/sh" && cat; } >"$FAKE/$1" && chmod +x "$FAKE/$1"
}

# missing LEVEL: what is said to be missing with the imitations in front.
missing() {
	PATH=$FAKE:$PATH CARGO_TARGET_DIR=$PWD/target run_timeout 120 \
		"$BCAST_SCRIPTS/prerequisites" --missing "$1" >missing
	cat missing
}

# is_missing PACKAGES [REASON]: exactly this is.
is_missing() {
	test "$(wc -l <missing)" = 1 && grep "^  $1: .*${2-}" missing
}

# The tests below take single things away, so all has to be there at first.
fake none
test -z "$(missing test)" && test_set_prereq ALL_THERE
test_have_prereq ALL_THERE || echo "# missing here: $(cat missing)"

# Otherwise a trial that is wrong would only have tests skipped.
test_expect_success 'nothing that building needs is missing where this was built' '
	fake none-2 &&
	missing build &&
	test_must_be_empty missing
'

test_expect_success 'the names of the levels, and of the systems' '
	test_must_fail "$BCAST_SCRIPTS/prerequisites" --missing everything 2>err &&
	grep "build, demo or test" err &&
	test_must_fail "$BCAST_SCRIPTS/prerequisites" --list=pacman build 2>err &&
	grep "apt or dnf" err
'

test_expect_success 'README names what building needs, as the table of prerequisites does' '
	grep -x "    apt-get install $("$BCAST_SCRIPTS/prerequisites" --list=apt build)" \
		"$BCAST_TOP/README.md" &&
	grep -x "    dnf install $("$BCAST_SCRIPTS/prerequisites" --list=dnf build)" \
		"$BCAST_TOP/README.md" &&
	wanted=$(sed -n "s/^rust-version = \"\(.*\)\"/\1/p" "$BCAST_TOP/Cargo.toml") &&
	grep "^| Rust $wanted or newer" "$BCAST_TOP/README.md"
'

test_expect_success 'the modules that our scripts import are asked for' '
	grep -rhoE "^[[:space:]]*(import|from) [a-z, ]+$|^[[:space:]]*from [a-z]+ import|python3 -c \"import [a-z, ]+" \
		"$BCAST_TOP"/t/*.t "$BCAST_SCRIPTS" "$BCAST_TOP"/t/sharness.d |
		sed "s/.*import //; s/^[[:space:]]*from //; s/ import.*//" | tr -d " " | tr , "\n" |
		sort -u >imported &&
	sed -n "/^PYTHON_MODULES=/,/\"$/p" "$BCAST_SCRIPTS/trials" |
		sed "s/.*=\"//; s/[\"\\\\]//g" | tr " " "\n" | sort -u >asked &&
	test -s imported &&
	comm -23 imported asked >forgotten &&
	test_must_be_empty forgotten
'

test_expect_success 'libclang-cpp is not libclang' '
	mkdir llvm &&
	cp "$(command -v readelf)" llvm/libclang-cpp.so.14 &&
	ln -s libclang-cpp.so.14 llvm/libclang-cpp.so &&
	LIBCLANG_PATH=$PWD/llvm missing build &&
	is_missing libclang-dev "no libclang.so in LIBCLANG_PATH"
'

test_expect_success 'neither is a file of that name that cannot be loaded, nor another library' '
	echo "int other;" >other.c &&
	mkdir llvm-2 llvm-3 &&
	cc -shared -fPIC -o llvm-2/libclang.so other.c &&
	LIBCLANG_PATH=$PWD/llvm-2 missing build &&
	is_missing libclang-dev "not to be used: .*llvm-2/libclang.so" &&
	head -c 4000 llvm-2/libclang.so >llvm-3/libclang-99.so.1 &&
	cp llvm-2/libclang.so llvm-3/libclang-9.so.1 &&
	LIBCLANG_PATH=$PWD/llvm-3 missing build &&
	is_missing libclang-dev "not to be used: .*libclang-99"
'

test_expect_success 'a C compiler that cannot link, one for another machine, one that CC names' '
	fake cc-1 &&
	imitates cc <<-\EOT &&
	echo "ld: cannot find crt1.o: No such file or directory" >&2
	exit 1
	EOT
	missing build &&
	grep "^  gcc libc6-dev: .*crt1.o" missing &&
	imitates cc <<-\EOT &&
	while test $# -gt 0; do test "$1" = -o && out=$2; shift; done
	printf "\\177ELF\\1\\1\\1" >"$out" && chmod +x "$out"
	EOT
	missing build &&
	grep "^  gcc libc6-dev: " missing &&
	imitates cc <<-EOT &&
	case "\$*" in
	*rcgu*) echo "tcc: error: unsupported linker option" >&2; exit 1 ;;
	esac
	exec "$(command -v cc)" "\$@"
	EOT
	missing build &&
	is_missing "gcc libc6-dev" "linking with" &&
	fake cc-2 &&
	CC=no-such-compiler missing build &&
	is_missing "gcc libc6-dev" no-such-compiler
'

test_expect_success 'an old Rust in front of a new one' '
	fake old &&
	echo "echo cargo 0.66.0" | imitates cargo &&
	echo "echo rustc 1.63.0" | imitates rustc &&
	path=$(PATH=$FAKE:$PATH "$BCAST_SCRIPTS/rust-path") &&
	(PATH=$path && cargo --version && rustc --version) >versions &&
	! grep -e 0.66 -e 1.63 versions
'

test_expect_success 'an old rustc in front of a new cargo' '
	fake old-rustc &&
	echo "echo rustc 1.63.0" | imitates rustc &&
	path=$(PATH=$FAKE:$PATH "$BCAST_SCRIPTS/rust-path") &&
	(PATH=$path && rustc --version) >version &&
	! grep 1.63 version
'

# rust_path: with nothing on PATH but the imitations and what the script itself uses.
rust_path() {
	for program in dirname sed head sh; do
		ln -sf "$(command -v $program)" "$FAKE/$program" || return 1
	done
	HOME=$PWD/nowhere CARGO_HOME=$PWD/nowhere PATH=$FAKE /bin/sh "$BCAST_SCRIPTS/rust-path"
}

test_expect_success 'no Rust, an old one alone, and a rustup that has no toolchain' '
	fake alone &&
	test_must_fail rust_path 2>err &&
	grep "no Rust of 1.[0-9]* or newer: no cargo" err &&
	echo "echo cargo 0.66.0" | imitates cargo &&
	echo "echo rustc 1.63.0" | imitates rustc &&
	test_must_fail rust_path 2>err &&
	grep "or newer: cargo 0.66.0" err &&
	echo "echo rustup could not choose a version of cargo to run >&2; exit 1" | imitates cargo &&
	test_must_fail rust_path 2>err &&
	grep "cargo does not run" err
'

test_expect_success 'the toolchain stable of rustup, where its default is old' '
	fake rustup-old &&
	echo "echo cargo 1.70.0" | imitates cargo &&
	echo "echo rustc 1.70.0" | imitates rustc &&
	mkdir stable && FAKE=$PWD/stable &&
	echo "echo cargo 1.99.0" | imitates cargo &&
	echo "echo rustc 1.99.0" | imitates rustc &&
	FAKE=$PWD/rustup-old &&
	imitates rustup <<-EOT &&
	test "\$*" = "which --toolchain stable cargo" && echo "$PWD/stable/cargo"
	EOT
	path=$(rust_path) &&
	test "${path%%:*}" = "$PWD/stable"
'

test_expect_success ALL_THERE 'a Python without pip, and one without its modules' '
	fake python &&
	imitates python3 <<-EOT &&
	case "\$*" in
	*"-m pip"*) echo "No module named pip" >&2; exit 1 ;;
	esac
	exec "$(command -v python3)" "\$@"
	EOT
	missing test &&
	is_missing python3-pip "No module named pip" &&
	imitates python3 <<-\EOT &&
	echo "ModuleNotFoundError: No module named argparse" >&2
	exit 1
	EOT
	missing test &&
	grep "^  python3: .*argparse" missing
'

test_expect_success ALL_THERE 'programs of the same name: bmake, dropbear, busybox, Open MPI, llvm' '
	fake others &&
	echo "echo bmake: no target to make. >&2; exit 2" | imitates make &&
	echo "echo Dropbear v2022.83 >&2" | imitates ssh &&
	echo "echo BusyBox v1.35.0 multi-call binary. >&2; exit 1" | imitates ip &&
	echo "echo BusyBox v1.35.0 multi-call binary. >&2; exit 1" | imitates setpriv &&
	echo "echo mpi.h: No such file or directory >&2; exit 1" | imitates mpicc.mpich &&
	echo "echo unknown argument >&2; exit 1" | imitates readelf &&
	echo "echo jq: error: round/0 is not defined >&2; exit 3" | imitates jq &&
	echo "exit 2" | imitates shellcheck &&
	echo "exit 1" | imitates valgrind &&
	echo "exit 127" | imitates gdb &&
	missing test &&
	cut -d: -f1 missing | sed "s/^ *//" | sort >names &&
	sort >want <<-\EOT &&
	make
	openssh-client
	iproute2
	util-linux
	mpich libmpich-dev
	binutils
	jq
	shellcheck
	valgrind
	gdb
	EOT
	test_cmp want names
'

test_expect_success ALL_THERE 'a Rust without the parts that the checks need' '
	fake parts &&
	imitates cargo <<-EOT &&
	case "\$1" in
	clippy) echo "error: no such command: clippy" >&2; exit 101 ;;
	esac
	exec "$(command -v cargo)" "\$@"
	EOT
	missing test &&
	is_missing "rustfmt rust-clippy" "no such command"
'

test_expect_success 'a flux that is not Flux, and that of the tests' '
	fake flux &&
	echo "echo flux version 2.2.3" | imitates flux &&
	test_must_fail env PATH="$FAKE:$PATH" "$BCAST_SCRIPTS/real-flux" 2>err &&
	grep "not flux-core" err &&
	printf "printf \"libflux-core:\\\\t\\\\t0.88.0-sandbox\"" | imitates flux &&
	test_must_fail env PATH="$FAKE:$PATH" "$BCAST_SCRIPTS/real-flux" 2>err &&
	grep "stand-in" err &&
	printf "printf \"commands:\\\\t0.88.0\\nlibflux-core:\\\\t\\\\t0.88.0\"" | imitates flux &&
	PATH=$FAKE:$PATH "$BCAST_SCRIPTS/real-flux"
'

# without_jq: a machine that lacks jq only, to install to.
without_jq() {
	fake installs &&
	imitates jq <<-EOT
	test -e "$PWD/jq-is-there" && exec "$(command -v jq)" "\$@"
	echo "jq: broken" >&2
	exit 1
	EOT
}
test "$(id -u)" = 0 && test_set_prereq ROOT
install() {
	PATH=$FAKE:$PATH CARGO_TARGET_DIR=$PWD/target run_timeout 120 \
		"$BCAST_SCRIPTS/prerequisites" demo
}

test_expect_success ALL_THERE,ROOT 'what is missing is installed, and looked at again' '
	without_jq &&
	echo "echo \"  Candidate: 1.0\"" | imitates apt-cache &&
	echo "echo \"\$*\" >>\"$PWD/installed\"; : >\"$PWD/jq-is-there\"" | imitates apt-get &&
	install >out &&
	grep " install jq$" installed &&
	rm -f installed && install && test ! -e installed
'

test_expect_success ALL_THERE,ROOT 'what no source has, and what does not help, is named in one line' '
	rm -f jq-is-there &&
	without_jq &&
	echo "echo \"  Candidate: (none)\"" | imitates apt-cache &&
	echo "exit 0" | imitates apt-get &&
	test_must_fail install >out 2>err &&
	grep "no package source of this machine has: jq" out &&
	tail -n 1 err | grep "apt-get install jq" &&
	echo "echo \"  Candidate: 1.0\"" | imitates apt-cache &&
	test_must_fail install >out 2>err &&
	tail -n 1 err | grep "apt-get install jq" &&
	echo "exit 100" | imitates apt-get &&
	test_must_fail install >out 2>err &&
	tail -n 1 err | grep "apt-get install jq"
'

test_expect_success ALL_THERE 'who is not root is told what to run' '
	without_jq &&
	echo "echo 1000" | imitates id &&
	test_must_fail install 2>err &&
	test "$(cat err)" = "prerequisites: cannot install without being root; run: sudo apt-get install jq"
'

test_expect_success 'a build that fails ends with what is wrong' '
	fake cargo &&
	imitates cargo <<-\EOT &&
	case "$1" in
	--version) echo "cargo 1.99.0 (fake)" ;;
	fetch) : ;;
	build)
		echo "   Compiling flux-bcast" >&2
		echo "error: flux-bcast@0.1.0: libclang is missing" >&2
		echo "error: build script logged errors" >&2
		echo "warning: build failed, waiting for other jobs to finish..." >&2
		exit 101
		;;
	esac
	EOT
	test_must_fail env PATH="$FAKE:$PATH" "$BCAST_SCRIPTS/build" --release 2>err &&
	test "$(tail -n 1 err)" = "build: cargo build failed: flux-bcast@0.1.0: libclang is missing" &&
	imitates cargo <<-\EOT &&
	test "$1" = fetch || exec echo "cargo 1.99.0 (fake)"
	echo "error: failed to download: Could not resolve host" >&2
	exit 101
	EOT
	test_must_fail env PATH="$FAKE:$PATH" "$BCAST_SCRIPTS/build" --release 2>err &&
	tail -n 1 err | grep "^build: the crates .* cannot be fetched: .*resolve host"
'

# The program that cargo made of build.rs, run as cargo runs it.
build_script=$(find "$FLUX_BCAST_BUILD"/build/flux-bcast-* -maxdepth 1 \
	-name build-script-build -printf "%T@ %p\n" 2>/dev/null | sort -rn | sed -n "1s/.* //p")
test -x "$build_script" && test_set_prereq BUILD_SCRIPT

test_expect_success BUILD_SCRIPT 'the build says in one line that libclang is missing' '
	mkdir empty out.1 &&
	(cd "$BCAST_TOP" && LIBCLANG_PATH=$OLDPWD/empty OUT_DIR=$OLDPWD/out.1 "$build_script") \
		>out 2>err &&
	test "$(wc -l <out)" = 1 &&
	grep "^cargo::error=libclang is missing .*apt-get install libclang-dev" out &&
	test_must_be_empty err
'

test_expect_success BUILD_SCRIPT,ALL_THERE 'it takes the headers of the C compiler where libclang has none of its own' '
	lib=$(FAKE=/ && area=. && . "$BCAST_SCRIPTS/trials" && libclang_chosen | cut -d" " -f2) &&
	mkdir -p alone/lib out.2 out.3 &&
	cp "$(readlink -f "$lib")" alone/lib/libclang.so &&
	(cd "$BCAST_TOP" && OUT_DIR=$OLDPWD/out.2 "$build_script") >out &&
	! grep cargo::error out &&
	(cd "$BCAST_TOP" && LIBCLANG_PATH=$OLDPWD/alone/lib OUT_DIR=$OLDPWD/out.3 "$build_script") >out &&
	! grep cargo::error out &&
	test_cmp out.2/core.rs out.3/core.rs
'

test_done
