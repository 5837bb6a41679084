//! The connection and what may outlive it.

use std::time::Duration;

use flux_bcast::errno::Errno;
use flux_bcast::flux::handle::Connection;
use flux_bcast::flux::handle::Node;
use flux_bcast::flux::reactor::TimerWatcher;
use serde_json::json;

use super::LIMIT;
use super::connect;

#[test]
fn knows_rank_size_and_attributes() {
    let conn = connect();
    let h = conn.handle();
    let (rank, size) = (h.rank().unwrap(), h.size().unwrap());
    assert!(rank < size);
    assert!(h.attr_get("rundir").unwrap().is_some());
    assert_eq!(h.attr_get("no-such-attribute").unwrap(), None);
}

#[test]
fn views_fail_after_close() {
    let conn = connect();
    let h = conn.handle();
    let reactor = h.reactor().unwrap();
    drop(conn);
    assert_eq!(h.rank().unwrap_err().errno(), Errno::ENOTCONN);
    assert_eq!(reactor.run_nowait().unwrap_err().errno(), Errno::ENOTCONN);
    reactor.stop();
    let rpc = h.rpc_raw("broker.ping", b"", Node::Any);
    assert_eq!(rpc.unwrap_err().errno(), Errno::ENOTCONN);
    let timer = TimerWatcher::new(reactor, Duration::ZERO, None, || ());
    assert_eq!(timer.unwrap_err().errno(), Errno::ENOTCONN);
}

#[test]
fn objects_may_outlive_the_connection() {
    let conn = connect();
    let h = conn.handle();
    let ping = json!({"seq": 1, "pad": ""});
    let future = h.rpc_json("broker.ping", &ping, Node::Any).unwrap();
    let pending = h.rpc_json("broker.ping", &ping, Node::Any).unwrap();
    let pending = pending.then(None, |_| ()).unwrap();
    let timer = TimerWatcher::new(h.reactor().unwrap(), LIMIT, None, || ()).unwrap();
    drop(conn);
    timer.reset(LIMIT, None);
    drop((future, pending, timer));
}

#[test]
fn a_bad_uri_is_named() {
    let _conn = connect();
    let error = Connection::open(Some("local:///nonexistent/socket")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/socket"), "{error}");
    let error = Connection::open(Some("a\0b")).unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL);
}
