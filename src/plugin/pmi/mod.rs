//! Serves PMI to the tasks of this shell over TCP (`-o pmi=port`).
//!
//! Joins the state machines of [`crate::pmi`] to the shell: sockets and timers
//! to its reactor, messages between shells to the job's service, the end of
//! tasks and shells to its events, a failure to the job's exception.

mod clients;
mod job;
mod options;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;

use self::clients::Watches;
use self::job::Job;
use self::options::Options;
use crate::errno::Errno;
use crate::flux::error::Context;
use crate::flux::error::Result;
use crate::flux::future::Pending;
use crate::flux::handle::Handle;
use crate::flux::handle::Node;
use crate::flux::log::Log;
use crate::flux::message::Request;
use crate::flux::reactor::Reactor;
use crate::flux::reactor::TimerWatcher;
use crate::flux::shell::Shell;
use crate::pmi::Action;
use crate::pmi::ConnId;
use crate::pmi::Ids;
use crate::pmi::Level;
use crate::pmi::Provider;
use crate::sockets::Output;
use crate::sockets::Sockets;
use crate::sockets::admission::Admission;
use crate::sockets::admission::Refusals;

/// The name under which the provider logs.
const COMPONENT: &CStr = c"pmi-port";

/// The method by which providers of one job talk.
const METHOD: &str = "pmi-port.peer";

/// How long a barrier may wait for a rank that has left before the job ends:
/// the rank may connect again, or its exit may tell more.
const GRACE: Duration = Duration::from_secs(3);

/// Variables that lead a client away from this provider.
const MISLEADING: [&str; 3] = ["PMI_SPAWNED", "PMI_TOTALVIEW", "PMIX_NAMESPACE"];

/// The provider of this shell. Dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct Pmi(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    me: Weak<Inner>,
    shell: Shell,
    handle: Handle,
    reactor: Reactor,
    options: Options,
    admission: Admission,
    job: Job,
    ids: Ids,
    port: String,
    provider: RefCell<Provider>,
    /// Dropped before the sockets: a watched descriptor must be open.
    watches: RefCell<Watches>,
    sockets: RefCell<Sockets>,
    pending: RefCell<Outgoing>,
    refusals: RefCell<Refusals>,
}

/// Requests to other shells that are not answered yet.
#[derive(Debug, Default)]
struct Outgoing {
    next: u64,
    requests: HashMap<u64, Pending>,
}

impl Pmi {
    /// Starts the provider if the job asks for it; to be called in
    /// `shell.init`.
    ///
    /// # Errors
    /// EINVAL for bad options; those of the socket and of the shell.
    pub(crate) fn init(shell: Shell) -> Result<Option<Self>> {
        let Some(options) = Options::read(shell, shell.log_as(COMPONENT))? else {
            return Ok(None);
        };
        let job = Job::read(shell)?;
        let config = job.config(shell, &options)?;
        let places = if options.is_open() {
            job.places(shell, &options.allow)?
        } else {
            BTreeSet::new()
        };
        let admission = Admission::new(options.uid_check, places)
            .context("pmi-port: list the addresses of this machine")?;
        let sockets = Sockets::listen(SocketAddrV4::new(options.bind, 0))
            .with_context(|| format!("pmi-port: listen on {}", options.bind))?;
        let port = job::port(sockets.local_addr()?);
        let handle = shell.handle()?;
        let reactor = handle.reactor()?;
        let inner = Rc::new_cyclic(|me| Inner {
            me: Weak::clone(me),
            shell,
            handle,
            reactor,
            options,
            admission,
            job,
            ids: config.ids.clone(),
            port,
            provider: RefCell::new(Provider::new(config)),
            watches: RefCell::default(),
            sockets: RefCell::new(sockets),
            pending: RefCell::default(),
            refusals: RefCell::default(),
        });
        inner.listen()?;
        let weak = Weak::clone(&inner.me);
        shell.service_register(METHOD, move |request| {
            if let Some(inner) = weak.upgrade() {
                inner.request(request);
            }
        })?;
        inner
            .log()
            .debug(format_args!("PMI_PORT={} on {}", inner.port, inner.host()));
        Ok(Some(Self(inner)))
    }

    /// Tells the task that is about to start where to connect; to be called in
    /// `task.init`.
    ///
    /// # Errors
    /// Those of the task.
    pub(crate) fn task_init(&self) -> Result<()> {
        let inner = &self.0;
        let Some(task) = inner.shell.current_task() else {
            return Ok(());
        };
        let rank = task.info()?.rank;
        let id = inner
            .ids
            .id(rank)
            .ok_or(Errno::ENOENT)
            .context("PMI id of task")?;
        for name in MISLEADING {
            task.unsetenv(name)?;
        }
        if !inner.options.beside_simple {
            task.unsetenv("PMI_FD")?;
        }
        task.setenv("PMI_PORT", &inner.port)?;
        task.setenv("PMI_ID", id.to_string())?;
        task.setenv("PMI_RANK", rank.to_string())?;
        task.setenv("PMI_SIZE", inner.job.shell_of_rank.len().to_string())
    }

    /// Notes the end of a task; to be called in `task.exit`.
    ///
    /// # Errors
    /// Those of the task.
    pub(crate) fn task_exit(&self) -> Result<()> {
        let inner = &self.0;
        let Some(task) = inner.shell.current_task() else {
            return Ok(());
        };
        let rank = task.info()?.rank;
        inner.drive(|provider| provider.task_exited(rank));
        Ok(())
    }

