//! `--dry-run`: what sending would find on each rank.

use flux_bcast::bcast::name::RawName;
use flux_bcast::bcast::report::Failure;
use flux_bcast::bcast::report::Outcome;
use flux_bcast::bcast::report::RankResult;
use flux_bcast::bcast::spec::Existing;
use flux_bcast::client::query::Answers;
use flux_bcast::client::query::Query;
use flux_bcast::client::query::Question;
use flux_bcast::elf;
use flux_bcast::elf::Search;
use flux_bcast::file::Found;
use flux_bcast::file::Inspection;
use flux_bcast::file::Source;
use flux_bcast::transfer::ask;
use flux_bcast::units::show_size;
use serde_json::json;

use super::Failed;
use super::args::Args;
use super::drive;
use super::output;
use super::run;
use super::sources;
use super::words::Words;

/// Tells what would happen; fails if a rank would.
pub(crate) fn run(args: &Args, words: &Words) -> Result<(), Failed> {
    let tuning = sources::tuning(args)?;
    let mut cargo = sources::cargo(args, words, tuning.chunk)?;
    if let Some(libs) = &cargo.libs {
        let (inputs, dest) = (&mut cargo.source.inputs, &mut cargo.dest);
        let added = elf::add_libs(inputs, dest, libs, &Search::system())
            .map_err(|text| Failed::Transfer(vec![text]))?;
        added.notes.iter().for_each(|note| output::note(note));
    }
    let policy = sources::policy(args);
    let source = Source::open(cargo.source)
        .map_err(|error| Failed::Transfer(vec![error.to_string()]))?;
    let names: Vec<RawName> = source.names().cloned().collect();
    cargo.dest.directory = cargo.dest.directory || names.len() > 1;
    let bytes = source.totals().allocated;
    let existing = policy.existing;
    let question = Question::inspect(cargo.dest, policy, names)?;
    let job = run::job(args, words.job.as_deref())?;
    let terms = sources::terms(args, job.target)?;
    let answers = drive::query(&job.connection, &terms.target.name, |handle, listener| {
        Query::start(handle, &terms, question, listener)
    })?;
    let verdicts = verdicts(&answers, bytes);
    if args.json {
        print_json(&answers, &verdicts, bytes);
    } else {
        print(&answers, existing);
    }
    let mut lines = output::folded(&verdicts, &answers.hosts);
    if let Some(why) = &answers.why {
        lines.insert(0, why.text.clone());
    }
    if lines.is_empty() {
        return Ok(());
    }
    Err(Failed::Transfer(lines))
}

/// Each rank's outcome, were it done.
fn verdicts(answers: &Answers<Inspection>, bytes: u64) -> Vec<RankResult> {
    let outcome = |rank: u32, answer: &Result<Inspection, Failure>| match answer {
        Ok(found) => match ask::objection(found, bytes) {
            Some((errno, text)) => Outcome::Failed(Failure::on(rank, errno, text)),
            None => Outcome::Done(Vec::new()),
        },
        Err(failure) => Outcome::Failed(failure.clone()),
    };
    answers
        .ranks
        .iter()
        .map(|(&rank, answer)| RankResult {
            rank,
            outcome: outcome(rank, answer),
        })
        .collect()
}

/// What would become of one copy, in one word.
fn fate(found: &Found, existing: Existing) -> &'static str {
    match (found.exists, existing) {
        _ if found.refused.is_some() => "refused",
        (false, _) => "new",
        (true, Existing::Append) => "append",
        (true, Existing::Truncate) => "overwrite",
        (true, _) => "replace",
    }
}

fn print(answers: &Answers<Inspection>, existing: Existing) {
    for (rank, answer) in &answers.ranks {
        let Ok(found) = answer else { continue };
        let host = output::host(&answers.hosts, *rank);
        for copy in &found.copies {
            output::line(&format!(
                "{rank} {host} {} {}-free {}",
                fate(copy, existing),
                show_size(found.free).replace(' ', ""),
                copy.path
            ));
        }
    }
}

fn print_json(answers: &Answers<Inspection>, verdicts: &[RankResult], bytes: u64) {
    let ranks: Vec<_> = verdicts
        .iter()
        .map(|verdict| {
            let answer = answers.ranks.get(&verdict.rank);
            let found = answer.and_then(|answer| answer.as_ref().ok());
            let failure = verdict.failure();
            json!({
                "rank": verdict.rank,
                "host": answers.hosts.get(verdict.rank as usize),
                "errno": failure.map_or(0, |failure| failure.errno),
                "error": failure.map(|failure| &failure.text),
                "directory": found.map(|found| &found.directory),
                "mkdir": found.map(|found| found.make),
                "free": found.map(|found| found.free),
                "copies": found.map(|found| {
                    found.copies.iter().map(|copy| json!({
                        "path": copy.path,
                        "exists": copy.exists,
                        "bytes": copy.size,
                    })).collect::<Vec<_>>()
                }),
            })
        })
        .collect();
    let why = answers.why.as_ref();
    output::line(
        &json!({
            "dry-run": true,
            "bytes": bytes,
            "errno": why.map_or(0, |why| why.errno),
            "error": why.map(|why| &why.text),
            "ranks": ranks,
        })
        .to_string(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_bcast::errno::Errno;

    #[test]
    fn fates() {
        let found = |exists, refused: bool| Found {
            path: "/f".into(),
            exists,
            size: 0,
            refused: refused.then(|| (Errno::EEXIST, String::new())),
        };
        for (exists, refused, existing, word) in [
            (false, false, Existing::Refuse, "new"),
            (true, true, Existing::Refuse, "refused"),
            (true, false, Existing::Replace, "replace"),
            (true, false, Existing::Append, "append"),
            (true, false, Existing::Truncate, "overwrite"),
            (false, false, Existing::Append, "new"),
        ] {
            assert_eq!(fate(&found(exists, refused), existing), word);
        }
    }

    #[test]
    fn a_rank_without_an_answer_would_fail() {
        let silent = Failure::on(2, libc::ETIMEDOUT, "gave no answer in time");
        let answers = Answers {
            ranks: [(2, Err(silent.clone()))].into(),
            why: None,
            hosts: vec![],
        };
        assert_eq!(verdicts(&answers, 1)[0].failure(), Some(&silent));
    }
}
