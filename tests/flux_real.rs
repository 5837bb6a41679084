//! The wrappers of `flux_bcast::flux` on a live Flux instance: they are thin,
//! so only the real host can show that they hold.
//!
//! Run inside an instance: `flux start -s 2 cargo test --test flux_real`.
//! Without libflux-core or `FLUX_URI` each test says so and is skipped.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test program: it fails by panicking, and says why it skips"
)]
#![expect(
    unsafe_code,
    reason = "plays the C caller of the futures that it makes"
)]

use std::cell::Cell;
use std::cell::RefCell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;
use std::time::Instant;

use flux_bcast::errno::Errno;
use flux_bcast::ffi::host;
use flux_bcast::flux::error::Error;
use flux_bcast::flux::future::Pending;
use flux_bcast::flux::handle::Connection;
use flux_bcast::flux::handle::Node;
use flux_bcast::flux::job::JobEvents;
use flux_bcast::flux::job::JobId;
use flux_bcast::flux::job::JobWatch;
use flux_bcast::flux::promise;
use flux_bcast::flux::promise::Context;
use flux_bcast::flux::promise::Fulfiller;
use flux_bcast::flux::promise::promise;
use flux_bcast::flux::reactor::FdWatcher;
use flux_bcast::flux::reactor::Interest;
use flux_bcast::flux::reactor::Reactor;
use flux_bcast::flux::reactor::SignalWatcher;
use flux_bcast::flux::reactor::TimerWatcher;
use flux_bcast::flux::wakeup::wakeup;
use serde_json::Value;
use serde_json::json;

/// How long anything may take before it counts as hung.
const LIMIT: Duration = Duration::from_secs(20);

/// Connects, or prints why the test is skipped.
fn connect() -> Option<Connection> {
    if let Err(error) = host::init_client() {
        println!("skipped: {error}");
        return None;
    }
    if std::env::var_os("FLUX_URI").is_none() {
        println!("skipped: not inside a Flux instance (FLUX_URI is not set)");
        return None;
    }
    Some(Connection::open(None).unwrap())
}

/// Runs the reactor until `done` or the limit.
#[track_caller]
fn run_until(reactor: Reactor, mut done: impl FnMut() -> bool) {
    let expired = Rc::new(Cell::new(false));
    let flag = Rc::clone(&expired);
    let _limit = TimerWatcher::new(reactor, LIMIT, None, move || flag.set(true)).unwrap();
    while !done() {
        assert!(!expired.get(), "nothing happened for {LIMIT:?}");
        reactor.run_once().unwrap();
    }
}

/// A slot that closures can share with the test.
fn shared<T>(value: T) -> Rc<RefCell<T>> {
    Rc::new(RefCell::new(value))
}

mod connection {
    use super::*;

    #[test]
    fn knows_rank_size_and_attributes() {
        let Some(conn) = connect() else { return };
        let h = conn.handle();
        let (rank, size) = (h.rank().unwrap(), h.size().unwrap());
        assert!(rank < size);
        assert!(h.attr_get("rundir").unwrap().is_some());
        assert_eq!(h.attr_get("no-such-attribute").unwrap(), None);
    }

    #[test]
    fn views_fail_after_close() {
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(_) = connect() else { return };
        let error = Connection::open(Some("local:///nonexistent/socket")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/socket"), "{error}");
        let error = Connection::open(Some("a\0b")).unwrap_err();
        assert_eq!(error.errno(), Errno::EINVAL);
    }
}

mod futures {
    use super::*;

    fn ping() -> Value {
        json!({"seq": 7, "pad": "x"})
    }

    #[test]
    fn blocking_get() {
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
}

mod promises {
    use super::*;

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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
}

mod watchers {
    use super::*;

    #[test]
    fn timer_may_be_dropped_inside_its_callback() {
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
        let Some(conn) = connect() else { return };
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
}

mod wakeups {
    use super::*;

    #[test]
    fn every_event_arrives_in_order_from_each_worker() {
        let Some(conn) = connect() else { return };
        let reactor = conn.handle().reactor().unwrap();
        let seen = shared([Vec::new(), Vec::new()]);
        let sink = Rc::clone(&seen);
        let (sender, _receiver) = wakeup(reactor, 4, 3, move |(worker, n): (usize, u32)| {
            sink.borrow_mut()[worker].push(n);
        })
        .unwrap();
        let workers = [0, 1].map(|worker| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for n in 0..500 {
                    sender.send((worker, n)).unwrap();
                }
            })
        });
        run_until(reactor, || seen.borrow().iter().all(|s| s.len() == 500));
        for worker in workers {
            worker.join().unwrap();
        }
        let expected: Vec<u32> = (0..500).collect();
        assert!(seen.borrow().iter().all(|s| *s == expected));
    }

    #[test]
    fn a_batch_lets_others_run_between() {
        let Some(conn) = connect() else { return };
        let reactor = conn.handle().reactor().unwrap();
        let count = Rc::new(Cell::new(0));
        let counter = Rc::clone(&count);
        let (sender, _receiver) =
            wakeup(reactor, 100, 10, move |()| counter.set(counter.get() + 1)).unwrap();
        for () in [(); 25] {
            sender.try_send(()).unwrap();
        }
        let mut turns = Vec::new();
        run_until(reactor, || {
            turns.push(count.get());
            count.get() == 25
        });
        turns.dedup();
        assert_eq!(turns, [0, 10, 20, 25]);
    }

