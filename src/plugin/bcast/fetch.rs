//! `bcast.fetch`: files that are on this node, sent to a client.
//!
//! The client grants credit, so that a slow one never makes this shell hold
//! more than a window of frames. A client that gives no sign of life any more
//! is given up, so that what it had asked for does not stay open.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::Bcast;
use super::ask::check_version;
use super::service::Sender;
use super::service::refuse;
use crate::bcast::frame::Frame;
use crate::bcast::frame::Kind;
use crate::bcast::id::TransferId;
use crate::bcast::message::Tuning;
use crate::errno::Errno;
use crate::file::SourceSpec;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::message::Request;
use crate::flux::message::Stream;
use crate::flux::reactor::TimerWatcher;
use crate::transfer::ask::Credit;
use crate::transfer::ask::Fetch;
use crate::transfer::reader::Flow;
use crate::transfer::reader::Reader;
use crate::transfer::reader::SourceEvent;
use crate::transfer::told::told_text;

/// What clients fetch from here, by transfer.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    open: BTreeMap<TransferId, Open>,
}

#[derive(Debug)]
struct Open {
    client: Option<Sender>,
    stream: Stream,
    reader: Reader,
    batch: u32,
    window: u64,
    pace: Option<u64>,
    stall: Duration,
    /// Ends it when the client has been silent for `stall`.
    silence: TimerWatcher,
}

impl Fetches {
    /// The windows of all that are open.
    pub(super) fn windows(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.values().map(|fetch| fetch.window)
    }

    /// The shell leaves: whoever waits is told why.
    pub(super) fn leave(&mut self, why: &str) {
        for (_, fetch) in std::mem::take(&mut self.open) {
            let _ = fetch.stream.fail(Errno::ESHUTDOWN, Some(why));
        }
    }

    /// A client wants no more.
    pub(super) fn call_off(&mut self, transfer: TransferId, client: &Sender) {
        self.open
            .retain(|id, fetch| *id != transfer || fetch.client.as_ref() != Some(client));
    }

    /// A client has given a sign of life.
    pub(super) fn heard(&self, transfer: TransferId, client: Option<&Sender>) {
        if let Some(fetch) = self.of_client(transfer, client) {
            fetch.silence.reset(fetch.stall, None);
        }
    }

    fn of_client(&self, transfer: TransferId, client: Option<&Sender>) -> Option<&Open> {
        let fetch = self.open.get(&transfer)?;
        (client.is_some() && fetch.client.as_ref() == client).then_some(fetch)
    }

    /// A client is gone.
    pub(super) fn forget_client(&mut self, gone: &Sender) {
        self.open
            .retain(|_, fetch| fetch.client.as_ref() != Some(gone));
    }

    fn send(&mut self, transfer: TransferId, frame: &Frame) {
        let Some(fetch) = self.open.get(&transfer) else {
            return;
        };
        let sent = fetch.stream.respond_raw(frame.as_bytes());
        let last = frame.kind() == Kind::Fin;
        if (last || sent.is_err())
            && let Some(fetch) = self.open.remove(&transfer)
        {
            let _ = match sent {
                Ok(()) => fetch.stream.finish(),
                Err(error) => fetch.stream.fail_with(&error),
            };
        }
    }
}

impl Bcast {
    /// `bcast.fetch`: read files for the client.
    pub(super) fn serve_fetch(self: &Rc<Self>, request: Request) {
        let (fetch, spec) = match self.check_fetch(&request) {
            Ok(asked) => asked,
            Err(error) => return refuse(request, &error),
        };
        let client = Sender::of(&request);
        // What is wrong with the request was answered.
        let Ok(stream) = request.into_stream() else {
            return;
        };
        let (this, transfer) = (Rc::downgrade(self), fetch.transfer);
        let started = self.handle.reactor().and_then(|reactor| {
            Reader::start(reactor, spec, transfer, move |event| {
                if let Some(this) = this.upgrade() {
                    this.fetch_says(transfer, event);
                }
            })
        });
        let stall = Duration::from_secs_f64(fetch.stall);
        let watched =
            started.and_then(|reader| Ok((reader, self.limit_silence(transfer, stall)?)));
        match watched {
            Ok((reader, silence)) => {
                let open = Open {
                    client,
                    stream,
                    reader,
                    batch: fetch.batch,
                    window: fetch.window,
                    pace: fetch.pace,
                    stall,
                    silence,
                };
                self.fetches.borrow_mut().open.insert(transfer, open);
            }
            Err(error) => {
                let _ = stream.fail_with(&error);
            }
        }
    }

    fn limit_silence(
        self: &Rc<Self>,
        transfer: TransferId,
        stall: Duration,
    ) -> Result<TimerWatcher> {
        let this = Rc::downgrade(self);
        TimerWatcher::new(self.handle.reactor()?, stall, None, move || {
            let Some(this) = this.upgrade() else { return };
            let over = this.fetches.borrow_mut().open.remove(&transfer);
            if let Some(fetch) = over {
                let text = format!(
                    "no sign of life from the client for {} s",
                    stall.as_secs_f64()
                );
                let _ = fetch.stream.fail(Errno::ETIMEDOUT, Some(&text));
            }
        })
    }

    fn check_fetch(&self, request: &Request) -> Result<(Fetch, SourceSpec)> {
        check_version(request)?;
        let fetch: Fetch = self.access.asked(request, "fetch")?;
        let tuning = Tuning {
            chunk: fetch.chunk,
            batch: fetch.batch,
            window: fetch.window,
            pace: fetch.pace,
            stall: fetch.stall,
            ..Tuning::default()
        };
        let invalid = |text: String| Error::with_text(Errno::EPROTO, text);
        tuning.check().map_err(invalid)?;
        if self.fetches.borrow().open.contains_key(&fetch.transfer) {
            let text = "the transfer is open already";
            return Err(Error::with_text(Errno::EEXIST, text));
        }
        self.admit_transfer(fetch.window)?;
        let spec = self.sources(&fetch.sources, fetch.chunk)?;
        Ok((fetch, spec))
    }

    fn fetch_says(&self, transfer: TransferId, event: SourceEvent) {
        let mut fetches = self.fetches.borrow_mut();
        match event {
            SourceEvent::Opened { .. } => {
                if let Some(fetch) = fetches.open.get(&transfer) {
                    fetch.reader.go(Flow {
                        batch: fetch.batch,
                        window: fetch.window,
                        pace: fetch.pace,
                        compress: false,
                        seal: self.access.seal(),
                    });
                }
            }
            SourceEvent::Frame(frame) => fetches.send(transfer, &frame),
            SourceEvent::Failed(error) => {
                if let Some(fetch) = fetches.open.remove(&transfer) {
                    let base = self.tmpdir().unwrap_or_default();
                    let text = told_text(&base, &error.to_string());
                    let _ = fetch.stream.fail(error.errno(), Some(&text));
                }
            }
        }
    }

    /// `bcast.credit`: the client has used frames up.
    pub(super) fn serve_credit(self: &Rc<Self>, request: Request) {
        let credit: Credit = match request.json() {
            Ok(credit) => credit,
            Err(error) => return refuse(request, &error),
        };
        let fetches = self.fetches.borrow();
        let client = Sender::of(&request);
        if let Some(fetch) = fetches.of_client(credit.transfer, client.as_ref()) {
            fetch.reader.credit(credit.bytes);
        }
        fetches.heard(credit.transfer, client.as_ref());
        // Late credit of a fetch that is over is no error.
        if !request.is_noresponse() {
            let _ = request.respond();
        }
    }
}
