//! The broadcast service of one shell.
//!
//! It is there on every shell, whatever the job's options are, and costs
//! nothing until it is used: handlers are registered, nothing else.

mod access;
mod admission;
mod ask;
mod fetch;
mod from;
mod muster;
mod options;
mod origin;
mod peers;
mod plan;
mod service;
mod start;
pub(super) mod tags;
mod takeover;

use std::cell::Cell;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use std::time::Instant;

use self::access::Access;
use self::ask::Errands;
use self::fetch::Fetches;
use self::options::Options;
use self::peers::Peers;
use self::plan::Overlay;
use self::service::Transfer;
use self::start::Start;
use self::takeover::Ended;
use crate::bcast::id::TransferId;
use crate::bcast::relay::Input;
use crate::bcast::report::Failure;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::message::Request;
use crate::flux::shell::Shell;
use crate::flux::shell::ShellInfo;
use crate::transfer::driver::Driver;
use crate::transfer::writer::SharedRegistry;

/// How long a leaving shell waits for its workers to remove what they wrote.
const FAREWELL: Duration = Duration::from_secs(5);

/// State of the plugin in one shell.
pub(super) struct Bcast {
    shell: Shell,
    handle: Handle,
    info: ShellInfo,
    access: Access,
    peers: Rc<Peers>,
    /// Transfers that go on here, by id.
    transfers: RefCell<BTreeMap<TransferId, Transfer>>,
    /// How partial transfers ended here.
    ended: RefCell<Ended>,
    overlay: RefCell<Option<Rc<Overlay>>>,
    /// What `-o bcast` asks for, until it is carried out.
    options: RefCell<Option<Options>>,
    start: RefCell<Start>,
    /// Transfers that begin here, by id. One that also has a copy to be made
    /// here, further down its tree, is in `transfers` as well.
    origins: RefCell<BTreeMap<TransferId, Rc<RefCell<Driver>>>>,
    /// What is being sent for clients.
    sendings: RefCell<from::Errands>,
    /// What was put on this node.
    registry: SharedRegistry,
    /// Questions that are being answered.
    errands: RefCell<Errands>,
    /// Files that are being read for a client.
    fetches: RefCell<Fetches>,
    leaving: Cell<bool>,
    /// The host is filling in tags for us.
    rendering: Cell<bool>,
    /// The job's files are sent in `shell.init`, see [`muster`].
    early: bool,
}

impl Bcast {
    pub(super) fn new(shell: Shell) -> Result<Rc<Self>> {
        let info = shell.info()?;
        let handle = shell.handle()?;
        let peers = Rc::new(Peers::new(shell, handle, &info));
        Ok(Rc::new(Self {
            shell,
            handle,
            access: Access::new(&info),
            info,
            peers,
            transfers: RefCell::default(),
            ended: RefCell::default(),
            overlay: RefCell::default(),
            options: RefCell::default(),
            start: RefCell::default(),
            origins: RefCell::default(),
            sendings: RefCell::default(),
            registry: SharedRegistry::default(),
            errands: RefCell::default(),
            fetches: RefCell::default(),
            leaving: Cell::new(false),
            rendering: Cell::new(false),
            early: muster::is_needed(handle.attr_get("version")?.as_deref()),
        }))
    }

    /// `shell.init`: checks the options and registers the service.
    pub(super) fn init(self: &Rc<Self>) -> Result<()> {
        if let Some(value) = self.shell.getopt("bcast")? {
            let options =
                Options::parse(&value).map_err(|text| Error::with_text(Errno::EINVAL, text))?;
            self.options.replace(Some(options));
        }
        self.serve("plan", Self::serve_plan)?;
        self.serve("open", Self::serve_open)?;
        self.serve("data", Self::serve_data)?;
        self.serve("ctl", Self::serve_ctl)?;
        self.serve("release", Self::serve_release)?;
        self.serve("inspect", Self::serve_inspect)?;
        self.serve("has", Self::serve_has)?;
        self.serve("list", Self::serve_list)?;
        self.serve("remove", Self::serve_remove)?;
        self.serve("from", Self::serve_from)?;
        self.serve("fetch", Self::serve_fetch)?;
        self.serve("credit", Self::serve_credit)?;
        // Sent by brokers when a client or shell with an open request dies; its
        // topic is that of the request with the last word replaced.
        let this = Rc::clone(self);
        self.shell
            .service_register("bcast.disconnect", move |request| {
                this.serve_disconnect(&request);
            })?;
        if self.early { self.start_job() } else { Ok(()) }
    }

    fn serve(self: &Rc<Self>, method: &str, handler: fn(&Rc<Self>, Request)) -> Result<()> {
        let this = Rc::clone(self);
        self.shell
            .service_register(&format!("bcast.{method}"), move |request| {
                if let Err(error) = this.access.check(&request) {
                    let _ = request.fail_with(&error);
                } else if this.leaving.get() {
                    let _ = request.fail(
                        Errno::ESHUTDOWN,
                        Some("the shell is leaving: its tasks have ended"),
                    );
                } else {
                    handler(&this, request);
                }
            })
    }

    /// `shell.post-init`: carries `-o bcast` out before any task starts.
    pub(super) fn post_init(self: &Rc<Self>) -> Result<()> {
        self.start_job()
    }

    /// `task.init`: the environment of a task.
    pub(super) fn task_init(self: &Rc<Self>) -> Result<()> {
        let start = self.start.borrow();
        if let Some(task) = self.shell.current_task() {
            for (name, path) in start.env() {
                task.setenv(name, path.as_os_str())?;
            }
        }
        Ok(())
    }

    /// `shell.lost`, on the leader: a shell is gone for good.
    pub(super) fn shell_lost(&self, rank: u32) {
        self.shell.log().debug(format_args!("shell {rank} is lost"));
        self.note_lost(rank);
    }

    /// `shell.exit`: everybody who waits for us gets an answer.
    pub(super) fn exit(self: &Rc<Self>) -> Result<()> {
        self.leave("the shell is leaving: its tasks have ended");
        Ok(())
    }

    /// Ends all transfers, and waits for the workers to clean up.
    fn leave(&self, why: &str) {
        self.leaving.set(true);
        self.drop_errands();
        self.fetches.borrow_mut().leave(why);
        let transfers = std::mem::take(&mut *self.transfers.borrow_mut());
        let mut drivers: Vec<_> = std::mem::take(&mut *self.origins.borrow_mut())
            .into_values()
            .collect();
        drivers.extend(transfers.into_values().map(Transfer::into_driver));
        let mut workers = Vec::new();
        for driver in drivers {
            let failure = Failure::on(self.info.rank, Errno::ESHUTDOWN.raw(), why);
            Driver::feed(&driver, Input::Shutdown(failure));
            workers.extend(driver.borrow_mut().leave());
        }
        let deadline = Instant::now() + FAREWELL;
        for worker in workers {
            while !worker.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl fmt::Debug for Bcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bcast")
            .field("rank", &self.info.rank)
            .finish_non_exhaustive()
    }
}
