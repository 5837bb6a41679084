//! Requests and their answers.

use std::cell::Cell;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flux_bcast::errno::Errno;
use flux_bcast::flux::future::Pending;
use flux_bcast::flux::handle::Node;
use flux_bcast::flux::promise::promise;
use serde_json::Value;
use serde_json::json;

use super::LIMIT;
use super::connect;
use super::run_until;
use super::shared;

fn ping() -> Value {
    json!({"seq": 7, "pad": "x"})
}

#[test]
fn blocking_get() {
    let conn = connect();
    let future = conn
        .handle()
        .rpc_json("broker.ping", &ping(), Node::Rank(0))
        .unwrap();
    let answer: Value = future.get_json().unwrap();
    assert_eq!(answer["seq"], 7);
    assert!(future.is_ready());
    let raw = future.get_raw().unwrap();
    assert_eq!(raw.last(), Some(&0));
}

#[test]
fn errors_carry_number_and_text() {
    let conn = connect();
    let future = conn
        .handle()
        .rpc_raw("no-such.service", b"", Node::Rank(0))
        .unwrap();
    let error = future.get().unwrap_err();
    assert_eq!(error.errno(), Errno::ENOSYS);
    assert!(error.to_string().contains("no-such"), "{error}");
    let far = conn
        .handle()
        .rpc_raw("broker.ping", b"", Node::Rank(999))
        .unwrap();
    assert_eq!(far.get().unwrap_err().errno(), Errno::EHOSTUNREACH);
    let bad = conn.handle().rpc_raw("a\0b", b"", Node::Any).unwrap_err();
    assert_eq!(bad.errno(), Errno::EINVAL);
}

#[test]
fn continuation_runs_and_owns_its_state() {
    let conn = connect();
    let h = conn.handle();
    let answers = shared(Vec::new());
    let sink = Rc::clone(&answers);
    let pending = h
        .rpc_json("broker.ping", &ping(), Node::Rank(0))
        .unwrap()
        .then(Some(LIMIT), move |f| {
            sink.borrow_mut()
                .push(f.get_json::<Value>().unwrap()["seq"].clone());
        })
        .unwrap();
    run_until(h.reactor().unwrap(), || !answers.borrow().is_empty());
    assert_eq!(*answers.borrow(), [json!(7)]);
    assert_eq!(Rc::strong_count(&answers), 2);
    drop(pending);
    assert_eq!(Rc::strong_count(&answers), 1);
}

/// The future is still whole for the rest of the continuation.
#[test]
fn may_be_dropped_inside_its_continuation() {
    let conn = connect();
    let h = conn.handle();
    let owner: Rc<RefCell<Option<Pending>>> = shared(None);
    let (inside, seq) = (Rc::clone(&owner), shared(None));
    let result = Rc::clone(&seq);
    let pending = h
        .rpc_json("broker.ping", &ping(), Node::Rank(0))
        .unwrap()
        .then(None, move |f| {
            drop(inside.take());
            result.replace(f.get_json::<Value>().ok());
            f.reset();
        })
        .unwrap();
    owner.replace(Some(pending));
    run_until(h.reactor().unwrap(), || seq.borrow().is_some());
    assert_eq!(seq.borrow().as_ref().unwrap()["seq"], 7);
    assert_eq!(Rc::strong_count(&owner), 1);
    assert_eq!(Rc::strong_count(&seq), 1);
}

#[test]
fn a_dropped_pending_never_runs() {
    let conn = connect();
    let h = conn.handle();
    let ran = Rc::new(Cell::new(false));
    let flag = Rc::clone(&ran);
    let pending = h
        .rpc_json("broker.ping", &ping(), Node::Rank(0))
        .unwrap()
        .then(None, move |_| flag.set(true))
        .unwrap();
    drop(pending);
    let fence = h.rpc_json("broker.ping", &ping(), Node::Rank(0)).unwrap();
    let done = Rc::new(Cell::new(false));
    let flag = Rc::clone(&done);
    let _fence = fence.then(None, move |_| flag.set(true)).unwrap();
    run_until(h.reactor().unwrap(), || done.get());
    assert!(!ran.get());
}

#[test]
fn times_out() {
    let conn = connect();
    let h = conn.handle();
    let forever = promise(Some(h), |_, _| ()).unwrap();
    let error = forever.wait(Some(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.errno(), Errno::ETIMEDOUT);
    let got = shared(None);
    let sink = Rc::clone(&got);
    let _pending = promise(Some(h), |_, _| ())
        .unwrap()
        .then(Some(Duration::from_millis(20)), move |f| {
            sink.replace(f.get().err().map(|e| e.errno()));
        })
        .unwrap();
    run_until(h.reactor().unwrap(), || got.borrow().is_some());
    assert_eq!(*got.borrow(), Some(Errno::ETIMEDOUT));
}
