//! The shell's state, shared by its parts and its plugins.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::rc::Rc;

use flux_sandbox::errno::Errno;
use flux_sandbox::host::dispatch::Match;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::host::plugin::{Args, Plugin};
use flux_sandbox::host::reactor::Reactor;
use flux_sandbox::wire::{self, Message, ROLE_OWNER, ROLE_USER};
use serde_json::Value;

use crate::info::Info;
use crate::log;
use crate::task::Task;

thread_local! {
    /// The shell of this process, once it is set up.
    static CURRENT: OnceCell<Rc<Shell>> = const { OnceCell::new() };
}

/// The shell.
pub(crate) struct Shell {
    pub(crate) handle: Rc<Handle>,
    pub(crate) reactor: Rc<Reactor>,
    pub(crate) info: Info,
    pub(crate) options: RefCell<serde_json::Map<String, Value>>,
    pub(crate) env: RefCell<BTreeMap<String, CString>>,
    pub(crate) plugins: RefCell<Vec<Rc<Plugin>>>,
    pub(crate) tasks: RefCell<Option<Vec<Rc<Task>>>>,
    pub(crate) current: RefCell<Option<Rc<Task>>>,
    pub(crate) cursor: Cell<usize>,
    pub(crate) refs: RefCell<BTreeMap<String, u32>>,
    pub(crate) rc: Cell<i32>,
    pub(crate) exception_logged: Cell<bool>,
    pub(crate) tasks_exited: Cell<usize>,
    /// Plugins are gone: nothing may call them any more.
    pub(crate) finalizing: Cell<bool>,
}

/// The shell of this process.
pub(crate) fn current() -> Option<Rc<Shell>> {
    CURRENT.try_with(|c| c.get().cloned()).ok().flatten()
}

/// Makes `shell` that of this process.
pub(crate) fn set_current(shell: &Rc<Shell>) {
    CURRENT.with(|c| {
        let _ = c.set(Rc::clone(shell));
    });
}

impl Shell {
    /// The name of the service of all shells of this job.
    pub(crate) fn service(&self) -> String {
        self.info.service()
    }

    /// Whether this is shell 0.
    pub(crate) fn is_leader(&self) -> bool {
        self.info.rank == 0
    }

    /// Registers a method of the shell's service; `serve` is called for the
    /// owner of the job or of the instance only.
    pub(crate) fn serve(
        self: &Rc<Self>,
        method: &str,
        serve: impl Fn(&Rc<Shell>, &Rc<Message>) + 'static,
    ) -> Result<(), Errno> {
        let topic = format!("{}.{method}", self.service());
        let shell = Rc::downgrade(self);
        self.handle.dispatch().add(
            Match::Request(topic),
            ROLE_USER,
            Box::new(move |h, _, msg| {
                let Some(shell) = shell.upgrade() else { return };
                if shell.allows(msg) {
                    serve(&shell, msg);
                } else {
                    let errnum = libc::EPERM;
                    flux_sandbox::host::dispatch::respond_error(h, msg, errnum, None);
                }
            }),
        )?;
        Ok(())
    }

    /// Whether the sender may use the shell's services.
    pub(crate) fn allows(&self, msg: &Message) -> bool {
        msg.rolemask & ROLE_OWNER != 0 || msg.userid == self.info.uid
    }

    /// Calls a topic of all plugins, in the order of loading.
    pub(crate) fn call(&self, topic: &CStr, args: Option<&Args>) -> Result<(), ()> {
        if self.finalizing.get() {
            return Ok(());
        }
        let plugins = self.plugins.borrow().clone();
        let mut result = Ok(());
        for p in plugins {
            if p.call(topic, args).is_err() {
                let topic = topic.to_string_lossy();
                log::error(&format!("plugin '{}': {topic} failed", p.name()));
                result = Err(());
            }
        }
        result
    }

