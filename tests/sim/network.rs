//! The network between the processes: in order on each lane, never on time.

use flux_bcast::bcast::frame::Frame;
use flux_bcast::bcast::frame::HEADER_LEN;
use flux_bcast::bcast::frame::Kind;
use flux_bcast::bcast::item::Item;
use flux_bcast::bcast::relay::Millis;

use super::node::Answer;
use super::node::Event;
use super::node::Feeder;
use super::node::Payload;
use super::node::Request;
use super::scenario::Damage;
use super::source::ID;
use super::world::World;

/// Lanes of an edge. Without a transport of its own, data shares the others.
const CONTROL_DOWN: usize = 0;
const CONTROL_UP: usize = 1;
const DATA_DOWN: usize = 2;
const DATA_UP: usize = 3;

impl World<'_> {
    pub(crate) fn send(&mut self, from: usize, child: usize, request: Request) {
        let to = self.nodes[from].children[child].node;
        let data = matches!(request, Request::Data(_)) && self.plan.split;
        let lane = if data { DATA_DOWN } else { CONTROL_DOWN };
        let at = self.arrival((from, child), lane);
        self.at(at, to, Event::Request((from, child), request));
    }

    /// To the one that feeds this process.
    pub(crate) fn answer(&mut self, from: usize, answer: Answer) {
        if let Some(feeder) = self.nodes[from].parent {
            self.answer_to(feeder, answer);
        }
    }

    pub(crate) fn answer_to(&mut self, feeder: Feeder, answer: Answer) {
        let data = matches!(answer, Answer::Credit(_)) && self.plan.split;
        let lane = if data { DATA_UP } else { CONTROL_UP };
        let at = self.arrival(feeder, lane);
        self.at(at, feeder.0, Event::Answer(feeder.1, answer));
    }

    fn arrival(&mut self, (feeder, nth): Feeder, lane: usize) -> Millis {
        let delay = self.rng.upto(self.plan.delay);
        let last = &mut self.nodes[feeder].children[nth].lanes[lane];
        *last = (*last).max(self.now + delay);
        *last
    }

    /// A process that is not there, or knows nothing of the transfer, gets a
    /// request: it fails at once, or nobody ever answers.
    pub(crate) fn refuse(&mut self, event: Event, known_at: Millis) {
        let Event::Request(from, request) = event else {
            return;
        };
        if matches!(
            request,
            Request::Disconnect | Request::Data(Payload::Echo(_))
        ) {
            return;
        }
        if self.now < known_at {
            return;
        }
        let answer = if known_at == 0 {
            Answer::Refused(libc::ENOENT, "no such transfer")
        } else {
            Answer::Refused(libc::ENOSYS, "no such service")
        };
        self.answer_to(from, answer);
    }

    /// Data, over a hop that may be broken.
    pub(crate) fn send_data(&mut self, from: usize, child: usize, frame: Frame) {
        let to = self.nodes[from].children[child].node;
        let nth = self.nodes[to].sent_to;
        self.nodes[to].sent_to += 1;
        let whole = Payload::Whole(frame.clone());
        let Some(how) = self.damage(to, nth) else {
            self.send(from, child, Request::Data(whole));
            if let Some(late) = self.nodes[to].overtaken.take() {
                self.send(from, child, Request::Data(late));
            }
            return;
        };
        self.note(|| format!("the hop to node {to} does this to {frame:?}: {how:?}"));
        self.damaged = true;
        match how {
            Damage::Flip => self.send(from, child, Request::Data(self.flip(&frame))),
            Damage::Duplicate => {
                self.send(from, child, Request::Data(whole));
                self.send(from, child, Request::Data(Payload::Echo(frame)));
            }
            Damage::Drop => {}
            Damage::Swap => self.nodes[to].overtaken = Some(whole),
            Damage::Rewrite | Damage::Truncate => {
                let forged = Payload::Whole(forge(&frame, how));
                self.send(from, child, Request::Data(forged));
            }
        }
    }

    fn damage(&self, to: usize, nth: u64) -> Option<Damage> {
        let (node, at, how) = self.plan.damage?;
        (node == to && at == nth).then_some(how)
    }

    /// One bit of the message changes on the way; what the receiver makes of it.
    fn flip(&self, frame: &Frame) -> Payload {
        let mut bytes = frame.as_bytes().to_vec();
        let at = self.rng.clone().index(bytes.len() * 8);
        bytes[at / 8] ^= 1 << (at % 8);
        Frame::decode(&bytes).map_or(Payload::Damaged(frame.cost()), Payload::Whole)
    }
}

/// A message that passes every check of a relay and is not what was sent. The
/// stream's end says how much there was, so only data can be forged at all.
fn forge(frame: &Frame, how: Damage) -> Frame {
    if frame.kind() != Kind::Data {
        return frame.clone();
    }
    let mut bytes = frame.as_bytes()[HEADER_LEN..].to_vec();
    let item = match how {
        Damage::Truncate => Item::Fin {
            entries: frame.entry() + 1,
            bytes: 0,
        },
        _ => {
            bytes[0] ^= 1;
            let mut offset = [0; 8];
            offset.copy_from_slice(&frame.as_bytes()[32..40]);
            Item::Data {
                offset: u64::from_le_bytes(offset),
                bytes: &bytes,
            }
        }
    };
    Frame::encode(ID, frame.seq(), frame.entry(), &item)
}
