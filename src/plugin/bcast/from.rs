//! `bcast.from`: files that are on this node, sent to the others.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Bcast;
use super::ask::check_version;
use super::origin::Outgoing;
use super::origin::SendEvent;
use super::origin::Sending;
use super::service::Sender;
use super::service::refuse;
use crate::bcast::id::TransferId;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::errno::Errno;
use crate::file;
use crate::file::SourceSpec;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::message::Request;
use crate::flux::message::Stream;
use crate::transfer::ask::From;
use crate::transfer::ask::Told;

/// What is being sent for clients, by transfer.
pub(super) type Errands = BTreeMap<TransferId, Errand>;

/// One of them.
#[derive(Debug)]
pub(super) struct Errand {
    client: Option<Sender>,
    stream: Stream,
    outgoing: Outgoing,
    window: u64,
}

impl Errand {
    /// Bytes of it that may be held here.
    pub(super) fn window(&self) -> u64 {
        self.window
    }
}

impl Bcast {
    /// `bcast.from`: be the origin of a transfer.
    pub(super) fn serve_from(self: &Rc<Self>, request: Request) {
        let asked = self.check_from(&request);
        let (from, spec) = match asked {
            Ok(asked) => asked,
            Err(error) => return refuse(request, &error),
        };
        let client = Sender::of(&request);
        // What is wrong with the request was answered.
        let Ok(stream) = request.into_stream() else {
            return;
        };
        let (transfer, window) = (from.transfer, from.tuning.window);
        let sending = Sending {
            transfer,
            dest: from.dest,
            policy: from.policy,
            plan: from.plan,
            tuning: from.tuning,
            partial: from.partial,
            timeout: None,
        };
        let this = Rc::downgrade(self);
        let started = Outgoing::start(
            self,
            sending,
            || Ok(spec),
            move |event| {
                if let Some(this) = this.upgrade() {
                    this.sending_says(transfer, event);
                }
            },
        );
        match started {
            Ok(outgoing) => {
                let errand = Errand {
                    client,
                    stream,
                    outgoing,
                    window,
                };
                self.sendings.borrow_mut().insert(transfer, errand);
            }
            Err(error) => {
                let _ = stream.fail_with(&error);
            }
        }
    }

    fn check_from(&self, request: &Request) -> Result<(From, SourceSpec)> {
        check_version(request)?;
        let from: From = self.access.asked(request, "from")?;
        let invalid = |text: String| Error::with_text(Errno::EPROTO, text);
        from.tuning.check().map_err(invalid)?;
        let taken = self.origins.borrow().contains_key(&from.transfer)
            || self.sendings.borrow().contains_key(&from.transfer);
        if taken {
            let text = "the transfer is open already";
            return Err(Error::with_text(Errno::EEXIST, text));
        }
        self.admit_transfer(from.tuning.window)?;
        let spec = self.sources(&from.sources, from.tuning.chunk)?;
        Ok((from, spec))
    }

    /// Sources on this node.
    pub(super) fn sources(&self, paths: &[RawName], chunk: u32) -> Result<SourceSpec> {
        let base = self.tmpdir()?;
        let mut inputs = Vec::with_capacity(paths.len());
        for path in paths {
            inputs.push(file::Input::path(base.join(self.rendered(path)?.as_path())));
        }
        Ok(SourceSpec {
            inputs,
            recursive: true,
            follow: file::Follow::default(),
            chunk,
        })
    }

    fn sending_says(&self, transfer: TransferId, event: SendEvent) {
        let told = match event {
            SendEvent::Started {
                plan,
                names,
                totals,
            } => Told::Started {
                plan,
                names,
                entries: totals.entries,
                bytes: totals.bytes,
                exact: totals.exact,
            },
            SendEvent::Progress { bytes, ranks } => Told::Progress { bytes, ranks },
            SendEvent::Ended { results, why } => {
                let errand = self.sendings.borrow_mut().remove(&transfer);
                if let Some(Errand { stream, .. }) = errand {
                    let told = Told::Ended {
                        results,
                        why: why.map(|why| self.located(why)),
                    };
                    let _ = stream.respond_json(&told);
                    let _ = stream.finish();
                }
                return;
            }
        };
        if let Some(errand) = self.sendings.borrow().get(&transfer) {
            let _ = errand.stream.respond_json(&told);
        }
    }

    /// What failed at the origin failed on this rank, for the client.
    fn located(&self, why: Failure) -> Failure {
        Failure {
            rank: why.rank.or(Some(self.info.rank)),
            ..why
        }
    }

    /// A client calls off what it wanted sent.
    pub(super) fn call_off_sending(&self, transfer: TransferId, client: &Sender, why: Failure) {
        let mut sendings = self.sendings.borrow_mut();
        let theirs = sendings
            .get(&transfer)
            .is_some_and(|errand| errand.client.as_ref() == Some(client));
        let errand = theirs.then(|| sendings.remove(&transfer)).flatten();
        // What follows looks for it again.
        drop(sendings);
        if let Some(errand) = errand {
            errand.outgoing.abort(why);
        }
    }

    /// A client is gone: what it wanted sent is called off.
    pub(super) fn forget_client(&self, gone: &Sender) {
        let theirs: Vec<TransferId> = self
            .sendings
            .borrow()
            .iter()
            .filter(|(_, errand)| errand.client.as_ref() == Some(gone))
            .map(|(transfer, _)| *transfer)
            .collect();
        for transfer in theirs {
            let errand = self.sendings.borrow_mut().remove(&transfer);
            if let Some(errand) = errand {
                let why = Failure::client(libc::ECANCELED, "the client is gone");
                errand.outgoing.abort(why);
            }
        }
    }
}
