//! `flux run` and `flux submit`.

use std::rc::Rc;

use flux_sandbox::host::handle::Handle;
use flux_sandbox::jobid;
use serde_json::json;

use crate::args::Given;
use crate::attach::{self, Attach};
use crate::driver::open;
use crate::fail::{Fail, Outcome, complain, say};
use crate::spec::{self, Shape, Spec};
use crate::watch;

/// Hands a job to the instance; its id.
pub(crate) fn hand_in(h: &Rc<Handle>, name: &str, spec: &Spec) -> Result<u64, Fail> {
    let request = json!({ "jobspec": spec.jobspec, "urgency": spec.urgency });
    let answer = watch::call(h, "job-ingest.submit", &request)
        .map_err(|(_, text)| Fail::new(format!("flux-{name}: ERROR: {text}")))?;
    answer["id"]
        .as_u64()
        .ok_or_else(|| Fail::new(format!("flux-{name}: ERROR: malformed answer")))
}

/// How to attach to a job as the options say.
pub(crate) fn attach_options(given: &Given) -> Attach {
    let verbose = given.count("verbose");
    Attach {
        label_io: given.has("label-io"),
        quiet: given.has("quiet"),
        show_events: verbose > 1,
        show_exec: verbose > 2,
        input: given.get("input").map(str::to_owned),
        ..Attach::default()
    }
}

/// `flux run`.
pub(crate) fn run(words: &[String]) -> Outcome {
    let given = spec::parse("run", words)?;
    let spec = spec::build("run", &given, &given.operands, Shape::Program)?;
    if given.has("dry-run") {
        say(&spec.jobspec.to_string());
        return Ok(0);
    }
    let h = open("flux-run")?;
    let id = hand_in(&h, "run", &spec)?;
    if given.has("verbose") {
        complain(&format!("jobid: {}", jobid::f58(id)));
    }
    attach::attach(&h, id, &attach_options(&given))
}

/// `flux submit`.
pub(crate) fn submit(words: &[String]) -> Outcome {
    let given = spec::parse("submit", words)?;
    let spec = spec::build("submit", &given, &given.operands, Shape::Program)?;
    let h = open("flux-submit")?;
    let id = hand_in(&h, "submit", &spec)?;
    finish_submit(&h, id, &given)
}

/// What is left to do after a submission: print the id, perhaps wait.
pub(crate) fn finish_submit(h: &Rc<Handle>, id: u64, given: &Given) -> Outcome {
    if !given.has("quiet") {
        say(&jobid::f58(id));
    }
    if given.has("watch") {
        return attach::attach(h, id, &attach_options(given));
    }
    if let Some(event) = given.get("wait-event") {
        watch::until(h, id, "eventlog", |e| e.name == event)?;
        return Ok(0);
    }
    if given.has("wait") {
        let result = watch::result(h, id)?;
        return Ok(result.exit_code());
    }
    Ok(0)
}
