//! The instance: one process that plays all brokers.
//!
//! Clients connect to the socket of a rank and exchange messages (`router`);
//! jobs are allotted (`alloc`), run (`exec`) and recorded (`eventlog`).
//! Everything happens on one reactor, one message at a time, so messages keep
//! their order from any sender to any receiver.

mod alloc;
mod client;
mod eventlog;
mod exec;
mod job;
mod overlay;
mod process;
mod router;
mod service;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CString;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Instant;

use crate::host::reactor::{Kind, POLLIN, Reactor, Watcher};
use crate::wire::Message;
use client::{Client, ClientId};
use job::Job;

/// What an instance is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of broker ranks.
    pub size: u32,
    /// Directory of sockets and job directories; exists.
    pub rundir: PathBuf,
    /// The flux-shell executable.
    pub shell: PathBuf,
    /// The host of each rank.
    pub hosts: Vec<String>,
    /// Attributes set by the user.
    pub attrs: BTreeMap<String, String>,
    /// The instance and job that enclose this one.
    pub parent: Option<Parent>,
    /// Faults and limits.
    pub knobs: Knobs,
}

/// The job that an instance runs in.
#[derive(Clone, Debug)]
pub struct Parent {
    /// `FLUX_URI` of the enclosing instance.
    pub uri: String,
    /// The job there.
    pub jobid: String,
    /// The path of jobs that lead to it.
    pub jobid_path: String,
    /// Its level; that of this instance is one more.
    pub level: u32,
}

/// Faults and limits.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// Seconds for which every message is held.
    pub delay: f64,
    /// Bytes that may wait for a process before it is cut off; 0 is no limit.
    pub queue_limit: usize,
    /// Cores per rank.
    pub cores: u32,
    /// Whose instance it is.
    pub owner: u32,
    /// Seconds from the first signal until the tasks of a job are killed.
    pub kill_timeout: f64,
}

impl Knobs {
    /// From the environment.
    pub fn from_env() -> Self {
        let get = |name: &str| std::env::var(name).ok();
        let machine = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            delay: get("FLUX_SANDBOX_DELAY")
                .and_then(|s| crate::fsd::parse(&s))
                .unwrap_or(0.0),
            queue_limit: get("FLUX_SANDBOX_QUEUE_LIMIT")
                .and_then(|s| s.parse().ok())
                .unwrap_or(0),
            cores: get("FLUX_SANDBOX_CORES")
                .and_then(|s| s.parse().ok())
                .unwrap_or(u32::try_from(machine).unwrap_or(1)),
            owner: get("FLUX_SANDBOX_OWNER")
                .and_then(|s| s.parse().ok())
                .unwrap_or(rustix::process::geteuid().as_raw()),
            kill_timeout: 5.0,
        }
    }
}

/// The instance.
#[derive(Debug)]
pub struct Broker {
    config: Config,
    reactor: Rc<Reactor>,
    me: Weak<RefCell<Broker>>,
    uid: u32,
    clients: HashMap<ClientId, Client>,
    by_uuid: HashMap<CString, ClientId>,
    next_client: ClientId,
    services: HashMap<(u32, String), ClientId>,
    held: VecDeque<(Instant, ClientId, Message)>,
    hold_timer: Option<Rc<Watcher>>,
    jobs: BTreeMap<u64, Job>,
    job_order: Vec<u64>,
    watches: Vec<eventlog::Watch>,
    processes: HashMap<i32, process::Process>,
    free: Vec<std::collections::BTreeSet<u32>>,
    ids: job::IdSource,
    listeners: Vec<(Rc<UnixListener>, Rc<Watcher>)>,
    initial_program: Option<(i32, Option<i32>)>,
    stopping: bool,
}

impl Broker {
    /// Makes the sockets and starts listening.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn start(config: Config, reactor: &Rc<Reactor>) -> io::Result<Rc<RefCell<Self>>> {
        let free = (0..config.size)
            .map(|_| (0..config.knobs.cores).collect())
            .collect();
        let broker = Rc::new(RefCell::new(Self {
            reactor: Rc::clone(reactor),
            me: Weak::new(),
            uid: config.knobs.owner,
            clients: HashMap::new(),
            by_uuid: HashMap::new(),
            next_client: 1,
            services: HashMap::new(),
            held: VecDeque::new(),
            hold_timer: None,
            jobs: BTreeMap::new(),
            job_order: Vec::new(),
            watches: Vec::new(),
            processes: HashMap::new(),
            free,
            ids: job::IdSource::new(),
            listeners: Vec::new(),
            initial_program: None,
            stopping: false,
            config,
        }));
        {
            let mut b = broker.borrow_mut();
            b.me = Rc::downgrade(&broker);
            for rank in 0..b.config.size {
                b.listen(rank)?;
            }
            b.watch_children();
        }
        Ok(broker)
    }

    /// `FLUX_URI` of a rank.
    pub fn uri(&self, rank: u32) -> String {
        format!("local://{}/local-{rank}", self.config.rundir.display())
    }

    /// The host of a rank.
    fn host(&self, rank: u32) -> &str {
        self.config
            .hosts
            .get(rank as usize)
            .map_or("", String::as_str)
    }

    fn listen(&mut self, rank: u32) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let path = self.config.rundir.join(format!("local-{rank}"));
        let listener = Rc::new(UnixListener::bind(path)?);
        listener.set_nonblocking(true)?;
        let me = self.me.clone();
        let fd = listener.as_raw_fd();
        let watcher = Watcher::new(
            &self.reactor,
            Kind::Fd(fd, POLLIN),
            Box::new(move |_, _| {
                if let Some(b) = me.upgrade() {
                    b.borrow_mut().accept(rank);
                }
            }),
        );
        watcher.start();
        self.listeners.push((listener, watcher));
        Ok(())
    }

    /// A one-shot timer that calls `act` on the broker.
    fn after(&self, seconds: f64, act: impl Fn(&mut Self) + 'static) -> Rc<Watcher> {
        let me = self.me.clone();
        self.reactor.update();
        let w = Watcher::timer(
            &self.reactor,
            seconds,
            0.0,
            Box::new(move |_, _| {
                if let Some(b) = me.upgrade() {
                    act(&mut b.borrow_mut());
                }
            }),
        );
        w.start();
        w
    }
}

/// Seconds since 1970, as events are stamped.
fn now() -> f64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}
