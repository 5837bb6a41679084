//! What the reactor watches.

use std::cell::Cell;
use std::cell::RefCell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;
use std::time::Instant;

use flux_bcast::flux::reactor::FdWatcher;
use flux_bcast::flux::reactor::Interest;
use flux_bcast::flux::reactor::SignalWatcher;
use flux_bcast::flux::reactor::TimerWatcher;

use super::LIMIT;
use super::connect;
use super::run_until;
use super::shared;

#[test]
fn timer_may_be_dropped_inside_its_callback() {
    let conn = connect();
    let reactor = conn.handle().reactor().unwrap();
    let owner: Rc<RefCell<Option<TimerWatcher>>> = shared(None);
    let fired = Rc::new(Cell::new(0));
    let (inside, count) = (Rc::clone(&owner), Rc::clone(&fired));
    let tick = Duration::from_millis(1);
    let timer = TimerWatcher::new(reactor, tick, Some(tick), move || {
        count.set(count.get() + 1);
        drop(inside.take());
    });
    owner.replace(Some(timer.unwrap()));
    run_until(reactor, || fired.get() > 0);
    assert_eq!(Rc::strong_count(&owner), 1);
    let done = Rc::new(Cell::new(false));
    let flag = Rc::clone(&done);
    let _later = TimerWatcher::new(reactor, tick * 20, None, move || flag.set(true));
    run_until(reactor, || done.get());
    assert_eq!(fired.get(), 1);
}

#[test]
fn timer_counts_from_its_reset() {
    let conn = connect();
    let reactor = conn.handle().reactor().unwrap();
    reactor.run_nowait().unwrap();
    let fired = Rc::new(Cell::new(false));
    let flag = Rc::clone(&fired);
    let timer = TimerWatcher::new(reactor, LIMIT, None, move || flag.set(true)).unwrap();
    timer.stop();
    // The loop's clock stands still meanwhile.
    std::thread::sleep(Duration::from_millis(60));
    let start = Instant::now();
    timer.reset(Duration::from_millis(50), None);
    run_until(reactor, || fired.get());
    assert!(
        start.elapsed() >= Duration::from_millis(45),
        "{:?}",
        start.elapsed()
    );
    assert!(reactor.now() > 1e9);
}

#[test]
fn descriptor_readiness() {
    let conn = connect();
    let reactor = conn.handle().reactor().unwrap();
    let (read, write) = rustix::pipe::pipe().unwrap();
    let bytes = shared(Vec::new());
    let (sink, end) = (Rc::clone(&bytes), read.try_clone().unwrap());
    let watcher = FdWatcher::new(reactor, read.as_fd(), Interest::Read, move |ready| {
        assert!(ready.readable && !ready.writable);
        let mut buffer = [0; 16];
        let n = rustix::io::read(&end, &mut buffer).unwrap();
        sink.borrow_mut().extend_from_slice(&buffer[..n]);
    })
    .unwrap();
    rustix::io::write(&write, b"one").unwrap();
    run_until(reactor, || bytes.borrow().len() == 3);
    watcher.stop();
    rustix::io::write(&write, b"two").unwrap();
    reactor.run_nowait().unwrap();
    assert_eq!(*bytes.borrow(), b"one");
    watcher.start();
    run_until(reactor, || bytes.borrow().len() == 6);
    assert_eq!(*bytes.borrow(), b"onetwo");
}

#[test]
fn signals_arrive() {
    let conn = connect();
    let reactor = conn.handle().reactor().unwrap();
    let seen = Rc::new(Cell::new(0));
    let counter = Rc::clone(&seen);
    let _watcher = SignalWatcher::new(reactor, libc::SIGUSR1, move || {
        counter.set(counter.get() + 1);
    })
    .unwrap();
    // To this thread: the test program's others do not block the signal.
    // SAFETY: this thread exists.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
    run_until(reactor, || seen.get() > 0);
    assert_eq!(seen.get(), 1);
}

#[test]
fn a_nested_run_does_not_enter_the_same_callback() {
    let conn = connect();
    let reactor = conn.handle().reactor().unwrap();
    let (depth, deepest) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (calls, nested) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (c, d, m) = (Rc::clone(&calls), Rc::clone(&depth), Rc::clone(&deepest));
    let tick = Duration::from_millis(1);
    let _timer = TimerWatcher::new(reactor, tick, Some(tick), move || {
        c.set(c.get() + 1);
        d.set(d.get() + 1);
        m.set(m.get().max(d.get()));
        std::thread::sleep(tick * 3);
        reactor.run_nowait().unwrap();
        d.set(d.get() - 1);
    });
    // Shows that the nested run does serve others.
    let (n, d) = (Rc::clone(&nested), Rc::clone(&depth));
    let _other = TimerWatcher::new(reactor, tick, Some(tick), move || {
        n.set(n.get() + d.get());
    });
    run_until(reactor, || calls.get() >= 5 && nested.get() > 0);
    assert_eq!((depth.get(), deepest.get()), (0, 1));
}
