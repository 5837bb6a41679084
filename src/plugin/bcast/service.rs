//! The methods of the service.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use super::Bcast;
use super::plan;
use super::plan::Overlay;
use super::plan::Topology;
use crate::bcast::frame::Frame;
use crate::bcast::id::TransferId;
use crate::bcast::message::Ctl;
use crate::bcast::message::Open;
use crate::bcast::message::Order;
use crate::bcast::message::PlanRequest;
use crate::bcast::name::RawName;
use crate::bcast::relay::Input;
use crate::bcast::report::Failure;
use crate::bcast::spec::Dest;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::handle::Node;
use crate::flux::message::Message;
use crate::flux::message::Request;
use crate::transfer::driver::Driver;
use crate::transfer::driver::DriverEvent;
use crate::transfer::driver::Setup;
use crate::transfer::writer::Place;

/// A transfer that goes on in this shell.
pub(super) struct Transfer {
    driver: Rc<RefCell<Driver>>,
    /// Who feeds it.
    sender: Option<Sender>,
    /// Who offers to feed it instead.
    suitor: Option<Sender>,
    window: u64,
    partial: bool,
}

impl Transfer {
    pub(super) fn into_driver(self) -> Rc<RefCell<Driver>> {
        self.driver
    }

    /// Bytes of it that may be held here.
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    pub(super) fn driver(&self) -> &Rc<RefCell<Driver>> {
        &self.driver
    }

    /// Who offers to feed it instead of its sender.
    pub(super) fn suitor(&mut self) -> &mut Option<Sender> {
        &mut self.suitor
    }

    /// Ranks may fail without the others.
    pub(super) fn is_partial(&self) -> bool {
        self.partial
    }

    /// The one that offered that is its sender now.
    pub(super) fn accept(&mut self) {
        self.sender = self.suitor.take();
    }
}

/// The process that sent a message: the first hop of its route is the
/// connection it came in by, which no two processes share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sender(String);

impl Sender {
    pub(super) fn of(message: &Message) -> Option<Self> {
        message.route_first().map(|route| Self(route.to_owned()))
    }
}

impl Bcast {
    /// `bcast.plan`: who would take part, and how.
    pub(super) fn serve_plan(self: &Rc<Self>, request: Request) {
        let wanted: PlanRequest = match request.json() {
            Ok(wanted) => wanted,
            Err(error) => return refuse(request, &error),
        };
        let this = Rc::clone(self);
        let mut request = Some(request);
        self.with_overlay(move |overlay| {
            let Some(request) = request.take() else {
                return;
            };
            match plan::plan(&wanted, &this.peers, overlay) {
                Ok(plan) => {
                    let _ = request.respond_json(&plan);
                }
                Err(error) => refuse(request, &error),
            }
        });
    }

    /// Calls `f` with the overlay's shape, asked for once and then remembered.
    /// A shape that cannot be had is no reason to fail.
    pub(super) fn with_overlay(self: &Rc<Self>, mut f: impl FnMut(Option<&Overlay>) + 'static) {
        let known = self.overlay.borrow().clone();
        if let Some(overlay) = known {
            return f(Some(&overlay));
        }
        let this = Rc::clone(self);
        let f = Rc::new(RefCell::new(f));
        let later = Rc::clone(&f);
        let asked = self
            .handle
            .rpc_json(
                "overlay.topology",
                &serde_json::json!({"rank": 0}),
                Node::Rank(0),
            )
            .and_then(|future| {
                let held = Rc::new(RefCell::new(None));
                let done = Rc::clone(&held);
                let pending = future.then(Some(super::FAREWELL), move |future| {
                    let overlay = match future.get_json::<Topology>() {
                        Ok(topology) => Some(Rc::new(topology.parents())),
                        Err(error) => {
                            this.shell
                                .log()
                                .debug(format_args!("overlay.topology: {error}"));
                            None
                        }
                    };
                    this.overlay.borrow_mut().clone_from(&overlay);
                    (later.borrow_mut())(overlay.as_deref());
                    drop(done.borrow_mut().take());
                })?;
                held.replace(Some(pending));
                Ok(())
            });
        if asked.is_err() {
            (f.borrow_mut())(None);
        }
    }

    /// `bcast.open`: a transfer begins.
    pub(super) fn serve_open(self: &Rc<Self>, request: Request) {
        let Some(request) = self.serve_resume(request) else {
            return;
        };
        let opening = self.check_open(&request).and_then(|open| {
            let place = self.place(&open)?;
            Ok((open, place))
        });
        match opening {
            Ok((open, place)) => {
                if let Err(error) = self.open(open, place, request) {
                    self.shell
                        .log()
                        .error(format_args!("open a transfer: {error}"));
                }
            }
            Err(error) => refuse(request, &error),
        }
    }

