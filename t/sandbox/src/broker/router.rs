//! Where messages go.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::ClientId;
use super::{Broker, overlay};
use crate::wire::{
    self, FLAG_NORESPONSE, FLAG_UPSTREAM, Kind, Message, NODEID_ANY, ROLE_OWNER, USERID_UNKNOWN,
};

/// Room for the text of a routing error, its NUL included, as in Flux.
const ERROR_TEXT: usize = 64;

/// What a service of the broker says.
pub(super) enum Reply {
    /// Success.
    Done(Option<Value>),
    /// An error, with a text of its own or that of the number.
    Failed(i32, Option<String>),
    /// The answer comes later, or never.
    Later,
}

impl Broker {
    /// A message from a client has arrived.
    pub(super) fn receive(&mut self, from: ClientId, msg: Message) {
        if self.config.knobs.delay > 0.0 {
            let due = Instant::now() + Duration::from_secs_f64(self.config.knobs.delay);
            self.held.push_back((due, from, msg));
            self.release_held();
        } else {
            self.process(from, msg);
        }
    }

    fn release_held(&mut self) {
        while let Some((due, _, _)) = self.held.front() {
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                if self.hold_timer.as_ref().is_none_or(|t| !t.is_active()) {
                    self.hold_timer = Some(self.after(wait.as_secs_f64(), Self::release_held));
                }
                return;
            }
            if let Some((_, from, msg)) = self.held.pop_front() {
                self.process(from, msg);
            }
        }
    }

    fn process(&mut self, from: ClientId, mut msg: Message) {
        let Some(c) = self.clients.get(&from) else {
            return;
        };
        let owner = c.rolemask & ROLE_OWNER != 0;
        if !owner || msg.userid == USERID_UNKNOWN {
            msg.userid = c.userid;
        }
        if !owner || msg.rolemask == 0 {
            msg.rolemask = c.rolemask;
        }
        let rank = c.rank;
        match msg.kind {
            Kind::Response => self.route_response(msg),
            Kind::Event => self.publish(&msg),
            Kind::Request if self.local_request(from, &msg) => {}
            Kind::Request => {
                if let Some(c) = self.clients.get_mut(&from) {
                    msg.routes.push(c.uuid.clone());
                    arm_farewell(&mut c.farewells, &msg);
                }
                self.route_request(msg, rank);
            }
        }
    }

    /// Requests about the connection itself.
    fn local_request(&mut self, from: ClientId, msg: &Message) -> bool {
        let json = msg.json();
        let word = |key: &str| json[key].as_str().unwrap_or("").to_owned();
        let Some(c) = self.clients.get_mut(&from) else {
            return false;
        };
        let errnum = match msg.topic_str() {
            "event.subscribe" => {
                c.subscriptions.insert(word("topic"));
                0
            }
            "event.unsubscribe" => {
                c.subscriptions.remove(&word("topic"));
                0
            }
            "service.add" => {
                let key = (c.rank, word("service"));
                if key.1.is_empty() || key.1.contains('.') {
                    libc::EINVAL
                } else if let std::collections::hash_map::Entry::Vacant(v) =
                    self.services.entry(key)
                {
                    v.insert(from);
                    0
                } else {
                    libc::EEXIST
                }
            }
            "service.remove" => {
                let key = (c.rank, word("service"));
                match self.services.get(&key) {
                    Some(owner) if *owner == from => {
                        self.services.remove(&key);
                        0
                    }
                    Some(_) => libc::EINVAL,
                    None => libc::ENOENT,
                }
            }
            _ => return false,
        };
        if !msg.has(FLAG_NORESPONSE) {
            let answer = msg.response(u32::try_from(errnum).unwrap_or(0), None);
            self.send_to(from, &answer);
        }
        true
    }

    /// Delivers a request that came in at `rank`.
    pub(super) fn route_request(&mut self, msg: Message, rank: u32) {
        let topic = msg.topic_str().to_owned();
        let service = topic.split('.').next().unwrap_or("").to_owned();
        let fanout = overlay::fanout_of(self.config.attrs.get("tbon.topo"));
        let first = if msg.has(FLAG_UPSTREAM) && msg.word == rank {
            overlay::parent(rank, fanout)
        } else if msg.word == NODEID_ANY || msg.has(FLAG_UPSTREAM) {
            Some(rank)
        } else if msg.word < self.config.size {
            // Addressed: there or nowhere.
            if let Some(owner) = self.services.get(&(msg.word, service.clone())) {
                self.send_to(*owner, &msg);
            } else {
                let at = msg.word;
                self.serve_or_refuse(&service, at, msg);
            }
            return;
        } else {
            None
        };
        let Some(first) = first else {
            self.reply(&msg, Reply::Failed(libc::EHOSTUNREACH, None));
            return;
        };
        let mut at = Some(first);
        while let Some(r) = at {
            if let Some(owner) = self.services.get(&(r, service.clone())) {
                self.send_to(*owner, &msg);
                return;
            }
            at = overlay::parent(r, fanout);
        }
        self.serve_or_refuse(&service, first, msg);
    }

    fn serve_or_refuse(&mut self, service: &str, rank: u32, msg: Message) {
        let reply = if Self::serves(service) {
            self.serve(rank, &msg)
        } else {
            let mut text = format!("No service matching {} is registered", msg.topic_str());
            text.truncate(ERROR_TEXT - 1);
            Reply::Failed(libc::ENOSYS, Some(text))
        };
        self.reply(&msg, reply);
    }

    /// Answers a request on behalf of a broker service.
    pub(super) fn reply(&mut self, request: &Message, reply: Reply) {
        if request.has(FLAG_NORESPONSE) {
            return;
        }
        let answer = match reply {
            Reply::Later => return,
            Reply::Done(json) => {
                request.response(0, json.map(|j| wire::text_payload(&j.to_string())))
            }
            Reply::Failed(errnum, text) => request.response(
                u32::try_from(errnum).unwrap_or(0),
                text.map(|t| wire::text_payload(&t)),
            ),
        };
        self.respond(answer);
    }

    /// Sends a response of a broker service.
    pub(super) fn respond(&mut self, mut answer: Message) {
        answer.userid = self.uid;
        answer.rolemask = ROLE_OWNER;
        self.route_response(answer);
    }

    fn route_response(&mut self, mut msg: Message) {
        // Whoever asked may be gone: then nobody wants the answer.
        if let Some(hop) = msg.routes.pop()
            && let Some(id) = self.by_uuid.get(&hop)
        {
            self.send_to(*id, &msg);
        }
    }

    /// Sends an event to its subscribers.
    pub(super) fn publish(&mut self, msg: &Message) {
        let topic = msg.topic_str();
        let ids: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, c)| {
                c.subscriptions
                    .iter()
                    .any(|s| topic.starts_with(s.as_str()))
            })
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.send_to(id, msg);
        }
    }
}

/// Notes that `service.disconnect` is due when the client goes; requests that
/// want no answer leave no trace.
fn arm_farewell(farewells: &mut Vec<(std::ffi::CString, u32, u8, Message)>, msg: &Message) {
    if msg.has(FLAG_NORESPONSE) {
        return;
    }
    let topic = match msg.topic_str().rsplit_once('.') {
        Some((service, _)) => wire::name(&format!("{service}.disconnect")),
        None => wire::name("disconnect"),
    };
    let upstream = msg.flags & FLAG_UPSTREAM;
    let known = farewells
        .iter()
        .any(|(t, nodeid, up, _)| *t == topic && *nodeid == msg.word && *up == upstream);
    if known {
        return;
    }
    let mut farewell = msg.clone();
    farewell.payload = None;
    farewell.topic = topic.clone();
    farewell.flags |= FLAG_NORESPONSE;
    farewell.matchtag = 0;
    farewells.push((topic, msg.word, upstream, farewell));
}
