//! Worker threads that wake the reactor.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use flux_bcast::flux::wakeup::wakeup;

use super::connect;
use super::run_until;
use super::shared;

#[test]
fn every_event_arrives_in_order_from_each_worker() {
    let conn = connect();
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
    let conn = connect();
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
    let conn = connect();
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
    let conn = connect();
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
