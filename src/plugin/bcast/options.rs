//! `-o bcast=…`: what a job asks for before its tasks start.
//!
//! Either `-o bcast=FILE[,FILE…]`, or the object form `-o bcast.source=…` with
//! the words of the command's long options. Names that hold a comma are given
//! as a JSON array (`-o 'bcast.source=["a,b"]'`), bytes that are not UTF-8 as
//! `{"hex":"…"}` in their place.

use std::ffi::OsStr;
use std::time::Duration;

use serde_json::Map;
use serde_json::Value;

use crate::bcast::message::PlanRequest;
use crate::bcast::message::Tuning;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Existing;
use crate::bcast::spec::Policy;
use crate::elf::Libs;
use crate::idset::IdSet;
use crate::meant::hint;
use crate::units::parse_fsd;
use crate::units::parse_size;

/// Environment variable that gets the path unless the job names another one.
pub(crate) const DEFAULT_ENV: &str = "FLUX_BCAST_PATH";

/// What a job asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// Files and directories, read by the leader shell.
    pub(crate) sources: Vec<RawName>,
    /// Where the copies go.
    pub(crate) dest: Dest,
    /// How they are made.
    pub(crate) policy: Policy,
    /// Which ranks get them.
    pub(crate) plan: PlanRequest,
    /// How they are fed.
    pub(crate) tuning: Tuning,
    /// Environment variable that gets the path.
    pub(crate) env: String,
    /// Healthy ranks go on although others fail.
    pub(crate) partial: bool,
    /// Time limit.
    pub(crate) timeout: Option<Duration>,
    /// Shared objects go along.
    pub(crate) libs: Option<Libs>,
}

/// The keys of the object form.
const KEYS: &[&str] = &[
    "source",
    "dest",
    "ranks",
    "hosts",
    "exclude",
    "env",
    "force",
    "preserve",
    "mode",
    "mkdir",
    "k",
    "fanout",
    "chunk",
    "batch",
    "window",
    "pace",
    "compress",
    "direct",
    "timeout",
    "sync",
    "partial",
    "stall",
    "append",
    "truncate",
    "unique",
    "send-libs",
    "exclude-libs",
];

impl Options {
    /// Reads the value of the shell option `bcast`.
    ///
    /// # Errors
    /// One line that names the option and what is wrong with it.
    pub(crate) fn parse(value: &Value) -> Result<Self, String> {
        let empty = Map::new();
        let (sources, keys) = match value {
            Value::Object(keys) if keys.contains_key("hex") => (names(value)?, &empty),
            Value::Object(keys) => {
                // It may be a misspelt source.
                check_keys(keys)?;
                let source = keys
                    .get("source")
                    .ok_or("bcast.source is missing: nothing to send")?;
                (
                    names(source).map_err(|error| format!("bcast.source: {error}"))?,
                    keys,
                )
            }
            Value::String(_) | Value::Array(_) => (
                names(value).map_err(|error| format!("bcast: {error}"))?,
                &empty,
            ),
            _ => return Err("the name of a file is missing: -o bcast=FILE".into()),
        };
        let get = Getter { keys };
        let mut tuning = Tuning::default();
        if let Some(k) = get.number("k")?.or(get.number("fanout")?) {
            tuning.k =
                Some(u32::try_from(k).map_err(|_| format!("bcast.k: {k} is too large"))?);
        }
        if let Some(chunk) = get.size("chunk")? {
            tuning.chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
        }
        // A batch that is asked for is not changed silently; the default follows.
        tuning.batch = match get.size("batch")? {
            Some(batch) => u32::try_from(batch).unwrap_or(u32::MAX),
            None => tuning.batch.max(tuning.chunk),
        };
        if let Some(window) = get.size("window")? {
            tuning.window = window;
        }
        tuning.pace = get.size("pace")?;
        tuning.compress = get.flag("compress")?;
        tuning.direct = get.flag("direct")?;
        if let Some(stall) = get.duration("stall")? {
            tuning.stall = stall.as_secs_f64();
        }
        tuning.check().map_err(|error| format!("bcast.{error}"))?;
        // Given and empty, often a variable that is not set: no limit was meant, or
        // another one, but hardly nobody.
        let ranks = match get.text("ranks")?.map(|text| text.parse::<IdSet>()) {
            Some(Ok(set)) if set.is_empty() => return Err("bcast.ranks names no rank".into()),
            Some(set) => Some(set.map_err(|error| format!("bcast.ranks: {error}"))?),
            None => None,
        };
        let hosts = get.text("hosts")?;
        if hosts.as_ref().is_some_and(|hosts| hosts.is_empty()) {
            return Err("bcast.hosts names no host".into());
        }
        // As for the command: a set of ranks, or else hosts.
        let (exclude, exclude_hosts) = match get.text("exclude")? {
            Some(text) => match text.parse() {
                Ok(set) => (Some(set), None),
                Err(_) => (None, Some(text)),
            },
            None => (None, None),
        };
        let plan = PlanRequest {
            version: VERSION,
            ranks,
            hosts,
            exclude,
            exclude_hosts,
            k: tuning.k,
        };
        let path = match keys.get("dest") {
            Some(dest) => Some(name(dest).map_err(|error| format!("bcast.dest: {error}"))?),
            None => None,
        };
        if path.as_ref().is_some_and(RawName::is_empty) {
            return Err("bcast.dest is empty".into());
        }
        let env = get.text("env")?.unwrap_or_else(|| DEFAULT_ENV.into());
        if env.is_empty() || env.contains(['=', '\0']) {
            return Err(format!("bcast.env: '{env}' is not the name of a variable"));
        }
        let unique = get.flag("unique")?;
        if unique && path.is_some() {
            return Err("bcast.unique and bcast.dest contradict each other".into());
        }
        Ok(Self {
            dest: Dest {
                path,
                directory: false,
                mkdir: get.flag("mkdir")?,
                unique,
            },
            policy: Policy {
                existing: get.existing()?,
                mode: get.mode()?,
                times: get.flag("preserve")?,
                sync: get.flag("sync")?,
            },
            plan,
            tuning,
            env,
            partial: get.flag("partial")?,
            timeout: get.duration("timeout")?,
            libs: get.libs()?,
            sources,
        })
    }
}

