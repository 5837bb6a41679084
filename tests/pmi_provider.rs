//! One provider with clients that speak exact bytes: the wire of PMI 1.1 and
//! 1.2 as clients see it, and what a bad client costs.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use flux_bcast::pmi::{
    Action, Config, ConnId, IdPolicy, Ids, LINE_MAX, Level, Limits, Provider, mapping,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A provider of all ranks of a small job, and what it has sent to whom.
struct Host {
    provider: Provider,
    sent: BTreeMap<u64, Vec<u8>>,
    closed: Vec<u64>,
    warnings: Vec<String>,
    aborts: Vec<(Option<u32>, i32, String)>,
    grace: usize,
}

#[derive(Clone, Copy)]
struct Job {
    size: u32,
    lanes: u32,
    groups: bool,
    limits: Limits,
}

impl Job {
    fn of(size: u32) -> Self {
        Self {
            size,
            lanes: 2,
            groups: false,
            limits: Limits::for_size(size),
        }
    }

    fn start(self) -> Host {
        let ranks: Vec<u32> = (0..self.size).collect();
        let map = mapping::process_mapping(&vec![0; ranks.len()]).unwrap();
        let provider = Provider::new(Config {
            shell: 0,
            shell_of_rank: vec![0; ranks.len()],
            k: 2,
            batch: 4096,
            kvsname: b"kvs_1".to_vec(),
            presets: vec![(b"PMI_process_mapping".to_vec(), map.into_bytes())],
            ids: Ids::new(IdPolicy::Rank, self.size, self.lanes, &ranks, || 0),
            groups: self.groups,
            limits: self.limits,
        });
        Host {
            provider,
            sent: BTreeMap::new(),
            closed: Vec::new(),
            warnings: Vec::new(),
            aborts: Vec::new(),
            grace: 0,
        }
    }
}

impl Host {
    fn apply(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(conn, bytes) => self.sent.entry(conn.0).or_default().extend(bytes),
                Action::Close(conn) => self.closed.push(conn.0),
                Action::Log(Level::Warning, text) => self.warnings.push(text),
                Action::Log(Level::Debug, _) => {}
                Action::Abort { rank, code, text } => self.aborts.push((rank, code, text)),
                Action::Grace => self.grace += 1,
                Action::Peer { .. } => panic!("there is no other shell"),
            }
        }
    }

    fn accept(&mut self, conn: u64) {
        let actions = self.provider.accepted(ConnId(conn));
        self.apply(actions);
    }

    fn bytes(&mut self, conn: u64, bytes: &[u8]) {
        let actions = self.provider.received(ConnId(conn), bytes);
        self.apply(actions);
    }

    fn eof(&mut self, conn: u64) {
        let actions = self.provider.closed(ConnId(conn));
        self.apply(actions);
    }

    /// Everything sent to `conn` since the last call.
    fn take(&mut self, conn: u64) -> String {
        String::from_utf8(self.sent.remove(&conn).unwrap_or_default()).unwrap()
    }

    /// Sends a line and returns the reply.
    fn ask(&mut self, conn: u64, line: &str) -> String {
        self.bytes(conn, format!("{line}\n").as_bytes());
        self.take(conn)
    }

    /// A connection past its handshake.
    fn join(&mut self, conn: u64, id: u32) {
        self.accept(conn);
        let reply = self.ask(conn, &format!("cmd=initack pmiid={id}"));
        assert!(reply.starts_with("cmd=initack\n"), "{reply}");
    }
}

fn hex(n: usize, seed: usize) -> String {
    (0..n)
        .map(|i| format!("{:X}", (i * i + seed) % 16))
        .collect()
}

