//! Looks up the addresses of many hosts at a time, and waits no longer than the
//! caller wants: a name server that is silent costs many seconds for each name.

use crossbeam_channel::Sender;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Most look-ups at the same time.
const THREADS: usize = 16;

/// The addresses of `names`. Those that are not known when `within` has passed
/// have none. The threads that ask take over the caller's signal mask, and may
/// live on for as long as the name server is silent.
///
/// # Errors
///
/// EAGAIN: no thread can be had.
pub fn lookup(names: &[String], within: Duration) -> io::Result<BTreeMap<String, Vec<IpAddr>>> {
    lookup_by(names, within, addresses)
}

/// All addresses of a host; none if it is not known.
fn addresses(name: &str) -> Vec<IpAddr> {
    (name, 0)
        .to_socket_addrs()
        .map(|addrs| addrs.map(|addr| addr.ip()).collect())
        .unwrap_or_default()
}

fn lookup_by(
    names: &[String],
    within: Duration,
    resolve: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static,
) -> io::Result<BTreeMap<String, Vec<IpAddr>>> {
    let end = Instant::now() + within;
    let mut found: BTreeMap<String, Vec<IpAddr>> = names
        .iter()
        .map(|name| (name.clone(), Vec::new()))
        .collect();
    let (questions, open) = crossbeam_channel::unbounded::<String>();
    for name in found.keys() {
        // The receiver is right here.
        let _ = questions.send(name.clone());
    }
    drop(questions);
    let (answers, results) = crossbeam_channel::unbounded();
    let resolve = Arc::new(resolve);
    for _ in 0..THREADS.min(found.len()) {
        let (open, resolve) = (open.clone(), Arc::clone(&resolve));
        let answers: Sender<(String, Vec<IpAddr>)> = answers.clone();
        // Nobody waits for a thread that comes too late: it ends by itself.
        let ask = move || {
            for name in open {
                let addrs = resolve(&name);
                if answers.send((name, addrs)).is_err() {
                    break;
                }
            }
        };
        Builder::new().name("pmi-lookup".to_owned()).spawn(ask)?;
    }
    drop(answers);
    while let Ok((name, addrs)) = results.recv_deadline(end) {
        found.insert(name, addrs);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn names(count: u8) -> Vec<String> {
        (0..count).map(|n| format!("h{n}")).collect()
    }

    #[test]
    fn numbers_are_their_own_addresses_and_nonsense_has_none() {
        let asked = ["127.0.0.3", "192.0.2.7", "no such host", "192.0.2.7"].map(str::to_owned);
        let found = lookup(&asked, Duration::from_secs(60)).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(found["127.0.0.3"], [IpAddr::from([127, 0, 0, 3])]);
        assert_eq!(found["192.0.2.7"], [IpAddr::from([192, 0, 2, 7])]);
        assert!(found["no such host"].is_empty());
        assert!(lookup(&[], Duration::ZERO).unwrap().is_empty());
    }

    #[test]
    fn all_are_asked_even_if_there_are_more_than_threads() {
        let found = lookup_by(&names(100), Duration::from_secs(60), |name| {
            vec![IpAddr::from([10, 0, 0, name[1..].parse().unwrap()])]
        });
        for (name, addrs) in found.unwrap() {
            assert_eq!(
                addrs,
                [IpAddr::from([10, 0, 0, name[1..].parse().unwrap()])]
            );
        }
    }

    #[test]
    fn a_slow_name_delays_no_other() {
        let slow = Arc::new(Barrier::new(2));
        let held = Arc::clone(&slow);
        let (told, others) = crossbeam_channel::unbounded();
        let asked = std::thread::spawn(move || {
            lookup_by(&names(4), Duration::from_secs(60), move |name| {
                if name == "h2" {
                    held.wait();
                } else {
                    let _ = told.send(());
                }
                vec![IpAddr::from([10, 0, 0, 1])]
            })
        });
        for _ in 0..3 {
            others.recv().unwrap();
        }
        slow.wait();
        let found = asked.join().unwrap().unwrap();
        assert!(found.values().all(|addrs| addrs.len() == 1), "{found:?}");
    }

    #[test]
    fn a_name_that_takes_too_long_has_no_address() {
        let silent = Arc::new(Barrier::new(2));
        let held = Arc::clone(&silent);
        let found = lookup_by(&names(1), Duration::from_millis(50), move |_| {
            held.wait();
            vec![IpAddr::from([10, 0, 0, 1])]
        });
        assert!(found.unwrap()["h0"].is_empty());
        silent.wait();
    }
}
