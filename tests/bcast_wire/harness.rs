//! What may be done with any bytes that come as a message of a broadcast.
//! Replayed from the corpus, and driven by the fuzzer (`t/fuzz`), which both
//! call [`survive`].
//!
//! The first byte, modulo 4, says how the rest is taken: as a frame; as a frame
//! whose checksums are put right before; as a JSON message; as the news that
//! reach a relay, see [`relay`].

use std::time::Duration;

use flux_bcast::bcast::frame::Frame;
use flux_bcast::bcast::frame::HEADER_LEN;
use flux_bcast::bcast::frame::Kind;
use flux_bcast::bcast::frame::MAX_PAYLOAD;
use flux_bcast::bcast::message::Ctl;
use flux_bcast::bcast::message::Open;
use flux_bcast::bcast::message::Order;
use flux_bcast::bcast::message::Plan;
use flux_bcast::bcast::message::PlanRequest;
use flux_bcast::bcast::message::Up;
use flux_bcast::bcast::relay::Config;
use flux_bcast::bcast::relay::Input;
use flux_bcast::bcast::relay::Output;
use flux_bcast::bcast::relay::Relay;
use flux_bcast::bcast::relay::SinkEvent;
use flux_bcast::bcast::report::Failure;
use flux_bcast::bcast::tree::Tree;
use flux_bcast::bcast::warrant::Obeyed;
use flux_bcast::bcast::warrant::Seal;
use flux_bcast::bcast::warrant::Terms;
use flux_bcast::bcast::warrant::Warrant;
use flux_bcast::transfer::ask;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Takes `input` for a message, and checks what must always hold.
pub(crate) fn survive(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else {
        return;
    };
    match how % 4 {
        0 => frame(rest),
        1 => frame(&sealed(rest)),
        2 => json(rest),
        _ => {
            relay(rest, false);
            relay(rest, true);
        }
    }
}

/// The header that the bytes begin with, made so that it is believed.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut message = bytes.to_vec();
    message.resize(message.len().max(HEADER_LEN), 0);
    let length = u32::try_from(message.len() - HEADER_LEN).unwrap();
    let check = crc32fast::hash(&message[HEADER_LEN..]);
    message[..4].copy_from_slice(b"FBC1");
    message[52..56].copy_from_slice(&length.to_le_bytes());
    message[56..60].copy_from_slice(&check.to_le_bytes());
    let check = crc32fast::hash(&message[..60]);
    message[60..64].copy_from_slice(&check.to_le_bytes());
    message
}

fn frame(bytes: &[u8]) {
    let Ok(frame) = Frame::decode(bytes) else {
        return;
    };
    assert_eq!(frame.as_bytes(), bytes);
    let Ok(plain) = frame.expanded() else {
        assert!(frame.item().is_err(), "what is broken is not read");
        return;
    };
    assert!(plain.as_bytes().len() <= HEADER_LEN + MAX_PAYLOAD);
    assert_eq!(plain.data_len(), frame.data_len());
    let Ok(item) = plain.item() else { return };
    let again = Frame::encode(frame.transfer(), frame.seq(), frame.entry(), &item);
    let again = match frame.seal() {
        Some(seal) => again.sealed(seal),
        None => again,
    };
    let free = match frame.kind() {
        // Metadata can be written in many ways.
        Kind::Entry => true,
        // What is no text is no seal.
        Kind::Fin => frame.seal().is_none() && frame.cost() > HEADER_LEN as u64,
        Kind::Data | Kind::Hole | Kind::End => false,
    };
    if free {
        assert_eq!(again.item().unwrap(), item);
    } else {
        assert_eq!(again.as_bytes(), plain.as_bytes());
    }
    let small = again.clone().compressed();
    assert!(small.cost() <= again.cost());
    assert_eq!(small.expanded().unwrap().as_bytes(), again.as_bytes());
}

fn json(bytes: &[u8]) {
    if let Some(open) = message::<Open>(bytes)
        && open.tuning.check().is_ok()
    {
        let tuning = &open.tuning;
        assert!((tuning.chunk..=tuning.batch).contains(&tuning.batch_for(&open.tree)));
        tree(&open.tree);
    }
    if let Some(plan) = message::<Plan>(bytes) {
        tree(&plan.tree);
    }
    if let Some(warrant) = message::<Warrant>(bytes)
        && warrant.check("1-shell-f", "open", 0, 1000).is_ok()
    {
        let mut obeyed = Obeyed::default();
        assert_eq!(obeyed.note(&warrant, 1000), Ok(()));
        assert!(obeyed.note(&warrant, 1000).is_err(), "it counts once");
    }
    message::<Terms>(bytes);
    message::<Seal>(bytes);
    message::<PlanRequest>(bytes);
    message::<Up>(bytes);
    message::<Ctl>(bytes);
    message::<ask::Inspect>(bytes);
    message::<ask::Has>(bytes);
    message::<ask::Had>(bytes);
    message::<ask::Listing>(bytes);
    message::<ask::Remove>(bytes);
    message::<ask::Removed>(bytes);
    message::<ask::From>(bytes);
    message::<ask::Told>(bytes);
    message::<ask::Fetch>(bytes);
    message::<ask::Credit>(bytes);
}

