//! `flux start`: an instance on this machine, for as long as a command runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::rc::Rc;

use flux_sandbox::broker::{Broker, Config, Knobs, Parent};
use flux_sandbox::fsd;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::host::reactor::{self, Kind, Reactor, Watcher};
use flux_sandbox::hostlist;

use crate::args::{self, flag, with};
use crate::boot::Boot;
use crate::driver;
use crate::fail::{Fail, Outcome};

const OPTIONS: &[args::Opt] = &[
    with('s', "test-size"),
    with('S', "setattr"),
    with('o', "broker-opts"),
    with('c', "config-path"),
    flag('v', "verbose"),
    with(' ', "test-rundir"),
    with(' ', "test-hosts"),
];

/// What a job's environment must not leak into an instance below it.
const JOB_VARIABLES: &[&str] = &[
    "FLUX_JOB_ID",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "FLUX_JOB_TMPDIR",
    "FLUX_JOB_ID_PATH",
    "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_KVS_NAMESPACE",
    "FLUX_ENCLOSING_ID",
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_PORT",
    "PMI_ID",
];

/// Runs `flux start`.
pub(crate) fn run(words: &[String]) -> Outcome {
    let given = args::parse("start", OPTIONS, words, false)?;
    let size = match given.get("test-size") {
        None => 1,
        Some(text) => match text.parse() {
            Ok(n) if n > 0 => n,
            _ => return Err(Fail::new("flux-start: --test-size argument must be > 0")),
        },
    };
    let mut attrs = BTreeMap::new();
    for text in given.all("setattr") {
        add_attr(&mut attrs, text)?;
    }
    let mut config = given.get("config-path");
    for opts in given.all("broker-opts") {
        for text in opts.split(',') {
            config = text.strip_prefix("--config-path=").or(config);
            let text = text
                .strip_prefix("-S")
                .or_else(|| text.strip_prefix("--setattr="))
                .unwrap_or(text);
            if !text.is_empty() && !text.starts_with('-') {
                add_attr(&mut attrs, text)?;
            }
        }
    }
    let hosts = given.get("test-hosts").map(|list| test_hosts(list, size));
    let hosts = hosts.transpose()?;
    let refused = |e| Fail::new(format!("flux-start: boot: {e}"));
    let boot = match given.get("test-size") {
        None => Boot::from_env().map_err(refused)?,
        // A test instance, whatever we are started by.
        Some(_) => None,
    };
    match boot {
        Some(boot) if boot.rank > 0 => boot.follow().map(|()| 0).map_err(refused),
        boot => {
            let mut knobs = Knobs::from_env();
            if let Some(path) = config {
                configure(&mut knobs, path)?;
            }
            serve(size, hosts, attrs, knobs, boot, &given.operands)
        }
    }
}

/// Reads what the stand-in knows of a configuration: `exec.kill-timeout`.
fn configure(knobs: &mut Knobs, path: &str) -> Result<(), Fail> {
    let fail = |e: &dyn std::fmt::Display| Fail::new(format!("flux-start: {path}: {e}"));
    let text = std::fs::read_to_string(path).map_err(|e| fail(&e))?;
    let mut table = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            table = line;
        }
        if let Some((key, value)) = line.split_once('=')
            && (table, key.trim()) == ("[exec]", "kill-timeout")
        {
            let value = value.trim().trim_matches('"');
            knobs.kill_timeout = fsd::parse(value).ok_or_else(|| fail(&line))?;
        }
    }
    Ok(())
}

/// The names that the hosts of so many ranks pretend to have.
fn test_hosts(list: &str, size: u32) -> Result<Vec<String>, Fail> {
    let Some(hosts) = hostlist::expand(list) else {
        let text = format!("flux-start: --test-hosts: invalid list: {list}");
        return Err(Fail::new(text));
    };
    if hosts.len() != size as usize {
        let text = "flux-start: --test-hosts: hostlist has incorrect size";
        return Err(Fail::new(text));
    }
    Ok(hosts)
}

fn add_attr(attrs: &mut BTreeMap<String, String>, text: &str) -> Result<(), Fail> {
    let Some((name, value)) = text.split_once('=') else {
        let text = format!("flux-start: {text}: expected NAME=VALUE");
        return Err(Fail::new(text));
    };
    attrs.insert(name.to_owned(), value.to_owned());
    Ok(())
}

