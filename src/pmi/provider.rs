//! The whole provider of one shell: its server, its part of the exchange, and
//! on shell 0 the published names and the watch over missing ranks.

use super::Limits;
use super::exchange::{Exchange, OutOfOrder, Step};
use super::ids::Ids;
use super::names::NameError;
use super::names::Names;
use super::peer::{Message, decode, encode};
use super::presence::Presence;
use super::server::{ConnId, Effect, Server, Setup, Standing};
use std::collections::BTreeSet;

/// How much a message to the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something was refused or looks wrong; the job goes on.
    Warning,
    /// Of use to someone who looks for a problem.
    Debug,
}

/// What a provider wants done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write to a connection.
    Send(ConnId, Vec<u8>),
    /// Close a connection after what was written to it; it is forgotten here.
    Close(ConnId),
    /// The client broke the rules: note where it came from. It is closed next.
    Offence(ConnId),
    /// Give these bytes to [`Provider::peer`] of another shell, in order.
    Peer {
        /// Shell rank of the receiver.
        to: u32,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Call [`Provider::grace_over`] after some seconds.
    Grace,
    /// End the job.
    Abort {
        /// The rank that is the cause, if one is.
        rank: Option<u32>,
        /// Exit code for the job.
        code: i32,
        /// Why, as one line.
        text: String,
    },
    /// Write to the log.
    Log(Level, String),
}

/// What a provider must know.
#[derive(Debug)]
pub struct Config {
    /// Shell rank of this provider.
    pub shell: u32,
    /// For each rank of the job the shell that runs it.
    pub shell_of_rank: Vec<u32>,
    /// For each rank of the job a number of its node; a shell has one or more.
    pub node_of_rank: Vec<u32>,
    /// Children of a shell in the tree of the exchange.
    pub k: u32,
    /// Size of one message between shells, in bytes.
    pub batch: usize,
    /// Name of the key space; unlike that of any other run on these hosts.
    pub kvsname: Vec<u8>,
    /// Keys that are there from the start.
    pub presets: Vec<(Vec<u8>, Vec<u8>)>,
    /// Ids of the ranks of this shell.
    pub ids: Ids,
    /// Whether PMI 1.2 (barriers of groups) is offered.
    pub groups: bool,
    /// What clients may make this provider hold.
    pub limits: Limits,
}

/// See the module. Every method returns what to do next.
#[derive(Debug)]
pub struct Provider {
    shell: u32,
    server: Server,
    exchange: Exchange,
    names: Names,
    presence: Presence,
    lost: BTreeSet<u32>,
    /// Barriers may be of some ranks only.
    groups: bool,
    /// Shell 0 knows that a rank of this shell has exited; one explains a
    /// barrier of all ranks that cannot end as well as all.
    told_exit: bool,
    aborted: bool,
}

