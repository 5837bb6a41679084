//! Reads one request line. Command names match exactly; unknown keys are
//! ignored; order and extra blanks do not matter.

use std::fmt;

/// Longest name of a key space that is told to clients, in bytes.
pub const NAME_MAX: usize = 64;
/// Longest key accepted, in bytes.
pub const KEY_MAX: usize = 64;
/// Longest value accepted, in bytes. Larger figures break known clients.
pub const VALUE_MAX: usize = 1024;

/// The most words on one line, as in MPICH.
const WORDS_MAX: usize = 64;

/// Keys whose text may hold blanks and therefore runs to the end of the line.
const FREE_TEXT: [&[u8]; 4] = [b"value", b"msg", b"message", b"error_msg"];

/// One request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    InitAck { id: i64 },
    Init { version: i64, subversion: i64 },
    GetMaxes,
    GetAppnum,
    GetUniverseSize,
    GetMyKvsname,
    Put { key: Vec<u8>, value: Vec<u8> },
    Get { key: Vec<u8> },
    GetByIdx { index: usize },
    BarrierIn { group: Option<Vec<u8>> },
    Publish { service: Vec<u8>, port: Vec<u8> },
    Lookup { service: Vec<u8> },
    Unpublish { service: Vec<u8> },
    Abort { code: i64, text: Vec<u8> },
    Finalize,
    CreateKvs,
    DestroyKvs,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It names no command, so no reply can be matched to it.
    NoCommand,
    /// It names a command that does not exist here.
    Unknown(String),
    /// The command exists; the rest of the line cannot be used.
    Malformed(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommand => f.write_str("line without a command"),
            Self::Unknown(name) => write!(f, "unknown command '{name}'"),
            Self::Malformed(name) => write!(f, "malformed request '{name}'"),
        }
    }
}

/// One line, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A request that is complete on this line.
    Request(Request),
    /// `mcmd=NAME`: lines up to `endcmd` belong to it.
    Block(String),
}

/// Reads a line that is not inside a block.
///
/// # Errors
///
/// [`Fault`] says whether a reply is still possible.
pub(crate) fn parse(line: &[u8]) -> Result<Line, Fault> {
    let pairs = Pairs::split(line);
    if let Some(name) = pairs.first(b"mcmd") {
        return Ok(Line::Block(printable(name)));
    }
    let name = pairs.first(b"cmd").ok_or(Fault::NoCommand)?;
    request(name, &pairs).map(Line::Request)
}

fn request(name: &[u8], pairs: &Pairs<'_>) -> Result<Request, Fault> {
    let command = COMMANDS
        .iter()
        .find(|command| command.name.as_bytes() == name)
        .ok_or_else(|| Fault::Unknown(printable(name)))?;
    let bad = Fault::Malformed(command.name);
    if pairs.torn {
        return Err(bad);
    }
    (command.read)(pairs).ok_or(bad)
}

