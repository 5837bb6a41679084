//! The ranks of one shell: their connections, lanes and barriers.
//!
//! Requests that concern other shells leave as [`Effect`]s; their results come
//! back by [`Server::finish`] and [`Server::name_done`].

mod commands;
mod members;

use super::Limits;
use super::barrier::{Barrier, Group, Key, members as listed};
use super::ids::Ids;
use super::kvs::{Entry, Generation, Kvs};
use super::names::{NameError, NameOp};
use super::peer::Round;
use super::provider::Level;
use super::reply::Reply;
use super::session::{Session, State};
use members::Members;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

/// Names one connection; never used twice by one provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// What the server wants done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Send(ConnId, Vec<u8>),
    Close(ConnId),
    Offence(ConnId),
    Begin {
        round: Round,
        shells: Rc<[u32]>,
        entries: Vec<Entry>,
    },
    Name {
        token: u64,
        op: NameOp,
    },
    Abort {
        rank: u32,
        code: i32,
        text: String,
    },
    Left {
        rank: u32,
        lane: u32,
    },
    Back {
        rank: u32,
        lane: u32,
    },
    Log(Level, String),
}

/// What the server must know about the job.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) shell: u32,
    pub(crate) shell_of_rank: Vec<u32>,
    pub(crate) node_of_rank: Vec<u32>,
    pub(crate) kvsname: Vec<u8>,
    pub(crate) presets: Vec<Entry>,
    pub(crate) ids: Ids,
    pub(crate) groups: bool,
    pub(crate) limits: Limits,
}

#[derive(Debug)]
pub(crate) struct Server {
    setup: Setup,
    size: u32,
    local: BTreeSet<u32>,
    /// The shells that have ranks.
    shells: Rc<[u32]>,
    presets: BTreeMap<Vec<u8>, Vec<u8>>,
    sessions: HashMap<ConnId, Session>,
    /// Connections that have not said who they are, oldest first.
    strangers: VecDeque<ConnId>,
    lanes: BTreeMap<u32, Lane>,
    /// Connections that wait for a reply about a name.
    names: HashMap<u64, (ConnId, &'static str)>,
    next_token: u64,
    /// Connections whose held-back lines may go on.
    ready: VecDeque<ConnId>,
    warnings: u32,
    aborted: bool,
}

#[derive(Debug)]
struct Lane {
    kvs: Kvs,
    barriers: BTreeMap<Key, Barrier>,
    /// What the rounds under way have carried.
    carried: BTreeMap<Key, Generation>,
    members: Members,
}

impl Server {
    pub(crate) fn new(setup: Setup) -> Self {
        let ranks = || setup.shell_of_rank.iter().zip(0u32..);
        let local: BTreeSet<u32> = ranks()
            .filter(|(shell, _)| **shell == setup.shell)
            .map(|(_, rank)| rank)
            .collect();
        let shells: BTreeSet<u32> = setup.shell_of_rank.iter().copied().collect();
        Self {
            size: u32::try_from(setup.shell_of_rank.len()).unwrap_or(u32::MAX),
            local,
            shells: shells.into_iter().collect(),
            presets: setup.presets.iter().cloned().collect(),
            sessions: HashMap::new(),
            strangers: VecDeque::new(),
            lanes: BTreeMap::new(),
            names: HashMap::new(),
            next_token: 0,
            ready: VecDeque::new(),
            warnings: 0,
            aborted: false,
            setup,
        }
    }

    /// A connection was accepted.
    pub(crate) fn accept(&mut self, conn: ConnId, out: &mut Vec<Effect>) {
        self.sessions.insert(conn, Session::new());
        self.strangers.push_back(conn);
        // All ranks may connect before the first of them has its turn to speak.
        let room = self.setup.limits.strangers.saturating_add(self.local.len());
        if self.strangers.len() > room {
            // A flood of strangers must not keep real ranks out: they speak
            // at once, so the oldest silent one is the one to drop.
            if let Some(&oldest) = self.strangers.front() {
                self.warn(
                    "too many connections without a handshake: closed the oldest",
                    out,
                );
                self.cast_out(oldest, out);
            }
        }
    }

    /// Bytes came.
    pub(crate) fn received(&mut self, conn: ConnId, bytes: &[u8], out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(&conn) else {
            return;
        };
        if let Err(error) = session.push(bytes) {
            self.offend(conn, &error.to_string(), out);
            return;
        }
        self.ready.push_back(conn);
        self.pump(out);
    }

