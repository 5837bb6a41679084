//! Job ids, and the events of jobs.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use flux_bcast::errno::Errno;
use flux_bcast::flux::job::JobEvents;
use flux_bcast::flux::job::JobId;
use flux_bcast::flux::job::JobWatch;

use super::LIMIT;
use super::connect;
use super::run_until;
use super::shared;

#[test]
fn ids_in_their_forms() {
    let _conn = connect();
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

/// The job runs until the file `end` exists, so that it can be watched: Flux (0.88)
/// may leave a watch of a job unanswered that ends in that moment.
fn submit(end: &Path) -> JobId {
    let output = std::process::Command::new("flux")
        .args([
            "submit",
            "sh",
            "-c",
            "until test -e \"$0\"; do sleep 0.1; done",
        ])
        .arg(end)
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    JobId::parse(text.trim()).unwrap()
}

#[test]
fn events_blocking() {
    let conn = connect();
    let dir = tempfile::tempdir().unwrap();
    let end = dir.path().join("end");
    let id = submit(&end);
    let mut events = JobEvents::watch(conn.handle(), id, "eventlog", false).unwrap();
    let mut names = Vec::new();
    while let Some(event) = events.next(Some(LIMIT)).unwrap() {
        std::fs::write(&end, "").unwrap();
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
    let conn = connect();
    let h = conn.handle();
    let dir = tempfile::tempdir().unwrap();
    let end = dir.path().join("end");
    let id = submit(&end);
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
            let end = end.clone();
            let watch = events.then(move |event| {
                std::fs::write(&end, "").unwrap();
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
    let conn = connect();
    let mut events = JobEvents::watch(conn.handle(), JobId(1), "eventlog", false).unwrap();
    let error = events.next(Some(LIMIT)).unwrap_err();
    assert_eq!(error.errno(), Errno::ENOENT);
}
