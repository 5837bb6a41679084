//! When the shell that feeds this one is lost: another one goes on in its place.
//!
//! It says so with an opening request that names the frame from which on it has
//! all. The request must come from the owner of the job, as any other, and goes
//! on with a transfer that is open here; the data is bound to that by the
//! digests. What ended here already is answered from memory.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Bcast;
use super::ask::check_version;
use super::service::Sender;
use super::service::Transfer;
use super::service::refuse;
use crate::bcast::id::TransferId;
use crate::bcast::message::Ctl;
use crate::bcast::message::Open;
use crate::bcast::message::Order;
use crate::bcast::message::Up;
use crate::bcast::relay::Input;
use crate::bcast::report::RankResult;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::message::Request;
use crate::transfer::driver::Driver;

/// Transfers whose end is remembered.
const REMEMBERED: usize = 16;

/// How partial transfers ended here, the latest last. Whoever fed this shell may
/// have been lost before it could tell.
#[derive(Debug, Default)]
pub(super) struct Ended(VecDeque<(TransferId, Vec<RankResult>)>);

impl Ended {
    fn add(&mut self, transfer: TransferId, results: Vec<RankResult>) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((transfer, results));
    }

    fn get(&self, transfer: TransferId) -> Option<Vec<RankResult>> {
        let found = self.0.iter().rev().find(|(id, _)| *id == transfer);
        found.map(|(_, results)| results.clone())
    }
}

impl Bcast {
    /// Answers an opening request that offers to go on with a transfer. Any other
    /// one is given back, and so is the offer to begin with one that never
    /// reached this shell.
    pub(super) fn serve_resume(self: &Rc<Self>, request: Request) -> Option<Request> {
        // What is wrong with a request is said where it is opened.
        let Ok(open) = request.json::<Open>() else {
            return Some(request);
        };
        let Some(first) = open.resume else {
            return Some(request);
        };
        if let Err(error) = check_version(&request) {
            refuse(request, &error);
            return None;
        }
        let known = self
            .transfers
            .borrow()
            .get(&open.transfer)
            .map(|transfer| Rc::clone(transfer.driver()));
        if let Some(driver) = known {
            let sender = Sender::of(&request);
            self.take_over(open.transfer, |transfer| *transfer.suitor() = sender);
            // What is wrong with the request was answered.
            let _ = Driver::offer(&driver, request, open.heir);
            return None;
        }
        let ended = self.ended.borrow().get(open.transfer);
        if let Some(results) = ended {
            if let Ok(stream) = request.into_stream() {
                let _ = stream.respond_json(&Up::Done(results));
                let _ = stream.finish();
            }
            return None;
        }
        if first == 0 {
            return Some(request);
        }
        let text = "it does not know this transfer";
        refuse(request, &Error::with_text(Errno::ESTALE, text));
        None
    }

    pub(super) fn take_over(&self, id: TransferId, change: impl FnOnce(&mut Transfer)) {
        if let Some(transfer) = self.transfers.borrow_mut().get_mut(&id) {
            change(transfer);
        }
    }

    /// An order of the one that offers to go on, if it is from that one.
    pub(super) fn suitor_says(&self, ctl: &Ctl, request: &Request) -> bool {
        let driver = {
            let mut transfers = self.transfers.borrow_mut();
            let Some(transfer) = transfers.get_mut(&ctl.transfer) else {
                return false;
            };
            let sender = Sender::of(request);
            if sender.is_none() || *transfer.suitor() != sender {
                return false;
            }
            Rc::clone(transfer.driver())
        };
        match &ctl.order {
            Order::Ping => true,
            Order::Abort(why) => {
                Driver::feed(&driver, Input::OfferAborted(why.clone()));
                true
            }
            Order::Commit => false,
        }
    }

    /// A process is gone: what it offered is void.
    pub(super) fn forget_suitor(&self, gone: &Sender) {
        let mut drivers = Vec::new();
        for transfer in self.transfers.borrow_mut().values_mut() {
            if transfer.suitor().as_ref() == Some(gone) {
                transfer.suitor().take();
                drivers.push(Rc::clone(transfer.driver()));
            }
        }
        for driver in drivers {
            Driver::offer_gone(&driver);
        }
    }

    /// A transfer has ended here.
    pub(super) fn remember(&self, id: TransferId, over: Option<&Transfer>) {
        if let Some(transfer) = over
            && transfer.is_partial()
        {
            let results = transfer.driver().borrow().results().to_vec();
            self.ended.borrow_mut().add(id, results);
        }
    }
}