    /// The peer closed, or its connection broke.
    pub(crate) fn closed(&mut self, conn: ConnId, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.remove(&conn) else {
            return;
        };
        self.strangers.retain(|&stranger| stranger != conn);
        if let State::Member { rank, lane } = session.state
            && let Some(state) = self.lanes.get_mut(&lane)
        {
            state
                .barriers
                .values_mut()
                .for_each(|barrier| barrier.forget(conn));
            if state.members.remove(rank, conn) && !self.aborted {
                out.push(Effect::Left { rank, lane });
            }
        }
    }

    /// The time allowed for the handshake is over.
    pub(crate) fn handshake_over(&mut self, conn: ConnId, out: &mut Vec<Effect>) {
        if self.strangers.contains(&conn) {
            self.warn("closed a connection that sent no handshake in time", out);
            self.cast_out(conn, out);
        }
    }

    /// A round of this shell has ended with the keys of all.
    pub(crate) fn finish(&mut self, round: &Round, entries: Vec<Entry>, out: &mut Vec<Effect>) {
        let Some(lane) = self.lanes.get_mut(&round.lane) else {
            return;
        };
        lane.kvs.absorb(entries);
        if let Some(generation) = lane.carried.remove(&round.key)
            && round.key.group == Group::World
        {
            lane.kvs.settle(generation);
        }
        self.release(round.lane, &round.key, out);
        self.pump(out);
    }

    /// The result of a request about a name.
    pub(crate) fn name_done(
        &mut self,
        token: u64,
        result: Result<Vec<u8>, NameError>,
        out: &mut Vec<Effect>,
    ) {
        let Some((conn, reply)) = self.names.remove(&token) else {
            return;
        };
        let line = match result {
            Ok(port) if reply == "lookup_result" => Reply::ok(reply).last("port", &port),
            Ok(_) => Reply::ok(reply).line(),
            Err(error) => Reply::fail(reply, 1, error.reason()),
        };
        self.answer(conn, line, out);
        self.pump(out);
    }

    /// How a local rank stands on lane 0, for messages.
    pub(crate) fn standing(&self, rank: u32) -> Standing {
        self.lanes
            .get(&0)
            .map_or(Standing::Never, |lane| lane.members.standing(rank))
    }

    /// Whether ranks of this shell wait, on `lane` (`None`: any), in a barrier
    /// that `rank` must enter.
    pub(crate) fn waits_for(&self, rank: u32, lane: Option<u32>) -> bool {
        let node = Some(self.node(rank));
        self.lanes
            .iter()
            .filter(|(number, _)| lane.is_none_or(|lane| lane == **number))
            .flat_map(|(_, state)| &state.barriers)
            .any(|(key, barrier)| !barrier.is_idle() && key.involves(rank, self.size, node))
    }

    /// The ranks of a shell.
    pub(crate) fn ranks_of(&self, shell: u32) -> impl Iterator<Item = u32> {
        self.setup
            .shell_of_rank
            .iter()
            .zip(0u32..)
            .filter(move |(on, _)| **on == shell)
            .map(|(_, rank)| rank)
    }

    /// The node of a rank.
    fn node(&self, rank: u32) -> u32 {
        let node = self.setup.node_of_rank.get(index(rank));
        node.copied().unwrap_or(u32::MAX)
    }

    /// The number of ranks of the job.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The fullest waiting barrier: local ranks that wait, and for how many.
    pub(crate) fn tally(&self) -> Option<(usize, usize)> {
        let barriers = self.lanes.values().flat_map(|lane| lane.barriers.values());
        barriers
            .filter(|barrier| !barrier.is_idle())
            .map(Barrier::tally)
            .max()
    }

    /// Bytes that clients have made this server hold: unread lines, keys,
    /// values.
    pub(crate) fn held(&self) -> usize {
        let lines: usize = self.sessions.values().map(Session::held).sum();
        let keys: usize = self.lanes.values().map(|lane| lane.kvs.bytes()).sum();
        lines + keys
    }

    /// Goes on with connections that have whole lines, until none can.
    fn pump(&mut self, out: &mut Vec<Effect>) {
        while let Some(conn) = self.ready.pop_front() {
            while let Some(session) = self.sessions.get_mut(&conn) {
                match session.next() {
                    Ok(Some(input)) => self.handle(conn, input, out),
                    Ok(None) => break,
                    Err(error) => self.offend(conn, &error.to_string(), out),
                }
            }
        }
    }

