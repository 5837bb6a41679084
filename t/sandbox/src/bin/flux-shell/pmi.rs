//! The built-in process management interface: PMI 1.1 over an inherited
//! descriptor, `PMI_FD`. Keys spread to all shells at a barrier, by way of the
//! leader.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use flux_sandbox::host::future::Future;
use flux_sandbox::host::reactor::{Kind, POLLIN, Watcher};
use flux_sandbox::host::rpc;
use flux_sandbox::jobid;
use flux_sandbox::wire::Message;
use serde_json::{Map, Value, json};

use crate::log;
use crate::shell::Shell;
use crate::task::Task;

const COMPONENT: &str = "pmi-simple";
const KVSNAME_MAX: usize = 64;
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;

const INVALID_KEY: i32 = 3;
const INVALID_KEY_LENGTH: i32 = 4;
const INVALID_VAL_LENGTH: i32 = 6;

/// The server of one shell.
#[derive(Default)]
struct Server {
    enabled: Cell<bool>,
    /// Keys that every shell makes for itself.
    preset: RefCell<BTreeMap<String, String>>,
    /// Put since the last barrier.
    pending: RefCell<Map<String, Value>>,
    /// Known to all since some barrier.
    shared: RefCell<Map<String, Value>>,
    clients: RefCell<Vec<Rc<Client>>>,
    waiting: Cell<usize>,
    /// On the leader: the requests of the shells in the barrier, and their keys.
    entered: RefCell<Vec<Rc<Message>>>,
    merged: RefCell<Map<String, Value>>,
}

struct Client {
    rank: u32,
    stream: RefCell<UnixStream>,
    buffer: RefCell<Vec<u8>>,
    in_spawn: Cell<bool>,
}

thread_local!(static SERVER: Server = Server::default());

/// Prepares it, unless the option `pmi` says otherwise.
pub(crate) fn init(shell: &Rc<Shell>) -> Result<(), ()> {
    let enabled = match shell.option("pmi") {
        None => true,
        Some(Value::String(list)) => list.split(',').any(|name| name == "simple"),
        Some(_) => {
            log::error_in("pmi", "pmi shell option must be a string");
            return Err(());
        }
    };
    SERVER.with(|s| {
        s.enabled.set(enabled);
        let mut preset = s.preset.borrow_mut();
        preset.insert("PMI_process_mapping".to_owned(), mapping(shell));
        let level = shell.handle.attr_string("instance-level");
        preset.insert("flux.instance-level".to_owned(), level.unwrap_or_default());
        preset.insert(
            "flux.taskmap".to_owned(),
            shell.info.taskmap()["map"].to_string(),
        );
    });
    if enabled && shell.is_leader() && shell.info.nodes.len() > 1 {
        let served = shell.serve("pmi-barrier", |shell, msg| {
            let keys = msg.json()["keys"].as_object().cloned().unwrap_or_default();
            SERVER.with(|s| s.entered.borrow_mut().push(Rc::clone(msg)));
            gather(shell, keys);
        });
        served.map_err(|_| ())?;
    }
    Ok(())
}

/// Gives a task its end.
pub(crate) fn task_init(shell: &Rc<Shell>, task: &Rc<Task>) -> Result<(), ()> {
    if !SERVER.with(|s| s.enabled.get()) {
        return Ok(());
    }
    let (ours, theirs) = UnixStream::pair().map_err(|e| {
        log::error_in(COMPONENT, &format!("socketpair: {e}"));
    })?;
    let theirs = OwnedFd::from(theirs);
    task.cmd.setenv("PMI_FD", &theirs.as_raw_fd().to_string());
    task.cmd.setenv("PMI_RANK", &task.rank.to_string());
    task.cmd.setenv("PMI_SIZE", &shell.info.ntasks.to_string());
    task.extra.borrow_mut().push(theirs);
    let fd = ours.as_raw_fd();
    let client = Rc::new(Client {
        rank: task.rank,
        stream: RefCell::new(ours),
        buffer: RefCell::default(),
        in_spawn: Cell::new(false),
    });
    SERVER.with(|s| s.clients.borrow_mut().push(Rc::clone(&client)));
    let weak = Rc::downgrade(shell);
    let watcher = Watcher::new(
        &shell.reactor,
        Kind::Fd(fd, POLLIN),
        Box::new(move |w, _| {
            let mut buf = [0; 4096];
            let n = client.stream.borrow_mut().read(&mut buf).unwrap_or(0);
            client.buffer.borrow_mut().extend_from_slice(&buf[..n]);
            let Some(shell) = weak.upgrade() else { return };
            while let Some(line) = next_line(&client) {
                serve(&shell, &client, &line);
            }
            if n == 0 {
                w.stop();
            }
        }),
    );
    watcher.start();
    Ok(())
}