/// What can be read is understood again by whoever it is passed on to.
fn message<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let message: T = serde_json::from_slice(bytes).ok()?;
    let passed = serde_json::to_vec(&message).unwrap();
    serde_json::from_slice(&passed).unwrap()
}

/// Every rank is fed by one.
fn tree(tree: &Tree) {
    let children = tree.children();
    assert_eq!(
        1 + children.iter().map(Tree::size).sum::<usize>(),
        tree.size()
    );
    let mut ranks = vec![tree.root()];
    ranks.extend(children.iter().flat_map(Tree::ranks));
    assert_eq!(ranks, tree.ranks());
    assert!(tree.depth() < tree.size() && tree.fanout() < tree.size());
}

/// A window of the relay's, in bytes.
const WINDOW: u64 = 1000;

/// A relay with a sink and two children, and neighbours that keep to no rule.
/// The input is cut at each byte 0xff; the first byte of each piece, modulo 14,
/// says what it is; the last ones are offers to take the place of upstream. The
/// sink is ours and keeps to the rules.
fn relay(input: &[u8], partial: bool) {
    let mut out = Vec::new();
    let config = Config {
        local: Some(0),
        children: vec![
            Tree::kary(&[1, 2, 3], 2).unwrap(),
            Tree::kary(&[4], 2).unwrap(),
        ],
        window: WINDOW,
        stall: Duration::from_secs(30),
        watch_upstream: true,
        partial,
        heir: partial,
    };
    let mut now = 0;
    let mut relay = Relay::new(config, now, &mut out);
    let mut sink = Vec::new();
    let mut next = 0;
    for piece in input.split(|&byte| byte == 0xff) {
        let Some((&what, rest)) = piece.split_first() else {
            continue;
        };
        for output in out.drain(..) {
            sink.extend(match output {
                Output::SinkOpen => Some(SinkEvent::Opened),
                Output::SinkFrame(_) => Some(SinkEvent::Wrote),
                Output::SinkPrepare => Some(SinkEvent::Prepared),
                Output::SinkCommit => Some(SinkEvent::Committed(Vec::new())),
                Output::SinkAbort => Some(SinkEvent::Aborted),
                _ => None,
            });
        }
        let number = rest.first().copied().unwrap_or_default();
        // Those of a lost child come after the two.
        let child = usize::from(number % 6);
        let failure = || Failure::on(9, i32::from(number), "x");
        let input = match what % 14 {
            _ if what >= 0xf0 => match what % 3 {
                0 => Input::Offer {
                    heir: number & 1 == 1,
                },
                1 => Input::OfferAborted(failure()),
                _ => Input::OfferGone,
            },
            0 | 1 => {
                let mut bytes = sealed(rest);
                if what % 14 == 0 {
                    // The one that is due.
                    bytes[24..32].copy_from_slice(&u64::to_le_bytes(next));
                    bytes = sealed(&bytes);
                }
                let Ok(frame) = Frame::decode(&bytes) else {
                    continue;
                };
                next += u64::from(frame.seq() == next);
                Input::Frame(frame)
            }
            2 => Input::Broken(failure()),
            3 => Input::Commit,
            4 => Input::Abort(failure()),
            5 => Input::UpstreamLost,
            6 => {
                let says = rest.get(1..).unwrap_or_default();
                let Ok(up) = serde_json::from_slice(says) else {
                    continue;
                };
                Input::Child { child, up }
            }
            7 => Input::Credit {
                child,
                bytes: u64::MAX >> (number & 63),
            },
            8 => Input::ChildAlive { child },
            9 => Input::ChildLost {
                child,
                errno: 5,
                text: "x".into(),
            },
            10 => Input::Shutdown(failure()),
            11 => {
                now += u64::from(number) * 100;
                Input::Tick
            }
            12 => match serde_json::from_slice(rest) {
                Ok(Order::Abort(why)) => Input::Abort(why),
                Ok(Order::Commit) => Input::Commit,
                Ok(Order::Ping) => Input::UpstreamAlive,
                Err(_) => continue,
            },
            _ if sink.is_empty() => continue,
            _ => Input::Sink(sink.remove(0)),
        };
        let over = relay.is_finished();
        relay.handle(now, input, &mut out);
        assert!(!over || out.is_empty(), "nothing comes after the end");
        // One message beyond the window may be there.
        let most = WINDOW + (HEADER_LEN + MAX_PAYLOAD) as u64;
        assert!(relay.held_bytes() <= most);
    }
}
