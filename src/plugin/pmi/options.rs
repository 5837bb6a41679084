//! The shell options of the PMI provider: `-o pmi=…` and `-o pmi-port.…`.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;

use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::log::Log;
use crate::flux::shell::Shell;
use crate::meant::hint;
use crate::pmi::IdPolicy;
use crate::sockets::origin::Origin;
use crate::units::parse_fsd;

/// The name that selects this provider in `-o pmi=LIST`.
const NAME: &str = "port";

/// Names that select the shell's own provider of `PMI_FD`.
const SIMPLE: [&str; 3] = ["simple", "pmi1", "pmi2"];

/// What the user asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// Address to listen on; tasks must be able to reach it.
    pub(crate) bind: Ipv4Addr,
    /// Where clients may come from besides the job's hosts.
    pub(crate) allow: Vec<Origin>,
    /// How ids are chosen, if the user has said so; see [`Options::ids`].
    pub(crate) id: Option<IdPolicy>,
    pub(crate) lanes: u32,
    /// Leave out the keys that say where ranks run.
    pub(crate) nomap: bool,
    /// Children of a shell in the tree of the exchange.
    pub(crate) k: u32,
    pub(crate) handshake_timeout: Duration,
    /// Admit only processes of the job's user.
    pub(crate) uid_check: bool,
    /// Offer PMI 1.2.
    pub(crate) pmi12: bool,
    /// The shell's own provider serves `PMI_FD` as well.
    pub(crate) beside_simple: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bind: Ipv4Addr::LOCALHOST,
            allow: Vec::new(),
            id: None,
            lanes: 8,
            nomap: false,
            k: 2,
            handshake_timeout: Duration::from_secs(30),
            uid_check: true,
            pmi12: false,
            beside_simple: false,
        }
    }
}

impl Options {
    /// Reads the options of a job; `None` if it does not ask for this
    /// provider.
    ///
    /// # Errors
    /// EINVAL, with a text that names the option.
    pub(crate) fn read(shell: Shell, log: Log) -> Result<Option<Self>> {
        let object = shell.getopt("pmi-port")?;
        let options = match shell.getopt("pmi")? {
            Some(list) => parse(&list, object.as_ref())
                .map_err(|text| Error::with_text(Errno::EINVAL, text))?,
            None => None,
        };
        if options.is_none()
            && let Some(object) = &object
            && shell.info()?.rank == 0
        {
            log.warn(format_args!("{}", idle(object)));
        }
        Ok(options)
    }
}

/// What to say about options that nothing makes use of: who gives them and forgets
/// `pmi=port` would take the job for one that has them.
///
/// That is no error: a start-up script of the site or the user may set them for
/// every job, and which provider a job takes is its own choice. Flux's shell
/// carries on with options that nobody reads, too.
fn idle(object: &Value) -> String {
    let names = match object {
        Value::Object(members) if !members.is_empty() => {
            let names = members.keys().map(|key| format!("pmi-port.{key}"));
            names.collect::<Vec<_>>().join(", ")
        }
        _ => "pmi-port".to_owned(),
    };
    format!("option {names}: no effect without '{NAME}' in -o pmi=LIST")
}

fn parse(list: &Value, object: Option<&Value>) -> std::result::Result<Option<Options>, String> {
    let Some(list) = list.as_str() else {
        // The shell's own provider reports this.
        return Ok(None);
    };
    let names: Vec<&str> = list.split(',').map(str::trim).collect();
    if !names.contains(&NAME) {
        return Ok(None);
    }
    let mut options = Options {
        beside_simple: names.iter().any(|name| SIMPLE.contains(name)),
        ..Options::default()
    };
    match object {
        None => {}
        Some(Value::Object(members)) => {
            for (key, value) in members {
                options
                    .set(key, value)
                    .map_err(|why| format!("option pmi-port.{key}: {why}"))?;
            }
        }
        Some(other) => {
            return Err(format!("option pmi-port={other}: use pmi-port.KEY=VALUE"));
        }
    }
    options.check()?;
    Ok(Some(options))
}

const KNOWN: &str = "bind, allow, id, lanes, nomap, k, handshake-timeout, uid-check, pmi12";

impl Options {
    /// Other hosts can connect.
    pub(crate) fn is_open(&self) -> bool {
        !self.bind.is_loopback()
    }

    /// How ids are chosen. Where other hosts can connect, nothing but a secret
    /// tells a rank from anybody else there.
    pub(crate) fn ids(&self) -> IdPolicy {
        match self.id {
            Some(policy) => policy,
            None if self.is_open() => IdPolicy::Random,
            None => IdPolicy::Rank,
        }
    }