fn next_line(client: &Client) -> Option<String> {
    let mut buffer = client.buffer.borrow_mut();
    let end = buffer.iter().position(|b| *b == b'\n')?;
    let line: Vec<u8> = buffer.drain(..=end).collect();
    Some(String::from_utf8_lossy(&line[..end]).into_owned())
}

/// `vector`, then runs of nodes with as many tasks each.
fn mapping(shell: &Shell) -> String {
    let map = shell.info.taskmap();
    let runs = map["map"].as_array().into_iter().flatten();
    let runs: Vec<String> = runs
        .map(|r| format!("({},{},{})", r[0], r[1], r[2]))
        .collect();
    format!("(vector,{})", runs.join(","))
}

fn answer(client: &Client, text: &str) {
    // A task that is gone needs no answer.
    let _ = client
        .stream
        .borrow_mut()
        .write_all(format!("{text}\n").as_bytes());
}

/// The value of a word `key=value`; `value` is the last and goes to the end.
fn word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let start = if line.starts_with(&format!("{key}=")) {
        0
    } else {
        line.find(&format!(" {key}="))? + 1
    };
    let rest = &line[start + key.len() + 1..];
    if key == "value" {
        return Some(rest);
    }
    rest.split(' ').next()
}

fn serve(shell: &Rc<Shell>, client: &Client, line: &str) {
    if client.in_spawn.get() {
        if line == "endcmd" {
            client.in_spawn.set(false);
            answer(client, "cmd=spawn_result rc=-1");
        }
        return;
    }
    match word(line, "cmd").unwrap_or("") {
        "init" => {
            let version = (word(line, "pmi_version"), word(line, "pmi_subversion"));
            let text = match version {
                (Some("1"), Some(sub)) if sub != "0" => {
                    "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
                }
                _ => "cmd=response_to_init rc=-1",
            };
            answer(client, text);
        }
        "get_maxes" => answer(
            client,
            &format!(
                "cmd=maxes rc=0 kvsname_max={KVSNAME_MAX} keylen_max={KEY_MAX} \
                 vallen_max={VALUE_MAX}"
            ),
        ),
        "get_universe_size" => answer(
            client,
            &format!("cmd=universe_size rc=0 size={}", shell.info.ntasks),
        ),
        "get_appnum" => answer(client, "cmd=appnum rc=0 appnum=0"),
        "get_my_kvsname" => {
            let name = jobid::f58(shell.info.id);
            answer(client, &format!("cmd=my_kvsname rc=0 kvsname={name}"));
        }
        "put" => answer(client, &format!("cmd=put_result rc={}", put(line))),
        "get" => get(client, line),
        "barrier_in" => barrier_in(shell),
        "finalize" => answer(client, "cmd=finalize_ack rc=0"),
        "abort" => {
            let code = word(line, "exitcode").or_else(|| word(line, "exit_code"));
            let code = code.and_then(|c| c.parse().ok()).unwrap_or(1);
            let text = word(line, "error_msg").map(|m| format!(": {m}"));
            let text = format!("PMI_Abort{}", text.unwrap_or_default());
            log::die(code, Some(COMPONENT), &text);
        }
        name @ ("publish_name" | "unpublish_name" | "lookup_name") => {
            let verb = name.trim_end_matches("_name");
            answer(
                client,
                &format!("cmd={verb}_result rc=-1 msg=command not implemented"),
            );
        }
        _ if word(line, "mcmd") == Some("spawn") => client.in_spawn.set(true),
        _ => {
            let rank = client.rank;
            log::debug(&format!("{rank}: S: pmi request error"));
            log::die(1, Some(COMPONENT), "PMI-1 wire protocol error");
        }
    }
}

