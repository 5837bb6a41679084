//! What one exchange of keys costs: bytes and messages of the providers
//! themselves, against ranks and shells, beside what sending everything to
//! everybody would cost.
//!
//! Every rank puts one key with a value of the length that MPICH's addresses
//! have, then all enter a barrier. No network is involved: messages are counted
//! as the providers hand them out.

#![expect(clippy::print_stdout, reason = "a table is the purpose")]

use std::collections::VecDeque;

use flux_bcast::pmi::Action;
use flux_bcast::pmi::BATCH_BYTES;
use flux_bcast::pmi::Config;
use flux_bcast::pmi::ConnId;
use flux_bcast::pmi::IdPolicy;
use flux_bcast::pmi::Ids;
use flux_bcast::pmi::Limits;
use flux_bcast::pmi::Provider;

/// Length of a value, in bytes.
const VALUE: usize = 440;

/// What the shells of one job have sent.
#[derive(Default)]
struct Cost {
    messages: u64,
    bytes: u64,
    /// Of the shell that has most to do, sent and received.
    busiest_messages: u64,
    busiest_bytes: u64,
    /// How many ranks have left the barrier.
    done: usize,
}

fn exchange(shells: u32, per: u32, k: u32) -> Cost {
    let size = shells * per;
    let shell_of_rank: Vec<u32> = (0..size).map(|rank| rank / per).collect();
    let mut providers: Vec<Provider> = (0..shells)
        .map(|shell| {
            let ranks: Vec<u32> = (shell * per..(shell + 1) * per).collect();
            Provider::new(Config {
                shell,
                shell_of_rank: shell_of_rank.clone(),
                node_of_rank: shell_of_rank.clone(),
                k,
                batch: BATCH_BYTES,
                kvsname: b"bench".to_vec(),
                presets: Vec::new(),
                ids: Ids::new(IdPolicy::Rank, size, 1, &ranks, || 0),
                groups: false,
                limits: Limits::for_size(size),
            })
        })
        .collect();
    let mut cost = Cost::default();
    let mut work = vec![(0_u64, 0_u64); providers.len()];
    let mut queue: VecDeque<(usize, Action)> = VecDeque::new();
    let value = "A".repeat(VALUE);
    for rank in 0..size {
        let shell = (rank / per) as usize;
        let conn = ConnId(u64::from(rank));
        let lines = format!(
            "cmd=initack pmiid={rank}\ncmd=put kvsname=k key=-allgather-shm-1-{rank} \
             value={value}\ncmd=barrier_in\n"
        );
        let mut actions = providers[shell].accepted(conn);
        actions.extend(providers[shell].received(conn, lines.as_bytes()));
        queue.extend(actions.into_iter().map(|action| (shell, action)));
    }
    while let Some((from, action)) = queue.pop_front() {
        match action {
            Action::Send(_, line) if line.starts_with(b"cmd=barrier_out") => cost.done += 1,
            Action::Peer { to, bytes } => {
                let to = to as usize;
                let len = bytes.len() as u64;
                cost.messages += 1;
                cost.bytes += len;
                for at in [from, to] {
                    work[at].0 += 1;
                    work[at].1 += len;
                }
                let actions = providers[to].peer(&bytes);
                queue.extend(actions.into_iter().map(|action| (to, action)));
            }
            _ => {}
        }
    }
    assert_eq!(cost.done, size as usize, "the barrier did not end");
    cost.busiest_messages = work.iter().map(|w| w.0).max().unwrap_or(0);
    cost.busiest_bytes = work.iter().map(|w| w.1).max().unwrap_or(0);
    cost
}

/// Each shell sends the keys of its ranks to every other one.
fn all_to_all(shells: u32, per: u32) -> Cost {
    let others = u64::from(shells) - 1;
    let key = "-allgather-shm-1-1000".len() as u64;
    let one = u64::from(per) * (8 + key + VALUE as u64) + 34;
    let parts = one.div_ceil(BATCH_BYTES as u64);
    Cost {
        messages: u64::from(shells) * others * parts,
        bytes: u64::from(shells) * others * one,
        busiest_messages: 2 * others * parts,
        busiest_bytes: 2 * others * one,
        done: 0,
    }
}

fn main() {
    println!("one key of {VALUE} bytes per rank, one barrier; KiB and messages");
    println!(
        "{:>6} {:>6} {:>12} | {:>9} {:>11} | {:>9} {:>11}",
        "ranks", "shells", "way", "messages", "KiB", "busiest", "KiB"
    );
    for (shells, per) in [
        (1, 1),
        (2, 2),
        (4, 4),
        (8, 8),
        (16, 16),
        (32, 32),
        (64, 64),
        (256, 16),
        (1024, 4),
    ] {
        let show = |way: &str, cost: &Cost| {
            println!(
                "{:>6} {:>6} {:>12} | {:>9} {:>11} | {:>9} {:>11}",
                shells * per,
                shells,
                way,
                cost.messages,
                cost.bytes.div_ceil(1024),
                cost.busiest_messages,
                cost.busiest_bytes.div_ceil(1024)
            );
        };
        for k in [2, 8] {
            show(&format!("tree k={k}"), &exchange(shells, per, k));
        }
        show("all to all", &all_to_all(shells, per));
    }
}
