//! `--dry-run`: what sending would find on each rank.

use flux_bcast::bcast::name::RawName;
use flux_bcast::bcast::report::Outcome;
use flux_bcast::bcast::report::RankResult;
use flux_bcast::bcast::spec::Existing;
use flux_bcast::client::preview::Preview;
use flux_bcast::client::preview::Previewing;
use flux_bcast::file::Found;
use flux_bcast::units::show_size;
use serde_json::json;

use super::Failed;
use super::args::Args;
use super::drive;
use super::output;
use super::run;
use super::words::Words;

/// Tells what would happen; fails if a rank would.
pub(crate) fn run(args: &Args, words: &Words) -> Result<(), Failed> {
    let (connection, send) = run::request(args, words)?;
    let name = send.terms.target.name.clone();
    let existing = send.policy.existing;
    let preview = drive::preview(&connection, &name, |handle, listener| {
        Previewing::start(handle, send, listener)
    })?;
    let (answers, verdicts) = (&preview.answers, verdicts(&preview));
    if args.json {
        print_json(&preview, &verdicts);
    } else {
        print(&preview, existing);
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
fn verdicts(preview: &Preview) -> Vec<RankResult> {
    let outcome = |rank: u32| match preview.objection(rank) {
        Some(failure) => Outcome::Failed(failure),
        None => Outcome::Done(Vec::new()),
    };
    let ranks = preview.answers.ranks.keys();
    ranks
        .map(|&rank| RankResult {
            rank,
            outcome: outcome(rank),
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

fn print(preview: &Preview, existing: Existing) {
    let answers = &preview.answers;
    for (rank, answer) in &answers.ranks {
        let host = output::host(&answers.hosts, *rank);
        let free = answer.as_ref().ok().map_or_else(
            || "-".into(),
            |found| format!("{}-free", show_size(found.free).replace(' ', "")),
        );
        let line = |fate: &str, path: &RawName| {
            output::line(&format!("{rank} {host} {fate} {free} {path}"));
        };
        match (preview.unchanged.get(rank), answer) {
            (Some(paths), _) => paths.iter().for_each(|path| line("unchanged", path)),
            (None, Ok(found)) => {
                for copy in &found.copies {
                    line(fate(copy, existing), &copy.path);
                }
            }
            // Why is among the errors.
            (None, Err(_)) => line("refused", &RawName::from("-")),
        }
    }
}

/// Bytes for each rank that gets the files.
fn bytes(preview: &Preview) -> u64 {
    let ranks = &preview.answers.ranks;
    let all = ranks
        .keys()
        .all(|rank| preview.unchanged.contains_key(rank));
    match all && !ranks.is_empty() {
        true => 0,
        false => preview.bytes,
    }
}

fn print_json(preview: &Preview, verdicts: &[RankResult]) {
    let answers = &preview.answers;
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
                "unchanged": preview.unchanged.contains_key(&verdict.rank),
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
    output::object(&json!({
        "dry-run": true,
        "bytes": bytes(preview),
        "errno": why.map_or(0, |why| why.errno),
        "error": why.map(|why| &why.text),
        "ranks": ranks,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_bcast::bcast::report::Failure;
    use flux_bcast::client::query::Answers;
    use flux_bcast::errno::Errno;
    use std::collections::BTreeMap;

    #[test]
    fn ranks_that_get_nothing_need_no_bytes() {
        let silent = |rank| (rank, Err(Failure::on(rank, libc::ETIMEDOUT, "silent")));
        let mut preview = Preview {
            answers: Answers {
                ranks: [silent(1), silent(2)].into(),
                why: None,
                hosts: vec![],
            },
            bytes: 7,
            unchanged: BTreeMap::new(),
        };
        assert_eq!(bytes(&preview), 7);
        preview.unchanged = [(2, vec!["/f".into()])].into();
        assert_eq!(bytes(&preview), 7);
        let states: Vec<bool> = verdicts(&preview)
            .iter()
            .map(|verdict| verdict.failure().is_some())
            .collect();
        assert_eq!(states, [true, false]);
        preview.unchanged.insert(1, vec!["/f".into()]);
        assert_eq!(bytes(&preview), 0);
        preview.answers.ranks.clear();
        assert_eq!(bytes(&preview), 7);
    }

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
}
