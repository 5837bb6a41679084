//! Where the data of a driver comes from: another shell, or files. Another shell
//! may be lost, and yet another offer to take its place.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::rc::Weak;

use super::super::direct::inlet::Inlet;
use super::super::direct::inlet::InletEvent;
use super::super::reader::Reader;
use super::Driver;
use super::DriverEvent;
use super::Machine;
use crate::bcast::message::Greeting;
use crate::bcast::message::Up;
use crate::bcast::relay::Input;
use crate::bcast::report::Failure;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::message::Request;
use crate::flux::message::Stream;
use crate::flux::reactor::Reactor;

/// What those hear whose place another has taken.
const TAKEN: &str = "another feeds it in its place";

pub(super) enum Upstream {
    /// The one who feeds us: its open stream and its frames not yet credited.
    Remote {
        stream: Option<Stream>,
        frames: VecDeque<Arrived>,
        /// Where frames come by TCP.
        inlet: Option<Inlet>,
    },
    /// The files.
    Reader(Option<Reader>),
}

/// How a frame came that is not yet credited.
pub(super) enum Arrived {
    Request(Request),
    /// By TCP; its cost.
    Direct(u64),
}

impl Driver {
    /// Offers to take frames by TCP. If it cannot be, they come the other way.
    pub(super) fn listen(
        reactor: Reactor,
        kernel: &str,
        stream: &Stream,
        driver: Rc<RefCell<Weak<RefCell<Self>>>>,
    ) -> Option<Inlet> {
        let heard = move |event| {
            let driver = driver.borrow().upgrade();
            if let Some(driver) = driver {
                Self::arrived(&driver, event);
            }
        };
        let (inlet, offer) = Inlet::open(reactor, kernel, heard).ok()?;
        stream.respond_json(&Greeting { direct: offer }).ok()?;
        Some(inlet)
    }

    /// Something came by TCP.
    fn arrived(this: &Rc<RefCell<Self>>, event: InletEvent) {
        let broken = |why: String| {
            let rank = this.borrow().place.as_ref().map(|place| place.rank);
            let failure = Failure::client(Errno::EPROTO.raw(), why);
            Self::feed(this, Input::Broken(Failure { rank, ..failure }));
        };
        match event {
            InletEvent::Frame(frame) if frame.transfer() == this.borrow().open.transfer => {
                if let Upstream::Remote { frames, .. } = &mut this.borrow_mut().upstream {
                    frames.push_back(Arrived::Direct(frame.cost()));
                }
                Self::feed(this, Input::Frame(frame));
            }
            InletEvent::Frame(_) => broken("data of another transfer".into()),
            InletEvent::Broken(why) => broken(why),
        }
    }

    /// Somebody offers to take the place of the one that feeds us; answered when
    /// that one is lost, or with [`Driver::results`] at the end.
    ///
    /// # Errors
    /// The request is not a streaming one; it is answered then.
    pub fn offer(this: &Rc<RefCell<Self>>, request: Request, heir: bool) -> Result<()> {
        let stream = request.into_stream()?;
        if let Ok(mut driver) = this.try_borrow_mut() {
            // The latest one knows best.
            if let Some(old) = driver.suitor.replace(stream) {
                let _ = old.fail_with(&Error::with_text(Errno::EPERM, TAKEN));
            }
        }
        Self::feed(this, Input::Offer { heir });
        Ok(())
    }

    /// Whoever made the offer is gone.
    pub fn offer_gone(this: &Rc<RefCell<Self>>) {
        if let Ok(mut driver) = this.try_borrow_mut() {
            driver.suitor = None;
        }
        Self::feed(this, Input::OfferGone);
    }

    pub(super) fn accept(&mut self) {
        if let Upstream::Remote { stream, inlet, .. } = &mut self.upstream
            && let Some(suitor) = self.suitor.take()
        {
            // What the old one sent and we did not take is sent again.
            *inlet = None;
            if let Some(old) = stream.replace(suitor) {
                // Should it be alive, it must not look after our children.
                let _ = old.fail_with(&Error::with_text(Errno::EPERM, TAKEN));
            }
        }
        self.events.push(DriverEvent::Accepted);
    }

    pub(super) fn decline(&mut self) {
        if let Some(suitor) = self.suitor.take() {
            let text = "the one that feeds it is well";
            let _ = suitor.fail_with(&Error::with_text(Errno::EBUSY, text));
        }
        self.events.push(DriverEvent::Declined);
    }

    pub(super) fn up(&mut self, up: Up) {
        match (&mut self.upstream, up) {
            (Upstream::Remote { stream, .. }, up) => {
                let last = matches!(up, Up::Done(_));
                let sent = stream.as_ref().map(|stream| stream.respond_json(&up));
                if let Some(Err(_)) = sent {
                    // Our broker is gone, and with it everybody else.
                    self.inputs.push_back(Input::UpstreamLost);
                }
                if last && let Some(stream) = stream.take() {
                    let _ = stream.finish();
                }
            }
            (Upstream::Reader(_), Up::Progress { bytes, ranks }) => {
                self.verified = ranks;
                self.events.push(DriverEvent::Progress(bytes));
            }
            (Upstream::Reader(_), Up::Done(results)) => {
                let why = match &self.machine {
                    Machine::Origin(origin) => origin.why().cloned(),
                    Machine::Relay(_) => None,
                };
                self.events.push(DriverEvent::Ended { results, why });
            }
            (Upstream::Reader(_), _) => {}
        }
    }

    pub(super) fn ack(&mut self, bytes: u64) {
        match &mut self.upstream {
            Upstream::Remote { frames, inlet, .. } => match (frames.pop_front(), inlet) {
                (Some(Arrived::Request(request)), _) => drop(request.respond()),
                (Some(Arrived::Direct(cost)), Some(inlet)) => inlet.credit(cost),
                _ => {}
            },
            Upstream::Reader(reader) => {
                if let Some(reader) = reader {
                    reader.credit(bytes);
                }
            }
        }
    }

    pub(super) fn finished(&mut self) {
        if let Upstream::Remote { frames, .. } = &mut self.upstream {
            for arrived in frames.drain(..) {
                if let Arrived::Request(request) = arrived {
                    let _ = request.respond();
                }
            }
        }
        if let Some(suitor) = self.suitor.take() {
            let _ = suitor.respond_json(&Up::Done(self.results().to_vec()));
            let _ = suitor.finish();
        }
        self.upstream = Upstream::Reader(None);
        self._ticker = None;
        self.events.push(DriverEvent::Finished);
    }
}
