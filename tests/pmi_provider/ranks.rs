//! Strangers, several connections of a rank, and ranks that go away.

use flux_bcast::pmi::ConnId;

use crate::host::{Host, Job};

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
    assert_eq!(host.closed.len(), 91, "one may be the rank");
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
fn a_rank_stays_as_long_as_one_of_its_connections() {
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.join(1, 1);
    host.bytes(0, b"cmd=barrier_in\n");
    // A child of the rank connects with what it inherited, and crashes.
    host.join(9, 1);
    host.eof(9);
    assert_eq!(host.grace, 0, "the rank is there");
    host.bytes(1, b"cmd=barrier_in\n");
    assert_eq!(host.take(0), "cmd=barrier_out rc=0\n");
    host.bytes(0, b"cmd=barrier_in\n");
    host.eof(1);
    assert_eq!(host.grace, 1, "now it is gone");

    // It may even finish by its older connection.
    let mut host = Job::of(2).start();
    host.join(0, 0);
    host.join(1, 1);
    host.join(9, 1);
    host.eof(9);
    host.ask(1, "cmd=finalize");
    host.eof(1);
    host.bytes(0, b"cmd=barrier_in\n");
    assert_eq!(host.grace, 0);
}

#[test]
fn a_rank_may_open_as_many_sessions_as_it_likes() {
    let mut host = Job::of(1).start();
    for conn in 0..1000 {
        host.join(conn, 0);
        host.ask(conn, "cmd=finalize");
    }
    assert_eq!(host.closed.len(), 1000 - host.limits.per_rank);
    assert!(host.offences.is_empty(), "that breaks no rule");
    host.accept(2000);
    host.bytes(2000, b"junk\n");
    assert_eq!(host.offences, [2000]);
}

#[test]
fn all_local_ranks_may_connect_before_the_first_of_them_speaks() {
    let mut host = Job::of(1000).start();
    for conn in 0..1000 {
        host.accept(conn);
    }
    assert!(host.closed.is_empty());
}

#[test]
fn each_lane_that_a_rank_leaves_is_noticed() {
    // Conn 11 is rank 1 on lane 1.
    let mut host = Job::of(2).start();
    for (conn, id) in [(0, 0), (1, 1), (11, 3)] {
        host.join(conn, id);
    }
    host.eof(11);
    host.eof(1);
    host.bytes(0, b"cmd=barrier_in\n");
    assert_eq!(host.grace, 1, "lane 0 was left too");

    // Back on one lane is not back on the other.
    let mut host = Job::of(2).start();
    for (conn, id) in [(0, 0), (1, 1), (11, 3)] {
        host.join(conn, id);
    }
    host.eof(1);
    host.eof(11);
    host.join(12, 3);
    host.bytes(0, b"cmd=barrier_in\n");
    assert_eq!(host.grace, 1);
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
fn nodes_have_barriers_of_their_own() {
    let mut job = Job::of(3);
    job.groups = true;
    job.nodes = 2;
    let mut host = job.start();
    for conn in 0..3 {
        host.join(conn, u32::try_from(conn).unwrap());
        host.ask(conn, "cmd=init pmi_version=1 pmi_subversion=1");
    }
    // Ranks 0 and 1 share a node; one that is alone enters no such barrier, or
    // does so at another time.
    host.bytes(0, b"cmd=barrier_in group=NODE:7\n");
    assert_eq!(host.take(0), "");
    assert_eq!(
        host.ask(2, "cmd=barrier_in group=NODE:7"),
        "cmd=barrier_out rc=0 tag=7\n"
    );
    assert_eq!(host.take(0), "", "that was another node's");
    host.bytes(1, b"cmd=barrier_in group=NODE:7\n");
    assert_eq!(host.take(0), "cmd=barrier_out rc=0 tag=7\n");
    assert_eq!(host.take(1), "cmd=barrier_out rc=0 tag=7\n");
    // Only a rank of the node is waited for.
    let actions = host.provider.task_exited(2);
    host.apply(actions);
    host.bytes(0, b"cmd=barrier_in group=NODE:8\n");
    assert_eq!(host.grace, 0);
    let actions = host.provider.task_exited(1);
    host.apply(actions);
    assert_eq!(host.grace, 1);
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