struct Command {
    name: &'static str,
    reply: &'static str,
    read: fn(&Pairs<'_>) -> Option<Request>,
}

/// The commands of PMI 1.1 with the names of their replies.
const COMMANDS: [Command; 17] = [
    Command {
        name: "initack",
        reply: "initack",
        read: |p| {
            Some(Request::InitAck {
                id: p.int(b"pmiid")?,
            })
        },
    },
    Command {
        name: "init",
        reply: "response_to_init",
        read: |p| {
            let (version, subversion) = (p.int(b"pmi_version")?, p.int(b"pmi_subversion")?);
            Some(Request::Init {
                version,
                subversion,
            })
        },
    },
    Command {
        name: "get_maxes",
        reply: "maxes",
        read: |_| Some(Request::GetMaxes),
    },
    Command {
        name: "get_appnum",
        reply: "appnum",
        read: |_| Some(Request::GetAppnum),
    },
    Command {
        name: "get_universe_size",
        reply: "universe_size",
        read: |_| Some(Request::GetUniverseSize),
    },
    Command {
        name: "get_my_kvsname",
        reply: "my_kvsname",
        read: |_| Some(Request::GetMyKvsname),
    },
    Command {
        name: "put",
        reply: "put_result",
        read: |p| {
            Some(Request::Put {
                key: p.owned(b"key")?,
                value: p.owned(b"value")?,
            })
        },
    },
    Command {
        name: "get",
        reply: "get_result",
        read: |p| {
            Some(Request::Get {
                key: p.owned(b"key")?,
            })
        },
    },
    Command {
        name: "getbyidx",
        reply: "getbyidx_results",
        read: |p| {
            Some(Request::GetByIdx {
                index: usize::try_from(p.int(b"idx")?).ok()?,
            })
        },
    },
    Command {
        name: "barrier_in",
        reply: "barrier_out",
        read: |p| {
            Some(Request::BarrierIn {
                group: p.owned(b"group"),
            })
        },
    },
    Command {
        name: "publish_name",
        reply: "publish_result",
        read: |p| {
            Some(Request::Publish {
                service: p.owned(b"service")?,
                port: p.owned(b"port")?,
            })
        },
    },
    Command {
        name: "lookup_name",
        reply: "lookup_result",
        read: |p| {
            Some(Request::Lookup {
                service: p.owned(b"service")?,
            })
        },
    },
    Command {
        name: "unpublish_name",
        reply: "unpublish_result",
        read: |p| {
            Some(Request::Unpublish {
                service: p.owned(b"service")?,
            })
        },
    },
    Command {
        name: "abort",
        reply: "abort_result",
        read: |p| {
            // The spellings of MPICH, of Flux and of older Flux.
            let code = p
                .int(b"exitcode")
                .or_else(|| p.int(b"exit_code"))
                .unwrap_or(1);
            let text = [&b"message"[..], b"error_msg", b"msg"]
                .iter()
                .find_map(|key| p.owned(key))
                .unwrap_or_default();
            Some(Request::Abort { code, text })
        },
    },
    Command {
        name: "finalize",
        reply: "finalize_ack",
        read: |_| Some(Request::Finalize),
    },
    Command {
        name: "create_kvs",
        reply: "newkvs",
        read: |_| Some(Request::CreateKvs),
    },
    Command {
        name: "destroy_kvs",
        reply: "kvs_destroyed",
        read: |_| Some(Request::DestroyKvs),
    },
];

/// The name of the reply to the command `name`.
pub(crate) fn reply_name(name: &str) -> &'static str {
    COMMANDS
        .iter()
        .find(|command| command.name == name)
        .map_or("unknown_command", |command| command.reply)
}

/// Text of a peer, made fit for a log line or a reply: visible ASCII, short.
pub(crate) fn printable(text: &[u8]) -> String {
    let short = text.get(..64).unwrap_or(text);
    short
        .iter()
        .map(|&b| {
            if b.is_ascii_graphic() && b != b'=' {
                char::from(b)
            } else {
                '?'
            }
        })
        .collect()
}

/// The `key=value` words of a line.
pub(crate) struct Pairs<'a> {
    pairs: Vec<(&'a [u8], &'a [u8])>,
    /// A word had no `=`, or there were too many.
    torn: bool,
}

impl<'a> Pairs<'a> {
    pub(crate) fn split(line: &'a [u8]) -> Self {
        let mut all = Self {
            pairs: Vec::new(),
            torn: false,
        };
        let mut rest = line.trim_ascii_start();
        while !rest.is_empty() {
            if all.pairs.len() == WORDS_MAX {
                all.torn = true;
                break;
            }
            let word_end = rest.iter().position(|b| b.is_ascii_whitespace());
            let word = &rest[..word_end.unwrap_or(rest.len())];
            let Some(eq) = word.iter().position(|&b| b == b'=') else {
                all.torn = true;
                rest = rest[word.len()..].trim_ascii_start();
                continue;
            };
            let key = &word[..eq];
            if FREE_TEXT.contains(&key) {
                all.pairs.push((key, &rest[eq + 1..]));
                break;
            }
            all.pairs.push((key, &word[eq + 1..]));
            rest = rest[word.len()..].trim_ascii_start();
        }
        all
    }

