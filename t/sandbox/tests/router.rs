//! Messages between real sockets, through a router that runs in a thread.
//!
//! `cargo test --release -- --ignored --nocapture` measures its throughput.

#![expect(clippy::expect_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use flux_sandbox::broker::{Broker, Config, Knobs};
use flux_sandbox::errno::Errno;
use flux_sandbox::host::dispatch::Match;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::host::reactor::Reactor;
use flux_sandbox::host::rpc::{self, NORESPONSE, STREAMING};
use flux_sandbox::wire::{NODEID_ANY, NODEID_UPSTREAM, ROLE_OWNER, ROLE_USER};
use serde_json::json;

/// An instance that lives as long as the test process.
struct Instance {
    dir: tempfile::TempDir,
}

impl Instance {
    fn start(size: u32, attrs: &[(&str, &str)], knobs: Knobs) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let attrs: BTreeMap<_, _> = attrs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let config = Config {
            size,
            rundir: dir.path().to_owned(),
            shell: "/bin/false".into(),
            hosts: vec!["here".to_owned(); size as usize],
            attrs,
            parent: None,
            knobs,
        };
        let (ready, wait) = mpsc::channel();
        thread::spawn(move || {
            let reactor = Reactor::new();
            let broker = Broker::start(config, &reactor).expect("broker starts");
            ready.send(()).expect("test waits");
            let _ = reactor.run(0);
            drop(broker);
        });
        wait.recv().expect("broker is ready");
        Self { dir }
    }

    fn uri(&self, rank: u32) -> String {
        format!("local://{}/local-{rank}", self.dir.path().display())
    }

    fn open(&self, rank: u32) -> Rc<Handle> {
        Handle::open(Some(&self.uri(rank))).expect("connects")
    }

    /// Serves `name.echo`, `name.count` (three responses), `name.flood` (a hundred
    /// large ones) and `name.disconnect`
    /// at a rank, in a thread; the receiver gets the topics of requests.
    fn serve(&self, rank: u32, name: &str) -> mpsc::Receiver<String> {
        let (seen, topics) = mpsc::channel();
        let (ready, wait) = mpsc::channel();
        let (uri, name) = (self.uri(rank), name.to_owned());
        thread::spawn(move || {
            let h = Handle::open(Some(&uri)).expect("connects");
            h.call("service.add", &json!({ "service": name }))
                .expect("registers");
            for method in ["echo", "count", "flood", "disconnect"] {
                let seen = seen.clone();
                h.dispatch()
                    .add(
                        Match::Request(format!("{name}.{method}")),
                        ROLE_USER,
                        Box::new(move |h, _, msg| {
                            let _ = seen.send(msg.topic_str().to_owned());
                            let payload = msg.payload.as_deref().cloned();
                            let answers = match method {
                                "echo" => vec![msg.response(0, payload)],
                                "flood" => {
                                    vec![msg.response(0, Some(vec![1; 1 << 17])); 100]
                                }
                                "count" => (0..3u8)
                                    .map(|n| msg.response(0, Some(vec![n])))
                                    .chain([msg.response(61, None)])
                                    .collect(),
                                _ => Vec::new(),
                            };
                            for a in answers.iter().filter(|_| !msg.has(1)) {
                                h.send(a).expect("sends");
                            }
                        }),
                    )
                    .expect("adds a handler");
            }
            ready.send(()).expect("test waits");
            let _ = h.reactor().run(0);
        });
        wait.recv().expect("service is ready");
        topics
    }
}

fn knobs() -> Knobs {
    Knobs {
        delay: 0.0,
        queue_limit: 0,
        cores: 2,
        owner: rustix::process::geteuid().as_raw(),
        kill_timeout: 5.0,
    }
}

