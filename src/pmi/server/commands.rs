//! What each request of a client does.

use super::super::barrier::{Barrier, Group, Key, members as listed};
use super::super::kvs::PutError;
use super::super::names::NameOp;
use super::super::provider::Level;
use super::super::reply::Reply;
use super::super::session::{Input, State};
use super::super::wire::{Fault, KEY_MAX, NAME_MAX, Request, VALUE_MAX, printable, reply_name};
use super::{ConnId, Effect, Server};

/// `PMI_FAIL`.
const FAIL: i32 = -1;
/// `PMI_ERR_INVALID_KEY`.
const NO_KEY: i32 = 4;
/// `PMI_ERR_INVALID_KEY_LENGTH`.
const KEY_LENGTH: i32 = 5;
/// `PMI_ERR_INVALID_VAL_LENGTH`.
const VALUE_LENGTH: i32 = 7;
/// `PMI_ERR_NOMEM`.
const FULL: i32 = 2;

/// The most barriers of one lane that may be open at once.
const BARRIERS_MAX: usize = 4096;

impl Server {
    pub(super) fn handle(&mut self, conn: ConnId, input: Input, out: &mut Vec<Effect>) {
        let Some(state) = self.sessions.get(&conn).map(|session| session.state) else {
            return;
        };
        match (state, input) {
            (State::Stranger, Input::Request(Request::InitAck { id })) => {
                self.introduce(conn, id, out);
            }
            (State::Stranger, Input::Fault(fault)) => {
                self.offend(conn, &fault.to_string(), out)
            }
            (State::Stranger, _) => self.offend(conn, "request before the handshake", out),
            (State::Member { rank, lane }, Input::Request(request)) => {
                self.request(conn, rank, lane, request, out);
            }
            (State::Member { .. }, Input::Spawn) => {
                let line = Reply::fail("spawn_result", FAIL, "spawn_not_supported");
                self.answer(conn, line, out);
            }
            (State::Member { .. }, Input::UnknownBlock(name)) => self.unknown(conn, &name, out),
            (State::Member { .. }, Input::Fault(Fault::Unknown(name))) => {
                self.unknown(conn, &name, out);
            }
            (State::Member { .. }, Input::Fault(Fault::Malformed(name))) => {
                let who = self.who(conn);
                self.warn(&format!("malformed request '{name}' from {who}"), out);
                let line = Reply::fail(reply_name(name), FAIL, "malformed_request");
                self.answer(conn, line, out);
            }
            (State::Member { .. }, Input::Fault(fault @ Fault::NoCommand)) => {
                self.offend(conn, &fault.to_string(), out);
            }
        }
    }