    #[test]
    fn senders_fail_once_the_receiver_is_gone() {
        let Some(conn) = connect() else { return };
        let reactor = conn.handle().reactor().unwrap();
        let (sender, receiver) = wakeup(reactor, 1, 1, |_: u32| ()).unwrap();
        sender.send(1).unwrap();
        assert!(sender.try_send(2).is_err());
        let blocked = std::thread::spawn(move || sender.send(3));
        std::thread::sleep(Duration::from_millis(20));
        drop(receiver);
        assert_eq!(blocked.join().unwrap().unwrap_err().0, 3);
    }

    #[test]
    fn the_receiver_may_be_dropped_by_an_event() {
        let Some(conn) = connect() else { return };
        let reactor = conn.handle().reactor().unwrap();
        let owner = shared(None);
        let (inside, count) = (Rc::clone(&owner), Rc::new(Cell::new(0)));
        let counter = Rc::clone(&count);
        let (sender, receiver) = wakeup(reactor, 8, 8, move |()| {
            counter.set(counter.get() + 1);
            drop(inside.take());
        })
        .unwrap();
        owner.replace(Some(receiver));
        sender.send(()).unwrap();
        sender.send(()).unwrap();
        run_until(reactor, || count.get() > 0);
        assert_eq!(count.get(), 1);
        assert!(sender.send(()).is_err());
        assert_eq!(Rc::strong_count(&owner), 1);
    }
}

mod jobs {
    use super::*;

    #[test]
    fn ids_in_their_forms() {
        let Some(_conn) = connect() else { return };
        let id = JobId::parse("1234").unwrap();
        assert_eq!(id, JobId(1234));
        for form in ["f58", "f58plain", "dec", "hex", "dothex", "kvs", "words"] {
            let text = id.encode(form).unwrap();
            assert_eq!(JobId::parse(&text).unwrap(), id, "{form}: {text}");
        }
        let error = JobId::parse("not a job").unwrap_err();
        assert_eq!(error.errno(), Errno::EINVAL);
        assert_eq!(error.to_string(), "\"not a job\" is no job id");
        assert!(id.encode("nonsense").is_err());
        assert_eq!(serde_json::to_string(&id).unwrap(), "1234");
    }

    /// The job runs long enough to be watched: Flux (0.88) may leave a watch
    /// of a job unanswered that ends in that moment.
    fn submit() -> JobId {
        let output = std::process::Command::new("flux")
            .args(["submit", "sleep", "0.5"])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        JobId::parse(text.trim()).unwrap()
    }

    #[test]
    fn events_blocking() {
        let Some(conn) = connect() else { return };
        let id = submit();
        let mut events = JobEvents::watch(conn.handle(), id, "eventlog", false).unwrap();
        let mut names = Vec::new();
        while let Some(event) = events.next(Some(LIMIT)).unwrap() {
            assert!(event.timestamp > 1e9);
            names.push(event.name);
        }
        assert_eq!(names.first().map(String::as_str), Some("submit"));
        assert_eq!(names.last().map(String::as_str), Some("clean"));
        assert_eq!(events.next(None).unwrap(), None);
    }

    /// The watch of the shell's eventlog is made, and that of the job's is
    /// dropped, inside a callback of the latter.
    #[test]
    fn events_reactive() {
        let Some(conn) = connect() else { return };
        let h = conn.handle();
        let id = submit();
        let names = shared(Vec::new());
        let main: Rc<RefCell<Option<JobWatch>>> = shared(None);
        let guest: Rc<RefCell<Option<JobWatch>>> = shared(None);
        let (sink, ours, next) = (Rc::clone(&names), Rc::clone(&main), Rc::clone(&guest));
        let watch = JobEvents::watch(h, id, "eventlog", false)
            .unwrap()
            .then(move |event| {
                if event.unwrap().unwrap().name != "start" {
                    return;
                }
                drop(ours.take());
                let sink = Rc::clone(&sink);
                let events = JobEvents::watch(h, id, "guest.exec.eventlog", true).unwrap();
                let watch = events.then(move |event| {
                    sink.borrow_mut()
                        .push(event.unwrap().map(|event| event.name));
                });
                next.replace(Some(watch.unwrap()));
            })
            .unwrap();
        main.replace(Some(watch));
        run_until(h.reactor().unwrap(), || {
            names.borrow().last() == Some(&None)
        });
        assert!(
            names
                .borrow()
                .iter()
                .flatten()
                .any(|name| name == "shell.init")
        );
        assert!(main.borrow().is_none());
        assert_eq!(Rc::strong_count(&main), 1);
    }

    #[test]
    fn an_unknown_job_is_an_error() {
        let Some(conn) = connect() else { return };
        let mut events = JobEvents::watch(conn.handle(), JobId(1), "eventlog", false).unwrap();
        let error = events.next(Some(LIMIT)).unwrap_err();
        assert_eq!(error.errno(), Errno::ENOENT);
    }
}
