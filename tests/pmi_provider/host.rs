//! A provider without sockets, for the other tests.

use std::collections::BTreeMap;

use flux_bcast::pmi::{
    Action, Config, ConnId, IdPolicy, Ids, Level, Limits, Provider, mapping,
};

/// A provider of all ranks of a small job, and what it has sent to whom.
pub(crate) struct Host {
    pub(crate) provider: Provider,
    pub(crate) sent: BTreeMap<u64, Vec<u8>>,
    pub(crate) closed: Vec<u64>,
    pub(crate) offences: Vec<u64>,
    pub(crate) limits: Limits,
    pub(crate) warnings: Vec<String>,
    pub(crate) aborts: Vec<(Option<u32>, i32, String)>,
    pub(crate) grace: usize,
    /// Messages to other shells, which do not exist here.
    pub(crate) peers: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) size: u32,
    /// The ranks are spread over so many shells, of which this is the first.
    pub(crate) shells: u32,
    /// The ranks are spread over so many nodes.
    pub(crate) nodes: u32,
    pub(crate) lanes: u32,
    pub(crate) groups: bool,
    pub(crate) limits: Limits,
}

impl Job {
    pub(crate) fn of(size: u32) -> Self {
        Self {
            size,
            shells: 1,
            nodes: 1,
            lanes: 2,
            groups: false,
            limits: Limits::for_size(size),
        }
    }

    pub(crate) fn start(self) -> Host {
        let spread = |parts: u32| -> Vec<u32> {
            (0..self.size)
                .map(|rank| rank * parts / self.size)
                .collect()
        };
        let shell_of_rank = spread(self.shells);
        let ranks: Vec<u32> = (0..self.size)
            .filter(|&rank| shell_of_rank[rank as usize] == 0)
            .collect();
        let map = mapping::process_mapping(&shell_of_rank).unwrap();
        let provider = Provider::new(Config {
            shell: 0,
            shell_of_rank,
            node_of_rank: spread(self.nodes.max(self.shells)),
            k: 2,
            batch: 4096,
            kvsname: b"kvs_1".to_vec(),
            presets: vec![(b"PMI_process_mapping".to_vec(), map.into_bytes())],
            ids: Ids::new(IdPolicy::Rank, self.size, self.lanes, &ranks, || 0),
            groups: self.groups,
            limits: self.limits,
        });
        Host {
            provider,
            sent: BTreeMap::new(),
            closed: Vec::new(),
            offences: Vec::new(),
            limits: self.limits,
            warnings: Vec::new(),
            aborts: Vec::new(),
            grace: 0,
            peers: 0,
        }
    }
}

impl Host {
    pub(crate) fn apply(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(conn, bytes) => self.sent.entry(conn.0).or_default().extend(bytes),
                Action::Offence(conn) => self.offences.push(conn.0),
                Action::Close(conn) => self.closed.push(conn.0),
                Action::Log(Level::Warning, text) => self.warnings.push(text),
                Action::Log(Level::Debug, _) => {}
                Action::Abort { rank, code, text } => self.aborts.push((rank, code, text)),
                Action::Grace => self.grace += 1,
                Action::Peer { .. } => self.peers += 1,
            }
        }
    }

    pub(crate) fn accept(&mut self, conn: u64) {
        let actions = self.provider.accepted(ConnId(conn));
        self.apply(actions);
    }

    pub(crate) fn bytes(&mut self, conn: u64, bytes: &[u8]) {
        let actions = self.provider.received(ConnId(conn), bytes);
        self.apply(actions);
    }

    pub(crate) fn eof(&mut self, conn: u64) {
        let actions = self.provider.closed(ConnId(conn));
        self.apply(actions);
    }

    /// Everything sent to `conn` since the last call.
    pub(crate) fn take(&mut self, conn: u64) -> String {
        String::from_utf8(self.sent.remove(&conn).unwrap_or_default()).unwrap()
    }

    /// Sends a line and returns the reply.
    pub(crate) fn ask(&mut self, conn: u64, line: &str) -> String {
        self.bytes(conn, format!("{line}\n").as_bytes());
        self.take(conn)
    }

    /// A connection past its handshake.
    pub(crate) fn join(&mut self, conn: u64, id: u32) {
        self.accept(conn);
        let reply = self.ask(conn, &format!("cmd=initack pmiid={id}"));
        assert!(reply.starts_with("cmd=initack\n"), "{reply}");
    }
}
