//! Compiles the variadic host functions (stable Rust cannot define any) and
//! sets the link options by which plugins and clients find their symbols.

fn main() {
    println!("cargo::rerun-if-changed=csrc/variadic.c");
    println!("cargo::rerun-if-changed=build.rs");

    // Clients dlopen(3) or link "libflux-core.so.2"; this is that library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libflux-core.so.2");

    // As in Flux, the shell's functions exist in the flux-shell executable
    // only, and it exports them to the plugins that it loads.
    let objects = cc::Build::new()
        .file("csrc/variadic.c")
        .warnings(true)
        .compile_intermediates();
    for object in objects {
        println!("cargo::rustc-link-arg-bin=flux-shell={}", object.display());
    }
    println!("cargo::rustc-link-arg-bin=flux-shell=-Wl,--export-dynamic");
    // Nothing in the program calls what it exports: ask for each by name.
    for name in host_functions() {
        println!("cargo::rustc-link-arg-bin=flux-shell=-Wl,--undefined={name}");
    }
}

/// Names of all functions that `include/flux_abi.h` declares.
fn host_functions() -> Vec<String> {
    const HEADER: &str = "../../include/flux_abi.h";
    println!("cargo::rerun-if-changed={HEADER}");
    let Ok(text) = std::fs::read_to_string(HEADER) else {
        println!("cargo::error=cannot read {HEADER}");
        return Vec::new();
    };
    let mut names = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with(['/', ' ', '#'])) {
        let Some((head, _)) = line.split_once(" (") else {
            continue;
        };
        let name = head.rsplit([' ', '*']).next().unwrap_or("");
        if name.starts_with("flux_") && !line.starts_with("typedef") {
            names.push(name.to_owned());
        }
    }
    names
}