fn put(line: &str) -> i32 {
    let (Some(key), Some(value)) = (word(line, "key"), word(line, "value")) else {
        return INVALID_KEY;
    };
    if key.len() >= KEY_MAX {
        return INVALID_KEY_LENGTH;
    }
    if value.len() >= VALUE_MAX {
        return INVALID_VAL_LENGTH;
    }
    SERVER.with(|s| {
        // Keys named so stay on this node.
        if key.starts_with("local::") {
            s.preset
                .borrow_mut()
                .insert(key.to_owned(), value.to_owned());
        } else {
            s.pending.borrow_mut().insert(key.to_owned(), value.into());
        }
    });
    0
}

fn get(client: &Client, line: &str) {
    let key = word(line, "key").unwrap_or("");
    let found = SERVER.with(|s| {
        if let Some(value) = s.preset.borrow().get(key) {
            return Some(value.clone());
        }
        let shared = s.shared.borrow();
        shared.get(key).and_then(|v| v.as_str().map(str::to_owned))
    });
    match found {
        Some(value) => answer(client, &format!("cmd=get_result rc=0 value={value}")),
        None => answer(client, &format!("cmd=get_result rc={INVALID_KEY}")),
    }
}

/// A task waits; when all of this node do, the shell does.
fn barrier_in(shell: &Rc<Shell>) {
    let complete = SERVER.with(|s| {
        s.waiting.set(s.waiting.get() + 1);
        s.waiting.get() == shell.info.node().ntasks as usize
    });
    if !complete {
        return;
    }
    let keys = SERVER.with(|s| s.pending.take());
    if shell.is_leader() {
        gather(shell, keys);
        return;
    }
    let topic = format!("{}.pmi-barrier", shell.service());
    let leader = shell.info.nodes[0].broker_rank;
    let request = json!({ "keys": keys });
    let sent = rpc::start_json(&shell.handle, &topic, &request, leader, 0);
    let Ok(f) = sent else { return release(Err(())) };
    let _ = f.then(
        -1.0,
        Rc::new(|f: &Rc<Future>| {
            let answer = rpc::get(f).ok().flatten().map(|m| m.json());
            let keys = answer.and_then(|a| a["keys"].as_object().cloned());
            release(keys.ok_or(()));
            f.destroy();
        }),
    );
    // The continuation destroys it.
    std::mem::forget(f);
}

/// The leader has the keys of one more shell (its own among them).
fn gather(shell: &Rc<Shell>, keys: Map<String, Value>) {
    let own = SERVER.with(|s| {
        s.merged.borrow_mut().extend(keys);
        s.waiting.get() == shell.info.node().ntasks as usize
    });
    let others = SERVER.with(|s| s.entered.borrow().len());
    if !own || others + 1 < shell.info.nodes.len() {
        return;
    }
    let keys = SERVER.with(|s| s.merged.take());
    let text = json!({ "keys": keys }).to_string();
    for msg in SERVER.with(|s| s.entered.take()) {
        let payload = flux_sandbox::wire::text_payload(&text);
        let _ = shell.handle.send(&msg.response(0, Some(payload)));
    }
    release(Ok(keys));
}

fn release(keys: Result<Map<String, Value>, ()>) {
    let rc = if keys.is_ok() { 0 } else { -1 };
    let clients = SERVER.with(|s| {
        s.waiting.set(0);
        s.shared.borrow_mut().extend(keys.unwrap_or_default());
        s.clients.borrow().clone()
    });
    for client in clients {
        answer(&client, &format!("cmd=barrier_out rc={rc}"));
    }
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn words_of_a_line() {
        let line = "cmd=put kvsname=k key=a.b value=x y=z";
        assert_eq!(word(line, "cmd"), Some("put"));
        assert_eq!(word(line, "key"), Some("a.b"));
        assert_eq!(word(line, "value"), Some("x y=z"));
        assert_eq!(word(line, "kvs"), None);
    }
}
