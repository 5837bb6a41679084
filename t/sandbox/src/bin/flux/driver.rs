//! Which command to run: one of ours, or a program `flux-NAME`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use flux_sandbox::host::handle::Handle;

use crate::fail::{Fail, Outcome, complain, say};
use crate::{attr, batch, cancel, exec, job, run, start};

type Run = fn(&[String]) -> Outcome;

const COMMANDS: &[(&str, &str, Run)] = &[
    (
        "start",
        "Start an instance and run a command in it",
        start::run,
    ),
    ("run", "Run a job and wait for it", run::run),
    ("submit", "Submit a job", run::submit),
    (
        "batch",
        "Submit a script as a job that is an instance",
        batch::batch,
    ),
    (
        "alloc",
        "Run a command in an instance that is a job",
        batch::alloc,
    ),
    ("cancel", "Cancel jobs", cancel::run),
    ("job", "Look at and act on jobs", job::run),
    ("jobs", "List jobs", job::jobs),
    ("exec", "Run a command on brokers", exec::run),
    ("getattr", "Print a broker attribute", attr::getattr),
    ("lsattr", "Print broker attributes", attr::lsattr),
    ("uptime", "Print the size of the instance", attr::uptime),
    ("version", "Print versions", attr::version),
];

/// Runs `flux ARGS…`.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let mut rest = args;
    while let Some((first, others)) = rest.split_first() {
        match &*first.to_string_lossy() {
            "-p" | "--parent" => enter_parent()?,
            "-h" | "--help" | "help" => {
                say("Usage: flux [OPTIONS] COMMAND ARGS (embedded provider)");
                for (name, what, _) in COMMANDS {
                    say(&format!("   {name:<12}{what}"));
                }
                return Ok(0);
            }
            "-V" | "--version" => return attr::version(&[]),
            "-v" | "--verbose" => {}
            _ => break,
        }
        rest = others;
    }
    let Some((name, operands)) = rest.split_first() else {
        complain("Usage: flux [OPTIONS] COMMAND ARGS");
        return Ok(1);
    };
    let name = &*name.to_string_lossy();
    match COMMANDS.iter().find(|(n, _, _)| *n == name) {
        Some((_, _, command)) => {
            let words = operands.iter().map(|w| w.to_string_lossy().into_owned());
            command(&words.collect::<Vec<_>>())
        }
        // Other programs get their words byte for byte.
        None => external(name, operands),
    }
}

fn external(name: &str, operands: &[OsString]) -> Outcome {
    let file = format!("flux-{name}");
    let dirs = std::env::var("FLUX_EXEC_PATH").unwrap_or_default();
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = dirs
        .split(':')
        .map(PathBuf::from)
        .chain(self_dir())
        .chain(path.split(':').map(PathBuf::from));
    for dir in dirs.filter(|d| !d.as_os_str().is_empty()) {
        let program = dir.join(&file);
        if is_executable(&program) {
            put_self_first();
            let e = Command::new(&program).args(operands).exec();
            return Err(Fail::new(format!("flux: {}: {e}", program.display())));
        }
    }
    complain(&format!(
        "flux: `{name}' is not a flux command.  See 'flux --help'"
    ));
    Ok(1)
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Where this program is.
pub(crate) fn self_dir() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

/// `PATH` with this program's directory where it is found first.
pub(crate) fn path_with_self() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let Some(own) = self_dir() else { return path };
    let first = path
        .split(':')
        .map(Path::new)
        .find(|dir| is_executable(&dir.join("flux")));
    match first {
        Some(dir) if dir == own => path,
        _ => format!("{}:{path}", own.display()),
    }
}

#[expect(
    unsafe_code,
    reason = "setenv before anything else runs in this process"
)]
fn setenv(name: &str, value: Option<&str>) {
    // SAFETY: the command has one thread.
    unsafe {
        match value {
            Some(value) => std::env::set_var(name, value),
            None => std::env::remove_var(name),
        }
    }
}

fn put_self_first() {
    setenv("PATH", Some(&path_with_self()));
}

/// `--parent`: what follows is done in the enclosing instance, if there is one.
fn enter_parent() -> Result<(), Fail> {
    let h = open("flux")?;
    if let Ok(uri) = h.attr_string("parent-uri") {
        setenv("FLUX_URI", Some(&uri));
        setenv("FLUX_KVS_NAMESPACE", None);
    }
    Ok(())
}

/// Connects to the instance.
pub(crate) fn open(command: &str) -> Result<std::rc::Rc<Handle>, Fail> {
    Handle::open(None).map_err(|e| {
        Fail::new(format!(
            "{command}: ERROR: Unable to connect to Flux: {e} (no instance? try 'flux start')"
        ))
    })
}
