//! One connection: its lines, its block of spawn lines, and how far it is.

use super::lines::{Lines, TooLong};
use super::wire::{self, Fault, Line, Pairs, Request};

/// The most bytes that the lines of one spawn request may have.
const BLOCK_MAX: usize = 256 * 1024;

/// What a line of a connection asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Request(Request),
    /// A whole spawn request, all its segments.
    Spawn,
    /// A block of another name.
    UnknownBlock(String),
    Fault(Fault),
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has not said who it is.
    Stranger,
    Member {
        rank: u32,
        lane: u32,
    },
}

#[derive(Debug)]
struct Block {
    name: String,
    bytes: usize,
    /// `totspawns` and `spawnssofar` of the segment at hand.
    total: Option<i64>,
    so_far: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct Session {
    lines: Lines,
    block: Option<Block>,
    pub(crate) state: State,
    /// A reply is outstanding; later lines wait for it.
    pub(crate) blocked: bool,
    /// The client has been told that groups and tags may be used.
    pub(crate) groups: bool,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self {
            lines: Lines::default(),
            block: None,
            state: State::Stranger,
            blocked: false,
            groups: false,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.lines.push(bytes)
    }

    /// The next thing asked for, unless a reply is outstanding.
    pub(crate) fn next(&mut self) -> Result<Option<Input>, TooLong> {
        while !self.blocked {
            let Some(line) = self.lines.pop()? else { break };
            if self.block.is_some() {
                if let Some(input) = self.block_line(&line)? {
                    return Ok(Some(input));
                }
                continue;
            }
            match wire::parse(&line) {
                Ok(Line::Request(request)) => return Ok(Some(Input::Request(request))),
                Ok(Line::Block(name)) => {
                    self.block = Some(Block {
                        name,
                        bytes: 0,
                        total: None,
                        so_far: None,
                    });
                }
                Err(fault) => return Ok(Some(Input::Fault(fault))),
            }
        }
        Ok(None)
    }

    fn block_line(&mut self, line: &[u8]) -> Result<Option<Input>, TooLong> {
        let Some(block) = &mut self.block else {
            return Ok(None);
        };
        block.bytes += line.len() + 1;
        if block.bytes > BLOCK_MAX {
            return Err(TooLong);
        }
        if line.trim_ascii() != b"endcmd" {
            // Values are free text, so only the first word of a line counts.
            let pairs = Pairs::split(line);
            block.total = pairs.first_int(b"totspawns").or(block.total);
            block.so_far = pairs.first_int(b"spawnssofar").or(block.so_far);
            return Ok(None);
        }
        let Some(block) = self.block.take() else {
            return Ok(None);
        };
        if block.name != "spawn" {
            return Ok(Some(Input::UnknownBlock(block.name)));
        }
        // The client reads one reply, after the last segment.
        let more = matches!((block.so_far, block.total), (Some(n), Some(all)) if n < all);
        Ok((!more).then_some(Input::Spawn))
    }

    /// How many bytes are held for the peer.
    pub(crate) fn held(&self) -> usize {
        self.lines.held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(text: &str) -> Vec<Input> {
        let mut session = Session::new();
        session.push(text.as_bytes()).unwrap();
        std::iter::from_fn(|| session.next().unwrap()).collect()
    }

    const SEGMENT: &str = "mcmd=spawn\nnprocs=1\nexecname=./a.out\ntotspawns=2\nspawnssofar=";

    #[test]
    fn spawn_is_one_request_of_many_lines() {
        let text = format!(
            "{SEGMENT}1\narg1=cmd=finalize\narg2=x totspawns=9\nargcnt=2\ninfo_val_0=/tmp/a b\nendcmd\n\
             {SEGMENT}2\nargcnt=0\nendcmd\ncmd=finalize\n"
        );
        assert_eq!(
            inputs(&text),
            [Input::Spawn, Input::Request(Request::Finalize)]
        );
    }

    #[test]
    fn a_spawn_block_without_counts_is_answered_at_its_end() {
        assert_eq!(inputs("mcmd=spawn\nnprocs=1\nendcmd\n"), [Input::Spawn]);
        assert_eq!(
            inputs("mcmd=x\nendcmd\n"),
            [Input::UnknownBlock("x".into())]
        );
    }

    #[test]
    fn an_endless_block_is_cut_off() {
        let mut session = Session::new();
        session.push(b"mcmd=spawn\n").unwrap();
        let mut sent = 0;
        let refused = loop {
            session.push(&[&[b'x'; 1000][..], b"\n"].concat()).unwrap();
            sent += 1001;
            if session.next().is_err() {
                break true;
            }
            if sent > 2 * BLOCK_MAX {
                break false;
            }
        };
        assert!(refused);
        assert!(session.held() < 2000);
    }

    #[test]
    fn lines_wait_while_a_reply_is_outstanding() {
        let mut session = Session::new();
        session.push(b"cmd=barrier_in\ncmd=finalize\n").unwrap();
        assert!(session.next().unwrap().is_some());
        session.blocked = true;
        assert_eq!(session.next(), Ok(None));
        session.blocked = false;
        assert_eq!(session.next(), Ok(Some(Input::Request(Request::Finalize))));
    }
}