    /// The value of `key` if that is the first word of the line.
    pub(crate) fn first(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.pairs
            .first()
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| *value)
    }

    /// The number that `key` has, if it is the first word of the line.
    pub(crate) fn first_int(&self, key: &[u8]) -> Option<i64> {
        std::str::from_utf8(self.first(key)?).ok()?.parse().ok()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.pairs
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| *value)
    }

    fn int(&self, key: &[u8]) -> Option<i64> {
        std::str::from_utf8(self.get(key)?).ok()?.parse().ok()
    }

    fn owned(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(key).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Result<Request, Fault> {
        match parse(line.as_bytes())? {
            Line::Request(request) => Ok(request),
            Line::Block(name) => panic!("block {name}"),
        }
    }

    #[test]
    fn requests_as_clients_send_them() {
        let put = |key: &str, value: &str| Request::Put {
            key: key.into(),
            value: value.into(),
        };
        for (line, want) in [
            ("cmd=initack pmiid=7", Request::InitAck { id: 7 }),
            (
                "cmd=init pmi_version=1 pmi_subversion=1",
                Request::Init {
                    version: 1,
                    subversion: 1,
                },
            ),
            ("cmd=put kvsname=K key=a value=b", put("a", "b")),
            ("cmd=put kvsname=K key=a value=b c=d", put("a", "b c=d")),
            ("cmd=put kvsname=K key=e value=x=y=z", put("e", "x=y=z")),
            ("cmd=put kvsname=K key=a value=", put("a", "")),
            ("cmd=put kvsname=K key=a value= b ", put("a", " b ")),
            (
                "  cmd=put\t new=1  key=a kvsname=\u{192}X value=b",
                put("a", "b"),
            ),
            (
                "cmd=get kvsname=K key=-bcast-1-0",
                Request::Get {
                    key: b"-bcast-1-0".to_vec(),
                },
            ),
            ("cmd=barrier_in", Request::BarrierIn { group: None }),
            (
                "cmd=barrier_in group=WORLD:7",
                Request::BarrierIn {
                    group: Some(b"WORLD:7".to_vec()),
                },
            ),
            (
                "cmd=abort exitcode=42",
                Request::Abort {
                    code: 42,
                    text: vec![],
                },
            ),
            (
                "cmd=abort exitcode=3 message=a b=c",
                Request::Abort {
                    code: 3,
                    text: b"a b=c".to_vec(),
                },
            ),
            (
                "cmd=abort exitcode=3 error_msg=a b",
                Request::Abort {
                    code: 3,
                    text: b"a b".to_vec(),
                },
            ),
            (
                "cmd=abort exit_code=-1 error_msg=x",
                Request::Abort {
                    code: -1,
                    text: b"x".to_vec(),
                },
            ),
            (
                "cmd=getbyidx kvsname=K idx=0",
                Request::GetByIdx { index: 0 },
            ),
            ("cmd=finalize", Request::Finalize),
        ] {
            assert_eq!(read(line), Ok(want), "{line}");
        }
    }

    #[test]
    fn names_match_exactly() {
        for line in [
            "cmd=ini pmi_version=1 pmi_subversion=1",
            "cmd=gets key=a",
            "cmd=barrier",
            "cmd=",
        ] {
            assert!(matches!(read(line), Err(Fault::Unknown(_))), "{line}");
        }
        assert_eq!(
            read("cmd=get_ranks2hosts"),
            Err(Fault::Unknown("get_ranks2hosts".into()))
        );
    }

    #[test]
    fn faults() {
        for (line, want) in [
            ("", Fault::NoCommand),
            ("hello", Fault::NoCommand),
            ("GET / HTTP/1.1", Fault::NoCommand),
            ("key=a cmd=get", Fault::NoCommand),
            ("cmd=get kvsname=K", Fault::Malformed("get")),
            ("cmd=get key=a b", Fault::Malformed("get")),
            ("cmd=initack pmiid=x", Fault::Malformed("initack")),
            (
                "cmd=initack pmiid=99999999999999999999",
                Fault::Malformed("initack"),
            ),
            ("cmd=getbyidx idx=-1", Fault::Malformed("getbyidx")),
        ] {
            assert_eq!(read(line), Err(want), "{line}");
        }
    }

    #[test]
    fn blocks_are_seen() {
        assert_eq!(parse(b"mcmd=spawn"), Ok(Line::Block("spawn".into())));
    }

    #[test]
    fn no_two_commands_share_a_name() {
        for (i, command) in COMMANDS.iter().enumerate() {
            assert!(COMMANDS[..i].iter().all(|c| c.name != command.name));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }

        #[test]
        fn a_put_comes_back_whole(key in "[!-<>-~]{1,64}", value in "[ -~]{0,1024}") {
            let line = format!("cmd=put kvsname=K key={key} value={value}");
            prop_assert_eq!(read(&line), Ok(Request::Put {
                key: key.into_bytes(),
                value: value.into_bytes(),
            }));
        }
    }
}