fn ask(h: &Rc<Handle>, topic: &str, nodeid: u32) -> Result<Option<Vec<u8>>, (i32, String)> {
    let f = rpc::start(h, topic, Some(b"data".to_vec()), nodeid, 0).expect("sends");
    let result = match rpc::get(&f) {
        Ok(msg) => Ok(msg.and_then(|m| m.payload.as_deref().cloned())),
        Err(e) => Err((e.0, f.error_string(e))),
    };
    f.destroy();
    result
}

#[test]
fn requests_find_services_as_in_flux() {
    let i = Instance::start(7, &[("tbon.topo", "kary:2")], knobs());
    let at_zero = i.serve(0, "a");
    let at_one = i.serve(1, "a");
    let h = i.open(3);
    assert_eq!(ask(&h, "a.echo", 0), Ok(Some(b"data".to_vec())));
    assert_eq!(at_zero.try_recv().as_deref(), Ok("a.echo"));
    // Any rank: the nearest above. Rank 3 is below rank 1.
    assert!(ask(&h, "a.echo", NODEID_ANY).is_ok());
    assert_eq!(at_one.try_recv().as_deref(), Ok("a.echo"));
    assert!(at_zero.try_recv().is_err());
    // Upstream of rank 1 is rank 0, whatever rank 1 itself has.
    assert!(ask(&i.open(1), "a.echo", NODEID_UPSTREAM).is_ok());
    assert_eq!(at_zero.try_recv().as_deref(), Ok("a.echo"));

    let missing = ask(&h, "a.echo", 2).expect_err("rank 2 has none");
    assert_eq!(
        missing,
        (
            libc::ENOSYS,
            "No service matching a.echo is registered".into()
        )
    );
    let (errnum, _) = ask(&h, "a.echo", 7).expect_err("no such rank");
    assert_eq!(errnum, libc::EHOSTUNREACH);
    let long = format!("{}.echo", "x".repeat(80));
    let (_, text) = ask(&h, &long, NODEID_ANY).expect_err("no such service");
    assert_eq!(text.len(), 63, "cut as in Flux: {text}");
    let unknown = ask(&h, "a.nosuch", 0).expect_err("no such method");
    assert_eq!(
        unknown,
        (libc::ENOSYS, "Unknown service method 'a.nosuch'".into())
    );
    let twice = i.open(1).call("service.add", &json!({ "service": "a" }));
    assert_eq!(twice.err(), Some(Errno(libc::EEXIST)));
}

#[test]
fn a_stream_comes_in_order_and_ends_with_an_error() {
    let i = Instance::start(2, &[], knobs());
    let _topics = i.serve(1, "s");
    let h = i.open(0);
    let f = rpc::start(&h, "s.count", None, 1, STREAMING).expect("sends");
    let mut got = Vec::new();
    let end = loop {
        match rpc::get(&f) {
            Ok(msg) => got.extend(msg.and_then(|m| m.payload.as_deref().cloned())),
            Err(e) => break e,
        }
        f.reset();
    };
    assert_eq!(got.concat(), [0, 1, 2]);
    assert_eq!(end, Errno(libc::ENODATA));
    f.destroy();
}

#[test]
fn services_hear_of_clients_that_leave_once_each() {
    let i = Instance::start(2, &[], knobs());
    let topics = i.serve(1, "d");
    let h = i.open(0);
    for _ in 0..3 {
        assert!(ask(&h, "d.echo", 1).is_ok());
    }
    let quiet = i.open(0);
    rpc::start(&quiet, "d.echo", None, 1, NORESPONSE)
        .expect("sends")
        .destroy();
    // The service has its message before the sender leaves.
    for _ in 0..4 {
        assert_eq!(topics.recv().as_deref(), Ok("d.echo"));
    }
    drop(quiet);
    drop(h);
    let next = topics.recv_timeout(Duration::from_secs(60));
    assert_eq!(next.as_deref(), Ok("d.disconnect"));
    assert!(topics.recv_timeout(Duration::from_millis(200)).is_err());
}

