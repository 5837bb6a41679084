//! The client's side of the wire, over any byte stream: for programs of this
//! project that are started under a `PMI_PORT`.
//!
//! Requests wait for their reply, as in every PMI-1 client.

use super::lines::{Lines, TooLong};
use super::wire::{Pairs, printable};
use std::io::{self, Read, Write};

/// Why a request to the provider failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection broke.
    #[error("PMI connection: {}", crate::errno::reason(.0))]
    Io(#[from] io::Error),
    /// The provider closed the connection.
    #[error("the PMI provider closed the connection")]
    Closed,
    /// A line is longer than anything a provider has to say.
    #[error("reply: {0}")]
    Long(#[from] TooLong),
    /// The reply is not the one to the request.
    #[error("expected '{want}' from the PMI provider, got '{got}'")]
    Unexpected {
        /// Name or form of the reply that was due.
        want: &'static str,
        /// The line, shortened.
        got: String,
    },
    /// The provider says that the request failed.
    #[error("{what}: rc={rc} {msg}")]
    Refused {
        /// Name of the reply.
        what: &'static str,
        /// The provider's code, not 0.
        rc: i64,
        /// The provider's words.
        msg: String,
    },
}

/// One reply line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(Vec<u8>);

impl Reply {
    /// The whole line.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        &self.0
    }

    /// The name of the reply.
    #[must_use]
    pub fn name(&self) -> Option<&[u8]> {
        Pairs::split(&self.0).first(b"cmd")
    }

    /// The text of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        Pairs::split(&self.0)
            .get(key.as_bytes())
            .map(<[u8]>::to_vec)
    }

    /// The number of `key`.
    #[must_use]
    pub fn int(&self, key: &str) -> Option<i64> {
        std::str::from_utf8(&self.get(key)?).ok()?.parse().ok()
    }

    fn expect(self, want: &'static str) -> Result<Self, Error> {
        if self.name() != Some(want.as_bytes()) {
            return Err(self.unexpected(want));
        }
        // Other providers leave rc out on success.
        match self.int("rc").unwrap_or(0) {
            0 => Ok(self),
            rc => {
                let msg = self.get("msg").unwrap_or_default();
                let msg = String::from_utf8_lossy(&msg).into_owned();
                Err(Error::Refused {
                    what: want,
                    rc,
                    msg,
                })
            }
        }
    }

    fn unexpected(&self, want: &'static str) -> Error {
        Error::Unexpected {
            want,
            got: self.0.iter().take(80).map(|&b| char::from(b)).collect(),
        }
    }

    fn want_int(&self, key: &'static str) -> Result<i64, Error> {
        self.int(key).ok_or_else(|| self.unexpected(key))
    }
}

/// A connection past its handshake.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    lines: Lines,
    kvsname: Vec<u8>,
    /// Number of ranks.
    pub size: u32,
    /// The rank that the provider took this client for.
    pub rank: u32,
}

impl<S: Read + Write> Client<S> {
    /// Says which id this client has.
    ///
    /// # Errors
    ///
    /// [`Error::Unexpected`] when the reply is not the four lines in the order
    /// that all clients rely on.
    pub fn handshake(stream: S, id: i64) -> Result<Self, Error> {
        let mut client = Self {
            stream,
            lines: Lines::default(),
            kvsname: Vec::new(),
            size: 0,
            rank: 0,
        };
        client.send(format!("cmd=initack pmiid={id}").as_bytes())?;
        client.reply()?.expect("initack")?;
        client.size = client.setting("size")?;
        client.rank = client.setting("rank")?;
        client.setting("debug")?;
        if client.lines.held_back() {
            return Err(Error::Unexpected {
                want: "nothing",
                got: "more lines".to_owned(),
            });
        }
        Ok(client)
    }

    fn setting(&mut self, key: &'static str) -> Result<u32, Error> {
        let reply = self.reply()?.expect("set")?;
        u32::try_from(reply.want_int(key)?).map_err(|_| reply.unexpected(key))
    }