    /// The handshake: four lines, in the one order that all clients take.
    fn introduce(&mut self, conn: ConnId, id: i64, out: &mut Vec<Effect>) {
        let Some((rank, lane)) = self.setup.ids.owner(id) else {
            out.push(Effect::Send(
                conn,
                Reply::fail("initack", FAIL, "no_such_id"),
            ));
            self.offend(conn, "it gave an id that no rank of this shell has", out);
            return;
        };
        self.strangers.retain(|&stranger| stranger != conn);
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.state = State::Member { rank, lane };
        }
        let max = self.setup.limits.per_rank;
        let (surplus, known) = self.lane(lane).members.add(rank, conn, max);
        if known {
            out.push(Effect::Back { rank, lane });
        }
        let lines = [
            Reply::bare("initack").line(),
            Reply::bare("set").num("size", self.size.into()).line(),
            Reply::bare("set").num("rank", rank.into()).line(),
            Reply::bare("set").num("debug", 0).line(),
        ];
        out.push(Effect::Send(conn, lines.concat()));
        if let Some(oldest) = surplus {
            let text = format!("closed the oldest of too many connections of rank {rank}");
            out.push(Effect::Log(Level::Debug, text));
            self.close(oldest, out);
        }
    }

    fn request(
        &mut self,
        conn: ConnId,
        rank: u32,
        lane: u32,
        request: Request,
        out: &mut Vec<Effect>,
    ) {
        let line = match request {
            Request::InitAck { .. } => Reply::fail("initack", FAIL, "already_known"),
            Request::Init {
                version,
                subversion,
            } => self.init(conn, version, subversion, out),
            Request::GetMaxes => Reply::ok("maxes")
                .num("kvsname_max", max(NAME_MAX))
                .num("keylen_max", max(KEY_MAX))
                .num("vallen_max", max(VALUE_MAX))
                .line(),
            Request::GetAppnum => Reply::ok("appnum").num("appnum", 0).line(),
            Request::GetUniverseSize => Reply::ok("universe_size")
                .num("size", self.size.into())
                .line(),
            Request::GetMyKvsname => {
                Reply::ok("my_kvsname").last("kvsname", &self.kvsname(lane))
            }
            Request::CreateKvs => Reply::ok("newkvs").last("kvsname", &self.kvsname(lane)),
            Request::DestroyKvs => Reply::ok("kvs_destroyed").line(),
            Request::Put { key, value } => match self.lane(lane).kvs.put(rank, key, value) {
                Ok(()) => Reply::ok("put_result").line(),
                Err(error) => {
                    let (rc, reason) = match error {
                        PutError::KeyLength => (KEY_LENGTH, "invalid_key_length"),
                        PutError::ValueLength => (VALUE_LENGTH, "value_too_long"),
                        PutError::Full => (FULL, "key_space_full"),
                    };
                    Reply::fail("put_result", rc, reason)
                }
            },
            Request::Get { key } => self.get(lane, &key),
            Request::GetByIdx { index } => match self.lane(lane).kvs.by_index(index) {
                Some((key, value)) => Reply::ok("getbyidx_results")
                    .num("nextidx", max(index.saturating_add(1)))
                    .word("key", key)
                    .last("val", value),
                None => Reply::rc("getbyidx_results", FAIL).last("reason", b"no_more_keyvals"),
            },
            Request::BarrierIn { group } => {
                match self.enter(conn, rank, lane, group.as_deref(), out) {
                    Ok(()) => return,
                    Err(reason) => Reply::fail("barrier_out", FAIL, reason),
                }
            }
            Request::Publish { service, port } => {
                let op = NameOp::Publish { service, port };
                return self.ask(conn, "publish_result", op, out);
            }
            Request::Lookup { service } => {
                return self.ask(conn, "lookup_result", NameOp::Lookup { service }, out);
            }
            Request::Unpublish { service } => {
                return self.ask(conn, "unpublish_result", NameOp::Unpublish { service }, out);
            }
            Request::Abort { code, text } => {
                // No reply: an old client that reads one would go on running.
                let code = i32::try_from(code).unwrap_or(1);
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                self.aborted = true;
                out.push(Effect::Abort { rank, code, text });
                return;
            }
            Request::Finalize => {
                self.lane(lane).members.finalize(rank, conn);
                Reply::ok("finalize_ack").line()
            }
        };
        self.answer(conn, line, out);
    }

    fn init(
        &mut self,
        conn: ConnId,
        version: i64,
        subversion: i64,
        out: &mut Vec<Effect>,
    ) -> Vec<u8> {
        let groups = self.setup.groups;
        let offered = if groups { 2 } else { 1 };
        let rc = if version == 1 { 0 } else { FAIL };
        if rc != 0 {
            let who = self.who(conn);
            let text = format!(
                "{who} asked for PMI version {version}.{subversion}; only 1.{offered} is served here"
            );
            self.warn(&text, out);
        } else if let Some(session) = self.sessions.get_mut(&conn) {
            session.groups = groups;
        }
        Reply::rc("response_to_init", rc)
            .num("pmi_version", 1)
            .num("pmi_subversion", offered)
            .line()
    }

    fn get(&mut self, lane: u32, key: &[u8]) -> Vec<u8> {
        if let Some(value) = self.presets.get(key) {
            return Reply::ok("get_result").last("value", value);
        }
        match self.lane(lane).kvs.get(key) {
            Some(value) => Reply::ok("get_result").last("value", value),
            None => Reply::fail("get_result", NO_KEY, "key_not_found"),
        }
    }

    /// Lanes have names of their own: libraries derive names of shared memory
    /// from it.
    fn kvsname(&self, lane: u32) -> Vec<u8> {
        let mut name = self.setup.kvsname.clone();
        if lane > 0 {
            name.extend_from_slice(format!(".{lane}").as_bytes());
        }
        name
    }

    fn enter(
        &mut self,
        conn: ConnId,
        rank: u32,
        number: u32,
        group: Option<&[u8]>,
        out: &mut Vec<Effect>,
    ) -> Result<(), &'static str> {
        let groups = self
            .sessions
            .get(&conn)
            .is_some_and(|session| session.groups);
        let key = match group {
            None => Key::plain(),
            Some(_) if !groups => return Err("groups_not_enabled"),
            Some(text) => Key::parse(text, self.node(rank)).ok_or("invalid_group")?,
        };
        let need = match &key.group {
            Group::World => self.local.len(),
            Group::Node(node) => {
                let near = self.local.iter().filter(|rank| self.node(**rank) == *node);
                near.count()
            }
            Group::List(list) => {
                let ranks = listed(list, self.size).ok_or("invalid_group")?;
                if !ranks.contains(&rank) {
                    return Err("not_in_group");
                }
                ranks.intersection(&self.local).count()
            }
        };
        let lane = self.lane(number);
        if lane.barriers.len() >= BARRIERS_MAX && !lane.barriers.contains_key(&key) {
            return Err("too_many_barriers");
        }
        let barrier = lane
            .barriers
            .entry(key.clone())
            .or_insert_with(|| Barrier::new(need));
        if !barrier.enter(rank, conn) {
            return Err("too_many_barriers");
        }
        if !groups && let Some(session) = self.sessions.get_mut(&conn) {
            session.blocked = true;
        }
        self.start(number, &key, out);
        Ok(())
    }

    fn ask(&mut self, conn: ConnId, reply: &'static str, op: NameOp, out: &mut Vec<Effect>) {
        let token = self.next_token;
        self.next_token += 1;
        self.names.insert(token, (conn, reply));
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.blocked = true;
        }
        out.push(Effect::Name { token, op });
    }

    fn unknown(&mut self, conn: ConnId, name: &str, out: &mut Vec<Effect>) {
        let name = printable(name.as_bytes());
        let who = self.who(conn);
        self.warn(&format!("unknown command '{name}' from {who}"), out);
        let line = Reply::fail(&format!("{name}_result"), FAIL, "unknown_command");
        self.answer(conn, line, out);
    }
}

fn max(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
