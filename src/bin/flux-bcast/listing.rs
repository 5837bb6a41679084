//! `--list` and `--remove`: what the service has put on a job's nodes.

use std::ffi::OsString;

use flux_bcast::bcast::item::EntryKind;
use flux_bcast::bcast::name::RawName;
use flux_bcast::bcast::report::Failure;
use flux_bcast::bcast::report::Outcome;
use flux_bcast::bcast::report::RankResult;
use flux_bcast::client::query::Answers;
use flux_bcast::client::query::Query;
use flux_bcast::client::query::Question;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Failed;
use super::args::Args;
use super::drive;
use super::output;
use super::run::Job;
use super::sources;

/// Lists it.
pub(crate) fn list(args: &Args, job: &Job) -> Result<(), Failed> {
    let answers = ask(args, job, Question::list()?)?;
    if args.json {
        print_json(&answers);
    } else {
        for (rank, listing) in answered(&answers) {
            let host = output::host(&answers.hosts, rank);
            for copy in &listing.copies {
                let what = match &copy.digest {
                    Some(digest) => digest.clone(),
                    // More is in it than what was sent.
                    None if copy.kind == EntryKind::File => "-".to_owned(),
                    None => format!("{}:{}", kind(copy.kind), copy.entries),
                };
                let (bytes, path) = (copy.bytes, &copy.path);
                output::line(&format!("{rank} {host} {bytes} {what} {path}"));
            }
        }
    }
    conclude(&answers, |_| Vec::new())
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File | EntryKind::Hardlink => "file",
        EntryKind::Dir => "dir",
        EntryKind::Symlink => "symlink",
    }
}

/// Removes it: all of it, or `paths`.
pub(crate) fn remove(args: &Args, job: &Job, paths: Vec<OsString>) -> Result<(), Failed> {
    let paths: Vec<RawName> = paths.into_iter().map(RawName::from).collect();
    let paths = (!paths.is_empty()).then_some(paths);
    let answers = ask(args, job, Question::remove(paths)?)?;
    if args.json {
        print_json(&answers);
    } else if args.verbose > 0 {
        for (rank, removed) in answered(&answers) {
            let host = output::host(&answers.hosts, rank);
            for path in &removed.gone {
                output::line(&format!("{rank} {host} {path}"));
            }
        }
    }
    conclude(&answers, |removed| removed.failed.clone())
}

fn ask<T: DeserializeOwned + 'static>(
    args: &Args,
    job: &Job,
    question: Question<T>,
) -> Result<Answers<T>, Failed> {
    let terms = sources::terms(args, job.target.clone())?;
    drive::query(&job.connection, &job.target.name, |handle, listener| {
        Query::start(handle, &terms, question, listener)
    })
}

fn answered<T>(answers: &Answers<T>) -> impl Iterator<Item = (u32, &T)> {
    let ranks = answers.ranks.iter();
    ranks.filter_map(|(rank, answer)| Some((*rank, answer.as_ref().ok()?)))
}

/// The failures, of whole ranks and of what they answered.
fn conclude<T>(answers: &Answers<T>, inner: impl Fn(&T) -> Vec<Failure>) -> Result<(), Failed> {
    let mut results = Vec::new();
    for (&rank, answer) in &answers.ranks {
        let failures = match answer {
            Ok(answer) => inner(answer),
            Err(failure) => vec![failure.clone()],
        };
        results.extend(failures.into_iter().map(|failure| RankResult {
            rank,
            outcome: Outcome::Failed(failure),
        }));
    }
    let mut lines = output::folded(&results, &answers.hosts);
    if let Some(why) = &answers.why {
        lines.insert(0, why.text.clone());
    }
    if lines.is_empty() {
        return Ok(());
    }
    Err(Failed::Transfer(lines))
}

fn print_json<T: Serialize>(answers: &Answers<T>) {
    let ranks: Vec<_> = answers
        .ranks
        .iter()
        .map(|(rank, answer)| {
            let failure = answer.as_ref().err();
            let mut object = json!({
                "rank": rank,
                "host": answers.hosts.get(*rank as usize),
                "errno": failure.map_or(0, |failure| failure.errno),
                "error": failure.map(|failure| &failure.text),
            });
            if let (Ok(answer), Some(object)) = (answer, object.as_object_mut())
                && let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(answer)
            {
                object.extend(fields);
            }
            object
        })
        .collect();
    let why = answers.why.as_ref();
    output::object(&json!({
        "errno": why.map_or(0, |why| why.errno),
        "error": why.map(|why| &why.text),
        "ranks": ranks,
    }));
}