    /// Gives the connection back, with nothing read ahead.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Sends one line, newline not included, and returns the reply.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub fn ask(&mut self, line: &[u8]) -> Result<Reply, Error> {
        self.send(line)?;
        self.reply()
    }

    /// Opens the PMI session and learns the name of the key space.
    ///
    /// # Errors
    ///
    /// Those of [`Client::ask`], and refusals.
    pub fn init(&mut self) -> Result<(), Error> {
        self.ask(b"cmd=init pmi_version=1 pmi_subversion=1")?
            .expect("response_to_init")?;
        let reply = self.ask(b"cmd=get_my_kvsname")?.expect("my_kvsname")?;
        self.kvsname = reply
            .get("kvsname")
            .ok_or_else(|| reply.unexpected("kvsname"))?;
        Ok(())
    }

    /// The name of the key space; empty before [`Client::init`].
    pub fn kvsname(&self) -> &[u8] {
        &self.kvsname
    }

    /// Stores a value. It must not hold a newline.
    ///
    /// # Errors
    ///
    /// As [`Client::init`]; EINVAL as an I/O error for a newline or a blank in
    /// the key.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        let broken = key.bytes().any(|b| b.is_ascii_whitespace() || b == b'=');
        if broken || value.contains(&b'\n') {
            let text = format!(
                "key '{}' or its value cannot be sent",
                printable(key.as_bytes())
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text).into());
        }
        let line = [
            b"cmd=put kvsname=",
            &self.kvsname[..],
            b" key=",
            key.as_bytes(),
            b" value=",
            value,
        ];
        self.ask(&line.concat())?.expect("put_result").map(drop)
    }

    /// Reads a value.
    ///
    /// # Errors
    ///
    /// As [`Client::init`]; [`Error::Refused`] if there is no such key.
    pub fn get(&mut self, key: &str) -> Result<Vec<u8>, Error> {
        let line = [
            b"cmd=get kvsname=",
            &self.kvsname[..],
            b" key=",
            key.as_bytes(),
        ];
        let reply = self.ask(&line.concat())?.expect("get_result")?;
        let value = reply
            .get("value")
            .ok_or_else(|| reply.unexpected("value"))?;
        // Some providers say more after the value, against the rules.
        let value = value.strip_suffix(b" found=TRUE").unwrap_or(&value);
        Ok(value.to_vec())
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    ///
    /// As [`Client::init`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.ask(b"cmd=barrier_in")?.expect("barrier_out").map(drop)
    }

    /// Asks the provider to end the job. No reply is due.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub fn abort(&mut self, code: i32, text: &str) -> Result<(), Error> {
        let text = text.replace('\n', " ");
        self.send(format!("cmd=abort exitcode={code} message={text}").as_bytes())
    }

    /// Ends the session; the connection may be closed then.
    ///
    /// # Errors
    ///
    /// As [`Client::init`].
    pub fn finalize(&mut self) -> Result<(), Error> {
        self.ask(b"cmd=finalize")?.expect("finalize_ack").map(drop)
    }

    fn send(&mut self, line: &[u8]) -> Result<(), Error> {
        // One write: a request should be one segment.
        self.stream.write_all(&[line, b"\n"].concat())?;
        self.stream.flush()?;
        Ok(())
    }

    fn reply(&mut self) -> Result<Reply, Error> {
        loop {
            if let Some(line) = self.lines.pop()? {
                return Ok(Reply(line));
            }
            let mut buf = [0; 2048];
            match self.stream.read(&mut buf) {
                Ok(0) => return Err(Error::Closed),
                Ok(n) => self.lines.push(&buf[..n])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A provider that answers every line from a list.
    struct Script {
        replies: VecDeque<&'static str>,
        sent: Vec<u8>,
        pending: VecDeque<u8>,
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.extend_from_slice(bytes);
            if bytes.ends_with(b"\n") {
                self.pending
                    .extend(self.replies.pop_front().unwrap_or("").bytes());
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Script {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            // One byte at a time, as a slow network may.
            let Some(byte) = self.pending.pop_front() else {
                return Ok(0);
            };
            buf[0] = byte;
            Ok(1)
        }
    }

    fn script(replies: &[&'static str]) -> Script {
        let replies = replies.iter().copied().collect();
        Script {
            replies,
            sent: Vec::new(),
            pending: VecDeque::new(),
        }
    }

    const HELLO: &str = "cmd=initack\ncmd=set size=4\ncmd=set rank=2\ncmd=set debug=0\n";

    #[test]
    fn a_session() {
        let mut client = Client::handshake(
            script(&[
                HELLO,
                "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
                "cmd=my_kvsname rc=0 kvsname=\u{192}X\n",
                "cmd=put_result rc=0\n",
                "cmd=barrier_out\n",
                "cmd=get_result rc=0 value=b c=d\n",
                "cmd=get_result rc=0 value=v found=TRUE\n",
                "cmd=get_result rc=4 msg=key_not_found\n",
                "cmd=finalize_ack rc=0\n",
            ]),
            2,
        )
        .unwrap();
        assert_eq!((client.rank, client.size), (2, 4));
        client.init().unwrap();
        client.put("a", b"b c=d").unwrap();
        client.barrier().unwrap();
        assert_eq!(client.get("a").unwrap(), b"b c=d");
        assert_eq!(client.get("v").unwrap(), b"v");
        assert!(matches!(client.get("x"), Err(Error::Refused { rc: 4, .. })));
        client.finalize().unwrap();
        assert!(matches!(client.barrier(), Err(Error::Closed)));
        assert!(client.put("a b", b"").is_err());
        assert!(client.put("a", b"x\ny").is_err());
        let sent = String::from_utf8(client.into_stream().sent).unwrap();
        assert!(
            sent.contains("\ncmd=put kvsname=\u{192}X key=a value=b c=d\n"),
            "{sent}"
        );
    }

    #[test]
    fn deviations_in_the_handshake_are_named() {
        for (hello, part) in [
            ("cmd=initack rc=-1 msg=no_such_id\n", "no_such_id"),
            (
                "cmd=initack\ncmd=set rank=2\ncmd=set size=4\ncmd=set debug=0\n",
                "'size'",
            ),
            ("cmd=initack\ncmd=set size=4\n", "closed"),
            ("nonsense\n", "'initack'"),
        ] {
            let error = Client::handshake(script(&[hello]), 2)
                .map(drop)
                .unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let extra = Box::leak(format!("{HELLO}x").into_boxed_str());
        assert!(
            Client::handshake(script(&[extra]), 2).is_ok(),
            "nothing was read ahead"
        );
    }
}
