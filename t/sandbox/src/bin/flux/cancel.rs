//! `flux cancel`.

use flux_sandbox::jobid;
use serde_json::json;

use crate::args::{self, flag, with};
use crate::driver::open;
use crate::fail::{Fail, Outcome, complain};
use crate::job::active_jobs;
use crate::watch::call;

/// Cancels jobs.
pub(crate) fn run(words: &[String]) -> Outcome {
    let options = [
        flag(' ', "all"),
        flag('n', "dry-run"),
        flag('q', "quiet"),
        with('m', "message"),
    ];
    let given = args::parse("cancel", &options, words, true)?;
    let h = open("flux-cancel")?;
    let note = given.get("message").unwrap_or("");
    if given.has("all") {
        let jobs = active_jobs(&h)?;
        for id in &jobs {
            let request = json!({ "id": id, "type": "cancel", "severity": 0, "note": note });
            let _ = call(&h, "job-manager.raise", &request);
        }
        let plural = if jobs.len() == 1 { "" } else { "s" };
        if jobs.is_empty() {
            complain("flux-cancel: Matched 0 jobs");
        } else {
            complain(&format!(
                "flux-cancel: Canceled {} job{plural} (0 errors)",
                jobs.len()
            ));
        }
        return Ok(0);
    }
    if given.operands.is_empty() {
        return Err(Fail::new(
            "flux-cancel: ERROR: Specify at least one of JOBID or --all",
        ));
    }
    let mut code = 0;
    for word in &given.operands {
        let Some(id) = jobid::parse(word) else {
            complain(&format!(
                "flux-cancel: ERROR: argument jobids: {word} is not a valid Flux jobid"
            ));
            return Ok(2);
        };
        let request = json!({ "id": id, "type": "cancel", "severity": 0, "note": note });
        if let Err((_, text)) = call(&h, "job-manager.raise", &request) {
            complain(&format!("flux-cancel: ERROR: {word}: {text}"));
            code = 1;
        }
    }
    Ok(code)
}