    /// Refuses what does not go together.
    fn check(&self) -> std::result::Result<(), String> {
        if self.is_open() && self.ids() != IdPolicy::Random {
            return Err(format!(
                "option pmi-port.id=rank: anybody could guess ids where other hosts can \
                 connect, as with pmi-port.bind={}: use id=random or a bind address of 127.*",
                self.bind
            ));
        }
        if !self.is_open() && !self.allow.is_empty() {
            return Err(format!(
                "option pmi-port.allow: no other host can connect with pmi-port.bind={}: use \
                 a bind address that is not of 127.*",
                self.bind
            ));
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &Value) -> std::result::Result<(), String> {
        match key {
            "bind" => {
                let text = text(value)?;
                self.bind = text
                    .parse()
                    .map_err(|_| format!("'{text}' is not a numeric IPv4 address"))?;
            }
            "allow" => self.allow = origins(value)?,
            "id" => {
                self.id = Some(match text(value)?.as_str() {
                    "rank" => IdPolicy::Rank,
                    "random" => IdPolicy::Random,
                    other => return Err(format!("'{other}' is neither rank nor random")),
                });
            }
            "lanes" => self.lanes = number(value, 1024)?,
            "k" => self.k = number(value, u32::MAX)?,
            "nomap" => self.nomap = flag(value)?,
            "uid-check" => self.uid_check = flag(value)?,
            "pmi12" => self.pmi12 = flag(value)?,
            "handshake-timeout" => {
                self.handshake_timeout = match parse_fsd(&text(value)?)? {
                    // Nobody could say who it is in no time.
                    Duration::ZERO => return Err("must be more than 0".into()),
                    time => time,
                };
            }
            _ => {
                let hint = hint("", key, KNOWN.split(", "));
                return Err(format!("unknown{hint}; known are {KNOWN}"));
            }
        }
        Ok(())
    }
}

/// The shell reads a value as JSON where it can.
fn text(value: &Value) -> std::result::Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("{other} is not a text")),
    }
}

/// One place, or an array of them.
fn origins(value: &Value) -> std::result::Result<Vec<Origin>, String> {
    match value {
        Value::Array(values) if values.is_empty() => Err("the array is empty".into()),
        Value::Array(values) => values.iter().map(|value| text(value)?.parse()).collect(),
        one => Ok(vec![text(one)?.parse()?]),
    }
}

fn number(value: &Value, max: u32) -> std::result::Result<u32, String> {
    let text = text(value)?;
    text.parse()
        .ok()
        .filter(|n| (1..=max).contains(n))
        .ok_or_else(|| format!("'{text}' is not a number from 1 to {max}"))
}