fn check_keys(keys: &Map<String, Value>) -> Result<(), String> {
    let Some(unknown) = keys.keys().find(|key| !KEYS.contains(&key.as_str())) else {
        return Ok(());
    };
    let known: Vec<String> = KEYS.iter().map(|key| format!("bcast.{key}")).collect();
    Err(format!(
        "unknown option bcast.{unknown}{}; known are {}",
        hint("bcast.", unknown, KEYS.iter().copied()),
        known.join(", ")
    ))
}

/// One or more names: a string with commas, an array, or one name in hex.
fn names(value: &Value) -> Result<Vec<RawName>, String> {
    let names: Vec<RawName> = match value {
        Value::String(text) => text.split(',').map(RawName::from).collect(),
        Value::Array(values) => values.iter().map(name).collect::<Result<_, _>>()?,
        other => vec![name(other)?],
    };
    if names.is_empty() || names.iter().any(RawName::is_empty) {
        return Err("the name of a file is empty".into());
    }
    Ok(names)
}

fn name(value: &Value) -> Result<RawName, String> {
    // Flux's option parser turns a name of digits into a number.
    if let Value::Number(number) = value {
        return Ok(RawName::from(number.to_string().as_str()));
    }
    serde_json::from_value(value.clone()).map_err(|_| format!("{value} is not a file name"))
}

struct Getter<'a> {
    keys: &'a Map<String, Value>,
}

