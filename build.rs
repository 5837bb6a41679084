//! Makes the typed symbol tables of `src/ffi` from `include/flux_abi.h`, and
//! sets the link options that a library loaded by a C host needs.
//!
//! No Flux is needed here: functions are looked up at run time.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Functions that exist only inside the flux-shell executable (and two of
/// libflux-core that are of use only there).
const SHELL: &str = "flux_shell_.*|flux_plugin_get_shell|flux_cmd_.*";

/// Functions that an older or newer Flux may lack; see `src/ffi/mod.rs`.
const OPTIONAL: &str = "flux_shell_raise_exit_status";

/// Function pointers given to C, constants and data types.
const TYPES: &str = "flux_.*|FLUX_.*";

fn main() {
    if let Err(message) = write_tables() {
        // One line that cargo shows as it is; a panic would bury it below a backtrace.
        println!("cargo::error={}", one_line(&message));
        return;
    }
    println!("cargo::rerun-if-changed=include/flux_abi.h");
    println!("cargo::rerun-if-changed=include/flux_security_abi.h");
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["CC", "CLANG_PATH", "LIBCLANG_PATH", "LLVM_CONFIG_PATH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }

    // Our code must stay mapped after the shell's dlclose(3): handles and
    // futures may still call destructors of ours while the host shuts down.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libflux-bcast.so.0");
}

fn one_line(message: &str) -> String {
    let lines: Vec<_> = message
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    lines.join("; ")
}

fn write_tables() -> Result<(), String> {
    // bindgen panics where it finds no libclang. Loaded here first, by the search that
    // bindgen uses, a library that is missing becomes a message.
    clang_sys::load().map_err(|error| {
        format!(
            "libclang is missing (apt-get install libclang-dev, dnf install clang-devel; \
             LIBCLANG_PATH names the directory of another one): {error}"
        )
    })?;

    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: cargo runs build scripts")?;
    let out = PathBuf::from(out);
    let headers = compiler_headers();
    let abi = || bindgen_of("include/flux_abi.h", &headers);
    let types = abi()
        .allowlist_type(TYPES)
        .allowlist_var(TYPES)
        .ignore_functions();
    write(types, &out, "types.rs")?;
    write(
        table(abi(), "CoreApi", true)
            .allowlist_function("flux_.*")
            .blocklist_function(SHELL),
        &out,
        "core.rs",
    )?;
    write(
        table(abi(), "ShellApi", true)
            .allowlist_function(SHELL)
            .blocklist_function(OPTIONAL),
        &out,
        "shell.rs",
    )?;
    write(
        table(abi(), "OptionalApi", false).allowlist_function(OPTIONAL),
        &out,
        "optional.rs",
    )?;
    write(
        bindgen_of("include/flux_security_abi.h", &headers)
            .dynamic_library_name("SecurityApi")
            .dynamic_link_require_all(true)
            .allowlist_function("flux_.*"),
        &out,
        "security.rs",
    )
}

/// The directory of the C compiler's own headers (stddef.h and the like).
///
/// libclang brings its own, but in a package apart (Debian's libclang1-14 has the
/// library alone): then those of the C compiler serve.
fn compiler_headers() -> Option<PathBuf> {
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .arg("-print-file-name=include")
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.join("stddef.h").exists().then_some(path)
}

fn bindgen_of(header: &str, compiler_headers: &Option<PathBuf>) -> bindgen::Builder {
    let builder = bindgen::Builder::default()
        .header(header)
        .use_core()
        .generate_comments(false)
        .merge_extern_blocks(true)
        .wrap_unsafe_ops(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false);
    // Searched last: where libclang has its own headers, those are taken.
    match compiler_headers {
        Some(path) => builder.clang_args(["-idirafter".to_owned(), path.display().to_string()]),
        None => builder,
    }
}

/// A table of functions, resolved all at once (`all`) or one by one.
fn table(builder: bindgen::Builder, name: &str, all: bool) -> bindgen::Builder {
    builder
        .dynamic_library_name(name)
        .dynamic_link_require_all(all)
        .allowlist_recursively(false)
        .raw_line("#[allow(unused_imports)] use super::types::*;")
}

fn write(builder: bindgen::Builder, out: &Path, file: &str) -> Result<(), String> {
    let bindings = builder.generate().map_err(|error| {
        format!(
            "libclang cannot read include/*_abi.h, for want of the headers of the C library \
             or of its own (apt-get install libc6-dev libclang-dev, \
             dnf install glibc-devel clang-devel): {error}"
        )
    })?;
    bindings
        .write_to_file(out.join(file))
        .map_err(|error| format!("{}: {error}", out.join(file).display()))
}
