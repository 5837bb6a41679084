//! What the user sees.

use std::io::Write;
use std::sync::OnceLock;

use flux_bcast::bcast::name::RawName;
use flux_bcast::bcast::report;
use flux_bcast::bcast::report::Outcome;
use flux_bcast::bcast::report::Placed;
use flux_bcast::bcast::report::RankResult;
use flux_bcast::client::Summary;
use flux_bcast::errno::Errno;
use flux_bcast::idset::IdSet;
use flux_bcast::units::show_size;
use serde_json::Value;
use serde_json::json;

use super::plain::plain;

/// Prints an error.
pub(crate) fn error(text: &str) {
    let _ = writeln!(std::io::stderr(), "flux-bcast: ERROR: {}", plain(text));
}

/// Prints something worth knowing.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "flux-bcast: {}", plain(text));
}

/// The first error of writing to standard output.
static UNWRITTEN: OnceLock<std::io::Error> = OnceLock::new();

/// Prints a line of the result.
pub(crate) fn line(text: &str) {
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        let _ = UNWRITTEN.set(error);
    }
}

/// The object of `--json` is printed.
static OBJECT: OnceLock<()> = OnceLock::new();

/// Prints the object of `--json`.
pub(crate) fn object(object: &Value) {
    let _ = OBJECT.set(());
    line(&object.to_string());
}

/// Prints it where there is no result, unless it is printed.
pub(crate) fn nothing(errno: Errno, text: &str) {
    if OBJECT.get().is_none() {
        object(&json!({ "errno": errno.raw(), "error": text, "ranks": [] }));
    }
}

/// Why a part of the result could not be printed, if so: whoever reads it must
/// not take the rest for the whole.
pub(crate) fn unwritten() -> Option<String> {
    let error = match std::io::stdout().flush() {
        Ok(()) => return UNWRITTEN.get().map(Errno::from).map(told),
        Err(error) => Errno::from(&error),
    };
    Some(told(error))
}

fn told(errno: Errno) -> String {
    format!("write standard output: {errno}")
}

/// Name of a rank's host, if known.
pub(crate) fn host(hosts: &[String], rank: u32) -> &str {
    hosts.get(rank as usize).map_or("-", String::as_str)
}

/// The failures of ranks in the user's words, one line for equal ones.
pub(crate) fn folded(results: &[RankResult], hosts: &[String]) -> Vec<String> {
    report::fold(results)
        .into_iter()
        .map(|fold| {
            let who = report::who(&fold.ranks, hosts);
            format!("{who}: {}", fold.advice("--force"))
        })
        .collect()
}

/// All failures of a transfer.
pub(crate) fn failures(summary: &Summary) -> Vec<String> {
    let mut lines = folded(&summary.results, &summary.hosts);
    if let Some(why) = &summary.why
        && (why.rank.is_none() || lines.is_empty())
    {
        let text = match why.rank {
            Some(rank) => {
                let who = report::who(&IdSet::from_iter([rank]), &summary.hosts);
                format!("{who}: {}", why.full_text())
            }
            None => why.text.clone(),
        };
        lines.insert(0, text);
    }
    lines
}

fn copies(result: &RankResult) -> &[Placed] {
    match &result.outcome {
        Outcome::Done(copies) => copies,
        _ => &[],
    }
}

/// Bytes that a rank was sent.
fn sent(summary: &Summary, result: &RankResult) -> u64 {
    if summary.unchanged.contains(result.rank) {
        return 0;
    }
    copies(result).iter().map(|copy| copy.bytes).sum()
}

/// Which way the bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The same ones to each rank.
    To,
    /// Each rank's own ones from it.
    From,
}

/// Ranks that have, or gave, something new, and how many bytes that was: for each
/// of them where all were sent the same, else together.
fn sent_to(summary: &Summary, way: Way) -> (usize, u64) {
    let new = |result: &&RankResult| state(summary, result) == "done";
    let ranks = summary.results.iter().filter(new);
    match (ranks.clone().count(), way) {
        (0, _) => (0, 0),
        (count, Way::To) => (count, summary.bytes),
        (count, Way::From) => (count, ranks.map(|result| sent(summary, result)).sum()),
    }
}

/// One line for each copy: rank, host, path; given to `line`.
pub(crate) fn placed(summary: &Summary, line: fn(&str)) {
    for result in &summary.results {
        let host = host(&summary.hosts, result.rank);
        let unchanged = if summary.unchanged.contains(result.rank) {
            " (unchanged)"
        } else {
            ""
        };
        for copy in copies(result) {
            line(&format!("{} {host} {}{unchanged}", result.rank, copy.path));
        }
    }
}

/// A text for each rank, equal ones once; ranks are named only if texts differ.
pub(crate) fn by_rank(texts: &[(u32, String)], hosts: &[String]) -> Vec<String> {
    let mut groups: Vec<(IdSet, &str)> = Vec::new();
    for (rank, text) in texts {
        match groups.iter_mut().find(|(_, known)| known == text) {
            Some((ranks, _)) => {
                ranks.insert(*rank);
            }
            None => groups.push((IdSet::from_iter([*rank]), text)),
        }
    }
    if let [(_, text)] = groups[..] {
        return vec![text.to_owned()];
    }
    groups
        .into_iter()
        .map(|(ranks, text)| format!("{}: {text}", report::who(&ranks, hosts)))
        .collect()
}

