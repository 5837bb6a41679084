//! Finds flux-security at run time, once per process.
//!
//! It signs in the name of the user who runs this process and verifies what
//! others signed, in the way that the site has configured.

use std::env;
use std::path::Path;
use std::sync::OnceLock;

use libloading::os::unix::Library;
use libloading::os::unix::RTLD_LOCAL;
use libloading::os::unix::RTLD_NOW;

use super::host::first;
use super::host::one_line;
use super::security::SecurityApi;

/// Environment variable that names the library to load.
pub const LIBRARY_VARIABLE: &str = "FLUX_BCAST_LIBFLUX_SECURITY";

const LIBRARY: &str = "libflux-security.so.1";

/// A function that every process with flux-security has.
const MARK: &[u8] = b"flux_sign_wrap\0";

static API: OnceLock<Result<SecurityApi, String>> = OnceLock::new();

/// The functions of flux-security: those of `$FLUX_BCAST_LIBFLUX_SECURITY` if
/// that is set, else those that the process has already, else those of
/// `libflux-security.so.1` where the loader looks or beside a `flux` on PATH.
///
/// # Errors
/// One line: why the library, or a function in it, cannot be had.
pub fn security() -> Result<&'static SecurityApi, &'static str> {
    API.get_or_init(find).as_ref().map_err(String::as_str)
}

fn find() -> Result<SecurityApi, String> {
    let library = match env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => open(Path::new(&path))?,
        None if has_mark(&Library::this()) => Library::this(),
        None => first(LIBRARY, open)?,
    };
    // SAFETY: the table's signatures are those of the library's functions; the
    // check of the header compares them.
    unsafe { SecurityApi::from_library(library) }.map_err(|error| one_line(&error))
}

fn has_mark(library: &Library) -> bool {
    // SAFETY: the symbol is only looked up, never used as what it is.
    unsafe { library.get::<unsafe extern "C" fn()>(MARK) }.is_ok()
}

fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: the initialisers of flux-security have no preconditions.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| format!("cannot load {}: {}", path.display(), one_line(&error)))
}
