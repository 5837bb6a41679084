//! Makes the typed symbol tables of `src/ffi` from `include/flux_abi.h`, and
//! sets the link options that a library loaded by a C host needs.
//!
//! No Flux is needed here: functions are looked up at run time.

#![expect(
    clippy::expect_used,
    reason = "a build script reports by failing, and each message says what to do"
)]

use std::env;
use std::path::PathBuf;

/// Functions that exist only inside the flux-shell executable (and two of
/// libflux-core that are of use only there).
const SHELL: &str = "flux_shell_.*|flux_plugin_get_shell|flux_cmd_.*";

/// Functions that an older or newer Flux may lack; see `src/ffi/mod.rs`.
const OPTIONAL: &str = "flux_shell_raise_exit_status";

/// Function pointers given to C, constants and data types.
const TYPES: &str = "flux_.*|FLUX_.*";

fn main() {
    println!("cargo::rerun-if-changed=include/flux_abi.h");
    println!("cargo::rerun-if-changed=include/flux_security_abi.h");
    println!("cargo::rerun-if-changed=build.rs");

    // Our code must stay mapped after the shell's dlclose(3): handles and
    // futures may still call destructors of ours while the host shuts down.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libflux-bcast.so.0");

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let types = base()
        .allowlist_type(TYPES)
        .allowlist_var(TYPES)
        .ignore_functions();
    write(types, &out, "types.rs");
    write(
        table("CoreApi", true)
            .allowlist_function("flux_.*")
            .blocklist_function(SHELL),
        &out,
        "core.rs",
    );
    write(
        table("ShellApi", true)
            .allowlist_function(SHELL)
            .blocklist_function(OPTIONAL),
        &out,
        "shell.rs",
    );
    write(
        table("OptionalApi", false).allowlist_function(OPTIONAL),
        &out,
        "optional.rs",
    );
    write(
        bindgen_of("include/flux_security_abi.h")
            .dynamic_library_name("SecurityApi")
            .dynamic_link_require_all(true)
            .allowlist_function("flux_.*"),
        &out,
        "security.rs",
    );
}

fn base() -> bindgen::Builder {
    bindgen_of("include/flux_abi.h")
}

fn bindgen_of(header: &str) -> bindgen::Builder {
    bindgen::Builder::default()
        .header(header)
        .use_core()
        .generate_comments(false)
        .merge_extern_blocks(true)
        .wrap_unsafe_ops(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
}

/// A table of functions, resolved all at once (`all`) or one by one.
fn table(name: &str, all: bool) -> bindgen::Builder {
    base()
        .dynamic_library_name(name)
        .dynamic_link_require_all(all)
        .allowlist_recursively(false)
        .raw_line("#[allow(unused_imports)] use super::types::*;")
}

fn write(builder: bindgen::Builder, out: &std::path::Path, file: &str) {
    let bindings = builder
        .generate()
        .expect("bindgen reads include/*_abi.h (is libclang installed? Debian: libclang-dev)");
    bindings
        .write_to_file(out.join(file))
        .expect("OUT_DIR is writable");
}
