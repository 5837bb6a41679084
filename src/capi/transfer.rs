//! One transfer (or list, or removal) of a C caller: from the events of a client
//! to the fulfilments of a future.
//!
//! Of the fulfilments at most one with progress is unread; after it comes one
//! with the result, and then ENODATA for good. What a fulfilment is follows
//! from its value, because the transfer may be further than its reader.

use std::cell::Cell;
use std::cell::OnceCell;
use std::cell::RefCell;
use std::ffi::CStr;
use std::ffi::CString;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;
use std::time::Instant;

use crate::bcast::report::Failure;
use crate::client::Client;
use crate::client::ClientEvent;
use crate::client::Running;
use crate::client::Summary;
use crate::client::gather::Gathering;
use crate::client::preview::PreviewEvent;
use crate::client::preview::Previewing;
use crate::client::query::Answers;
use crate::client::query::Query;
use crate::client::query::QueryEvent;
use crate::client::query::Question;
use crate::client::remote::Remote;
use crate::errno::Errno;
use crate::ffi::host;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::guard;
use crate::flux::handle::Connection;
use crate::flux::handle::Handle;
use crate::flux::promise::Context;
use crate::flux::promise::Fulfiller;

use super::options::c_text;
use super::report::Report;
use super::request::Request;

thread_local! {
    /// Whoever waits on this thread.
    static WAITING: RefCell<Vec<(Weak<Transfer>, Fulfiller)>> = const { RefCell::new(Vec::new()) };
}

/// Value of a fulfilment that is not the last one.
pub(super) struct Progress;

/// Value of the fulfilment with a successful result.
pub(super) struct Final;

/// How far it is, by the numbers of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Starting = 0,
    Waiting = 1,
    Sending = 2,
    Ended = 3,
}

/// See the module's documentation. Attached to the future, which has the only
/// lasting count.
pub(super) struct Transfer {
    /// Before the connection: calling off needs it.
    running: RefCell<Option<Box<dyn Running>>>,
    /// To the instance of the enclosing job.
    connection: RefCell<Option<Connection>>,
    started: Instant,
    state: Cell<State>,
    done: Cell<u64>,
    total: Cell<Option<u64>>,
    targets: Cell<Option<usize>>,
    id: OnceCell<CString>,
    notes: OnceCell<CString>,
    report: OnceCell<Report>,
    /// The future has got an error for good.
    refused: Cell<bool>,
}

impl Transfer {
    pub(super) fn new() -> Self {
        Self {
            running: RefCell::default(),
            connection: RefCell::default(),
            started: Instant::now(),
            state: Cell::new(State::Starting),
            done: Cell::new(0),
            total: Cell::new(None),
            targets: Cell::new(None),
            id: OnceCell::new(),
            notes: OnceCell::new(),
            report: OnceCell::new(),
            refused: Cell::new(false),
        }
    }

    pub(super) fn state(&self) -> State {
        self.state.get()
    }

