//! `flux job …` and `flux jobs`.

use std::rc::Rc;

use flux_sandbox::errno::Errno;
use flux_sandbox::fields::Event;
use flux_sandbox::fsd;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::jobid::{self, Form};
use serde_json::{Value, json};

use crate::args::{self, Given, flag, maybe, with};
use crate::attach::{self, Attach};
use crate::driver::open;
use crate::fail::{Fail, Outcome, complain, say};
use crate::watch::{self, Log, call};

type Run = fn(&[String]) -> Outcome;

const COMMANDS: &[(&str, Run)] = &[
    ("attach", attach_command),
    ("wait-event", wait_event),
    ("eventlog", eventlog),
    ("status", status),
    ("last", last),
    ("id", id),
    ("kill", kill),
    ("killall", kill),
    ("raise", raise),
    ("cancel", crate::cancel::run),
    ("info", info),
    ("wait", status),
];

/// Runs `flux job NAME`.
pub(crate) fn run(words: &[String]) -> Outcome {
    let known = words
        .split_first()
        .and_then(|(name, rest)| Some((COMMANDS.iter().find(|(n, _)| n == name)?.1, rest)));
    match known {
        Some((command, rest)) => command(rest),
        None => Err(Fail::new("Usage: flux job [OPTIONS] COMMAND ARGS")),
    }
}

/// A job id as the user writes it.
fn parse_id(text: &str) -> Result<u64, Fail> {
    jobid::parse(text)
        .ok_or_else(|| Fail::new(format!("flux-job: error parsing jobid: \"{text}\"")))
}

fn one<'a>(given: &'a Given, usage: &str) -> Result<&'a str, Fail> {
    given
        .operands
        .first()
        .map(String::as_str)
        .ok_or_else(|| Fail::new(format!("Usage: flux job {usage}")))
}

fn attach_command(words: &[String]) -> Outcome {
    let options = [
        flag('E', "show-events"),
        flag('X', "show-exec"),
        flag('l', "label-io"),
        flag('v', "verbose"),
        flag('q', "quiet"),
        flag('r', "read-only"),
        flag('u', "unbuffered"),
        with('i', "stdin-ranks"),
        with('w', "wait-event"),
        maybe("tail"),
    ];
    let given = args::parse("job attach", &options, words, true)?;
    let name = one(&given, "attach [OPTIONS] id")?.to_owned();
    let id = parse_id(&name)?;
    let h = open("flux-job")?;
    let options = Attach {
        label_io: given.has("label-io"),
        quiet: given.has("quiet"),
        show_events: given.has("show-events"),
        show_exec: given.has("show-exec"),
        read_only: given.has("read-only"),
        input: None,
        name: Some(name),
    };
    attach::attach(&h, id, &options)
}

fn wait_event(words: &[String]) -> Outcome {
    let options = [
        with('t', "timeout"),
        with('p', "path"),
        with('m', "match-context"),
        with('c', "count"),
        with('f', "format"),
        with('T', "time-format"),
        flag('q', "quiet"),
        flag('v', "verbose"),
        flag('W', "waitcreate"),
    ];
    let given = args::parse("job wait-event", &options, words, true)?;
    let [name, wanted] = given.operands.as_slice() else {
        return Err(Fail::new("Usage: flux job wait-event [OPTIONS] id event"));
    };
    let id = parse_id(name)?;
    let timeout = match given.get("timeout") {
        None => f64::INFINITY,
        Some(text) => fsd::parse(text)
            .ok_or_else(|| Fail::new(format!("flux-job: invalid timeout '{text}'")))?,
    };
    let path = log_path(given.get("path"));
    let h = open("flux-job")?;
    let mut log = Log::open(&h, id, path).map_err(|e| watch_error(e, name, path))?;
    let deadline = std::time::Instant::now();
    let mut left: u64 = given.get("count").and_then(|s| s.parse().ok()).unwrap_or(1);
    loop {
        let limit = if timeout.is_finite() {
            // Zero would not look at all.
            (timeout - deadline.elapsed().as_secs_f64()).max(0.001)
        } else {
            -1.0
        };
        let event = match log.next(limit) {
            Ok(Some(event)) => event,
            Ok(None) => {
                return Err(Fail::new(format!(
                    "flux-job: event '{wanted}' never received"
                )));
            }
            Err(Errno(libc::ETIMEDOUT)) => {
                return Err(Fail::new(format!(
                    "flux-job: wait-event timeout on event '{wanted}'"
                )));
            }
            Err(e) => return Err(watch_error(e, name, path)),
        };
        let hit = event.name == *wanted && matches_context(&event, given.get("match-context"));
        if hit {
            left -= 1;
        }
        if (hit && left == 0 && !given.has("quiet")) || given.has("verbose") {
            print_event(&event, given.get("format"));
        }
        if left == 0 {
            return Ok(0);
        }
    }
}

fn watch_error(e: Errno, name: &str, path: &str) -> Fail {
    Fail::new(match e.0 {
        libc::ENOENT if path == "eventlog" => format!("flux-job: job {name} not found"),
        libc::ENOENT => format!("flux-job: eventlog path {path} not found"),
        _ => format!("flux-job: flux_job_event_watch_get: {e}"),
    })
}