    fn check_open(&self, request: &Request) -> Result<Open> {
        let invalid = |text: String| Error::with_text(Errno::EPROTO, text);
        let open = self.access.opening(request)?;
        open.tuning.check().map_err(invalid)?;
        if open.tree.root() != self.info.rank {
            return Err(invalid(format!(
                "a request for rank {} came to rank {}",
                open.tree.root(),
                self.info.rank
            )));
        }
        if let Some(rank) = open
            .tree
            .ranks()
            .iter()
            .find(|rank| **rank >= self.peers.size())
        {
            return Err(invalid(format!("rank {rank} is not in the job")));
        }
        if self.transfers.borrow().contains_key(&open.transfer) {
            return Err(Error::with_text(
                Errno::EEXIST,
                "the transfer is open already",
            ));
        }
        if !request.is_streaming() || request.is_noresponse() {
            return Err(invalid("the request is not a streaming one".into()));
        }
        self.admit_transfer(open.tuning.window)?;
        Ok(open)
    }

    fn open(self: &Rc<Self>, open: Open, place: Place, request: Request) -> Result<()> {
        let transfer = open.transfer;
        let sender = Sender::of(&request);
        let (window, partial) = (open.tuning.window, open.partial);
        let setup = Setup {
            place: Some(place),
            open,
            handle: self.handle,
            network: self.peers.clone(),
            listener: self.listener(transfer),
        };
        let driver = Driver::relay(setup, request)?;
        if !driver.borrow().is_finished() {
            self.transfers.borrow_mut().insert(
                transfer,
                Transfer {
                    driver,
                    sender,
                    suitor: None,
                    window,
                    partial,
                },
            );
        }
        Ok(())
    }

    /// Fills in the tags of a destination (`{{tmpdir}}`, `{{node.id}}`, …).
    pub(super) fn render(&self, dest: &Dest) -> Result<Dest> {
        let path = dest.path.as_ref().map(|path| self.rendered(path));
        Ok(Dest {
            path: path.transpose()?,
            ..dest.clone()
        })
    }

    pub(super) fn rendered(&self, path: &RawName) -> Result<RawName> {
        if tag(path).is_none() {
            return Ok(path.clone());
        }
        self.rendering.set(true);
        let rendered = self.shell.render(path.as_os_str());
        self.rendering.set(false);
        let rendered = RawName::from(rendered?);
        if let Some(tag) = tag(&rendered) {
            // Else all nodes would write to one file of that very name. Not as it
            // is rendered: all ranks are to say the same.
            let text = format!("{path}: this Flux does not know the tag {tag}");
            return Err(Error::with_text(Errno::EINVAL, text));
        }
        Ok(rendered)
    }

    /// Where this shell's copy of a transfer goes. A destination that cannot be
    /// filled in is this rank's failure, not that of those which it feeds.
    pub(super) fn place(&self, open: &Open) -> Result<Place> {
        let dest = self.render(&open.dest).map_err(|error| {
            Failure::on(self.info.rank, error.errno().raw(), error.to_string())
        });
        Ok(Place {
            base: self.tmpdir()?,
            is_tmpdir: true,
            dest,
            policy: open.policy.clone(),
            transfer: open.transfer,
            rank: self.info.rank,
            total: open.total,
            names: open.names.clone(),
            registry: Some(self.registry.clone()),
            seal: self.access.seal(),
        })
    }

    fn listener(self: &Rc<Self>, transfer: TransferId) -> Rc<dyn Fn(DriverEvent)> {
        let this = Rc::downgrade(self);
        Rc::new(move |event| {
            let Some(this) = this.upgrade() else { return };
            match event {
                DriverEvent::Placed(placed) => {
                    this.start.borrow_mut().placed(transfer, &placed)
                }
                DriverEvent::Accepted => this.take_over(transfer, Transfer::accept),
                DriverEvent::Declined => this.take_over(transfer, |transfer| {
                    transfer.suitor().take();
                }),
                DriverEvent::Finished => {
                    let over = this.transfers.borrow_mut().remove(&transfer);
                    this.remember(transfer, over.as_ref());
                    drop(over);
                }
                DriverEvent::Progress(_) | DriverEvent::Ended { .. } => {}
            }
        })
    }