    /// Adds a plugin; one of the same name before it is unloaded.
    pub(crate) fn push_plugin(&self, p: Rc<Plugin>) {
        let old = {
            let mut plugins = self.plugins.borrow_mut();
            let at = plugins.iter().position(|x| x.name() == p.name());
            let old = at.map(|at| plugins.remove(at));
            plugins.push(p);
            old
        };
        if let Some(old) = old {
            old.destroy();
        }
    }

    /// Sets a variable of the tasks' environment.
    pub(crate) fn setenv(&self, name: &str, value: &str) {
        self.env
            .borrow_mut()
            .insert(name.to_owned(), wire::name(value));
        for task in self.tasks.borrow().iter().flatten() {
            task.cmd.setenv(name, value);
        }
    }

    /// Removes a variable of the tasks' environment.
    pub(crate) fn unsetenv(&self, name: &str) {
        self.env.borrow_mut().remove(name);
        for task in self.tasks.borrow().iter().flatten() {
            task.cmd.unsetenv(name);
        }
    }

    /// A variable of the tasks' environment.
    pub(crate) fn getenv(&self, name: &str) -> Option<String> {
        let env = self.env.borrow();
        env.get(name).map(|v| v.to_string_lossy().into_owned())
    }

    /// Keeps the main reactor running until the reference is removed as often
    /// as it was added.
    pub(crate) fn add_ref(&self, name: &str) -> u32 {
        let mut refs = self.refs.borrow_mut();
        let count = refs.entry(name.to_owned()).or_insert(0);
        *count += 1;
        *count
    }

    /// Removes a reference.
    pub(crate) fn remove_ref(&self, name: &str) -> Result<(), Errno> {
        let mut refs = self.refs.borrow_mut();
        let count = refs.get_mut(name).ok_or(Errno(libc::ENOENT))?;
        *count -= 1;
        if *count == 0 {
            refs.remove(name);
            if refs.is_empty() {
                self.reactor.stop();
            }
        }
        Ok(())
    }

    /// An option, if it was given.
    pub(crate) fn option(&self, name: &str) -> Option<Value> {
        self.options.borrow().get(name).cloned()
    }

    /// Signals the tasks that run.
    pub(crate) fn kill_tasks(&self, signum: i32) {
        for task in self.tasks.borrow().iter().flatten() {
            task.kill(signum);
        }
    }

    /// Appends an event to one of the job's logs and waits until it is there.
    pub(crate) fn post(
        &self,
        path: &str,
        name: &str,
        context: flux_sandbox::fields::Fields,
    ) -> Result<(), Errno> {
        let request = self.append_request(path, name, context);
        self.handle.call("sandbox.append", &request).map(|_| ())
    }

    /// Appends an event without waiting.
    pub(crate) fn post_later(
        &self,
        path: &str,
        name: &str,
        context: flux_sandbox::fields::Fields,
    ) {
        let request = self.append_request(path, name, context);
        let payload = wire::text_payload(&request.to_string());
        let topic = wire::name("sandbox.append");
        let mut msg = Message::request(topic, Some(payload), wire::NODEID_ANY);
        msg.flags |= wire::FLAG_NORESPONSE;
        let _ = self.handle.send(&msg);
    }

    fn append_request(
        &self,
        path: &str,
        name: &str,
        context: flux_sandbox::fields::Fields,
    ) -> Value {
        let timestamp = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0.0, |d| d.as_secs_f64());
        let event = flux_sandbox::fields::Event {
            timestamp,
            name: name.to_owned(),
            context: Some(context),
        };
        serde_json::json!({ "id": self.info.id, "path": path, "line": event.line() })
    }

    /// Raises a job exception, once per shell.
    pub(crate) fn raise(&self, kind: &str, severity: i32, wait_status: i32, note: &str) {
        if self.exception_logged.get() {
            return;
        }
        let mut request = serde_json::json!({
            "id": self.info.id, "type": kind, "severity": severity, "note": note,
        });
        if wait_status >= 0 {
            request["wait_status"] = wait_status.into();
        }
        match self.handle.call("job-manager.raise", &request) {
            Ok(_) => self.exception_logged.set(true),
            Err(e) => log::plain(&format!("failed to raise job exception: {e}")),
        }
    }
}
