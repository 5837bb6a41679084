//! `bcast.fetch`: files that are on this node, sent to a client.
//!
//! The client grants credit, so that a slow one never makes this shell hold
//! more than a window of frames.

use std::collections::BTreeMap;
use std::rc::Rc;

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
use crate::transfer::ask::Credit;
use crate::transfer::ask::Fetch;
use crate::transfer::reader::Pace;
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
        match started {
            Ok(reader) => {
                let open = Open {
                    client,
                    stream,
                    reader,
                    batch: fetch.batch,
                    window: fetch.window,
                };
                self.fetches.borrow_mut().open.insert(transfer, open);
            }
            Err(error) => {
                let _ = stream.fail_with(&error);
            }
        }
    }

    fn check_fetch(&self, request: &Request) -> Result<(Fetch, SourceSpec)> {
        check_version(request)?;
        let fetch: Fetch = request.json()?;
        let tuning = Tuning {
            chunk: fetch.chunk,
            batch: fetch.batch,
            window: fetch.window,
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
                    fetch.reader.go(Pace {
                        batch: fetch.batch,
                        window: fetch.window,
                        compress: false,
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
        if let Some(fetch) = fetches.open.get(&credit.transfer)
            && fetch.client.is_some()
            && fetch.client == Sender::of(&request)
        {
            fetch.reader.credit(credit.bytes);
        }
        // Late credit of a fetch that is over is no error.
        if !request.is_noresponse() {
            let _ = request.respond();
        }
    }
}
