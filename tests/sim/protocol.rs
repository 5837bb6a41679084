//! What a relay may ask of its driver, and in which order.

use flux_bcast::bcast::frame::Frame;
use flux_bcast::bcast::frame::Kind;
use flux_bcast::bcast::message::Up;
use flux_bcast::bcast::relay::Input;
use flux_bcast::bcast::relay::Output;
use flux_bcast::bcast::relay::SinkEvent;

use super::promises::Check;

#[derive(Debug, Default)]
struct Child {
    opened: bool,
    adopted: bool,
    ready: bool,
    prepared: bool,
    sent: u64,
    fin: bool,
    told_commit: bool,
    told_abort: bool,
    answered: bool,
}

/// Follows one relay.
#[derive(Debug, Default)]
pub(crate) struct Protocol {
    /// Nobody above gives it orders.
    origin: bool,
    children: Vec<Child>,
    told_commit: bool,
    orphan: bool,
    /// Should upstream be lost, somebody may take its place.
    pub(crate) heir: bool,
    /// Somebody offers to, and whether there is yet another.
    offer: Option<bool>,
    /// It may just have noticed that upstream is silent.
    ticked: bool,
    sink_opened: bool,
    sink_frames: u64,
    sink_fin: bool,
    sink_preparing: bool,
    sink_prepared: bool,
    sink_commit: bool,
    sink_abort: bool,
    /// The sink has said its last word.
    sink_over: bool,
    /// There is no time to wait for anybody.
    shut_down: bool,
    up_prepared: bool,
    up_done: bool,
    finished: bool,
}

impl Protocol {
    pub(crate) fn new(origin: bool, children: usize) -> Self {
        Self {
            origin,
            children: (0..children).map(|_| Child::default()).collect(),
            ..Self::default()
        }
    }

    /// Notes what the relay is told.
    pub(crate) fn input(&mut self, input: &Input) {
        self.ticked = *input == Input::Tick;
        // It is alive after all, and hears everything once more.
        if self.heir
            && matches!(
                input,
                Input::Frame(_) | Input::Commit | Input::UpstreamAlive
            )
        {
            self.orphan = false;
            self.up_prepared = false;
        }
        match input {
            Input::Commit => self.told_commit = true,
            Input::Offer { heir } => self.offer = Some(*heir),
            Input::OfferGone => self.offer = None,
            Input::UpstreamLost => self.orphan = true,
            Input::Sink(SinkEvent::Prepared) => self.sink_prepared = true,
            Input::Sink(
                SinkEvent::Committed(_) | SinkEvent::Aborted | SinkEvent::Failed(_),
            ) => self.sink_over = true,
            Input::Shutdown(_) => self.shut_down = true,
            Input::Child { child, up } => {
                if let Some(child) = self.children.get_mut(*child) {
                    match up {
                        Up::Ready { .. } => child.ready = true,
                        Up::Resume { seq } if child.adopted => child.sent = *seq,
                        Up::Prepared => child.prepared = true,
                        Up::Done(_) => child.answered = true,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Judges what it asks for.
    pub(crate) fn output(&mut self, output: &Output) -> Check {
        let wrong = |what: &str| Err(format!("{what}: {output:?}"));
        if self.finished {
            return wrong("something follows the end");
        }
        if self.up_done && *output != Output::Finished {
            return wrong("something follows the answer");
        }
        match output {
            Output::AdoptChild { child, .. } => {
                if *child != self.children.len() {
                    return wrong("not the next number");
                }
                self.children.push(Child {
                    opened: true,
                    adopted: true,
                    ..Child::default()
                });
            }
            Output::Accept => {
                let Some(heir) = self.offer.take() else {
                    return wrong("nobody made an offer");
                };
                let lost = std::mem::replace(&mut self.orphan, false);
                if !lost && !self.heir && !self.ticked {
                    return wrong("upstream is not lost");
                }
                self.heir = heir;
                self.up_prepared = false;
            }
            Output::Decline => {
                if self.offer.take().is_none() {
                    return wrong("nobody made an offer");
                }
            }
            Output::OpenChild(at)
            | Output::CommitChild(at)
            | Output::PingChild(at)
            | Output::SendFrame { child: at, .. }
            | Output::AbortChild { child: at, .. } => {
                let Some(child) = self.children.get_mut(*at) else {
                    return wrong("no such child");
                };
                return child.output(output, self.told_commit || self.origin);
            }
            Output::SinkOpen => {
                if std::mem::replace(&mut self.sink_opened, true) {
                    return wrong("the sink is opened again");
                }
            }
            Output::SinkFrame(frame) => return self.sink_frame(frame),
            Output::SinkPrepare => {
                let again = std::mem::replace(&mut self.sink_preparing, true);
                if again || !self.sink_fin || self.sink_abort {
                    return wrong("not the time to prepare");
                }
            }
            Output::SinkCommit => {
                let again = std::mem::replace(&mut self.sink_commit, true);
                let told = self.origin || self.told_commit;
                if again || !told || !self.sink_prepared || self.sink_abort {
                    return wrong("not the time to publish");
                }
            }
            Output::SinkAbort => {
                let again = std::mem::replace(&mut self.sink_abort, true);
                if again || self.sink_commit || !self.sink_opened {
                    return wrong("not the time to abort");
                }
            }
            Output::Up(_) if self.orphan => return wrong("nobody listens"),
            Output::Up(Up::Prepared) => {
                if std::mem::replace(&mut self.up_prepared, true) {
                    return wrong("told before");
                }
            }
            Output::Up(Up::Done(_)) => self.up_done = true,
            Output::Up(_) | Output::Ack { .. } => {}
            Output::Finished => {
                self.finished = true;
                let left = |child: &Child| child.opened && !child.answered && !child.told_abort;
                if self.children.iter().any(left) {
                    return wrong("a child is left alone");
                }
                // An origin shuts itself down when the time limit is over.
                if self.sink_opened && !self.sink_over && !self.shut_down && !self.origin {
                    return wrong("the sink is still at work");
                }
            }
        }
        Ok(())
    }

    fn sink_frame(&mut self, frame: &Frame) -> Check {
        if !self.sink_opened || self.sink_abort || self.sink_fin {
            return Err(format!("not the time to write: {frame:?}"));
        }
        if frame.seq() != self.sink_frames {
            return Err(format!("frame out of order for the sink: {frame:?}"));
        }
        self.sink_frames += 1;
        self.sink_fin = frame.kind() == Kind::Fin;
        Ok(())
    }
}

impl Child {
    fn output(&mut self, output: &Output, told: bool) -> Check {
        let wrong = |what: &str| Err(format!("{what}: {output:?}"));
        match output {
            Output::OpenChild(_) if !self.opened => self.opened = true,
            Output::OpenChild(_) => return wrong("opened again"),
            _ if !self.opened => return wrong("not opened yet"),
            Output::SendFrame { frame, .. } => {
                if !self.ready || self.fin || self.told_abort {
                    return wrong("not the time to send");
                }
                if frame.seq() != self.sent {
                    return wrong("sent out of order");
                }
                self.sent += 1;
                self.fin = frame.kind() == Kind::Fin;
            }
            Output::CommitChild(_) => {
                let again = std::mem::replace(&mut self.told_commit, true);
                if again || !told || !self.prepared || self.told_abort {
                    return wrong("not the time to publish");
                }
            }
            // May be said again: it is harmless, and may not have been heard.
            Output::AbortChild { .. } => self.told_abort = true,
            _ => {}
        }
        Ok(())
    }
}