impl Getter<'_> {
    /// `-o bcast.KEY` is stored as 1, `-o bcast.KEY=VALUE` as JSON if it is
    /// JSON, else as text.
    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(format!("bcast.{key}: {other} is not a text")),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, String> {
        match self.keys.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::Number(number)) if number.as_u64() == Some(1) => Ok(true),
            Some(Value::Number(number)) if number.as_u64() == Some(0) => Ok(false),
            Some(other) => Err(format!("bcast.{key}: {other} is neither true nor false")),
        }
    }

    fn number(&self, key: &str) -> Result<Option<u64>, String> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(value) => value
                .as_u64()
                .or_else(|| value.as_str().and_then(|text| text.parse().ok()))
                .map(Some)
                .ok_or_else(|| format!("bcast.{key}: {value} is not a number")),
        }
    }

    fn size(&self, key: &str) -> Result<Option<u64>, String> {
        self.text(key)?
            .map(|text| parse_size(&text).map_err(|error| format!("bcast.{key}: {error}")))
            .transpose()
    }

    fn duration(&self, key: &str) -> Result<Option<Duration>, String> {
        self.text(key)?
            .map(|text| parse_fsd(&text).map_err(|error| format!("bcast.{key}: {error}")))
            .transpose()
    }

    /// What to do about existing files: at most one of three flags.
    fn existing(&self) -> Result<Existing, String> {
        let mut existing = Existing::Refuse;
        for (key, meant) in [
            ("force", Existing::Replace),
            ("append", Existing::Append),
            ("truncate", Existing::Truncate),
        ] {
            if self.flag(key)? {
                if existing != Existing::Refuse {
                    return Err(format!("bcast.{key} contradicts another option"));
                }
                existing = meant;
            }
        }
        Ok(existing)
    }

    /// `send-libs`, alone or with the name of a directory, and `exclude-libs`.
    fn libs(&self) -> Result<Option<Libs>, String> {
        let exclude = self.text("exclude-libs")?;
        let dir = match self.keys.get("send-libs") {
            Some(Value::String(dir)) => Some(RawName::from(dir.as_str())),
            _ if self.flag("send-libs")? => None,
            _ if exclude.is_some() => {
                return Err("bcast.exclude-libs needs bcast.send-libs".into());
            }
            _ => return Ok(None),
        };
        Libs::new(dir, exclude.as_deref().map(OsStr::new))
            .map(Some)
            .map_err(|error| format!("bcast.send-libs: {error}"))
    }

    fn mode(&self) -> Result<Option<u32>, String> {
        self.text("mode")?
            .map(|text| {
                u32::from_str_radix(&text, 8)
                    .ok()
                    .filter(|mode| *mode <= 0o777)
                    .ok_or_else(|| {
                        format!("bcast.mode: '{text}' is not an octal mode up to 777")
                    })
            })
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sources(value: Value) -> Vec<String> {
        Options::parse(&value)
            .unwrap()
            .sources
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn file_names_in_all_forms() {
        assert_eq!(sources(json!("/a b=c")), ["/a b=c"]);
        assert_eq!(sources(json!("a,b")), ["a", "b"]);
        assert_eq!(sources(json!(["a,b", {"hex": "ff"}])), ["a,b", "\\xff"]);
        assert_eq!(sources(json!({"hex": "ff"})), ["\\xff"]);
        assert_eq!(sources(json!({"source": "x\ny"})), ["x\\ny"]);
        assert_eq!(sources(json!({"source": 42})), ["42"]);
    }

    #[test]
    fn words_of_the_command() {
        let options = Options::parse(&json!({
            "source": "a", "k": 2, "chunk": "8k", "pace": "50M", "timeout": "1m", "force": 1, "mode": "755",
            "ranks": "1-2", "env": "WHERE", "dest": "d/", "mkdir": true,
        }))
        .unwrap();
        assert_eq!(options.tuning.k, Some(2));
        assert_eq!(options.tuning.chunk, 8192);
        assert_eq!(options.tuning.pace, Some(50 << 20));
        assert_eq!(options.timeout, Some(Duration::from_secs(60)));
        assert_eq!(options.policy.existing, Existing::Replace);
        assert_eq!(options.policy.mode, Some(0o755));
        assert_eq!(options.env, "WHERE");
        assert!(options.dest.mkdir);
        let more = Options::parse(&json!({
            "source": "a", "append": true, "unique": 1, "exclude": "n[1-2]", "send-libs": 1,
            "exclude-libs": "/opt",
        }))
        .unwrap();
        assert_eq!(more.policy.existing, Existing::Append);
        assert!(more.dest.unique);
        assert_eq!(more.plan.exclude_hosts.as_deref(), Some("n[1-2]"));
        let libs = Libs::new(None, Some(OsStr::new("/opt"))).unwrap();
        assert_eq!(more.libs, Some(libs));
        let named = json!({"source": "a", "send-libs": "l"});
        let libs = Libs::new(Some("l".into()), None).unwrap();
        assert_eq!(Options::parse(&named).unwrap().libs, Some(libs));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (value, says) in [
            (json!(1), "-o bcast=FILE"),
            (json!(""), "empty"),
            (json!("a,,b"), "empty"),
            (json!({"k": 2}), "bcast.source is missing"),
            (
                json!({"source": "a", "kk": 2}),
                "bcast.kk (did you mean bcast.k?); known are bcast.source, ",
            ),
            (json!({"sorce": "a"}), "did you mean bcast.source?"),
            (json!({"source": "a", "list": 1}), "bcast.list; known are"),
            (json!({"source": "a", "k": 0}), "k must be at least 1"),
            (json!({"source": "a", "k": "x"}), "bcast.k"),
            (json!({"source": "a", "chunk": "2M"}), "chunk"),
            (json!({"source": "a", "pace": 0}), "bcast.pace 0"),
            (json!({"source": "a", "pace": "2000G"}), "bcast.pace"),
            (json!({"source": "a", "pace": "fast"}), "bcast.pace"),
            (json!({"source": "a", "mode": "999"}), "bcast.mode"),
            (json!({"source": "a", "timeout": "soon"}), "bcast.timeout"),
            (json!({"source": "a", "force": "maybe"}), "bcast.force"),
            (json!({"source": "a", "env": "A=B"}), "bcast.env"),
            (json!({"source": "a", "ranks": "x"}), "bcast.ranks"),
            (json!({"source": "a", "ranks": ""}), "bcast.ranks"),
            (json!({"source": "a", "hosts": ""}), "bcast.hosts"),
            (json!({"source": "a", "dest": ""}), "bcast.dest"),
            (json!({"source": "a", "batch": "1k"}), "bcast.batch"),
            (
                json!({"source": "a", "force": 1, "append": 1}),
                "bcast.append",
            ),
            (
                json!({"source": "a", "unique": 1, "dest": "d"}),
                "bcast.unique",
            ),
            (
                json!({"source": "a", "send-libs": "a/b"}),
                "bcast.send-libs",
            ),
            (
                json!({"source": "a", "exclude-libs": "/x"}),
                "bcast.send-libs",
            ),
        ] {
            let error = Options::parse(&value).unwrap_err();
            assert!(error.contains(says), "{value}: {error}");
        }
    }
}