#[test]
fn waiting_for_one_answer_keeps_the_others() {
    let i = Instance::start(1, &[], knobs());
    let _topics = i.serve(0, "k");
    let h = i.open(0);
    let count = std::cell::Cell::new(0);
    let count = Rc::new(count);
    for _ in 0..10 {
        let f = rpc::start(&h, "k.echo", None, 0, 0).expect("sends");
        let (count, h) = (Rc::clone(&count), Rc::clone(&h));
        f.then(
            60.0,
            Rc::new(move |f| {
                assert!(rpc::get(f).is_ok());
                count.set(count.get() + 1);
                f.destroy();
                if count.get() == 10 {
                    h.reactor().stop();
                }
            }),
        )
        .expect("then");
        std::mem::forget(f);
    }
    assert!(ask(&h, "k.echo", 0).is_ok());
    assert_eq!(count.get(), 0, "continuations run on the reactor only");
    h.reactor().run(0).expect("runs");
    assert_eq!(count.get(), 10);
}

#[test]
fn credentials_are_those_of_the_connection() {
    let i = Instance::start(1, &[], knobs());
    let (sent, got) = mpsc::channel();
    let uri = i.uri(0);
    let (ready, wait) = mpsc::channel();
    thread::spawn(move || {
        let h = Handle::open(Some(&uri)).expect("connects");
        h.call("service.add", &json!({ "service": "c" }))
            .expect("registers");
        let add = h.dispatch().add(
            Match::Request("c.who".to_owned()),
            ROLE_USER,
            Box::new(move |h, _, msg| {
                let _ = sent.send((msg.userid, msg.rolemask & ROLE_OWNER));
                let _ = h.send(&msg.response(0, None));
            }),
        );
        add.expect("adds a handler");
        ready.send(()).expect("test waits");
        let _ = h.reactor().run(0);
    });
    wait.recv().expect("service is ready");
    assert!(ask(&i.open(0), "c.who", 0).is_ok());
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(got.recv(), Ok((own, ROLE_OWNER)));
}

#[test]
fn messages_can_be_delayed() {
    let i = Instance::start(
        1,
        &[],
        Knobs {
            delay: 0.1,
            ..knobs()
        },
    );
    let h = i.open(0);
    let begin = Instant::now();
    h.attr_string("rank").expect("answers");
    assert!(begin.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_client_that_does_not_read_is_cut_off_at_the_limit() {
    let i = Instance::start(
        1,
        &[],
        Knobs {
            queue_limit: 1 << 20,
            ..knobs()
        },
    );
    let topics = i.serve(0, "q");
    let h = i.open(0);
    let f = rpc::start(&h, "q.flood", None, 0, STREAMING).expect("sends");
    // While we do not read, the service hears that we are gone.
    let end = topics.iter().find(|t| t == "q.disconnect");
    assert_eq!(end.as_deref(), Some("q.disconnect"));
    let mut got = 0;
    while rpc::get(&f).is_ok() {
        got += 1;
        f.reset();
    }
    assert!(got < 100, "{got}");
    // Others go on.
    assert!(ask(&i.open(0), "q.echo", 0).is_ok());
}

#[test]
#[ignore = "a measurement"]
fn throughput() {
    const SIZE: usize = 120 << 10;
    const COUNT: usize = 10_000;
    let i = Instance::start(2, &[], knobs());
    let topics = i.serve(1, "t");
    let h = i.open(0);
    let data = vec![1; SIZE];
    let begin = Instant::now();
    for _ in 0..COUNT {
        rpc::start(&h, "t.echo", Some(data.clone()), 1, NORESPONSE)
            .expect("sends")
            .destroy();
    }
    for _ in 0..COUNT {
        topics.recv().expect("arrives");
    }
    let seconds = begin.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a few GB")]
    let rate = (SIZE * COUNT) as f64 / seconds / 1048576.0;
    eprintln!("{rate:.0} MiB/s");
    assert!(rate >= 200.0, "{rate:.0} MiB/s");
}
