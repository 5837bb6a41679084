//! Who this process is to the provider, from its environment.

use std::net::TcpStream;
use std::time::Duration;

use flux_bcast::errno::Errno;
use flux_bcast::hostlist;
use flux_bcast::pmi::Ids;
use flux_bcast::sockets::dial::dial;

use crate::Failed;

/// Lanes that `serve` offers; part of how ids follow from a secret.
pub(crate) const LANES: u32 = 8;

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Connects to `port` or `PMI_PORT`.
pub(crate) fn connect(port: Option<&str>, timeout: Duration) -> Result<TcpStream, Failed> {
    let said = if port.is_some() { "--port" } else { "PMI_PORT" };
    let port = match port {
        Some(port) => port.to_owned(),
        None => env("PMI_PORT").ok_or_else(|| {
            Failed::Usage(
                "PMI_PORT is not set: run under a provider, such as flux run -o pmi=port"
                    .to_owned(),
            )
        })?,
    };
    let complete = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    if !port.rsplit_once(':').is_some_and(complete) {
        return Err(Failed::Usage(format!("{said}: '{port}' is not HOST:PORT")));
    }
    dial(&port, timeout).map_err(Failed::Error)
}

/// The id given, or `PMI_ID`.
pub(crate) fn id(given: Option<i64>) -> Result<Option<i64>, Failed> {
    if given.is_some() {
        return Ok(given);
    }
    env("PMI_ID")
        .map(|id| {
            id.parse()
                .map_err(|_| Failed::Usage(format!("PMI_ID '{id}' is no number")))
        })
        .transpose()
}

/// The id of a client that speaks to the provider at `port`; or what is missing,
/// all at once.
pub(crate) fn client_id(given: Option<i64>, port: Option<&str>) -> Result<i64, Failed> {
    let no_port = port.is_none() && env("PMI_PORT").is_none();
    let missing = match (no_port, id(given)?) {
        (false, Some(id)) => return Ok(id),
        (true, None) => "PMI_PORT and PMI_ID are not set",
        (true, Some(_)) => "PMI_PORT is not set",
        (false, None) => "PMI_ID is not set",
    };
    Err(Failed::Usage(format!(
        "{missing}: run it as a task of a job (flux run -o pmi=port flux pmi-port check) or give \
         --port=HOST:PORT and --id=ID"
    )))
}

/// What a program under `exec` lacks, all at once, if anything.
///
/// # Errors
/// One line that says where it can be run.
pub(crate) fn surroundings(secret_stdin: bool) -> Result<(), Failed> {
    let no_id = env("PMI_ID").is_none() && env("PMI_SECRET").is_none() && !secret_stdin;
    let missing = match (env("PMI_PORT").is_none(), no_id) {
        (false, false) => return Ok(()),
        (true, true) => "PMI_PORT and PMI_ID are not set",
        (true, false) => "PMI_PORT is not set",
        (false, true) => "neither PMI_ID nor PMI_SECRET is set",
    };
    Err(Failed::Usage(format!(
        "{missing}: run it as a task of a job (flux run -o pmi=port flux pmi-port exec PROGRAM) \
         or under flux pmi-port serve"
    )))
}

/// The id that follows from the secret and the rank.
pub(crate) fn derived_id(rank: Option<u32>, secret_stdin: bool) -> Result<i64, Failed> {
    let secret = if secret_stdin {
        first_line()?
    } else {
        env("PMI_SECRET").ok_or_else(|| {
            Failed::Usage("neither PMI_ID nor PMI_SECRET is set: who am I?".to_owned())
        })?
    };
    let number = |name: &str| -> Result<Option<u32>, Failed> {
        env(name)
            .map(|n| {
                n.parse()
                    .map_err(|_| Failed::Usage(format!("{name} '{n}' is no number")))
            })
            .transpose()
    };
    let size =
        number("PMI_SIZE")?.ok_or_else(|| Failed::Usage("PMI_SIZE is not set".to_owned()))?;
    let rank = match rank.or(number("PMI_RANK")?) {
        Some(rank) => rank,
        None => rank_of_host(size)?,
    };
    Ids::from_secret(secret.trim().as_bytes(), size, LANES)
        .id(rank)
        .ok_or_else(|| Failed::Usage(format!("rank {rank} is not below PMI_SIZE {size}")))
}

/// The place of this host in `PMI_HOSTLIST`.
fn rank_of_host(size: u32) -> Result<u32, Failed> {
    let list = env("PMI_HOSTLIST").ok_or_else(|| {
        Failed::Usage("the rank is not known: use --rank, PMI_RANK or PMI_HOSTLIST".to_owned())
    })?;
    let hosts = hostlist::expand(&list)
        .map_err(|error| Failed::Usage(format!("PMI_HOSTLIST: {error}")))?;
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    place(&hosts, &name, size).map_err(Failed::Usage)
}

/// Which rank `name` is, if that is certain.
fn place(hosts: &[String], name: &str, size: u32) -> Result<u32, String> {
    let short = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    let exact = |host: &&String| host.as_str() == name;
    let found: Vec<usize> = if hosts.iter().any(|host| exact(&host)) {
        (0..hosts.len()).filter(|&i| exact(&&hosts[i])).collect()
    } else {
        (0..hosts.len())
            .filter(|&i| short(&hosts[i]) == short(name))
            .collect()
    };
    match found[..] {
        [at] if hosts.len() == size as usize => {
            u32::try_from(at).map_err(|error| error.to_string())
        }
        [] => Err(format!("host {name} is not in PMI_HOSTLIST: use --rank")),
        _ => Err(format!("host {name} has more than one rank: use --rank")),
    }
}

/// The first line of the input, and not a byte more: the rest is the program's.
fn first_line() -> Result<String, Failed> {
    let mut line = Vec::new();
    let mut byte = [0];
    // Not through std's Stdin, which reads ahead.
    let input = std::io::stdin();
    while line.len() < 4096 {
        match rustix::io::read(&input, &mut byte) {
            Ok(1) if byte[0] != b'\n' => line.push(byte[0]),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(Failed::Error(format!(
                    "read the secret: {}",
                    Errno::from(error)
                )));
            }
        }
    }
    String::from_utf8(line).map_err(|_| Failed::Usage("the secret is not text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_place_if_it_is_certain() {
        let hosts = hostlist::expand("foo[0-2],bar.site").unwrap();
        assert_eq!(place(&hosts, "foo1", 4), Ok(1));
        assert_eq!(place(&hosts, "foo2.site", 4), Ok(2));
        assert_eq!(place(&hosts, "bar", 4), Ok(3));
        assert!(
            place(&hosts, "baz", 4)
                .unwrap_err()
                .contains("not in PMI_HOSTLIST")
        );
        assert!(
            place(&hosts, "foo1", 8)
                .unwrap_err()
                .contains("more than one rank")
        );
        let twice = hostlist::expand("foo,foo").unwrap();
        assert!(place(&twice, "foo", 2).is_err());
    }
}
