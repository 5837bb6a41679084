//! Finds the host's functions at run time, once per process.
//!
//! The same shared object serves inside flux-shell, inside a broker and inside
//! any client, so no function of Flux can be linked: `flux_shell_*` exists in
//! one executable only, and a build machine may have no Flux at all.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::OnceLock;
use std::sync::PoisonError;

use libloading::os::unix::Library;
use libloading::os::unix::RTLD_GLOBAL;
use libloading::os::unix::RTLD_NOW;

use super::core::CoreApi;
use super::optional::OptionalApi;
use super::shell::ShellApi;

/// The oldest Flux that has every function of the tables.
pub const MINIMUM_VERSION: &str = "0.58";

/// Environment variable that names the libflux-core to load.
pub const LIBRARY_VARIABLE: &str = "FLUX_BCAST_LIBFLUX";

/// What clients load when the variable is unset.
const LIBRARY: &str = "libflux-core.so.2";

/// A function that only flux-shell has.
const SHELL_MARK: &[u8] = b"flux_plugin_get_shell\0";

/// A function that every process with libflux-core has.
const CORE_MARK: &[u8] = b"flux_open\0";

/// Held by the one that looks functions up. Were there two, the one that comes
/// second could find in the process what the first is loading, and the first
/// unload it when it sees that it is not needed.
static LOOKUP: Mutex<()> = Mutex::new(());

static CORE: OnceLock<CoreApi> = OnceLock::new();
static SHELL: OnceLock<ShellApi> = OnceLock::new();
static OPTIONAL: OnceLock<OptionalApi> = OnceLock::new();

/// Why the host's functions cannot be used; one line for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostError {
    /// Neither [`init_plugin`] nor [`init_client`] has succeeded before.
    NotInitialised,
    /// This process is not flux-shell.
    NotShell,
    /// The library cannot be loaded; says which, and the loader's reason.
    Library {
        /// What was tried last.
        name: String,
        /// The loader's words.
        reason: String,
    },
    /// The library is there and lacks a function.
    Symbol {
        /// The loader's words, which name the symbol.
        reason: String,
    },
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::NotInitialised => {
                f.write_str("the functions of Flux have not been looked up yet")
            }
            HostError::NotShell => f.write_str("this process is not flux-shell"),
            HostError::Library { name, reason } => write!(
                f,
                "cannot load {name}: {reason} (put flux on PATH or set {LIBRARY_VARIABLE} to \
                 the path of {LIBRARY})"
            ),
            HostError::Symbol { reason } => write!(
                f,
                "this Flux lacks a function: {reason} (Flux {MINIMUM_VERSION} or newer is needed)"
            ),
        }
    }
}

impl std::error::Error for HostError {}

/// The functions of libflux-core.
///
/// # Errors
/// [`HostError::NotInitialised`] before a successful `init_*`.
pub fn core() -> Result<&'static CoreApi, HostError> {
    CORE.get().ok_or(HostError::NotInitialised)
}

/// The functions of the flux-shell executable.
///
/// # Errors
/// [`HostError::NotShell`] in any other process, and before [`init_plugin`].
pub fn shell() -> Result<&'static ShellApi, HostError> {
    SHELL.get().ok_or(HostError::NotShell)
}

/// The functions that an older flux-shell may lack; `None` outside of one.
pub fn optional() -> Option<&'static OptionalApi> {
    OPTIONAL.get()
}

/// True if this process is flux-shell (or offers its functions).
pub fn is_shell() -> bool {
    has(SHELL_MARK)
}

/// Looks everything up in the process that has loaded this plugin. Cheap when
/// called again; from any thread.
///
/// A broker may load the same file; then [`shell`] keeps failing and
/// [`core()`] works.
///
/// # Errors
/// Names the first missing symbol.
pub fn init_plugin() -> Result<(), HostError> {
    let _only = lookup();
    if CORE.get().is_none() {
        let api = core_from(Library::this())?;
        CORE.get_or_init(|| api);
    }
    if SHELL.get().is_none() && is_shell() {
        // SAFETY: the table's signatures are those of the process's functions
        // (F1).
        let api = unsafe { ShellApi::from_library(Library::this()) }.map_err(symbol)?;
        SHELL.get_or_init(|| api);
        // SAFETY: as above; a missing function is kept as an error.
        let api = unsafe { OptionalApi::from_library(Library::this()) }.map_err(symbol)?;
        OPTIONAL.get_or_init(|| api);
    }
    Ok(())
}

/// Finds libflux-core for a client: in the process if it is already there,
/// else by loading it. Cheap when called again; from any thread.
///
/// The library is `$FLUX_BCAST_LIBFLUX` if that is set, else
/// `libflux-core.so.2` where the loader looks, else in the library directory
/// beside a `flux` on PATH.
///
/// # Errors
/// Names the library or symbol, and what to do.
pub fn init_client() -> Result<(), HostError> {
    if CORE.get().is_some() {
        return Ok(());
    }
    let _only = lookup();
    if CORE.get().is_some() {
        return Ok(());
    }
    let library = if has(CORE_MARK) {
        Library::this()
    } else {
        load()?
    };
    let api = core_from(library)?;
    CORE.get_or_init(|| api);
    Ok(())
}