    /// Bytes that the slowest healthy rank has, and how many there are.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        (self.done.get(), self.total.get())
    }

    /// How many ranks take part, once that is known.
    pub(super) fn targets(&self) -> Option<usize> {
        self.targets.get()
    }

    /// The transfer's id, once it has begun.
    pub(super) fn id(&self) -> Option<&CString> {
        self.id.get()
    }

    /// What is worth knowing about the sources, a line each; empty if nothing.
    pub(super) fn notes(&self) -> &CStr {
        self.notes.get().map_or(c"", CString::as_c_str)
    }

    /// The result, once there is one.
    pub(super) fn report(&self) -> Option<&Report> {
        self.report.get()
    }

    /// True if nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        self.report().is_some() || self.refused.get()
    }

    /// Begins, for whoever has begun to wait; at `uri` or on their connection.
    pub(super) fn begin(
        self: &Rc<Self>,
        fulfiller: &Fulfiller,
        context: Context,
        uri: Option<&str>,
        request: Request,
    ) {
        self.enlist(fulfiller);
        if let Err(error) = self.try_begin(fulfiller, context, uri, request) {
            let why = Failure::client(error.errno().raw(), error.to_string());
            self.finish(fulfiller, Report::without_transfer(&why));
        }
    }

    fn try_begin(
        self: &Rc<Self>,
        fulfiller: &Fulfiller,
        context: Context,
        uri: Option<&str>,
        request: Request,
    ) -> Result<()> {
        let handle = match uri {
            Some(uri) => self.connect(uri, context)?,
            None => context.handle.ok_or(Errno::EINVAL)?,
        };
        let running = self.run(fulfiller, handle, request)?;
        if let Some(id) = running.transfer_id() {
            let _ = self.id.set(c_text(&id.to_string()));
        }
        self.running.replace(Some(running));
        Ok(())
    }

    fn run(
        self: &Rc<Self>,
        fulfiller: &Fulfiller,
        handle: Handle,
        request: Request,
    ) -> Result<Box<dyn Running>> {
        let transfer = |report: fn(Summary) -> Report| {
            let (weak, fulfiller) = (Rc::downgrade(self), fulfiller.clone());
            move |event| {
                if let Some(transfer) = weak.upgrade() {
                    transfer.hear(&fulfiller, event, report);
                }
            }
        };
        Ok(match request {
            Request::Send(send) => {
                Box::new(Client::start(handle, send, transfer(Report::sent))?)
            }
            Request::From(send) => {
                Box::new(Remote::start(handle, send, transfer(Report::sent))?)
            }
            Request::Preview(send) => {
                Box::new(Previewing::start(handle, send, self.preview(fulfiller))?)
            }
            Request::Gather(gather) => {
                let hear = transfer(Report::gathered);
                Box::new(Gathering::start(handle, gather, hear)?)
            }
            Request::List(terms) => {
                let hear = self.answers(fulfiller, Report::listed);
                Box::new(Query::start(handle, &terms, Question::list()?, hear)?)
            }
            Request::Remove(terms, paths) => {
                let hear = self.answers(fulfiller, Report::removed);
                Box::new(Query::start(
                    handle,
                    &terms,
                    Question::remove(paths)?,
                    hear,
                )?)
            }
        })
    }

    /// After a panic no callback of ours runs on this thread any more, so
    /// nobody must go on waiting. (In a job shell the plugin sees to that.)
    fn enlist(self: &Rc<Self>, fulfiller: &Fulfiller) {
        if host::is_shell() {
            return;
        }
        WAITING.with_borrow_mut(|waiting| {
            waiting.retain(|(transfer, _)| {
                let transfer = transfer.upgrade();
                transfer.is_some_and(|transfer| transfer.state() != State::Ended)
            });
            waiting.push((Rc::downgrade(self), fulfiller.clone()));
        });
        guard::on_panic(|report| {
            let error = Error::with_text(Errno::ENOTRECOVERABLE, report.to_string());
            for (transfer, fulfiller) in WAITING.take() {
                let transfer = transfer.upgrade();
                if transfer.is_some_and(|transfer| transfer.state() != State::Ended) {
                    fulfiller.fatal_error(&error);
                }
            }
        });
    }

    fn connect(&self, uri: &str, context: Context) -> Result<Handle> {
        let connection = Connection::open(Some(uri))?;
        connection.set_reactor(context.reactor)?;
        let handle = connection.handle();
        self.connection.replace(Some(connection));
        Ok(handle)
    }

    /// A continuation is set on a future that was waited for otherwise. The
    /// work goes on in a reactor that nobody runs, unless it has ended.
    pub(super) fn refuse(&self, fulfiller: &Fulfiller) {
        if self.state() != State::Ended {
            self.refused.set(true);
            let text = "this future is waited for without a continuation";
            fulfiller.fatal_error(&Error::with_text(Errno::EINVAL, text));
        }
    }

    /// Calls it off; the result follows.
    pub(super) fn cancel(&self, why: Failure) {
        // Taken out: the result may come at once and let the client go.
        let Some(running) = self.running.take() else {
            return;
        };
        running.call_off(why);
        if self.state() != State::Ended {
            self.running.replace(Some(running));
        }
    }

    /// Hears of a transfer that is not carried out, which has no progress.
    fn preview(self: &Rc<Self>, fulfiller: &Fulfiller) -> impl Fn(PreviewEvent) + use<> {
        let (weak, fulfiller) = (Rc::downgrade(self), fulfiller.clone());
        move |event| {
            let Some(transfer) = weak.upgrade() else {
                return;
            };
            match event {
                PreviewEvent::Notes(notes) => transfer.note(&notes),
                PreviewEvent::Waiting => transfer.state.set(State::Waiting),
                PreviewEvent::Ended(preview) => {
                    let report = Report::previewed(preview, transfer.started.elapsed());
                    transfer.finish(&fulfiller, report);
                }
            }
        }
    }

    fn note(&self, notes: &[String]) {
        let _ = self.notes.set(c_text(&notes.join("\n")));
    }

    /// Hears of a list or a removal, which has no progress.
    fn answers<T>(
        self: &Rc<Self>,
        fulfiller: &Fulfiller,
        report: fn(Answers<T>, Duration) -> Report,
    ) -> impl Fn(QueryEvent<T>) + use<T> {
        let (weak, fulfiller) = (Rc::downgrade(self), fulfiller.clone());
        move |event| {
            let Some(transfer) = weak.upgrade() else {
                return;
            };
            match event {
                QueryEvent::Waiting => transfer.state.set(State::Waiting),
                QueryEvent::Answered(answers) => {
                    let report = report(answers, transfer.started.elapsed());
                    transfer.finish(&fulfiller, report);
                }
            }
        }
    }

    fn hear(&self, fulfiller: &Fulfiller, event: ClientEvent, report: fn(Summary) -> Report) {
        match event {
            ClientEvent::Notes(notes) => self.note(&notes),
            ClientEvent::Waiting => {
                self.state.set(State::Waiting);
                tell(fulfiller);
            }
            ClientEvent::Started { plan, totals } => {
                self.state.set(State::Sending);
                self.total.set(totals.exact.then_some(totals.bytes));
                self.targets.set(Some(plan.tree.size()));
                tell(fulfiller);
            }
            ClientEvent::Progress(bytes) => {
                let most = self.total.get().unwrap_or(u64::MAX);
                self.done.set(self.done.get().max(bytes.min(most)));
                tell(fulfiller);
            }
            ClientEvent::Ended(summary) => self.ended(fulfiller, report(summary)),
        }
    }

    fn ended(&self, fulfiller: &Fulfiller, report: Report) {
        if report.errno.is_none() {
            let total = self.total.get().unwrap_or(report.bytes);
            self.total.set(Some(total));
            self.done.set(total.max(self.done.get()));
        }
        self.finish(fulfiller, report);
    }

    fn finish(&self, fulfiller: &Fulfiller, report: Report) {
        self.state.set(State::Ended);
        self.targets.set(Some(report.ranks.len()));
        let error = report
            .errno
            .map(|errno| Error::with_text(errno, report.line()));
        if self.report.set(report).is_err() {
            return;
        }
        // Its watchers must not keep the caller's reactor running.
        drop(self.running.take());
        drop(self.connection.take());
        match error {
            None => fulfiller.fulfill(Final),
            Some(error) => fulfiller.fulfill_error(&error),
        }
        fulfiller.fulfill_error(&Error::with_text(Errno::ENODATA, "no more results"));
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        drop(self.running.take());
    }
}

/// Fulfils with progress unless an earlier fulfilment is unread: its reader
/// will find the newest figures.
fn tell(fulfiller: &Fulfiller) {
    if !fulfiller.has_result() {
        fulfiller.fulfill(Progress);
    }
}