/// The directory that the service has chosen.
pub(crate) fn directories(summary: &Summary) {
    let texts: Vec<(u32, String)> = summary
        .results
        .iter()
        .filter_map(|result| {
            let dir = copies(result).first()?.path.as_path().parent()?;
            Some((result.rank, RawName::from(dir).to_string()))
        })
        .collect();
    for text in by_rank(&texts, &summary.hosts) {
        line(&text);
    }
}

/// What to set for programs whose shared objects were sent; the last `count`
/// copies of each rank are their directories.
pub(crate) fn library_path(summary: &Summary, count: usize) {
    let texts: Vec<(u32, String)> = summary
        .results
        .iter()
        .filter_map(|result| {
            let copies = copies(result);
            let dirs = copies.get(copies.len().checked_sub(count)?..)?;
            let dirs: Vec<String> = dirs.iter().map(|dir| dir.path.to_string()).collect();
            (!dirs.is_empty()).then(|| (result.rank, dirs.join(":")))
        })
        .collect();
    for text in by_rank(&texts, &summary.hosts) {
        line(&match text.split_once(": ") {
            Some((who, dirs)) => format!("{who}: LD_LIBRARY_PATH={dirs}"),
            None => format!("LD_LIBRARY_PATH={text}"),
        });
    }
}

fn seconds(copies: &[Placed]) -> f64 {
    let micros = copies.iter().map(|copy| copy.micros).max();
    micros.unwrap_or(0) as f64 / 1e6
}

fn state(summary: &Summary, result: &RankResult) -> &'static str {
    match &result.outcome {
        Outcome::Done(_) if summary.unchanged.contains(result.rank) => "unchanged",
        Outcome::Done(_) => "done",
        Outcome::Failed(_) => "failed",
        Outcome::Cancelled => "cancelled",
        Outcome::Unknown(_) => "unknown",
    }
}

/// A line for each rank, then bytes, time and rate of all; given to `line`.
pub(crate) fn stats(summary: &Summary, way: Way, line: fn(&str)) {
    line("RANK HOST STATE ERRNO BYTES SECONDS PATH");
    for result in &summary.results {
        let copies = copies(result);
        let paths: Vec<String> = copies.iter().map(|copy| copy.path.to_string()).collect();
        let path = if paths.is_empty() {
            "-".to_owned()
        } else {
            paths.join(" ")
        };
        line(&format!(
            "{} {} {} {} {} {:.6} {path}",
            result.rank,
            host(&summary.hosts, result.rank),
            state(summary, result),
            result.failure().map_or(0, |failure| failure.errno),
            sent(summary, result),
            seconds(copies),
        ));
    }
    let seconds = summary.elapsed.as_secs_f64();
    let (ranks, bytes) = sent_to(summary, way);
    let rate = bytes as f64 / seconds.max(1e-9);
    let (way, each) = match way {
        Way::To => ("to", " per rank"),
        Way::From => ("from", ""),
    };
    let all = summary.results.len();
    let of = if ranks < all {
        format!(" of {all}")
    } else {
        String::new()
    };
    line(&format!(
        "{} {way} {ranks}{of} ranks in {seconds:.3} s, {}/s{each}",
        show_size(bytes),
        show_size(rate as u64),
    ));
}

/// The whole result as one JSON object.
pub(crate) fn json(summary: &Summary, way: Way) {
    let ranks: Vec<Value> = summary
        .results
        .iter()
        .map(|result| {
            let failure = result.failure();
            let copies = copies(result);
            let paths: Vec<&RawName> = copies.iter().map(|copy| &copy.path).collect();
            json!({
                "rank": result.rank,
                "host": summary.hosts.get(result.rank as usize),
                "state": state(summary, result),
                "errno": failure.map_or(0, |failure| failure.errno),
                "error": failure.map(|failure| failure.full_text()),
                "paths": paths,
                "bytes": sent(summary, result),
                "seconds": seconds(copies),
            })
        })
        .collect();
    let object = json!({
        "transfer": summary.transfer,
        "bytes": sent_to(summary, way).1,
        "seconds": summary.elapsed.as_secs_f64(),
        "errno": summary.why.as_ref().map_or(0, |why| why.errno),
        "error": summary.why.as_ref().map(|why| why.full_text()),
        "ranks": ranks,
    });
    self::object(&object);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_said_once() {
        let texts = |list: &[(u32, &str)]| -> Vec<(u32, String)> {
            list.iter().map(|(r, t)| (*r, (*t).to_owned())).collect()
        };
        assert_eq!(by_rank(&texts(&[(0, "/a"), (1, "/a")]), &[]), ["/a"]);
        assert_eq!(
            by_rank(&texts(&[(0, "/a"), (1, "/b"), (2, "/a")]), &[]),
            ["ranks 0,2: /a", "rank 1: /b"]
        );
    }
}
