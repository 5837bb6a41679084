//! Where the shells of a job wait for each other.

use std::rc::Rc;

use flux_sandbox::wire::{self, Kind, Message, NODEID_ANY};

use crate::log;
use crate::shell::Shell;

const TOPIC: &str = "job-exec.shell-barrier";

/// Waits for all shells. Nothing else is served meanwhile: other messages stay
/// queued. Exits when a shell has ended.
pub(crate) fn enter(shell: &Rc<Shell>) {
    if shell.info.nodes.len() == 1 {
        return;
    }
    let request = serde_json::json!({
        "id": shell.info.id,
        "rank": shell.info.node().broker_rank,
    });
    let payload = wire::text_payload(&request.to_string());
    let mut msg = Message::request(wire::name(TOPIC), Some(payload), NODEID_ANY);
    // No answer asked for, so that none is tracked; it comes all the same.
    msg.flags |= wire::FLAG_NORESPONSE;
    let answer = shell.handle.send(&msg).and_then(|()| {
        shell
            .handle
            .recv_matching(|m| m.kind == Kind::Response && m.topic_str() == TOPIC)
    });
    match answer {
        Ok(m) if m.word == 0 => {}
        // The cause has been reported by whoever failed.
        Ok(m) if m.word == libc::EIO.unsigned_abs() => std::process::exit(1),
        Ok(m) => {
            let errno = flux_sandbox::errno::Errno(i32::try_from(m.word).unwrap_or(0));
            log::error(&format!("shell_barrier: {errno}"));
            std::process::exit(1);
        }
        Err(e) => log::die(1, None, &format!("shell_barrier: flux_recv: {e}")),
    }
}
