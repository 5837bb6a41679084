//! What is answered to what, byte by byte.

use crate::host::Job;

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