/// The right to look functions up. Whoever panicked with it left nothing behind.
fn lookup() -> MutexGuard<'static, ()> {
    LOOKUP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if the process has a symbol in its global scope.
fn has(symbol: &[u8]) -> bool {
    // SAFETY: the symbol is only looked up, never used as what it is.
    unsafe { Library::this().get::<unsafe extern "C" fn()>(symbol) }.is_ok()
}

fn core_from(library: Library) -> Result<CoreApi, HostError> {
    // SAFETY: the table's signatures are those of libflux-core's functions
    // (F1).
    unsafe { CoreApi::from_library(library) }.map_err(symbol)
}

fn symbol(error: libloading::Error) -> HostError {
    HostError::Symbol {
        reason: one_line(&error),
    }
}

/// Loads libflux-core from the first place that has it.
fn load() -> Result<Library, HostError> {
    if let Some(path) = env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        return open(Path::new(&path));
    }
    first(LIBRARY, open)
}

/// What `open` makes of the library `name`, where the loader looks or in the
/// prefix of a `flux` on PATH.
///
/// # Errors
/// The last one of `open`.
pub(super) fn first<T, E>(name: &str, open: impl Fn(&Path) -> Result<T, E>) -> Result<T, E> {
    let mut report = match open(Path::new(name)) {
        Ok(library) => return Ok(library),
        Err(error) => error,
    };
    // An installation prefix is often unknown to the loader, but its `flux` is
    // on PATH. A library that exists and fails to load is the better report.
    for path in beside_flux(env::var_os("PATH"), name) {
        match open(&path) {
            Ok(library) => return Ok(library),
            Err(error) => report = error,
        }
    }
    Err(report)
}

fn open(path: &Path) -> Result<Library, HostError> {
    // It has data of threads, which does not bear unloading.
    let flags = RTLD_NOW | RTLD_GLOBAL | libc::RTLD_NODELETE;
    // SAFETY: the initialisers of libflux-core have no preconditions (F1).
    unsafe { Library::open(Some(path), flags) }.map_err(|error| HostError::Library {
        name: path.display().to_string(),
        reason: one_line(&error),
    })
}

/// Every existing library of that name in the prefix of a `flux` on the search
/// path.
fn beside_flux(search: Option<OsString>, name: &str) -> Vec<PathBuf> {
    let multiarch = format!("lib/{}-linux-gnu", env::consts::ARCH);
    let mut found = Vec::new();
    for dir in env::split_paths(&search.unwrap_or_default()) {
        let flux = dir.join("flux");
        if !dir.is_absolute() || !flux.is_file() {
            continue;
        }
        // Both the prefix of the link and that of what it points to.
        let real = flux.canonicalize().ok();
        for bin in [Some(dir.as_path()), real.as_deref().and_then(Path::parent)] {
            let Some(prefix) = bin.and_then(Path::parent) else {
                continue;
            };
            for lib in ["lib", multiarch.as_str(), "lib64"] {
                let path = prefix.join(lib).join(name);
                if path.is_file() && !found.contains(&path) {
                    found.push(path);
                }
            }
        }
    }
    found
}

/// The loader's message; it is the source of some of libloading's errors.
pub(super) fn one_line(error: &libloading::Error) -> String {
    let text =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_to_do() {
        let error = open(Path::new("/nonexistent/libflux-core.so.2")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/nonexistent/libflux-core.so.2"), "{text}");
        assert!(text.contains(LIBRARY_VARIABLE), "{text}");
        // A library that is not Flux: its first missing symbol is named.
        let Err(error) = core_from(Library::this()) else {
            panic!("a test program has no functions of Flux");
        };
        let text = error.to_string();
        assert!(text.contains("flux_"), "{text}");
        assert!(text.contains(MINIMUM_VERSION), "{text}");
    }

    #[test]
    fn a_test_program_is_no_shell() {
        assert!(!is_shell());
        assert_eq!(shell().err(), Some(HostError::NotShell));
        assert!(optional().is_none());
    }

    #[test]
    fn finds_the_library_beside_flux() {
        let root = tempfile::tempdir().unwrap();
        let prefix = root.path().canonicalize().unwrap();
        for dir in ["bin", "lib64", "other"] {
            std::fs::create_dir(prefix.join(dir)).unwrap();
        }
        let library = prefix.join("lib64").join(LIBRARY);
        std::fs::write(&library, "").unwrap();
        std::fs::write(prefix.join("bin/flux"), "").unwrap();
        // A link elsewhere leads to the real prefix.
        std::os::unix::fs::symlink(prefix.join("bin/flux"), prefix.join("other/flux")).unwrap();
        for dir in ["bin", "other"] {
            let search = Some(prefix.join(dir).into_os_string());
            assert_eq!(beside_flux(search, LIBRARY), [library.as_path()]);
        }
        assert!(beside_flux(Some("relative:/nonexistent".into()), LIBRARY).is_empty());
        assert!(beside_flux(None, LIBRARY).is_empty());
    }
}