fn matches_context(event: &Event, wanted: Option<&str>) -> bool {
    let Some((key, value)) = wanted.and_then(|w| w.split_once('=')) else {
        return true;
    };
    match event.get(key) {
        Value::String(s) => s == value.trim_matches('"'),
        other => serde_json::from_str::<Value>(value).is_ok_and(|v| v == *other),
    }
}

fn print_event(event: &Event, format: Option<&str>) {
    match format {
        Some("json") => say(event.line().trim_end()),
        _ => say(&event.to_string()),
    }
}

/// Short names of logs.
fn log_path(given: Option<&str>) -> &str {
    match given {
        None => "eventlog",
        Some("exec") => "guest.exec.eventlog",
        Some("output") => "guest.output",
        Some("input") => "guest.input",
        Some(path) => path,
    }
}

/// Asks for one key of a job.
fn lookup(h: &Rc<Handle>, id: u64, key: &str) -> Result<Value, (Errno, String)> {
    let request = json!({ "id": id, "keys": [key] });
    call(h, "job-info.lookup", &request).map(|answer| answer[key].clone())
}

fn eventlog(words: &[String]) -> Outcome {
    let options = [
        with('p', "path"),
        with('f', "format"),
        with('T', "time-format"),
        flag('F', "follow"),
        flag('H', "human"),
    ];
    let given = args::parse("job eventlog", &options, words, true)?;
    let name = one(&given, "eventlog [OPTIONS] id")?;
    let id = parse_id(name)?;
    let path = log_path(given.get("path"));
    let h = open("flux-job")?;
    let text = lookup(&h, id, path).map_err(|(e, _)| match e.0 {
        libc::ENOENT => watch_error(e, name, path),
        _ => Fail::new(format!("flux-job: flux_job_eventlog_lookup_get: {e}")),
    })?;
    for line in text.as_str().unwrap_or("").lines() {
        match Event::parse(line) {
            Some(event) => print_event(&event, given.get("format")),
            None => complain(&format!("flux-job: malformed event: {line}")),
        }
    }
    Ok(0)
}

fn status(words: &[String]) -> Outcome {
    let options = [
        flag('v', "verbose"),
        flag('j', "json"),
        with('e', "exception-exit-code"),
    ];
    let given = args::parse("job status", &options, words, true)?;
    one(&given, "status id [id...]")?;
    let h = open("flux-job")?;
    let mut worst = 0;
    for name in &given.operands {
        let id = parse_id(name)?;
        let ended = watch::result(&h, id)?;
        let code = ended.exit_code();
        if given.has("verbose") && code != 0 {
            complain(&format!("flux-job: {name}: exited with exit code {code}"));
        }
        worst = worst.max(code);
    }
    Ok(worst)
}

fn list(h: &Rc<Handle>) -> Result<Vec<Value>, Fail> {
    let answer = call(h, "job-list.list", &json!({}))
        .map_err(|(_, text)| Fail::new(format!("flux-job: {text}")))?;
    Ok(answer["jobs"].as_array().cloned().unwrap_or_default())
}

/// Jobs that are not over.
pub(crate) fn active_jobs(h: &Rc<Handle>) -> Result<Vec<u64>, Fail> {
    let jobs = list(h)?;
    let active = jobs.iter().filter(|j| j["state"] != "Inactive");
    Ok(active.filter_map(|j| j["id"].as_u64()).collect())
}

fn last(words: &[String]) -> Outcome {
    let h = open("flux-job")?;
    let count = match words.first().map(String::as_str) {
        None => 1,
        Some("all") => usize::MAX,
        Some(text) => text.parse().unwrap_or(1),
    };
    let jobs = list(&h)?;
    if jobs.is_empty() {
        return Err(Fail::new("flux-job: job history is empty"));
    }
    for job in jobs.iter().rev().take(count) {
        say(&jobid::f58(job["id"].as_u64().unwrap_or(0)));
    }
    Ok(0)
}

fn id(words: &[String]) -> Outcome {
    let given = args::parse("job id", &[with('t', "to")], words, true)?;
    let form = given.get("to").unwrap_or("dec");
    let Some(form) = Form::named(form) else {
        return Err(Fail::new(format!("flux-job: Unknown to={form}")));
    };
    let from_stdin = given.operands.is_empty();
    let names: Vec<String> = if from_stdin {
        std::io::stdin().lines().map_while(Result::ok).collect()
    } else {
        given.operands.clone()
    };
    for name in names {
        match jobid::parse(&name) {
            Some(id) => say(&jobid::encode(id, form)),
            None => return Err(Fail::new(format!("flux-job: {name}: malformed input"))),
        }
    }
    Ok(0)
}

