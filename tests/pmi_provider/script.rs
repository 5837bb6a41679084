//! A job's worst day, told by any bytes: what clients send, and all else that
//! can happen to a provider. Replayed from the corpus, and driven by the fuzzer
//! (`t/fuzz`), which both call [`survive`].
//!
//! The input is cut at each byte 0xff. What is before the first comes from
//! connection 0. In every other piece the first byte, modulo 10, says what the
//! rest of it is.

use flux_bcast::pmi::ConnId;
use flux_bcast::pmi::LINE_MAX;

use crate::host::Host;
use crate::host::Job;

/// Bytes of keys and values that a lane may hold.
const BYTES: usize = 50_000;

/// Clients at a time.
const CONNECTIONS: usize = 3;

/// Plays `input` to providers of different jobs, and checks what must always
/// hold.
pub(crate) fn survive(input: &[u8]) {
    // Small pieces of a large input take long and tell nothing new.
    let small = if input.len() > 10_000 { 4096 } else { 7 };
    let days = [
        (1, false, usize::MAX),
        (1, true, small),
        (2, true, usize::MAX),
    ];
    for (shells, groups, piece) in days {
        let mut job = Job::of(2 * shells);
        job.shells = shells;
        job.groups = groups;
        job.limits.bytes = BYTES;
        Day::begin(job.start(), piece).play(input);
    }
}

struct Day {
    host: Host,
    /// The connections that are open, or were closed by the provider.
    open: [u64; CONNECTIONS],
    accepted: u64,
    /// Bytes are delivered so many at a time.
    piece: usize,
    /// Newlines that clients have sent.
    lines: usize,
    /// Bytes of messages from other shells.
    told: usize,
    /// A task or shell is gone, so the job may have been given up.
    losses: bool,
}

impl Day {
    fn begin(host: Host, piece: usize) -> Self {
        let mut day = Self {
            host,
            open: [0; CONNECTIONS],
            accepted: 0,
            piece,
            lines: 0,
            told: 0,
            losses: false,
        };
        for at in 0..CONNECTIONS {
            day.accept(at);
        }
        day
    }

    fn accept(&mut self, at: usize) {
        self.host.accept(self.accepted);
        self.open[at] = self.accepted;
        self.accepted += 1;
    }

    fn play(mut self, input: &[u8]) {
        let mut pieces = input.split(|&byte| byte == 0xff);
        if let Some(first) = pieces.next() {
            self.bytes(0, first);
        }
        for piece in pieces {
            let Some((&what, rest)) = piece.split_first() else {
                continue;
            };
            self.step(what, rest);
            self.check_memory();
        }
        self.check_memory();
        self.check_replies();
        self.check_life();
    }

    fn step(&mut self, what: u8, rest: &[u8]) {
        let number = rest.first().copied().unwrap_or_default();
        let at = usize::from(number) % CONNECTIONS;
        let actions = match what % 10 {
            at @ 0..=2 => return self.bytes(usize::from(at), rest),
            3 => {
                self.host.eof(self.open[at]);
                return self.accept(at);
            }
            4 => self.host.provider.handshake_over(ConnId(self.open[at])),
            5 => {
                self.losses = true;
                self.host.provider.task_exited(u32::from(number % 2))
            }
            6 => self.host.provider.grace_over(),
            7 => {
                self.told += rest.len();
                self.host.provider.peer(rest)
            }
            8 => self.host.provider.peer_failed(1, rest),
            _ => {
                self.losses = true;
                self.host.provider.shell_lost(1)
            }
        };
        self.host.apply(actions);
    }

    fn bytes(&mut self, at: usize, bytes: &[u8]) {
        self.lines += bytes.iter().filter(|&&byte| byte == b'\n').count();
        for piece in bytes.chunks(self.piece) {
            self.host.bytes(self.open[at], piece);
        }
    }

    /// What is held is bounded: two lanes of keys, what waits behind a reply on
    /// each connection, and what other shells have sent.
    fn check_memory(&self) {
        let most = 2 * BYTES + CONNECTIONS * 4 * LINE_MAX + self.told;
        let held = self.host.provider.held();
        assert!(
            held <= most,
            "{held} bytes are held, at most {most} should be"
        );
        assert!(self.host.warnings.len() <= 33 + self.told);
    }

    /// Whatever is sent is a line, and at most one for each that came (and
    /// three more for a handshake).
    fn check_replies(&self) {
        let mut replies = 0;
        for bytes in self.host.sent.values() {
            assert!(bytes.is_empty() || bytes.ends_with(b"\n"));
            for line in bytes.split_inclusive(|&byte| byte == b'\n') {
                assert!(line.starts_with(b"cmd="));
                let long = line.starts_with(b"cmd=get") || line.starts_with(b"cmd=lookup");
                assert!(line.len() <= 1023 || long, "{} bytes", line.len());
                replies += 1;
            }
        }
        assert!(replies <= self.lines + 3 * usize::try_from(self.accepted).unwrap_or(0));
        assert!(self.host.aborts.len() <= 1, "the job is ended once");
    }

    /// A client that behaves is served.
    fn check_life(mut self) {
        if self.losses || !self.host.aborts.is_empty() {
            return;
        }
        let conn = self.accepted;
        self.host.join(conn, 0);
        let reply = self.host.ask(conn, "cmd=get_appnum");
        assert_eq!(reply, "cmd=appnum rc=0 appnum=0\n");
    }
}
