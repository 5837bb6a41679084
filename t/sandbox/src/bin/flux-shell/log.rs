//! Log messages: to the job's output log when there is a job, else to stderr.

use std::cell::Cell;
use std::io::Write;

use flux_sandbox::fields;
use flux_sandbox::fields::Fields;

use crate::{output, shell};

/// Always shown.
pub(crate) const NOTICE: i32 = 5;
const FATAL: i32 = 0;
const ERROR: i32 = 3;
const WARN: i32 = 4;
/// Shown with `-o verbose`.
pub(crate) const DEBUG: i32 = 6;

const LABELS: [&str; 8] = [
    "FATAL", "FATAL", "FATAL", "ERROR", " WARN", " INFO", "DEBUG", "TRACE",
];

thread_local! {
    /// A message is being handled: one about that is not.
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
}

/// One message.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) component: Option<&'a str>,
    pub(crate) level: i32,
    pub(crate) file: Option<&'a str>,
    pub(crate) line: i32,
    pub(crate) text: &'a str,
}

/// Writes a line to stderr.
pub(crate) fn plain(text: &str) {
    let _ = writeln!(std::io::stderr(), "flux-shell: {text}");
}

/// Logs a message if its level is to be seen.
pub(crate) fn write(record: &Record<'_>) {
    let shell = shell::current();
    let verbose = shell.as_ref().map_or(0, |s| s.info.verbose);
    if i64::from(record.level) > i64::from(NOTICE) + verbose {
        return;
    }
    let nested = ACTIVE.try_with(|a| a.replace(true)).unwrap_or(true);
    let index = usize::try_from(record.level).unwrap_or(0);
    let label = LABELS[index.min(LABELS.len() - 1)];
    let component = record.component.map_or(String::new(), |c| format!("{c}: "));
    let text = format!("{component}{}", record.text);
    match shell.filter(|_| !nested) {
        Some(shell) if output::log_to_file(shell.info.rank, label, &text) => {}
        Some(shell) => {
            let rank = shell.info.rank;
            let mut context: Fields =
                fields! { "rank": rank, "level": record.level, "message": record.text };
            let mut add = |key: &str, value: serde_json::Value| {
                context.0.push((key.to_owned(), value));
            };
            if let Some(component) = record.component {
                add("component", component.into());
            }
            if let Some(file) = record.file {
                add("file", file.into());
                add("line", record.line.into());
            }
            shell.post_later("guest.output", "log", context);
        }
        None => plain(&format!("{label}: {text}")),
    }
    if !nested {
        ACTIVE.with(|a| a.set(false));
    }
}

fn own(level: i32, component: Option<&str>, text: &str) {
    write(&Record {
        component,
        level,
        file: None,
        line: 0,
        text,
    });
}

/// Logs an error of the shell itself.
pub(crate) fn error(text: &str) {
    own(ERROR, None, text);
}

/// Logs an error of a part of the shell.
pub(crate) fn error_in(component: &str, text: &str) {
    own(ERROR, Some(component), text);
}

/// Logs a warning of a part of the shell.
pub(crate) fn warn_in(component: &str, text: &str) {
    own(WARN, Some(component), text);
}

/// Logs for `-o verbose`.
pub(crate) fn debug(text: &str) {
    own(DEBUG, None, text);
}

/// Logs, kills the tasks, raises an exception and exits.
pub(crate) fn die(exit_code: i32, component: Option<&str>, text: &str) -> ! {
    own(FATAL, component, text);
    if let Some(shell) = shell::current() {
        shell.kill_tasks(libc::SIGKILL);
        shell.raise("exec", 0, -1, text);
    }
    std::process::exit(exit_code)
}
