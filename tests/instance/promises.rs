//! Futures that we make and others wait for.

use std::cell::Cell;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flux_bcast::errno::Errno;
use flux_bcast::flux::error::Error;
use flux_bcast::flux::handle::Node;
use flux_bcast::flux::promise;
use flux_bcast::flux::promise::Context;
use flux_bcast::flux::promise::Fulfiller;
use flux_bcast::flux::promise::promise;
use flux_bcast::flux::reactor::TimerWatcher;
use serde_json::Value;
use serde_json::json;

use super::connect;
use super::run_until;
use super::shared;

/// Results after 10 ms each, the last one an error.
fn count_to(limit: u32) -> impl FnMut(&Fulfiller, Context) {
    move |fulfiller, context| {
        let (next, ours) = (Cell::new(0), fulfiller.clone());
        let tick = Duration::from_millis(10);
        let timer = TimerWatcher::new(context.reactor, tick, Some(tick), move || {
            let n = next.get();
            next.set(n + 1);
            match n {
                n if n < limit => ours.fulfill(n),
                n if n == limit => {
                    ours.fulfill_error(&Error::with_text(Errno::ENODATA, "that is all"));
                }
                _ => (),
            }
        });
        fulfiller.attach(timer.unwrap());
    }
}

#[test]
fn blocking() {
    let conn = connect();
    let mut future = promise(Some(conn.handle()), count_to(3)).unwrap();
    for expected in 0..3 {
        // SAFETY: the future exists and is not reset while n is used.
        let n = unsafe { promise::result::<u32>(future.as_raw()) }.unwrap();
        assert_eq!(*n, expected);
        // SAFETY: as above; the wrong type is refused.
        let wrong = unsafe { promise::result::<u64>(future.as_raw()) };
        assert_eq!(wrong.unwrap_err().errno(), Errno::EINVAL);
        future.reset();
    }
    let error = future.get().unwrap_err();
    assert_eq!(error.errno(), Errno::ENODATA);
    assert_eq!(error.to_string(), "that is all");
}

#[test]
fn reactive_with_other_watchers_running() {
    let conn = connect();
    let h = conn.handle();
    let ticks = Rc::new(Cell::new(0));
    let counter = Rc::clone(&ticks);
    let tick = Duration::from_millis(5);
    let reactor = h.reactor().unwrap();
    let _other = TimerWatcher::new(reactor, tick, Some(tick), move || {
        counter.set(counter.get() + 1);
    });
    let seen = shared(Vec::new());
    let sink = Rc::clone(&seen);
    let future = promise(Some(h), count_to(3)).unwrap();
    let raw = future.as_raw();
    let _pending = future
        .then(None, move |f| {
            // SAFETY: the future of this continuation.
            match unsafe { promise::result::<u32>(raw) } {
                Ok(n) => sink.borrow_mut().push(Ok(*n)),
                Err(error) => sink.borrow_mut().push(Err(error.errno())),
            }
            f.reset();
        })
        .unwrap();
    run_until(reactor, || seen.borrow().len() == 4);
    assert_eq!(*seen.borrow(), [Ok(0), Ok(1), Ok(2), Err(Errno::ENODATA)]);
    assert!(ticks.get() > 2);
}

/// Results that nobody has fetched are dropped with the future, and a
/// fulfiller that is left over does nothing.
#[test]
fn state_ends_with_the_future() {
    let conn = connect();
    let alive = Rc::new(());
    let kept: Rc<RefCell<Option<Fulfiller>>> = shared(None);
    let context: Rc<RefCell<Option<Context>>> = shared(None);
    let (token, keep, ctx) = (Rc::clone(&alive), Rc::clone(&kept), Rc::clone(&context));
    let future = promise(Some(conn.handle()), move |fulfiller, context| {
        fulfiller.attach(Rc::clone(&token));
        fulfiller.fulfill(Rc::clone(&token));
        fulfiller.fulfill(Rc::clone(&token));
        keep.replace(Some(fulfiller.clone()));
        ctx.replace(Some(context));
    })
    .unwrap();
    future.get().unwrap();
    // SAFETY: the future exists.
    let state = unsafe { promise::state(future.as_raw(), |s: &mut Rc<()>| s.clone()) };
    assert!(Rc::ptr_eq(&state.unwrap(), &alive));
    assert_eq!(Rc::strong_count(&alive), 5);
    assert!(kept.borrow().as_ref().unwrap().is_wanted());
    drop(future);
    assert_eq!(Rc::strong_count(&alive), 1);
    let fulfiller = kept.take().unwrap();
    assert!(!fulfiller.is_wanted());
    fulfiller.fulfill(Rc::clone(&alive));
    fulfiller.attach(Rc::clone(&alive));
    fulfiller.fatal_error(&Error::new(Errno::EIO));
    assert_eq!(Rc::strong_count(&alive), 1);
    let context = context.take().unwrap();
    assert_eq!(
        context.reactor.run_nowait().unwrap_err().errno(),
        Errno::ENOTCONN
    );
    assert_eq!(
        context.handle.unwrap().rank().unwrap_err().errno(),
        Errno::ENOTCONN
    );
}

#[test]
fn requests_work_in_a_blocking_context() {
    let conn = connect();
    let future = promise(Some(conn.handle()), |fulfiller, context| {
        let ours = fulfiller.clone();
        let pending = context
            .handle
            .unwrap()
            .rpc_json("broker.ping", &json!({"seq": 5, "pad": ""}), Node::Any)
            .unwrap()
            .then(None, move |f| match f.get_json::<Value>() {
                Ok(answer) => ours.fulfill(answer["seq"].as_u64().unwrap()),
                Err(error) => ours.fatal_error(&error),
            });
        fulfiller.attach(pending.unwrap());
    })
    .unwrap();
    // SAFETY: the future exists and is not reset while the result is used.
    let seq = unsafe { promise::result::<u64>(future.as_raw()) };
    assert_eq!(seq.unwrap(), &5);
}

#[test]
fn foreign_futures_are_refused() {
    let conn = connect();
    let rpc = conn
        .handle()
        .rpc_raw("broker.ping", b"", Node::Any)
        .unwrap();
    // SAFETY: the future exists.
    assert!(!unsafe { promise::is_ours(rpc.as_raw()) });
    // SAFETY: NULL is allowed.
    assert!(!unsafe { promise::is_ours(std::ptr::null_mut()) });
    // SAFETY: the future exists.
    let result = unsafe { promise::result::<u32>(rpc.as_raw()) };
    assert_eq!(result.unwrap_err().errno(), Errno::EINVAL);
}