/// Runs an instance until `command` (default: the user's shell) ends; its exit
/// code is that of the command.
fn serve(
    size: u32,
    hosts: Option<Vec<String>>,
    mut attrs: BTreeMap<String, String>,
    knobs: Knobs,
    boot: Option<Boot>,
    command: &[String],
) -> Outcome {
    let fail =
        |what: &str, e: &dyn std::fmt::Display| Fail::new(format!("flux-start: {what}: {e}"));
    let rundir = make_rundir(&attrs).map_err(|e| fail("rundir", &e))?;
    let own = driver::self_dir().ok_or_else(|| fail("own path", &"unknown"))?;
    link_library(&own, &rundir).map_err(|e| fail("libflux-core", &e))?;
    let parent = enclosing_job();
    let size = boot.as_ref().map_or(size, |b| b.size);
    let method = if size > 1 { "simple" } else { "single" };
    attrs.insert("broker.boot-method".to_owned(), method.to_owned());
    let reactor = Reactor::new();
    let here = || {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    };
    let config = Config {
        size,
        hosts: hosts.unwrap_or_else(|| vec![here(); size as usize]),
        rundir: rundir.clone(),
        shell: own.join("flux-shell"),
        attrs,
        parent,
        knobs,
    };
    let broker = Broker::start(config, &reactor).map_err(|e| fail("broker", &e))?;
    if let Some(boot) = boot {
        boot.lead(|rank| broker.borrow().uri(rank))
            .map_err(|e| fail("boot", &e))?;
    }
    let code = run_program(&broker, &reactor, &rundir, command);
    broker.borrow_mut().cancel_all();
    while broker.borrow().is_busy() {
        if reactor.run(reactor::ONCE).is_err() {
            break;
        }
    }
    let _ = std::fs::remove_dir_all(&rundir);
    code
}

fn make_rundir(attrs: &BTreeMap<String, String>) -> std::io::Result<PathBuf> {
    if let Some(dir) = attrs.get("rundir") {
        std::fs::create_dir_all(dir)?;
        return Ok(dir.into());
    }
    let tmp = std::env::var("TMPDIR").unwrap_or_else(|_| "/tmp".to_owned());
    for _ in 0..100 {
        let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        let path = Path::new(&tmp).join(format!("flux-{}", &uuid[..6]));
        use std::os::unix::fs::DirBuilderExt;
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            other => return other.map(|()| path),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

/// Clients find our library under Flux's name.
fn link_library(own: &Path, rundir: &Path) -> std::io::Result<()> {
    const NAME: &str = "libflux_sandbox.so";
    // Cargo's tests build it in a directory below that of the programs only.
    let library = [own.join(NAME), own.join("deps").join(NAME)];
    let library = library.iter().find(|p| p.exists()).unwrap_or(&library[0]);
    let dir = rundir.join("lib");
    std::fs::create_dir_all(&dir)?;
    for name in ["libflux-core.so.2", "libflux-core.so"] {
        let link = dir.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(library, link)?;
    }
    Ok(())
}

/// The job that this instance is a task of.
fn enclosing_job() -> Option<Parent> {
    let uri = std::env::var("FLUX_URI").ok()?;
    let jobid = std::env::var("FLUX_JOB_ID").ok()?;
    let level = Handle::open(Some(&uri))
        .and_then(|h| h.attr_string("instance-level"))
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    let jobid_path = std::env::var("FLUX_JOB_ID_PATH").unwrap_or_else(|_| format!("/{jobid}"));
    Some(Parent {
        uri,
        jobid,
        jobid_path,
        level,
    })
}

fn run_program(
    broker: &Rc<RefCell<Broker>>,
    reactor: &Rc<Reactor>,
    rundir: &Path,
    command: &[String],
) -> Outcome {
    let fallback = [std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned())];
    let command = if command.is_empty() {
        &fallback
    } else {
        command
    };
    let mut library_path = rundir.join("lib").display().to_string();
    if let Ok(old) = std::env::var("LD_LIBRARY_PATH")
        && !old.is_empty()
    {
        library_path = format!("{library_path}:{old}");
    }
    let mut program = Command::new(&command[0]);
    program
        .args(&command[1..])
        .env("PATH", driver::path_with_self())
        .env("LD_LIBRARY_PATH", library_path)
        .env("FLUX_URI", broker.borrow().uri(0));
    for name in JOB_VARIABLES {
        program.env_remove(name);
    }
    flux_sandbox::child::unblock_signals(&mut program);
    let child = program.spawn().map_err(|e| {
        let e = flux_sandbox::errno::Errno::from(e);
        Fail::with_code(format!("flux-start: {}: {e}", command[0]), 127)
    })?;
    let pid = i32::try_from(child.id()).unwrap_or(0);
    broker.borrow_mut().set_initial_program(pid);
    let forwarders = forward_signals(reactor, pid);
    while broker.borrow().initial_status().is_none() {
        reactor
            .run(0)
            .map_err(|e| Fail::new(format!("flux-start: reactor: {e}")))?;
    }
    for w in forwarders {
        w.stop();
    }
    let raw = broker.borrow().initial_status().unwrap_or(0);
    let status = ExitStatus::from_raw(raw);
    Ok(status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// Signals that would end us go to the program; its end is ours.
fn forward_signals(reactor: &Rc<Reactor>, pid: i32) -> Vec<Rc<Watcher>> {
    use rustix::process::{Pid, Signal, kill_process};
    let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
    let watchers = signals.map(|signum| {
        let w = Watcher::new(
            reactor,
            Kind::Signal(signum),
            Box::new(move |_, _| {
                if let (Some(pid), Some(s)) =
                    (Pid::from_raw(pid), Signal::from_named_raw(signum))
                {
                    let _ = kill_process(pid, s);
                }
            }),
        );
        w.start();
        w
    });
    watchers.into()
}