/// Number of a signal by number or name.
fn signal_number(text: &str) -> Option<i32> {
    const NAMES: [(&str, i32); 30] = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("ILL", libc::SIGILL),
        ("TRAP", libc::SIGTRAP),
        ("ABRT", libc::SIGABRT),
        ("BUS", libc::SIGBUS),
        ("FPE", libc::SIGFPE),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("SEGV", libc::SIGSEGV),
        ("USR2", libc::SIGUSR2),
        ("PIPE", libc::SIGPIPE),
        ("ALRM", libc::SIGALRM),
        ("TERM", libc::SIGTERM),
        ("CHLD", libc::SIGCHLD),
        ("CONT", libc::SIGCONT),
        ("STOP", libc::SIGSTOP),
        ("TSTP", libc::SIGTSTP),
        ("TTIN", libc::SIGTTIN),
        ("TTOU", libc::SIGTTOU),
        ("URG", libc::SIGURG),
        ("XCPU", libc::SIGXCPU),
        ("XFSZ", libc::SIGXFSZ),
        ("VTALRM", libc::SIGVTALRM),
        ("PROF", libc::SIGPROF),
        ("WINCH", libc::SIGWINCH),
        ("IO", libc::SIGIO),
        ("PWR", libc::SIGPWR),
        ("SYS", libc::SIGSYS),
    ];
    if let Ok(n) = text.parse() {
        return (1..=64).contains(&n).then_some(n);
    }
    let name = text.strip_prefix("SIG").unwrap_or(text);
    NAMES.iter().find(|(n, _)| *n == name).map(|(_, n)| *n)
}

fn kill(words: &[String]) -> Outcome {
    let given = args::parse("job kill", &[with('s', "signal")], words, true)?;
    one(&given, "kill [--signal=SIG] jobid...")?;
    let signal = given.get("signal").unwrap_or("TERM");
    let signum = signal_number(signal)
        .ok_or_else(|| Fail::new(format!("flux-job: kill: Invalid signal {signal}")))?;
    each(
        &given,
        "kill",
        "job-manager.kill",
        |id| json!({ "id": id, "signum": signum }),
    )
}

fn raise(words: &[String]) -> Outcome {
    let options = [
        with('t', "type"),
        with('s', "severity"),
        with('m', "message"),
    ];
    let given = args::parse("job raise", &options, words, true)?;
    one(&given, "raise [OPTIONS] jobid...")?;
    let severity: i64 = given
        .get("severity")
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    let kind = given.get("type").unwrap_or("cancel");
    let note = given.get("message").unwrap_or("");
    each(
        &given,
        "raise",
        "job-manager.raise",
        |id| json!({ "id": id, "type": kind, "severity": severity, "note": note }),
    )
}

fn each(given: &Given, verb: &str, topic: &str, request: impl Fn(u64) -> Value) -> Outcome {
    let h = open("flux-job")?;
    let mut code = 0;
    for name in &given.operands {
        let id = parse_id(name)?;
        if let Err((_, text)) = call(&h, topic, &request(id)) {
            complain(&format!("flux-job: {verb} {name}: {text}"));
            code = 1;
        }
    }
    Ok(code)
}

fn info(words: &[String]) -> Outcome {
    let options = [flag('o', "original"), flag('b', "base")];
    let given = args::parse("job info", &options, words, true)?;
    let [name, key] = given.operands.as_slice() else {
        return Err(Fail::new("Usage: flux job info id key"));
    };
    let id = parse_id(name)?;
    let h = open("flux-job")?;
    match lookup(&h, id, key) {
        Ok(Value::String(text)) => {
            say(text.trim_end());
            Ok(0)
        }
        Ok(value) => {
            say(&value.to_string());
            Ok(0)
        }
        Err((Errno(libc::ENOENT), _)) => {
            Err(Fail::new(format!("flux-job: {key}: key not found")))
        }
        Err((_, text)) => Err(Fail::new(format!("flux-job: {text}"))),
    }
}

/// `flux jobs`: active ones; all with `-a`.
pub(crate) fn jobs(words: &[String]) -> Outcome {
    let options = [
        flag('a', "all"),
        flag('A', "all-users"),
        flag('n', "no-header"),
        with('o', "format"),
    ];
    let given = args::parse("jobs", &options, words, true)?;
    let h = open("flux-jobs")?;
    if !given.has("no-header") {
        say(&format!(
            "{:>12} {:<10} {:>2} {:>6} {:>6}",
            "JOBID", "NAME", "ST", "NTASKS", "NNODES"
        ));
    }
    for job in list(&h)?.iter().rev() {
        let state = match (job["state"].as_str(), job["failed"] == true) {
            (Some("Pending"), _) => "S",
            (Some("Running"), _) => "R",
            (_, true) => "F",
            _ => "CD",
        };
        if matches!(state, "F" | "CD") && !given.has("all") {
            continue;
        }
        let command = job["command"][0].as_str().unwrap_or("");
        let name = job["name"]
            .as_str()
            .unwrap_or(command.rsplit('/').next().unwrap_or(""));
        say(&format!(
            "{:>12} {name:<10} {state:>2} {:>6} {:>6}",
            jobid::f58(job["id"].as_u64().unwrap_or(0)),
            job["ntasks"].to_string(),
            job["nnodes"].to_string(),
        ));
    }
    Ok(0)
}