impl Provider {
    /// A provider that has seen nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let Config {
            shell,
            shell_of_rank,
            node_of_rank,
            k,
            batch,
            kvsname,
            presets,
            ids,
            groups,
            limits,
        } = config;
        Self {
            shell,
            exchange: Exchange::new(shell, k, batch),
            names: Names::new(limits.names),
            presence: Presence::default(),
            lost: BTreeSet::new(),
            told_exit: false,
            aborted: false,
            groups,
            server: Server::new(Setup {
                shell,
                shell_of_rank,
                node_of_rank,
                kvsname,
                presets,
                ids,
                groups,
                limits,
            }),
        }
    }

    /// A connection was accepted.
    pub fn accepted(&mut self, conn: ConnId) -> Vec<Action> {
        self.drive(|server, out| server.accept(conn, out))
    }

    /// A connection sent bytes.
    pub fn received(&mut self, conn: ConnId, bytes: &[u8]) -> Vec<Action> {
        self.drive(|server, out| server.received(conn, bytes, out))
    }

    /// A connection was closed by its peer, or broke.
    pub fn closed(&mut self, conn: ConnId) -> Vec<Action> {
        self.drive(|server, out| server.closed(conn, out))
    }

    /// The time for the handshake of a connection is over.
    pub fn handshake_over(&mut self, conn: ConnId) -> Vec<Action> {
        self.drive(|server, out| server.handshake_over(conn, out))
    }

    /// A local task has ended.
    pub fn task_exited(&mut self, rank: u32) -> Vec<Action> {
        let text = match self.server.standing(rank) {
            Standing::Never => "exited before it used PMI",
            Standing::Connected => "exited without PMI finalize",
            Standing::Finalized => "exited",
        };
        let mut actions = Vec::new();
        self.leave(rank, None, text.to_owned(), &mut actions);
        self.watch(&mut actions);
        actions
    }

    /// A shell is gone; rounds that need it can never end.
    pub fn shell_lost(&mut self, shell: u32) -> Vec<Action> {
        let mut actions = Vec::new();
        self.lost.insert(shell);
        self.watch(&mut actions);
        actions
    }

    /// The time asked for by [`Action::Grace`] is over.
    pub fn grace_over(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        let Self {
            server,
            exchange,
            presence,
            ..
        } = self;
        let verdict = presence.verdict(|rank, lane| waits_for(server, exchange, rank, lane));
        if let Some((rank, text)) = verdict {
            let wait = match self.server.tally() {
                Some((waiting, need)) => {
                    format!("{waiting} of {need} ranks here wait in a barrier")
                }
                None => "other ranks wait in a barrier".to_owned(),
            };
            self.abort(
                Some(rank),
                1,
                format!("rank {rank} {text} while {wait}"),
                &mut actions,
            );
        }
        actions
    }

    /// A message of another shell's provider.
    pub fn peer(&mut self, bytes: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        let (from, message) = match decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                return vec![Action::Log(Level::Warning, error.to_string())];
            }
        };
        let mut steps = Vec::new();
        let outcome = match message {
            Message::Up(part) => self.exchange.up(from, part, &mut steps),
            Message::Down(part) => self.exchange.down(from, part, &mut steps),
            other => {
                self.notice(from, other, &mut actions);
                Ok(())
            }
        };
        self.steps(steps, &mut actions);
        if let Err(error) = outcome {
            self.fail(&error, &mut actions);
        }
        self.watch(&mut actions);
        actions
    }

    /// A message for another shell ([`Action::Peer`]) could not be delivered.
    pub fn peer_failed(&mut self, to: u32, bytes: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        match decode(bytes) {
            Ok((_, Message::Ask { token, .. })) => {
                let mut effects = Vec::new();
                self.server
                    .name_done(token, Err(NameError::Missing), &mut effects);
                self.effects(effects, &mut actions);
            }
            Ok((_, Message::Up(_) | Message::Down(_))) => {
                let text = format!("shell {to} cannot be reached for the exchange of keys");
                self.abort(None, 1, text, &mut actions);
            }
            // The rank that asked is gone, or the leader with its watch.
            Ok((_, Message::Answer { .. } | Message::Gone { .. } | Message::Back { .. }))
            | Err(_) => {}
        }
        actions
    }

    /// Bytes that clients have made this provider hold; [`Limits`] bound it.
    #[must_use]
    pub fn held(&self) -> usize {
        self.server.held()
    }

    fn notice(&mut self, from: u32, message: Message, actions: &mut Vec<Action>) {
        match message {
            Message::Ask { token, op } => {
                let result = self.names.apply(op);
                let answer = Message::Answer { token, result };
                let bytes = encode(self.shell, &answer);
                actions.push(Action::Peer { to: from, bytes });
            }
            Message::Answer { token, result } => {
                let mut effects = Vec::new();
                self.server.name_done(token, result, &mut effects);
                self.effects(effects, actions);
            }
            Message::Gone { rank, lane, text } => self.presence.leave(rank, lane, text),
            Message::Back { rank, lane } => self.presence.come_back(rank, lane),
            Message::Up(_) | Message::Down(_) => {}
        }
    }

    fn drive(&mut self, event: impl FnOnce(&mut Server, &mut Vec<Effect>)) -> Vec<Action> {
        let mut effects = Vec::new();
        let mut actions = Vec::new();
        event(&mut self.server, &mut effects);
        self.effects(effects, &mut actions);
        self.watch(&mut actions);
        actions
    }

    fn effects(&mut self, effects: Vec<Effect>, actions: &mut Vec<Action>) {
        for effect in effects {
            match effect {
                Effect::Send(conn, bytes) => actions.push(Action::Send(conn, bytes)),
                Effect::Close(conn) => actions.push(Action::Close(conn)),
                Effect::Offence(conn) => actions.push(Action::Offence(conn)),
                Effect::Log(level, text) => actions.push(Action::Log(level, text)),
                Effect::Begin {
                    round,
                    shells,
                    entries,
                } => {
                    let mut steps = Vec::new();
                    self.exchange.begin(round, &shells, entries, &mut steps);
                    self.steps(steps, actions);
                }
                Effect::Name { token, op } if self.shell == 0 => {
                    let result = self.names.apply(op);
                    let mut more = Vec::new();
                    self.server.name_done(token, result, &mut more);
                    self.effects(more, actions);
                }
                Effect::Name { token, op } => self.tell(&Message::Ask { token, op }, actions),
                Effect::Abort { rank, code, text } => {
                    let colon = if text.is_empty() { "" } else { ": " };
                    let text = format!("rank {rank} called PMI abort{colon}{text}");
                    self.abort(Some(rank), code, text, actions);
                }
                Effect::Left { rank, lane } => {
                    let text = "closed its PMI connection without finalize".to_owned();
                    self.leave(rank, Some(lane), text, actions);
                }
                Effect::Back { rank, lane } => {
                    self.presence.come_back(rank, lane);
                    if self.shell != 0 {
                        self.tell(&Message::Back { rank, lane }, actions);
                    }
                }
            }
        }
    }

    fn steps(&mut self, steps: Vec<Step>, actions: &mut Vec<Action>) {
        for step in steps {
            match step {
                Step::Send { to, message } => {
                    let bytes = encode(self.shell, &message);
                    actions.push(Action::Peer { to, bytes });
                }
                Step::Done { round, entries } => {
                    let mut effects = Vec::new();
                    self.server.finish(&round, entries, &mut effects);
                    self.effects(effects, actions);
                }
            }
        }
    }

    /// Notes a rank that will not come, here and on shell 0.
    fn leave(&mut self, rank: u32, lane: Option<u32>, text: String, actions: &mut Vec<Action>) {
        self.presence.leave(rank, lane, text.clone());
        let news = lane.is_some() || self.groups || !self.told_exit;
        self.told_exit |= lane.is_none();
        if self.shell != 0 && news {
            self.tell(&Message::Gone { rank, lane, text }, actions);
        }
    }

    fn tell(&self, message: &Message, actions: &mut Vec<Action>) {
        actions.push(Action::Peer {
            to: 0,
            bytes: encode(self.shell, message),
        });
    }

    /// Looks whether a barrier waits for what cannot come.
    fn watch(&mut self, actions: &mut Vec<Action>) {
        if self.aborted {
            return;
        }
        let Self {
            server,
            exchange,
            presence,
            lost,
            ..
        } = self;
        let waits = |rank, lane| waits_for(server, exchange, rank, lane);
        let needed = |shell: &&u32| server.ranks_of(**shell).any(|rank| waits(rank, None));
        if let Some(shell) = lost.iter().find(needed) {
            let text = format!("shell {shell} was lost while ranks wait in a barrier");
            self.abort(None, 1, text, actions);
        } else if presence.wants_grace(waits) {
            actions.push(Action::Grace);
        }
    }

    fn fail(&mut self, error: &OutOfOrder, actions: &mut Vec<Action>) {
        self.abort(None, 1, error.to_string(), actions);
    }

    /// The first reason to end the job is the one that is told.
    fn abort(&mut self, rank: Option<u32>, code: i32, text: String, actions: &mut Vec<Action>) {
        if !self.aborted {
            self.aborted = true;
            actions.push(Action::Abort { rank, code, text });
        }
    }
}

/// Whether a barrier that is known here waits for `rank`.
fn waits_for(server: &Server, exchange: &Exchange, rank: u32, lane: Option<u32>) -> bool {
    server.waits_for(rank, lane) || exchange.waits_for(rank, server.size(), lane)
}