    /// Notes the loss of another shell; to be called in `shell.lost`.
    pub(crate) fn shell_lost(&self, shell: u32) {
        self.0.drive(|provider| provider.shell_lost(shell));
    }

    /// Closes everything; to be called in `shell.exit`.
    pub(crate) fn exit(&self) {
        let inner = &self.0;
        inner.watches.take();
        let mut sockets = inner.sockets.borrow_mut();
        let open: Vec<ConnId> = sockets.ids().collect();
        open.into_iter().for_each(|conn| sockets.close(conn));
    }
}

impl Inner {
    fn log(&self) -> Log {
        self.shell.log_as(COMPONENT)
    }

    fn host(&self) -> &str {
        usize::try_from(self.job.shell_rank)
            .ok()
            .and_then(|rank| self.job.hosts.get(rank))
            .map_or("this host", String::as_str)
    }

    /// A callback that does nothing once the provider is gone.
    fn callback(&self, f: impl Fn(&Inner) + 'static) -> impl FnMut() + 'static {
        let me = Weak::clone(&self.me);
        move || {
            if let Some(inner) = me.upgrade() {
                f(&inner);
            }
        }
    }

    fn drive(&self, event: impl FnOnce(&mut Provider) -> Vec<Action>) {
        let actions = event(&mut self.provider.borrow_mut());
        self.apply(actions);
    }

    fn apply(&self, actions: Vec<Action>) {
        let mut queue = VecDeque::from(actions);
        while let Some(action) = queue.pop_front() {
            match action {
                Action::Send(conn, bytes) => {
                    let output = self.sockets.borrow_mut().send(conn, &bytes);
                    match output {
                        Output::Done => {}
                        Output::Blocked => self.block(conn),
                        Output::End => queue.extend(self.hang_up(conn)),
                    }
                }
                Action::Offence(conn) => self.offended(conn),
                Action::Close(conn) => self.forget(conn),
                Action::Peer { to, bytes } => {
                    if let Err(error) = self.tell(to, bytes.clone()) {
                        self.log().warn(format_args!("{error}"));
                        queue.extend(self.provider.borrow_mut().peer_failed(to, &bytes));
                    }
                }
                Action::Grace => {
                    let over = self.callback(|inner| inner.drive(Provider::grace_over));
                    let timer = TimerWatcher::new(self.reactor, GRACE, None, over);
                    self.watches.borrow_mut().grace = timer.ok();
                }
                Action::Abort { rank, code, text } => self.abort(rank, code, &text),
                Action::Log(Level::Warning, text) => self.log().warn(format_args!("{text}")),
                Action::Log(Level::Debug, text) => self.log().debug(format_args!("{text}")),
            }
        }
    }

    /// A message from another shell.
    fn request(&self, request: Request) {
        let owner = rustix::process::geteuid().as_raw();
        if request.userid().ok() != Some(owner) {
            let _ = request.fail(Errno::EPERM, Some("only the job's own shells may ask"));
            return;
        }
        let payload = request.payload().map(<[u8]>::to_vec);
        // Answered at once: the sender only needs to know that it arrived.
        let answered = match &payload {
            Ok(_) => request.respond(),
            Err(error) => request.fail(error.errno(), None),
        };
        if let Err(error) = answered {
            self.log()
                .warn(format_args!("answer another shell: {error}"));
        }
        if let Ok(bytes) = payload {
            self.drive(|provider| provider.peer(&bytes));
        }
    }

    /// Sends a message to another shell. Messages to one shell keep their
    /// order, and a failure is noticed.
    fn tell(&self, to: u32, bytes: Vec<u8>) -> Result<()> {
        let broker = usize::try_from(to)
            .ok()
            .and_then(|to| self.job.brokers.get(to));
        let broker = *broker
            .ok_or(Errno::EINVAL)
            .context("find broker of shell")?;
        let topic = format!("{}.{METHOD}", self.job.service);
        let future = self.handle.rpc_raw(&topic, &bytes, Node::Rank(broker))?;
        let number = {
            let mut pending = self.pending.borrow_mut();
            pending.next += 1;
            pending.next
        };
        let me = Weak::clone(&self.me);
        let watched = future.then(None, move |result| {
            let Some(inner) = me.upgrade() else { return };
            let outcome = result.get();
            let done = inner.pending.borrow_mut().requests.remove(&number);
            if let Err(error) = outcome {
                let shell = usize::try_from(to).ok();
                let host = shell.and_then(|shell| inner.job.hosts.get(shell));
                let host = host.map_or("?", String::as_str);
                inner
                    .log()
                    .debug(format_args!("shell {to} ({host}): {error}"));
                inner.drive(|provider| provider.peer_failed(to, &bytes));
            }
            drop(done);
        })?;
        self.pending.borrow_mut().requests.insert(number, watched);
        Ok(())
    }

    /// Ends the job with the exit code of the rank that asked for it.
    fn abort(&self, rank: Option<u32>, code: i32, text: &str) {
        let place = rank.map(|rank| format!(" ({})", self.job.host_of(rank)));
        let text = format!("pmi-port: {text}{}", place.unwrap_or_default());
        // As a shell would see it: eight bits, and never success.
        let code = match code & 0xFF {
            0 => 1,
            code => code,
        };
        self.shell.raise_exit_status(code << 8, &text);
    }
}
