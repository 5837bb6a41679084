//! `flux batch` and `flux alloc`: a job that is an instance.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::args::Given;
use crate::attach;
use crate::driver::{open, self_dir};
use crate::fail::{Fail, Outcome};
use crate::run::{attach_options, finish_submit, hand_in};
use crate::spec::{self, Shape, Spec};

/// `flux alloc`: the command (default: a shell) in an instance of its own.
pub(crate) fn alloc(words: &[String]) -> Outcome {
    let given = spec::parse("alloc", words)?;
    let command = if given.operands.is_empty() {
        vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned())]
    } else {
        given.operands.clone()
    };
    let spec = instance("alloc", &given, &command)?;
    let h = open("flux-alloc")?;
    let id = hand_in(&h, "alloc", &spec)?;
    attach::attach(&h, id, &attach_options(&given))
}

/// `flux batch`: a script. Directives in it come before the options given.
pub(crate) fn batch(words: &[String]) -> Outcome {
    let script = spec::parse("batch", words)?.operands.first().cloned();
    let Some(script) = script else {
        return Err(Fail::new(
            "flux-batch: ERROR: Usage: flux batch [OPTIONS] SCRIPT",
        ));
    };
    let text = std::fs::read_to_string(&script)
        .map_err(|e| Fail::new(format!("flux-batch: ERROR: {script}: {e}")))?;
    if !text.starts_with("#!") {
        return Err(Fail::new(format!(
            "flux-batch: ERROR: {script} does not appear to start with '#!'"
        )));
    }
    let mut all = directives(&text);
    all.extend(words.iter().cloned());
    let given = spec::parse("batch", &all)?;
    // Like this: the script runs, and then its copy goes.
    let mut command: Vec<String> = ["sh", "-c", "\"$0\" \"$@\"; rc=$?; rm -f \"$0\"; exit $rc"]
        .map(str::to_owned)
        .into();
    command.push(copy_script(&text)?);
    command.extend(given.operands.iter().skip(1).cloned());
    let mut spec = instance("batch", &given, &command)?;
    let system = &mut spec.jobspec["attributes"]["system"];
    let name = script.rsplit('/').next().unwrap_or(&script);
    if given.get("job-name").is_none() {
        system["job"]["name"] = name.into();
    }
    if given.get("output").is_none() {
        let file = json!({ "type": "file", "path": "flux-{{id}}.out" });
        system["shell"]["options"]["output"]["stdout"] = file;
    }
    let h = open("flux-batch")?;
    let id = hand_in(&h, "batch", &spec)?;
    finish_submit(&h, id, &given)
}

/// Words of the lines `#flux: …` at the head of a script.
fn directives(text: &str) -> Vec<String> {
    text.lines()
        .take_while(|l| l.starts_with('#') || l.trim().is_empty())
        .filter_map(|l| l.trim_start_matches('#').trim().strip_prefix("flux:"))
        .flat_map(words_of)
        .collect()
}

/// Words as a shell splits them, with simple quotes.
fn words_of(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The script as it is now: it may change before the job runs.
fn copy_script(text: &str) -> Result<String, Fail> {
    let dir = std::env::var("TMPDIR").unwrap_or_else(|_| "/tmp".to_owned());
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let path = format!("{dir}/flux-batch-{}", uuid.trim());
    let fail = |e: std::io::Error| Fail::new(format!("flux-batch: ERROR: {path}: {e}"));
    std::fs::write(&path, text).map_err(fail)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).map_err(fail)?;
    Ok(path)
}

fn instance(name: &str, given: &Given, command: &[String]) -> Result<Spec, Fail> {
    let own = self_dir().unwrap_or_default().join("flux");
    let mut words = vec![own.display().to_string(), "start".to_owned()];
    words.extend(command.iter().cloned());
    let mut spec = spec::build(name, given, &words, Shape::Instance)?;
    let options = &mut spec.jobspec["attributes"]["system"]["shell"]["options"];
    options["exit-timeout"] = "none".into();
    let program = command.first().map_or("", String::as_str);
    let job = &mut spec.jobspec["attributes"]["system"]["job"];
    if job["name"].is_null() {
        job["name"] = program.rsplit('/').next().unwrap_or("").into();
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_of_a_script() {
        let text =
            "#!/bin/sh\n#flux: -N2 -o 'bcast=/a b'\n# flux: --wait # all\n\ntrue\n#flux: -n9\n";
        assert_eq!(directives(text), ["-N2", "-o", "bcast=/a b", "--wait"]);
    }
}
