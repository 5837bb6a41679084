//! What the user sees.

use std::io::Write;

use flux_bcast::bcast::name::RawName;
use flux_bcast::bcast::report;
use flux_bcast::bcast::report::Outcome;
use flux_bcast::client::Summary;
use flux_bcast::units::show_size;
use serde_json::Value;
use serde_json::json;

/// Prints an error.
pub(crate) fn error(text: &str) {
    let _ = writeln!(std::io::stderr(), "flux-bcast: ERROR: {text}");
}

/// Prints something worth knowing.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "flux-bcast: {text}");
}

fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The failures in the user's words, one line for equal ones.
pub(crate) fn failures(summary: &Summary) -> Vec<String> {
    let mut lines: Vec<String> = report::fold(&summary.results)
        .into_iter()
        .map(|fold| {
            format!(
                "{}: {}",
                report::who(&fold.ranks, &summary.hosts),
                fold.text
            )
        })
        .collect();
    if let Some(why) = &summary.why
        && (why.rank.is_none() || lines.is_empty())
    {
        lines.insert(0, why.text.clone());
    }
    lines
}

/// One line for each copy: rank, host, path.
pub(crate) fn placed(summary: &Summary) {
    for result in &summary.results {
        let Outcome::Done(copies) = &result.outcome else {
            continue;
        };
        let host = summary
            .hosts
            .get(result.rank as usize)
            .map_or("", String::as_str);
        for copy in copies {
            line(&format!("{} {host} {}", result.rank, copy.path));
        }
    }
}

/// Bytes, time and rate.
pub(crate) fn stats(summary: &Summary) {
    let seconds = summary.elapsed.as_secs_f64();
    let rate = summary.bytes as f64 / seconds.max(1e-9);
    line(&format!(
        "{} to {} ranks in {seconds:.3} s, {}/s per rank",
        show_size(summary.bytes),
        summary.results.len(),
        show_size(rate as u64),
    ));
}

/// The whole result as one JSON object.
pub(crate) fn json(summary: &Summary) {
    let ranks: Vec<Value> = summary
        .results
        .iter()
        .map(|result| {
            let (state, copies, failure) = match &result.outcome {
                Outcome::Done(copies) => ("done", copies.as_slice(), None),
                Outcome::Failed(failure) => ("failed", &[][..], Some(failure)),
                Outcome::Cancelled => ("cancelled", &[][..], None),
                Outcome::Unknown(failure) => ("unknown", &[][..], Some(failure)),
            };
            let paths: Vec<&RawName> = copies.iter().map(|copy| &copy.path).collect();
            json!({
                "rank": result.rank,
                "host": summary.hosts.get(result.rank as usize),
                "state": state,
                "errno": failure.map_or(0, |failure| failure.errno),
                "error": failure.map(|failure| &failure.text),
                "paths": paths,
                "bytes": copies.iter().map(|copy| copy.bytes).sum::<u64>(),
            })
        })
        .collect();
    let object = json!({
        "transfer": summary.transfer,
        "bytes": summary.bytes,
        "seconds": summary.elapsed.as_secs_f64(),
        "errno": summary.why.as_ref().map_or(0, |why| why.errno),
        "error": summary.why.as_ref().map(|why| &why.text),
        "ranks": ranks,
    });
    line(&object.to_string());
}