fn flag(value: &Value) -> std::result::Result<bool, String> {
    match value {
        Value::Bool(on) => return Ok(*on),
        Value::Number(number) => match number.as_u64() {
            Some(0) => return Ok(false),
            Some(1) => return Ok(true),
            _ => {}
        },
        Value::String(text) => match text.as_str() {
            "on" | "yes" | "true" => return Ok(true),
            "off" | "no" | "false" => return Ok(false),
            _ => {}
        },
        _ => {}
    }
    Err(format!("{value} is neither on nor off"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(list: &str, object: Value) -> std::result::Result<Option<Options>, String> {
        parse(&json!(list), Some(&object))
    }

    #[test]
    fn only_the_list_turns_it_on() {
        for list in ["simple", "off", "ports", "pmix,simple", ""] {
            assert_eq!(read(list, json!({"lanes": 2})), Ok(None), "{list}");
        }
        assert_eq!(parse(&json!("port"), None), Ok(Some(Options::default())));
        for list in ["simple,port", "port,simple", "port, pmi2"] {
            assert!(
                parse(&json!(list), None).unwrap().unwrap().beside_simple,
                "{list}"
            );
        }
    }

    #[test]
    fn options_of_a_provider_that_is_not_asked_for_are_named() {
        for (object, names) in [
            (json!({"lanes": 2, "k": 1}), "pmi-port.k, pmi-port.lanes: "),
            (json!({}), "pmi-port: "),
            (json!(1), "pmi-port: "),
        ] {
            let text = idle(&object);
            assert!(
                text.starts_with(&format!("option {names}no effect")),
                "{text}"
            );
        }
    }

    #[test]
    fn every_option() {
        let options = read(
            "port",
            json!({
                "bind": "10.0.0.1", "allow": "10.0.0.0/8", "id": "random", "lanes": "3",
                "nomap": 1, "k": 16,
                "handshake-timeout": "1.5m", "uid-check": "off", "pmi12": true,
            }),
        );
        assert_eq!(
            options.unwrap().unwrap(),
            Options {
                bind: Ipv4Addr::new(10, 0, 0, 1),
                allow: vec!["10.0.0.0/8".parse().unwrap()],
                id: Some(IdPolicy::Random),
                lanes: 3,
                nomap: true,
                k: 16,
                handshake_timeout: Duration::from_secs(90),
                uid_check: false,
                pmi12: true,
                beside_simple: false,
            }
        );
    }

    #[test]
    fn where_other_hosts_can_connect_ids_are_secret() {
        let ids = |object: Value| read("port", object).map(|options| options.unwrap().ids());
        assert_eq!(ids(json!({})), Ok(IdPolicy::Rank));
        for bind in ["127.0.0.1", "127.0.0.2", "127.255.255.254"] {
            assert_eq!(ids(json!({"bind": bind})), Ok(IdPolicy::Rank));
            assert_eq!(ids(json!({"bind": bind, "id": "rank"})), Ok(IdPolicy::Rank));
            assert_eq!(
                ids(json!({"bind": bind, "id": "random"})),
                Ok(IdPolicy::Random)
            );
        }
        for bind in ["0.0.0.0", "192.0.2.1", "128.0.0.1", "10.0.0.1"] {
            assert_eq!(ids(json!({"bind": bind})), Ok(IdPolicy::Random));
            assert_eq!(
                ids(json!({"id": "random", "bind": bind})),
                Ok(IdPolicy::Random)
            );
            for check in ["on", "off"] {
                let object = json!({"id": "rank", "bind": bind, "uid-check": check});
                let error = ids(object).unwrap_err();
                assert!(error.starts_with("option pmi-port.id=rank: "), "{error}");
                assert!(error.contains(bind), "{error}");
            }
        }
    }

    #[test]
    fn places_are_one_or_an_array_and_need_a_bind_that_they_reach() {
        let allow = |bind: &str, allow: Value| {
            let read = read("port", json!({"allow": allow, "bind": bind}));
            read.map(|options| options.unwrap().allow)
        };
        let places = |texts: &[&str]| Ok(texts.iter().map(|t| t.parse().unwrap()).collect());
        for bind in ["0.0.0.0", "172.17.0.1"] {
            assert_eq!(allow(bind, json!("fd00::/8")), places(&["fd00::/8"]));
            let texts = ["172.17.0.0/16", "192.0.2.1", "login1"];
            assert_eq!(allow(bind, json!(texts)), places(&texts));
        }
        for bind in ["127.0.0.1", "127.9.9.9"] {
            let error = allow(bind, json!("172.17.0.0/16")).unwrap_err();
            assert!(error.starts_with("option pmi-port.allow: "), "{error}");
            assert!(
                error.contains(&format!("pmi-port.bind={bind}: ")),
                "{error}"
            );
        }
        let error = read("port", json!({"allow": "login1"})).unwrap_err();
        assert!(error.contains("pmi-port.bind=127.0.0.1: "), "{error}");
        let error = read(
            "port",
            json!({"allow": "10.0.0.1", "bind": "0.0.0.0", "id": "rank"}),
        );
        let error = error.unwrap_err();
        assert!(error.starts_with("option pmi-port.id=rank: "), "{error}");
    }

    /// The manual page must name exactly the options that there are.
    #[test]
    fn the_manual_page_has_the_same_options() {
        let page = include_str!("../../bin/flux-pmi-port/flux-pmi-port.1").replace("\\-", "-");
        let documented: std::collections::BTreeSet<&str> = page
            .lines()
            .skip_while(|line| *line != ".SS In a job")
            .skip(1)
            .take_while(|line| !line.starts_with(".S"))
            .filter_map(|line| line.strip_prefix(".B"))
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(_, words)| words.split(['=', ' ']).next())
            .collect();
        let known: std::collections::BTreeSet<&str> = KNOWN.split(", ").collect();
        assert_eq!(documented, known);
        for name in known {
            let error = Options::default().set(name, &json!([])).unwrap_err();
            assert!(!error.contains("unknown"), "{name}: {error}");
        }
    }

    #[test]
    fn errors_name_the_option() {
        for (object, text) in [
            (
                json!({"lane": 2}),
                "option pmi-port.lane: unknown (did you mean lanes?); known are bind,",
            ),
            (
                json!({"lanes": 0}),
                "option pmi-port.lanes: '0' is not a number from 1 to 1024",
            ),
            (json!({"k": "x"}), "option pmi-port.k: 'x' is not a number"),
            (
                json!({"bind": "localhost"}),
                "option pmi-port.bind: 'localhost' is not a numeric",
            ),
            (
                json!({"allow": "172.17.0.1/16"}),
                "option pmi-port.allow: '172.17.0.1/16' has bits after",
            ),
            (
                json!({"allow": ["10.0.0.1", "10.0.0.0/33"]}),
                "option pmi-port.allow: '10.0.0.0/33' needs a number of bits from 0 to 32",
            ),
            (
                json!({"allow": 172.17}),
                "option pmi-port.allow: '172.17' is neither ADDRESS,",
            ),
            (
                json!({"allow": [["10.0.0.1"]]}),
                "option pmi-port.allow: [\"10.0.0.1\"] is not a text",
            ),
            (
                json!({"allow": []}),
                "option pmi-port.allow: the array is empty",
            ),
            (
                json!({"id": 7}),
                "option pmi-port.id: '7' is neither rank nor random",
            ),
            (
                json!({"nomap": 2}),
                "option pmi-port.nomap: 2 is neither on nor off",
            ),
            (
                json!({"handshake-timeout": 0}),
                "option pmi-port.handshake-timeout: must be more than 0",
            ),
            (
                json!({"handshake-timeout": "soon"}),
                "option pmi-port.handshake-timeout: 'soon'",
            ),
            (json!(1), "option pmi-port=1: use pmi-port.KEY=VALUE"),
        ] {
            let error = read("port", object).unwrap_err();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