    /// Tells those who waited in the round that ended; a next round may start.
    fn release(&mut self, number: u32, key: &Key, out: &mut Vec<Effect>) {
        let Some(lane) = self.lanes.get_mut(&number) else {
            return;
        };
        let Some(barrier) = lane.barriers.get_mut(key) else {
            return;
        };
        let told = barrier.finish();
        if barrier.is_idle() && *key != Key::plain() {
            // Tags are used once; remembering them would grow for ever.
            lane.barriers.remove(key);
        }
        for conn in told {
            let groups = self
                .sessions
                .get(&conn)
                .is_some_and(|session| session.groups);
            let reply = Reply::ok("barrier_out");
            let reply = if groups {
                reply.num("tag", key.tag)
            } else {
                reply
            };
            self.answer(conn, reply.line(), out);
        }
        self.start(number, key, out);
    }

    /// Starts the round of a barrier that all local ranks have entered.
    fn start(&mut self, number: u32, key: &Key, out: &mut Vec<Effect>) {
        let Some(lane) = self.lanes.get_mut(&number) else {
            return;
        };
        let Some(barrier) = lane.barriers.get_mut(key) else {
            return;
        };
        if !barrier.start() {
            return;
        }
        // One with a tag is forgotten when it is idle, which may be sooner on one
        // shell than on another. Its rounds need no number: links keep order.
        let epoch = if *key == Key::plain() {
            barrier.epoch
        } else {
            0
        };
        let group = match &key.group {
            Group::List(list) => listed(list, self.size),
            Group::World | Group::Node(_) => None,
        };
        let shells: Rc<[u32]> = match (&key.group, &group) {
            (Group::Node(_), _) => Rc::from([self.setup.shell]),
            (_, Some(ranks)) => {
                let of = |rank: &u32| self.setup.shell_of_rank.get(index(*rank)).copied();
                ranks
                    .iter()
                    .filter_map(of)
                    .collect::<BTreeSet<u32>>()
                    .into_iter()
                    .collect()
            }
            (_, None) => Rc::clone(&self.shells),
        };
        if shells.len() > 1 {
            let (entries, generation) = lane.kvs.snapshot(group.as_ref());
            lane.carried.insert(key.clone(), generation);
            let round = Round {
                lane: number,
                key: key.clone(),
                epoch,
            };
            out.push(Effect::Begin {
                round,
                shells,
                entries,
            });
            return;
        }
        if key.group == Group::World {
            let (entries, generation) = lane.kvs.snapshot(None);
            lane.kvs.absorb(entries);
            lane.kvs.settle(generation);
        }
        self.release(number, key, out);
    }

    /// Sends the reply that a connection waits for, and lets it go on.
    fn answer(&mut self, conn: ConnId, line: Vec<u8>, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(&conn) else {
            return;
        };
        if session.blocked {
            session.blocked = false;
            self.ready.push_back(conn);
        }
        out.push(Effect::Send(conn, line));
    }

    /// A connection broke the protocol so that it cannot go on.
    fn offend(&mut self, conn: ConnId, fault: &str, out: &mut Vec<Effect>) {
        let who = self.who(conn);
        self.warn(&format!("closed the connection of {who}: {fault}"), out);
        self.cast_out(conn, out);
    }

    /// Closes a connection for what the client did, or failed to do.
    fn cast_out(&mut self, conn: ConnId, out: &mut Vec<Effect>) {
        out.push(Effect::Offence(conn));
        self.close(conn, out);
    }

    fn close(&mut self, conn: ConnId, out: &mut Vec<Effect>) {
        out.push(Effect::Close(conn));
        self.closed(conn, out);
    }

    fn who(&self, conn: ConnId) -> String {
        match self.sessions.get(&conn).map(|session| session.state) {
            Some(State::Member { rank, lane: 0 }) => format!("rank {rank}"),
            Some(State::Member { rank, lane }) => format!("rank {rank} (lane {lane})"),
            Some(State::Stranger) | None => "a client without a handshake".to_owned(),
        }
    }

    fn warn(&mut self, text: &str, out: &mut Vec<Effect>) {
        let max = self.setup.limits.warnings;
        self.warnings = self.warnings.saturating_add(1);
        if self.aborted || self.warnings > max {
            return;
        }
        out.push(Effect::Log(Level::Warning, text.to_owned()));
        if self.warnings == max {
            let text = "further warnings about connections are left out".to_owned();
            out.push(Effect::Log(Level::Warning, text));
        }
    }

    fn lane(&mut self, number: u32) -> &mut Lane {
        let limits = self.setup.limits;
        self.lanes.entry(number).or_insert_with(|| Lane {
            kvs: Kvs::new(limits.keys, limits.bytes),
            barriers: BTreeMap::new(),
            carried: BTreeMap::new(),
            members: Members::default(),
        })
    }
}

/// How far a rank has come on lane 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It never said who it is.
    Never,
    Connected,
    Finalized,
}

/// A rank as an index.
fn index(rank: u32) -> usize {
    usize::try_from(rank).unwrap_or(usize::MAX)
}
