//! Which plugins to load: a search path, and files of the few Lua statements
//! that load plugins.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use flux_sandbox::host::plugin::Plugin;

use crate::log;
use crate::shell::Shell;

/// What error messages call the built-in start-up file.
const BUILTIN: &str = "initrc.lua";

/// Loads everything; ends the shell when something cannot be loaded.
pub(crate) fn load(shell: &Rc<Shell>) {
    if let Err(name) = load_all(shell) {
        log::die(1, None, &format!("loading rc file {name}"));
    }
}

fn load_all(shell: &Rc<Shell>) -> Result<(), String> {
    if let Some(rc) = shell.option("initrc") {
        let path = rc.as_str().unwrap_or("").to_owned();
        return source(shell, Path::new(&path)).map_err(|_| path);
    }
    if let Ok(path) = shell.handle.attr_string("conf.shell_initrc") {
        return source(shell, Path::new(&path)).map_err(|_| path);
    }
    let fail = |()| BUILTIN.to_owned();
    load_pattern(shell, "*.so").map_err(|e| {
        log::error(&e);
        BUILTIN.to_owned()
    })?;
    // That of the job, not of the broker.
    if let Some(dirs) = shell.getenv("FLUX_SHELL_RC_PATH") {
        for dir in dirs.split(':').filter(|d| !d.is_empty()) {
            for file in files(Path::new(dir), "*.lua") {
                source(shell, &file).map_err(fail)?;
            }
        }
    }
    let Some(rc) = shell.option("userrc") else {
        return Ok(());
    };
    let rc = rc.as_str().unwrap_or("").to_owned();
    if !Path::new(&rc).exists() {
        log::error(&format!(
            "{BUILTIN}:11: source {rc}: No such file or directory"
        ));
        return Err(BUILTIN.to_owned());
    }
    source(shell, Path::new(&rc)).map_err(|()| {
        log::error(&format!("{BUILTIN}:11: source {rc} failed"));
        BUILTIN.to_owned()
    })
}

/// Runs the statements of a file.
fn source(shell: &Rc<Shell>, path: &Path) -> Result<(), ()> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| {
        let e = flux_sandbox::errno::Errno::from(e);
        log::error(&format!("{name}: {e}"));
    })?;
    for (n, line) in (1..).zip(text.lines()) {
        match statement(line) {
            Statement::Nothing => {}
            Statement::Load(pattern) => load_pattern(shell, &pattern).map_err(|e| {
                log::error(&format!("{name}:{n}: {e}"));
            })?,
            Statement::Option(key, value) => {
                shell.options.borrow_mut().insert(key, value);
            }
            Statement::Unknown => {
                log::error(&format!("{name}:{n}: statement not understood: {line}"));
                return Err(());
            }
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Statement {
    Nothing,
    Load(String),
    Option(String, serde_json::Value),
    Unknown,
}

/// Reads `plugin.load { file = "…" }`, `plugin.load ("…")`, `plugin.load "…"`,
/// `shell.options.NAME = VALUE`, comments.
fn statement(line: &str) -> Statement {
    let line = line.split("--").next().unwrap_or("").trim();
    let line = line.trim_end_matches(';');
    if line.is_empty() {
        return Statement::Nothing;
    }
    if let Some(rest) = line.strip_prefix("plugin.load") {
        let rest = rest.trim();
        let inner = rest
            .strip_prefix('(')
            .and_then(|r| r.strip_suffix(')'))
            .unwrap_or(rest)
            .trim();
        let quoted = match inner.strip_prefix('{').and_then(|r| r.strip_suffix('}')) {
            Some(table) => table
                .split(',')
                .find_map(|field| {
                    let (key, value) = field.split_once('=')?;
                    (key.trim() == "file").then(|| value.trim().to_owned())
                })
                .unwrap_or_default(),
            None => inner.to_owned(),
        };
        return match unquote(&quoted) {
            Some(file) => Statement::Load(file),
            None => Statement::Unknown,
        };
    }
    if let Some(rest) = line.strip_prefix("shell.options.")
        && let Some((key, value)) = rest.split_once('=')
    {
        let value = value.trim();
        let value = match unquote(value) {
            Some(text) => text.into(),
            None => match serde_json::from_str(value) {
                Ok(value) => value,
                Err(_) => return Statement::Unknown,
            },
        };
        return Statement::Option(key.trim().to_owned(), value);
    }
    Statement::Unknown
}

fn unquote(text: &str) -> Option<String> {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote)) {
            return Some(inner.to_owned());
        }
    }
    None
}

/// Loads what a pattern names, in the search path when it is relative.
fn load_pattern(shell: &Rc<Shell>, pattern: &str) -> Result<(), String> {
    let is_glob = pattern.contains(['*', '?', '[']);
    let here = pattern.starts_with(['/', '~']) || pattern.starts_with("./");
    let path = shell.handle.attr_string("conf.shell_pluginpath");
    let mut found = Vec::new();
    match (here, path) {
        (false, Ok(path)) => {
            // The plugin loaded last wins, so the front of the path comes last.
            for dir in path.split(':').rev() {
                found.extend(files(Path::new(dir), pattern));
            }
        }
        (false, Err(_)) if is_glob => {}
        _ => {
            let path = Path::new(pattern);
            if is_glob {
                let dir = path.parent().unwrap_or(Path::new("."));
                let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
                found.extend(files(dir, name));
            } else if path.exists() {
                found.push(path.to_owned());
            }
        }
    }
    if found.is_empty() && !is_glob {
        return Err(format!("plugin.load: {pattern}: File not found"));
    }
    for file in found {
        let p = Plugin::new(Rc::as_ptr(shell).cast_mut().cast());
        if let Err(text) = p.load(&file.to_string_lossy()) {
            p.destroy();
            log::error(&text);
            return Err(format!("plugin.load: {pattern}: Success"));
        }
        shell.push_plugin(p);
    }
    Ok(())
}

/// Files of a directory whose names match, sorted.
fn files(dir: &Path, pattern: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut out: Vec<_> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| {
            let name = p.file_name().and_then(|n| n.to_str()).unwrap_or("");
            matches(pattern, name)
        })
        .collect();
    out.sort();
    out
}

/// Shell patterns with `*` and `?`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.chars().next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = &pattern[1..];
            name.char_indices()
                .any(|(at, _)| matches(rest, &name[at..]))
                || matches(rest, "")
        }
        Some(c) => match name.chars().next() {
            Some(d) if c == '?' || c == d => {
                matches(&pattern[c.len_utf8()..], &name[d.len_utf8()..])
            }
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements() {
        let load = Statement::Load("/x/y.so".to_owned());
        assert_eq!(statement("plugin.load { file = \"/x/y.so\" }"), load);
        assert_eq!(
            statement("plugin.load{file='/x/y.so', conf={}} -- it"),
            load
        );
        assert_eq!(statement("plugin.load (\"/x/y.so\")"), load);
        assert_eq!(statement("plugin.load \"/x/y.so\""), load);
        assert_eq!(statement("  -- nothing"), Statement::Nothing);
        assert_eq!(statement("os.exit (1)"), Statement::Unknown);
        assert_eq!(
            statement("shell.options.bcast = \"/etc/motd\""),
            Statement::Option("bcast".to_owned(), "/etc/motd".into())
        );
    }

    #[test]
    fn patterns() {
        assert!(matches("*.so", "libx.so"));
        assert!(!matches("*.so", "libx.so.0"));
        assert!(matches("a?c", "abc"));
    }
}
