//! Signals: those to the shell go on to its tasks.

use std::rc::Rc;

use flux_sandbox::host::dispatch::Match;
use flux_sandbox::host::reactor::{Kind, Watcher};
use flux_sandbox::wire::ROLE_USER;

use crate::shell::Shell;
use crate::{log, task};

/// Forwards SIGINT, SIGTERM, SIGALRM; reaps tasks; obeys `shell-ID.kill`.
pub(crate) fn init(shell: &Rc<Shell>) {
    for signum in [libc::SIGINT, libc::SIGTERM, libc::SIGALRM] {
        let weak = Rc::downgrade(shell);
        let w = Watcher::new(
            &shell.reactor,
            Kind::Signal(signum),
            Box::new(move |_, _| {
                if let Some(shell) = weak.upgrade() {
                    log::debug(&format!("forwarding signal {signum} to tasks"));
                    shell.kill_tasks(signum);
                }
            }),
        );
        w.start();
    }
    let weak = Rc::downgrade(shell);
    let children = Watcher::new(
        &shell.reactor,
        Kind::Signal(libc::SIGCHLD),
        Box::new(move |_, _| {
            if let Some(shell) = weak.upgrade() {
                task::reap(&shell);
            }
        }),
    );
    children.start();
    let weak = Rc::downgrade(shell);
    let _ = shell.handle.dispatch().add(
        Match::Event(format!("shell-{}.kill", shell.info.id)),
        ROLE_USER,
        Box::new(move |_, _, msg| {
            let signum = msg.json()["signum"]
                .as_i64()
                .and_then(|n| i32::try_from(n).ok());
            if let (Some(shell), Some(signum)) = (weak.upgrade(), signum) {
                shell.kill_tasks(signum);
            }
        }),
    );
}
