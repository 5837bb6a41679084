//! Flux's C interface as typed tables of function pointers.
//!
//! `build.rs` makes the tables from `include/flux_abi.h`; nothing is linked.
//! [`core`] holds what libflux-core offers, [`shell`] what only the flux-shell
//! executable has, [`optional`] what an older Flux may lack. [`signing`] is
//! flux-security's, looked up only where requests have to be signed.

#[expect(unsafe_code, reason = "looks up and types the functions of the host")]
pub mod host;
#[expect(unsafe_code, reason = "looks up and types the functions of a library")]
pub mod signing;

/// Makes one module of generated bindings.
macro_rules! generated {
    ($(#[$doc:meta])* $name:ident, $file:literal) => {
        $(#[$doc])*
        #[allow(
            missing_docs,
            unused_imports,
            missing_debug_implementations,
            unreachable_pub,
            unsafe_code,
            non_camel_case_types,
            clippy::undocumented_unsafe_blocks,
            clippy::missing_safety_doc,
            clippy::allow_attributes_without_reason,
            reason = "written by bindgen"
        )]
        pub mod $name {
            include!(concat!(env!("OUT_DIR"), "/", $file));
        }
    };
}

generated!(
    /// Types and constants.
    types, "types.rs");
generated!(
    /// Functions of libflux-core.
    core, "core.rs");
generated!(
    /// Functions of the flux-shell executable.
    shell, "shell.rs");
generated!(
    /// Functions that may be missing.
    optional, "optional.rs");
generated!(
    /// Functions of flux-security.
    security, "security.rs");