    /// `bcast.data`: a frame.
    pub(super) fn serve_data(self: &Rc<Self>, request: Request) {
        let frame = request.payload().map(Frame::decode);
        match frame {
            Ok(Ok(frame)) => match self.transfer(frame.transfer(), &request) {
                Ok(driver) => Driver::frame(&driver, request, Input::Frame(frame)),
                Err(error) => refuse(request, &error),
            },
            Ok(Err(error)) => {
                let error = Error::with_text(Errno::EPROTO, error.to_string());
                self.damaged(&request, &error);
                refuse(request, &error);
            }
            Err(error) => refuse(request, &error),
        }
    }

    /// A message that cannot be read: whatever this sender sends us is broken.
    fn damaged(&self, request: &Request, error: &Error) {
        let sender = Sender::of(request);
        let drivers: Vec<_> = self
            .transfers
            .borrow()
            .values()
            .filter(|transfer| transfer.sender.is_some() && transfer.sender == sender)
            .map(|transfer| Rc::clone(&transfer.driver))
            .collect();
        for driver in drivers {
            let why = Failure::on(self.info.rank, error.errno().raw(), error.to_string());
            Driver::feed(&driver, Input::Broken(why));
        }
    }

    /// `bcast.ctl`: an order.
    pub(super) fn serve_ctl(self: &Rc<Self>, request: Request) {
        let ctl: Ctl = match request.json() {
            Ok(ctl) => ctl,
            Err(error) => return refuse(request, &error),
        };
        if self.suitor_says(&ctl, &request) {
            let _ = request.respond();
            return;
        }
        match self.transfer(ctl.transfer, &request) {
            Ok(driver) => {
                Driver::feed(
                    &driver,
                    match ctl.order {
                        Order::Ping => Input::UpstreamAlive,
                        Order::Commit => Input::Commit,
                        Order::Abort(why) => Input::Abort(why),
                    },
                );
                let _ = request.respond();
            }
            // What is called off twice is called off.
            Err(error) => match ctl.order {
                Order::Abort(why) => {
                    if let Some(client) = Sender::of(&request) {
                        self.call_off_sending(ctl.transfer, &client, why);
                        let mut fetches = self.fetches.borrow_mut();
                        fetches.call_off(ctl.transfer, &client);
                    }
                    if !request.is_noresponse() {
                        let _ = request.respond();
                    }
                }
                Order::Ping | Order::Commit => {
                    // A client that fetches asks so whether we are still there.
                    let client = Sender::of(&request);
                    let fetches = self.fetches.borrow();
                    fetches.heard(ctl.transfer, client.as_ref());
                    refuse(request, &error);
                }
            },
        }
    }

    /// The open transfer that a message belongs to, if it comes from the one
    /// who opened it.
    fn transfer(&self, id: TransferId, request: &Request) -> Result<Rc<RefCell<Driver>>> {
        let transfers = self.transfers.borrow();
        let transfer = transfers
            .get(&id)
            .ok_or_else(|| Error::with_text(Errno::ESTALE, "it does not know this transfer"))?;
        if transfer.sender.is_none() || transfer.sender != Sender::of(request) {
            return Err(Error::with_text(
                Errno::EPERM,
                "the transfer belongs to another sender",
            ));
        }
        Ok(Rc::clone(&transfer.driver))
    }

    /// `disconnect`: a process that had a request open here is gone.
    pub(super) fn serve_disconnect(self: &Rc<Self>, request: &Request) {
        let Some(gone) = Sender::of(request) else {
            return;
        };
        let drivers: Vec<_> = self
            .transfers
            .borrow()
            .values()
            .filter(|transfer| transfer.sender.as_ref() == Some(&gone))
            .map(|transfer| Rc::clone(&transfer.driver))
            .collect();
        for driver in drivers {
            Driver::feed(&driver, Input::UpstreamLost);
        }
        self.forget_suitor(&gone);
        self.forget_client(&gone);
        self.fetches.borrow_mut().forget_client(&gone);
    }
}

/// The first tag that is still in a path.
fn tag(path: &RawName) -> Option<RawName> {
    let at = |bytes: &[u8], two: &[u8]| bytes.windows(2).position(|found| found == two);
    let bytes = path.as_bytes();
    let rest = bytes.get(at(bytes, b"{{")?..)?;
    let tag = at(rest, b"}}").and_then(|end| rest.get(..end + 2));
    Some(RawName::from(
        OsStr::from_bytes(tag.unwrap_or(rest)).to_owned(),
    ))
}

pub(super) fn refuse(request: Request, error: &Error) {
    let _ = request.fail_with(error);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found() {
        for (path, first) in [
            ("d/{{nope}}/{{x}}", Some("{{nope}}")),
            ("{{open", Some("{{open")),
            ("{a}/{b}}/c", None),
            ("", None),
        ] {
            assert_eq!(tag(&path.into()), first.map(RawName::from), "{path}");
        }
    }
}
