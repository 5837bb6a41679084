//! Tags such as `{{tmpdir}}` in text of any bytes. A tag that is not known stays
//! as it is.

use std::rc::Rc;

use flux_sandbox::host::plugin::{ARG_OUT, Args};
use flux_sandbox::jobid::{self, Form};
use flux_sandbox::wire;
use serde_json::Value;

use crate::log;
use crate::shell::Shell;

/// Replaces all tags that are known.
pub(crate) fn render(shell: &Rc<Shell>, template: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = template;
    while let Some(start) = find(rest, b"{{") {
        out.extend(&rest[..start]);
        let Some(len) = find(&rest[start + 2..], b"}}") else {
            log::error(&format!("mustache template error at pos={}", start + 2));
            out.extend(&rest[start..]);
            return out;
        };
        let tag = &rest[start + 2..start + 2 + len];
        match std::str::from_utf8(tag)
            .ok()
            .and_then(|tag| value(shell, tag))
        {
            Some(text) => out.extend(text.as_bytes()),
            None => out.extend([b"{{", tag, b"}}"].concat()),
        }
        rest = &rest[start + 2 + len + 2..];
    }
    out.extend(rest);
    out
}

/// The same for text of a job, which is UTF-8.
pub(crate) fn render_text(shell: &Rc<Shell>, template: &str) -> String {
    String::from_utf8_lossy(&render(shell, template.as_bytes())).into_owned()
}

fn find(bytes: &[u8], pair: &[u8; 2]) -> Option<usize> {
    bytes.windows(2).position(|two| two == pair)
}

fn value(shell: &Rc<Shell>, tag: &str) -> Option<String> {
    let tag = match tag {
        "taskid" => "task.id",
        tag if tag.starts_with("jobid") => &tag[3..],
        tag => tag,
    };
    if let Some(form) = tag.strip_prefix("id") {
        return job_id(shell, tag, form);
    }
    if let Some(part) = tag.strip_prefix("task.") {
        let task = shell.current.borrow().clone()?;
        return match part {
            "id" | "rank" => Some(task.rank.to_string()),
            "index" | "localid" => Some(task.index.to_string()),
            _ => None,
        };
    }
    if let Some(part) = tag.strip_prefix("node.")
        && std::env::var_os("FLUX_SANDBOX_NO_NODE_TAGS").is_none()
    {
        return node(shell, part);
    }
    match tag {
        "name" => Some(match shell.info.system("/job/name").as_str() {
            Some(name) => name.to_owned(),
            None => shell.info.program(),
        }),
        "nnodes" => Some(shell.info.nodes.len().to_string()),
        "ntasks" | "size" => Some(shell.info.ntasks.to_string()),
        "tmpdir" => shell.getenv("FLUX_JOB_TMPDIR"),
        _ => plugin(shell, tag),
    }
}

fn job_id(shell: &Shell, tag: &str, form: &str) -> Option<String> {
    let form = match form.strip_prefix('.') {
        None if form.is_empty() => Form::F58,
        None => return None,
        Some(name) => match Form::named(name) {
            Some(form) => form,
            None => {
                log::error(&format!("Invalid jobid encoding '{tag}' specified"));
                return None;
            }
        },
    };
    Some(jobid::encode(shell.info.id, form))
}

fn node(shell: &Shell, part: &str) -> Option<String> {
    let info = shell.info.rank_to_json(shell.info.rank)?;
    let value = match part {
        "cores" | "gpus" | "ncores" => info.get("resources")[part].clone(),
        _ => match part.split_once('.') {
            Some((key, rest)) => info.get(key)[rest].clone(),
            None => info.get(part).clone(),
        },
    };
    Some(match value {
        Value::Null => return None,
        Value::String(s) => s,
        other => other.to_string(),
    })
}

/// Plugins may know more tags.
fn plugin(shell: &Shell, tag: &str) -> Option<String> {
    let args = Args::default();
    let topic = wire::name(&format!("mustache.render.{tag}"));
    shell.call(&topic, Some(&args)).ok()?;
    let out = args.get(ARG_OUT)?;
    out["result"].as_str().map(str::to_owned)
}
