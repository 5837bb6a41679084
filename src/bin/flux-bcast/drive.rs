//! Runs the reactor until a transfer or a query is over.

use std::cell::OnceCell;
use std::cell::RefCell;
use std::rc::Rc;

use flux_bcast::client::ClientEvent;
use flux_bcast::client::Running;
use flux_bcast::client::Summary;
use flux_bcast::client::preview::Preview;
use flux_bcast::client::preview::PreviewEvent;
use flux_bcast::client::preview::Previewing;
use flux_bcast::client::query::Answers;
use flux_bcast::client::query::Query;
use flux_bcast::client::query::QueryEvent;
use flux_bcast::errno::Errno;
use flux_bcast::file::Totals;
use flux_bcast::flux::error::Result;
use flux_bcast::flux::handle::Connection;
use flux_bcast::flux::handle::Handle;
use flux_bcast::flux::reactor::Reactor;
use flux_bcast::flux::reactor::SignalWatcher;
use flux_bcast::units::show_size;
use serde::de::DeserializeOwned;

use super::Failed;
use super::args::Args;
use super::output;
use super::progress::Meter;

/// Where a transfer tells how it goes.
pub(crate) type Listener = Box<dyn Fn(ClientEvent)>;

/// Runs a transfer to its end.
pub(crate) fn transfer<R: Running + 'static>(
    connection: &Connection,
    job: &str,
    args: &Args,
    start: impl FnOnce(Handle, Listener) -> Result<R>,
) -> std::result::Result<Summary, Failed> {
    let handle = connection.handle();
    let reactor = handle.reactor()?;
    let ended: Rc<RefCell<Option<Summary>>> = Rc::default();
    let running: Rc<OnceCell<Rc<R>>> = Rc::default();
    let meter = Rc::new(Meter::new(args.progress));
    let listener: Listener = {
        let (slot, job, verbose) = (Rc::clone(&ended), job.to_owned(), args.verbose);
        let (meter, running) = (Rc::clone(&meter), Rc::downgrade(&running));
        Box::new(move |event| match event {
            ClientEvent::Waiting => waiting(&job),
            ClientEvent::Notes(notes) => notes.iter().for_each(|note| output::note(note)),
            ClientEvent::Started { plan, totals } => {
                if verbose > 1 {
                    output::note(&begins(&plan.tree, totals));
                }
                meter.start(totals, plan.tree.size());
            }
            ClientEvent::Progress(bytes) => {
                let running = running.upgrade();
                let running = running.as_ref().and_then(|cell| cell.get());
                meter.update(bytes, running.map_or(0, |running| running.verified()));
            }
            ClientEvent::Ended(summary) => {
                meter.finish(summary.is_complete());
                slot.replace(Some(summary));
                reactor.stop();
            }
        })
    };
    let client = Rc::new(start(handle, listener)?);
    let _ = running.set(Rc::clone(&client));
    let _signals = on_signals(reactor, move || client.cancel("interrupted"))?;
    reactor.run()?;
    ended.take().ok_or_else(lost)
}

/// Runs a query to its end.
pub(crate) fn query<T: DeserializeOwned + 'static>(
    connection: &Connection,
    job: &str,
    start: impl FnOnce(Handle, Box<dyn Fn(QueryEvent<T>)>) -> Result<Query<T>>,
) -> std::result::Result<Answers<T>, Failed> {
    let job = job.to_owned();
    to_its_end(connection, start, move |event| match event {
        QueryEvent::Waiting => {
            waiting(&job);
            None
        }
        QueryEvent::Answered(answers) => Some(answers),
    })
}

/// Finds out what a transfer would find.
pub(crate) fn preview(
    connection: &Connection,
    job: &str,
    start: impl FnOnce(Handle, Box<dyn Fn(PreviewEvent)>) -> Result<Previewing>,
) -> std::result::Result<Preview, Failed> {
    let job = job.to_owned();
    to_its_end(connection, start, move |event| {
        match event {
            PreviewEvent::Waiting => waiting(&job),
            PreviewEvent::Notes(notes) => notes.iter().for_each(|note| output::note(note)),
            PreviewEvent::Ended(preview) => return Some(preview),
        }
        None
    })
}

/// Runs something until `hear` takes an event for its end.
fn to_its_end<E: 'static, T: 'static, R: Running + 'static>(
    connection: &Connection,
    start: impl FnOnce(Handle, Box<dyn Fn(E)>) -> Result<R>,
    hear: impl Fn(E) -> Option<T> + 'static,
) -> std::result::Result<T, Failed> {
    let handle = connection.handle();
    let reactor = handle.reactor()?;
    let ended: Rc<RefCell<Option<T>>> = Rc::default();
    let slot = Rc::clone(&ended);
    let running = start(
        handle,
        Box::new(move |event| {
            if let Some(end) = hear(event) {
                slot.replace(Some(end));
                reactor.stop();
            }
        }),
    )?;
    let _signals = on_signals(reactor, move || running.cancel("interrupted"))?;
    reactor.run()?;
    ended.take().ok_or_else(lost)
}

fn waiting(job: &str) {
    output::note(&format!("waiting for job {job} to start"));
}

fn lost() -> Failed {
    Failed::Whole(Errno::ENOTCONN, "the connection to Flux was lost".into())
}

fn on_signals(reactor: Reactor, act: impl Fn() + 'static) -> Result<Vec<SignalWatcher>> {
    let act = Rc::new(act);
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP]
        .into_iter()
        .map(|signal| {
            let act = Rc::clone(&act);
            SignalWatcher::new(reactor, signal, move || act())
        })
        .collect()
}

fn begins(tree: &flux_bcast::bcast::tree::Tree, totals: Totals) -> String {
    let ranks: flux_bcast::idset::IdSet = tree.ranks().iter().copied().collect();
    let what = if totals.exact {
        let entries = match totals.entries {
            1 => "1 entry".to_owned(),
            n => format!("{n} entries"),
        };
        format!("{}, {entries}, ", show_size(totals.bytes))
    } else {
        String::new()
    };
    format!(
        "{what}ranks {ranks}; tree from rank {}, {} deep, at most {} wide",
        tree.root(),
        tree.depth(),
        tree.fanout()
    )
}
