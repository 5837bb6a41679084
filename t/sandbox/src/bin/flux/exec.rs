//! `flux exec`: a command on brokers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::rc::Rc;

use flux_sandbox::errno::Errno;
use flux_sandbox::host::future::Future;
use flux_sandbox::host::rpc;
use flux_sandbox::idset;
use serde_json::{Value, json};

use crate::args::{self, flag, with};
use crate::driver::open;
use crate::fail::{Fail, Outcome, complain};
use crate::watch::status_code;

struct Session {
    label: bool,
    left: Cell<usize>,
    codes: RefCell<BTreeMap<u32, i32>>,
    partial: RefCell<BTreeMap<(u32, String), String>>,
    /// The worst code of ranks where the command could not be started.
    launch_code: Cell<i32>,
}

/// Runs a command on ranks.
pub(crate) fn run(words: &[String]) -> Outcome {
    let options = [
        with('r', "rank"),
        with('x', "exclude"),
        with('d', "dir"),
        flag('l', "label-io"),
        flag('n', "noinput"),
        flag('v', "verbose"),
        flag('q', "quiet"),
    ];
    let given = args::parse("exec", &options, words, false)?;
    if given.operands.is_empty() {
        return Err(Fail::new("Usage: flux exec [OPTIONS] COMMAND..."));
    }
    let h = open("flux-exec")?;
    let size: u32 = h
        .attr_string("size")
        .ok()
        .and_then(|s| s.parse().ok())
        .ok_or_else(|| Fail::new("flux-exec: flux_get_size failed"))?;
    let set = |text: &str| -> Result<BTreeSet<u32>, Fail> {
        if text == "all" {
            return Ok((0..size).collect());
        }
        idset::parse(text)
            .filter(|s| !s.is_empty() && s.last().is_none_or(|r| *r < size))
            .ok_or_else(|| {
                Fail::new(format!(
                    "flux-exec: One or more invalid --ranks specified: {text}"
                ))
            })
    };
    let mut ranks = set(given.get("rank").unwrap_or("all"))?;
    if let Some(text) = given.get("exclude") {
        for r in set(text)? {
            ranks.remove(&r);
        }
    }
    let cwd = match given.get("dir") {
        Some(dir) => dir.to_owned(),
        None => std::env::current_dir()
            .unwrap_or_default()
            .display()
            .to_string(),
    };
    let env: serde_json::Map<String, Value> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .filter(|(k, _)| k != "FLUX_URI")
        .map(|(k, v)| (k, v.into()))
        .collect();
    let session = Rc::new(Session {
        label: given.has("label-io"),
        left: Cell::new(ranks.len()),
        codes: RefCell::default(),
        partial: RefCell::default(),
        launch_code: Cell::new(0),
    });
    let r = h.reactor();
    for rank in ranks {
        let request = json!({ "command": given.operands, "cwd": cwd, "env": env });
        let f = rpc::start_json(&h, "sandbox.exec", &request, rank, rpc::STREAMING)
            .map_err(|e| Fail::new(format!("flux-exec: {e}")))?;
        let (s, r) = (Rc::clone(&session), Rc::clone(&r));
        let _ = f.then(
            -1.0,
            Rc::new(move |f: &Rc<Future>| match rpc::get(f) {
                Ok(msg) => {
                    if let Some(msg) = msg {
                        s.news(rank, &msg.json());
                    }
                    f.reset();
                }
                Err(e) => {
                    s.ended(rank, f, e);
                    f.destroy();
                    if s.left.get() == 0 {
                        r.stop();
                    }
                }
            }),
        );
        std::mem::forget(f);
    }
    if session.left.get() > 0 {
        r.run(0).map_err(|e| Fail::new(format!("flux-exec: {e}")))?;
    }
    Ok(session.summary(given.has("quiet")))
}

impl Session {
    fn news(&self, rank: u32, json: &Value) {
        if let Some(status) = json["status"].as_i64() {
            let code = status_code(i32::try_from(status).unwrap_or(0));
            self.codes.borrow_mut().insert(rank, code);
            return;
        }
        let stream = json["stream"].as_str().unwrap_or("stdout");
        let data = json["data"].as_str().unwrap_or("");
        let mut partial = self.partial.borrow_mut();
        let pending = partial.entry((rank, stream.to_owned())).or_default();
        pending.push_str(data);
        while let Some(end) = pending.find('\n') {
            let line: String = pending.drain(..=end).collect();
            self.print(rank, stream, &line);
        }
    }

    fn print(&self, rank: u32, stream: &str, line: &str) {
        let label = if self.label {
            format!("{rank}: ")
        } else {
            String::new()
        };
        let line = format!("{label}{line}");
        let _ = if stream == "stdout" {
            std::io::stdout().write_all(line.as_bytes())
        } else {
            std::io::stderr().write_all(line.as_bytes())
        };
    }

    fn ended(&self, rank: u32, f: &Rc<Future>, e: Errno) {
        self.left.set(self.left.get() - 1);
        for ((r, stream), rest) in self.partial.borrow_mut().iter_mut() {
            if *r == rank && !rest.is_empty() {
                self.print(rank, stream, &std::mem::take(rest));
            }
        }
        if e.0 != libc::ENODATA {
            complain(&format!(
                "flux-exec: Error: rank {rank}: {}",
                f.error_string(e)
            ));
            let code = match e.0 {
                libc::ENOENT => 127,
                libc::EACCES | libc::EPERM => 126,
                _ => 1,
            };
            self.launch_code.set(self.launch_code.get().max(code));
        }
    }

    /// Tells which ranks failed, equal codes together; the worst code.
    fn summary(&self, quiet: bool) -> i32 {
        let codes = self.codes.borrow();
        let mut by_code: BTreeMap<i32, Vec<u32>> = BTreeMap::new();
        for (rank, code) in codes.iter().filter(|(_, code)| **code != 0) {
            by_code.entry(*code).or_default().push(*rank);
        }
        for (code, ranks) in &by_code {
            if !quiet {
                let ranks = idset::format_brackets(ranks.iter().copied());
                complain(&format!("{ranks}: Exit {code}"));
            }
        }
        let worst = by_code.keys().last().copied().unwrap_or(0);
        worst.max(self.launch_code.get())
    }
}