/// What two ranks of MPICH 4.0.2 say from init to finalize, in this order.
fn mpich_402() -> Vec<(usize, String, String)> {
    let mut talk = Vec::new();
    let mut say = |rank: usize, c: &str, s: &str| talk.push((rank, c.to_owned(), s.to_owned()));
    for rank in 0..2 {
        say(
            rank,
            &format!("cmd=initack pmiid={rank}"),
            &format!("cmd=initack\ncmd=set size=2\ncmd=set rank={rank}\ncmd=set debug=0"),
        );
    }
    for (c, s) in [
        (
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
        ),
        (
            "cmd=get_maxes",
            "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024",
        ),
        ("cmd=get_appnum", "cmd=appnum rc=0 appnum=0"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=kvs_1"),
        (
            "cmd=get kvsname=kvs_1 key=PMI_process_mapping",
            "cmd=get_result rc=0 value=(vector,(0,1,2))",
        ),
    ] {
        say(0, c, s);
        say(1, c, s);
    }
    let enter = "cmd=barrier_in";
    let out = "cmd=barrier_out rc=0";
    say(0, enter, "");
    say(1, enter, out);
    let segment = hex(56, 3);
    say(
        0,
        &format!("cmd=put kvsname=kvs_1 key=-bcast-1-0 value={segment}"),
        "cmd=put_result rc=0",
    );
    say(0, enter, "");
    say(1, enter, out);
    say(
        1,
        "cmd=get kvsname=kvs_1 key=-bcast-1-0",
        &format!("cmd=get_result rc=0 value={segment}"),
    );
    for rank in [1, 0] {
        say(
            rank,
            &format!(
                "cmd=put kvsname=kvs_1 key=-allgather-shm-1-{rank} value={}",
                hex(440, rank)
            ),
            "cmd=put_result rc=0",
        );
    }
    say(1, enter, "");
    say(0, enter, out);
    for rank in [0, 1] {
        for key in [0, 1] {
            say(
                rank,
                &format!("cmd=get kvsname=kvs_1 key=-allgather-shm-1-{key}"),
                &format!("cmd=get_result rc=0 value={}", hex(440, key)),
            );
        }
    }
    say(0, enter, "");
    say(1, enter, out);
    say(1, "cmd=finalize", "cmd=finalize_ack rc=0");
    say(0, "cmd=finalize", "cmd=finalize_ack rc=0");
    talk
}

/// Plays the transcript; `cut` says how each request reaches the provider.
fn play(cut: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
    let mut host = Job::of(2).start();
    host.accept(0);
    host.accept(1);
    let mut waiting = None;
    for (rank, request, reply) in mpich_402() {
        let conn = rank as u64;
        for piece in cut(format!("{request}\n").as_bytes()) {
            host.bytes(conn, &piece);
        }
        if reply.is_empty() {
            assert_eq!(host.take(conn), "", "{request} must wait");
            waiting = Some(conn);
            continue;
        }
        let want = format!("{reply}\n");
        assert_eq!(host.take(conn), want, "rank {rank}: {request}");
        for line in want.split_inclusive('\n') {
            assert!(line.len() <= 1023);
        }
        if reply.starts_with("cmd=barrier_out") {
            assert_eq!(host.take(waiting.take().unwrap()), want);
        }
    }
    host.eof(0);
    host.eof(1);
    assert!(host.closed.is_empty() && host.warnings.is_empty() && host.aborts.is_empty());
}

#[test]
fn golden_transcript_of_mpich() {
    play(|request| vec![request.to_vec()]);
}

#[test]
fn golden_transcript_byte_by_byte() {
    play(|request| request.iter().map(|&b| vec![b]).collect());
}

#[test]
fn coalesced_requests_are_answered_in_order() {
    let mut host = Job::of(1).start();
    host.accept(0);
    host.bytes(
        0,
        b"cmd=initack pmiid=0\ncmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=k key=a value=1\n\
          cmd=barrier_in\ncmd=get kvsname=k key=a\ncmd=lookup_name service=x\ncmd=barrier_in\ncmd=finalize\n",
    );
    assert_eq!(
        host.take(0),
        "cmd=initack\ncmd=set size=1\ncmd=set rank=0\ncmd=set debug=0\n\
         cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\ncmd=put_result rc=0\n\
         cmd=barrier_out rc=0\ncmd=get_result rc=0 value=1\n\
         cmd=lookup_result rc=1 msg=service_not_found\ncmd=barrier_out rc=0\ncmd=finalize_ack rc=0\n"
    );
}

#[test]
fn requests_behind_a_barrier_wait_for_it() {
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.join(1, 1);
    host.bytes(0, b"cmd=barrier_in\ncmd=get kvsname=k key=a\n");
    assert_eq!(host.take(0), "");
    host.ask(1, "cmd=put kvsname=k key=a value=late");
    host.bytes(1, b"cmd=barrier_in\n");
    assert_eq!(
        host.take(0),
        "cmd=barrier_out rc=0\ncmd=get_result rc=0 value=late\n"
    );
}

#[test]
fn every_command() {
    let mut host = Job::of(1).start();
    host.join(0, 0);
    for (line, reply) in [
        ("cmd=get_universe_size", "cmd=universe_size rc=0 size=1"),
        ("cmd=put kvsname=k key=a value=b c=d", "cmd=put_result rc=0"),
        ("cmd=get kvsname=k key=a", "cmd=get_result rc=0 value=b c=d"),
        ("cmd=put kvsname=k key=e value=x=y=z", "cmd=put_result rc=0"),
        ("cmd=get kvsname=k key=e", "cmd=get_result rc=0 value=x=y=z"),
        ("cmd=put kvsname=k key=emp value=", "cmd=put_result rc=0"),
        ("cmd=get kvsname=k key=emp", "cmd=get_result rc=0 value="),
        (
            "cmd=put kvsname=k key=local::x value=1",
            "cmd=put_result rc=0",
        ),
        (
            "cmd=get kvsname=k key=local::x",
            "cmd=get_result rc=0 value=1",
        ),
        (
            "cmd=get kvsname=k key=none",
            "cmd=get_result rc=4 msg=key_not_found",
        ),
        (
            "cmd=getbyidx kvsname=k idx=0",
            "cmd=getbyidx_results rc=0 nextidx=1 key=a val=b c=d",
        ),
        (
            "cmd=getbyidx kvsname=k idx=2",
            "cmd=getbyidx_results rc=0 nextidx=3 key=emp val=",
        ),
        (
            "cmd=getbyidx kvsname=k idx=3",
            "cmd=getbyidx_results rc=-1 reason=no_more_keyvals",
        ),
        ("cmd=create_kvs", "cmd=newkvs rc=0 kvsname=kvs_1"),
        ("cmd=destroy_kvs kvsname=kvs_1", "cmd=kvs_destroyed rc=0"),
        (
            "cmd=publish_name service=s port=p#1",
            "cmd=publish_result rc=0",
        ),
        (
            "cmd=publish_name service=s port=p#2",
            "cmd=publish_result rc=1 msg=service_exists",
        ),
        (
            "cmd=lookup_name service=s",
            "cmd=lookup_result rc=0 port=p#1",
        ),
        ("cmd=unpublish_name service=s", "cmd=unpublish_result rc=0"),
        (
            "cmd=unpublish_name service=s",
            "cmd=unpublish_result rc=1 msg=service_not_found",
        ),
        (
            "mcmd=spawn\nnprocs=1\nexecname=./a\ntotspawns=1\nspawnssofar=1\nargcnt=0\nendcmd",
            "cmd=spawn_result rc=-1 msg=spawn_not_supported",
        ),
        (
            "cmd=get_ranks2hosts",
            "cmd=get_ranks2hosts_result rc=-1 msg=unknown_command",
        ),
        (
            "cmd=put kvsname=k",
            "cmd=put_result rc=-1 msg=malformed_request",
        ),
        (
            "cmd=init pmi_version=2 pmi_subversion=0",
            "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1",
        ),
        (
            "cmd=barrier_in group=WORLD:5",
            "cmd=barrier_out rc=-1 msg=groups_not_enabled",
        ),
        ("cmd=initack pmiid=0", "cmd=initack rc=-1 msg=already_known"),
        ("cmd=finalize", "cmd=finalize_ack rc=0"),
    ] {
        assert_eq!(host.ask(0, line), format!("{reply}\n"), "{line}");
    }
    assert!(host.closed.is_empty());
    let named: Vec<&String> = host
        .warnings
        .iter()
        .filter(|w| w.contains("get_ranks2hosts"))
        .collect();
    assert_eq!(
        named.len(),
        1,
        "the log names the command: {:?}",
        host.warnings
    );
}

#[test]
fn boundary_lengths() {
    let mut host = Job::of(1).start();
    host.join(0, 0);
    let (key, value) = ("k".repeat(64), "v".repeat(1024));
    let put = |key: &str, value: &str| format!("cmd=put kvsname=K key={key} value={value}");
    assert_eq!(host.ask(0, &put(&key, &value)), "cmd=put_result rc=0\n");
    let got = host.ask(0, &format!("cmd=get kvsname=K key={key}"));
    assert_eq!(got, format!("cmd=get_result rc=0 value={value}\n"));
    let long = host.ask(0, &put("a", &format!("{value}v")));
    assert_eq!(long, "cmd=put_result rc=7 msg=value_too_long\n");
    let long = host.ask(0, &put(&format!("{key}k"), "v"));
    assert_eq!(long, "cmd=put_result rc=5 msg=invalid_key_length\n");
    // The longest value that an old client can store (866) fits its buffer.
    host.ask(0, &put("b", &"v".repeat(996)));
    assert_eq!(host.ask(0, "cmd=get kvsname=K key=b").len(), 1023);
}

#[test]
fn a_line_of_the_largest_size_passes_and_a_longer_one_costs_its_connection() {
    let mut host = Job::of(1).start();
    host.join(0, 0);
    let pad = |n: usize| {
        let line = "cmd=get kvsname=K key=a ";
        format!("{line}x={}\n", "y".repeat(n - line.len() - 3))
    };
    assert_eq!(pad(8192).len(), 8192);
    host.bytes(0, pad(8192).as_bytes());
    assert_eq!(host.take(0), "cmd=get_result rc=4 msg=key_not_found\n");
    host.bytes(0, pad(8193).as_bytes());
    assert_eq!(host.closed, [0]);
    host.join(1, 0);
    assert_eq!(host.ask(1, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0\n");
}

#[test]
fn strangers_cost_only_themselves() {
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.bytes(0, b"cmd=barrier_in\n");
    let junk: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
        b"cmd=get_my_kvsname\n",
        b"cmd=barrier_in\n",
        b"cmd=abort exitcode=1\n",
        b"cmd=initack pmiid=4\n",
        b"cmd=initack pmiid=-1\n",
        b"\n",
    ];
    for (conn, bytes) in (10..).zip(junk) {
        host.accept(conn);
        host.bytes(conn, bytes);
        assert_eq!(host.closed.last(), Some(&conn), "{}", bytes.escape_ascii());
    }
    host.accept(30);
    for _ in 0..20 {
        host.bytes(30, &[b'x'; 10_000]);
    }
    assert_eq!(host.closed.last(), Some(&30));
    host.accept(31);
    let actions = host.provider.handshake_over(ConnId(31));
    host.apply(actions);
    assert_eq!(host.closed.last(), Some(&31));
    let actions = host.provider.handshake_over(ConnId(0));
    host.apply(actions);
    assert!(!host.closed.contains(&0), "members have no deadline");
    host.accept(32);
    host.bytes(32, b"cmd=initack pmi");
    host.eof(32);

    host.join(1, 1);
    host.bytes(1, b"cmd=barrier_in\n");
    assert_eq!(host.take(0), "cmd=barrier_out rc=0\n");
    assert!(host.aborts.is_empty());
}

#[test]
fn a_flood_of_silent_connections_does_not_keep_ranks_out() {
    let mut job = Job::of(1);
    job.limits.strangers = 8;
    let mut host = job.start();
    for conn in 0..100 {
        host.accept(conn);
    }
    assert_eq!(host.closed.len(), 92);
    host.join(100, 0);
    assert_eq!(
        host.ask(100, "cmd=get_appnum"),
        "cmd=appnum rc=0 appnum=0\n"
    );
}

#[test]
fn a_key_space_has_a_bound() {
    let mut job = Job::of(1);
    job.limits.bytes = 10_000;
    let mut host = job.start();
    host.join(0, 0);
    let refused = (0..100)
        .map(|i| {
            host.ask(
                0,
                &format!("cmd=put kvsname=K key=k{i} value={}", "v".repeat(500)),
            )
        })
        .find(|reply| reply != "cmd=put_result rc=0\n");
    assert_eq!(
        refused.as_deref(),
        Some("cmd=put_result rc=2 msg=key_space_full\n")
    );
    assert_eq!(host.ask(0, "cmd=get kvsname=K key=k0").len(), 527);
}

#[test]
fn sessions_of_one_rank_supersede_each_other() {
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.join(1, 1);
    host.ask(0, "cmd=put kvsname=K key=a value=1");
    // Newer libraries open a second connection and leave the first one open.
    host.join(2, 0);
    host.bytes(2, b"cmd=barrier_in\n");
    host.bytes(1, b"cmd=barrier_in\n");
    assert_eq!(host.take(2), "cmd=barrier_out rc=0\n");
    assert_eq!(host.take(0), "", "the old one entered nothing");
    assert_eq!(
        host.ask(2, "cmd=get kvsname=K key=a"),
        "cmd=get_result rc=0 value=1\n"
    );
    host.ask(2, "cmd=finalize");
    host.ask(1, "cmd=finalize");
    for conn in [2, 0, 1] {
        host.eof(conn);
    }
    assert_eq!(host.grace, 0, "the end of the old one is no death");
}

#[test]
fn one_rank_that_enters_twice_does_not_complete_a_barrier() {
    let mut host = Job::of(3).start();
    for conn in 0..3 {
        host.join(conn, u32::try_from(conn).unwrap());
    }
    host.join(9, 0);
    host.bytes(0, b"cmd=barrier_in\n");
    host.bytes(9, b"cmd=barrier_in\n");
    host.bytes(1, b"cmd=barrier_in\n");
    assert_eq!(host.take(0) + &host.take(1), "");
    host.bytes(2, b"cmd=barrier_in\n");
    assert_eq!(host.take(0), "cmd=barrier_out rc=0\n");
    assert_eq!(host.take(9), "", "it waits in the next round");
}

#[test]
fn lanes_do_not_share_barriers_or_keys() {
    let mut host = Job::of(2).start();
    for (conn, id) in [(0, 0), (1, 1), (10, 2), (11, 3)] {
        host.join(conn, id);
    }
    assert_eq!(
        host.ask(10, "cmd=get_my_kvsname"),
        "cmd=my_kvsname rc=0 kvsname=kvs_1.1\n"
    );
    host.ask(0, "cmd=put kvsname=K key=a value=zero");
    host.ask(10, "cmd=put kvsname=K key=a value=one");
    // Rank 0 enters lane 0 first, rank 1 enters lane 1 first.
    host.bytes(0, b"cmd=barrier_in\n");
    host.bytes(11, b"cmd=barrier_in\n");
    assert_eq!(host.take(0) + &host.take(11), "");
    host.bytes(1, b"cmd=barrier_in\n");
    assert_eq!(host.take(0), "cmd=barrier_out rc=0\n");
    assert_eq!(host.take(11), "");
    host.bytes(10, b"cmd=barrier_in\n");
    assert_eq!(host.take(11), "cmd=barrier_out rc=0\n");
    assert_eq!(
        host.ask(1, "cmd=get kvsname=K key=a"),
        "cmd=barrier_out rc=0\ncmd=get_result rc=0 value=zero\n"
    );
    assert_eq!(
        host.ask(11, "cmd=get kvsname=K key=a"),
        "cmd=get_result rc=0 value=one\n"
    );
    // A third lane was not offered.
    host.accept(20);
    host.bytes(20, b"cmd=initack pmiid=4\n");
    assert_eq!(host.closed, [20]);
}

#[test]
fn groups_of_pmi_1_2() {
    let mut job = Job::of(3);
    job.groups = true;
    let mut host = job.start();
    for conn in 0..3 {
        host.join(conn, u32::try_from(conn).unwrap());
        assert_eq!(
            host.ask(conn, "cmd=init pmi_version=1 pmi_subversion=1"),
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n"
        );
    }
    // Two barriers of one connection at once, and a put in between.
    host.bytes(
        0,
        b"cmd=barrier_in group=0,1:77\ncmd=barrier_in group=WORLD:5\n",
    );
    assert_eq!(
        host.ask(0, "cmd=put kvsname=K key=a value=1"),
        "cmd=put_result rc=0\n"
    );
    host.bytes(1, b"cmd=barrier_in group=WORLD:5\n");
    host.bytes(2, b"cmd=barrier_in group=WORLD:5\n");
    for conn in 0..3 {
        assert_eq!(host.take(conn), "cmd=barrier_out rc=0 tag=5\n");
    }
    host.bytes(1, b"cmd=barrier_in group=0,1:77\n");
    assert_eq!(host.take(0), "cmd=barrier_out rc=0 tag=77\n");
    assert_eq!(host.take(1), "cmd=barrier_out rc=0 tag=77\n");
    assert_eq!(
        host.ask(2, "cmd=barrier_in group=2:9"),
        "cmd=barrier_out rc=0 tag=9\n"
    );
    for (group, reason) in [
        ("0,1:77", "not_in_group"),
        ("0,9:1", "invalid_group"),
        ("nonsense", "invalid_group"),
        ("2,x:1", "invalid_group"),
    ] {
        assert_eq!(
            host.ask(2, &format!("cmd=barrier_in group={group}")),
            format!("cmd=barrier_out rc=-1 msg={reason}\n")
        );
    }
    for conn in 0..3 {
        host.bytes(conn, b"cmd=barrier_in\n");
    }
    assert_eq!(host.take(0), "cmd=barrier_out rc=0 tag=0\n");
    // Tags cannot be made up without end.
    let refused = (0..10_000).position(|tag| {
        host.ask(0, &format!("cmd=barrier_in group=WORLD:{}", tag + 100))
            .contains("rc=-1")
    });
    assert_eq!(refused, Some(4095), "the plain barrier is remembered too");
}

#[test]
fn abort_ends_the_job_once_with_its_code_and_text_and_gets_no_reply() {
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.join(1, 1);
    assert_eq!(
        host.ask(1, "cmd=abort exitcode=42 message=out of = cheese"),
        ""
    );
    host.ask(0, "cmd=abort exitcode=3");
    assert_eq!(
        host.aborts,
        [(
            Some(1),
            42,
            "rank 1 called PMI abort: out of = cheese".to_owned()
        )]
    );
    assert!(host.closed.is_empty());
}

#[test]
fn a_rank_that_dies_ends_the_job_only_if_others_wait_for_it() {
    let why = |host: &Host| host.aborts[0].2.clone();
    // Exits before it ever connects.
    let mut host = Job::of(2).start();
    let actions = host.provider.task_exited(1);
    host.apply(actions);
    assert_eq!(host.grace, 0, "nobody waits");
    host.join(0, 0);
    host.bytes(0, b"cmd=barrier_in\n");
    assert_eq!(host.grace, 1);
    let actions = host.provider.grace_over();
    host.apply(actions);
    assert_eq!(
        why(&host),
        "rank 1 exited before it used PMI while 1 of 2 ranks here wait in a barrier"
    );

    // Its connection ends in mid-line while another waits.
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.join(1, 1);
    host.bytes(0, b"cmd=barrier_in\n");
    host.bytes(1, b"cmd=put kvs");
    host.eof(1);
    assert_eq!(host.grace, 1);
    let actions = host.provider.grace_over();
    host.apply(actions);
    assert!(why(&host).starts_with("rank 1 closed its PMI connection without finalize"));

    // Even one that has finished can be waited for.
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.join(1, 1);
    host.ask(1, "cmd=finalize");
    host.eof(1);
    let actions = host.provider.task_exited(1);
    host.apply(actions);
    host.bytes(0, b"cmd=barrier_in\n");
    assert_eq!(host.grace, 1);

    // But not by a group without it.
    let mut job = Job::of(3);
    job.groups = true;
    let mut host = job.start();
    for conn in [0, 1] {
        host.join(conn, u32::try_from(conn).unwrap());
        host.ask(conn, "cmd=init pmi_version=1 pmi_subversion=1");
    }
    let actions = host.provider.task_exited(2);
    host.apply(actions);
    host.bytes(0, b"cmd=barrier_in group=0,1:1\n");
    assert_eq!(host.grace, 0);
    host.bytes(0, b"cmd=barrier_in group=0,2:1\n");
    assert_eq!(host.grace, 1);

    // It comes back within the grace period.
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.join(1, 1);
    host.bytes(0, b"cmd=barrier_in\n");
    host.eof(1);
    host.join(2, 1);
    host.bytes(2, b"cmd=barrier_in\n");
    assert_eq!(host.take(0), "cmd=barrier_out rc=0\n");
    let actions = host.provider.grace_over();
    host.apply(actions);
    assert!(host.aborts.is_empty());
}

#[test]
fn a_waiting_rank_that_leaves_withdraws() {
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.join(1, 1);
    host.bytes(0, b"cmd=barrier_in\n");
    host.eof(0);
    host.bytes(1, b"cmd=barrier_in\n");
    assert_eq!(host.take(1), "", "rank 0 is not there");
}

/// Bytes that often look like the protocol.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "cmd=",
        "mcmd=",
        "initack",
        "pmiid=",
        "init",
        "put",
        "get",
        "getbyidx",
        "barrier_in",
        "spawn",
        "endcmd",
        "\n",
        "\n",
        " ",
        "=",
        "key=",
        "value=",
        "kvsname=K",
        "0",
        "1",
        "7",
        "-1",
        "99999999999",
        "group=",
        "WORLD:1",
        "0,1:3",
        "publish_name",
        "service=",
        "port=",
        "lookup_name",
        "finalize",
        "totspawns=",
        "spawnssofar=",
        "pmi_version=",
        "\0",
        "\u{192}",
        "cmd=initack pmiid=0\n",
        "cmd=initack pmiid=1\n",
        "cmd=barrier_in\n",
        "idx=",
    ]);
    let piece = prop_oneof![
        8 => words.prop_map(|w| w.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..30),
        1 => (1usize..9000).prop_map(|n| vec![b'x'; n]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Feeds streams to two connections in pieces and checks what must always
/// hold, whatever the bytes are.
fn survive(streams: &[Vec<u8>; 2], piece: usize, groups: bool) {
    let mut job = Job::of(2);
    job.groups = groups;
    job.limits.bytes = 50_000;
    let mut host = job.start();
    host.accept(0);
    host.accept(1);
    let mut replies = 0;
    let mut lines = 0;
    let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
    for start in (0..longest).step_by(piece) {
        for (conn, stream) in (0..).zip(streams) {
            let Some(rest) = stream.get(start..) else {
                continue;
            };
            let bytes = &rest[..rest.len().min(piece)];
            lines += bytes.iter().filter(|&&b| b == b'\n').count();
            host.bytes(conn, bytes);
            // Two lanes of keys, and what waits behind a reply on each of two
            // connections.
            assert!(host.provider.held() <= 2 * 50_000 + 2 * 4 * LINE_MAX);
        }
    }
    for bytes in host.sent.values() {
        assert!(bytes.is_empty() || bytes.ends_with(b"\n"));
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            assert!(line.starts_with(b"cmd="));
            assert!(
                line.len() <= 1023 || line.starts_with(b"cmd=get"),
                "{}",
                line.len()
            );
            replies += 1;
        }
    }
    assert!(
        replies <= lines + 3 * 2,
        "at most one reply each, four to a handshake"
    );
    assert!(host.warnings.len() <= 33);
    // Still alive for a client that behaves.
    host.join(7, 0);
    assert_eq!(host.ask(7, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0\n");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_leave_the_provider_alive(
        a in noise(),
        b in noise(),
        piece in prop::sample::select(vec![1usize, 7, 100, 4096, 16384]),
        groups in any::<bool>(),
    ) {
        survive(&[a, b], piece, groups);
    }
}

#[test]
fn corpus_of_byte_streams() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pmi-corpus");
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    assert!(names.len() >= 10, "the corpus is there");
    for name in names {
        let bytes = std::fs::read(&name).unwrap();
        for piece in [1, 13, 4096] {
            for groups in [false, true] {
                survive(&[bytes.clone(), bytes.clone()], piece, groups);
                survive(
                    &[
                        [b"cmd=initack pmiid=0\n", &bytes[..]].concat(),
                        bytes.clone(),
                    ],
                    piece,
                    groups,
                );
            }
        }
    }
}
