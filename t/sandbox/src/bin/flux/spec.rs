//! From options to a jobspec.

use flux_sandbox::fsd;
use serde_json::{Map, Value, json};

use crate::args::{self, Given, Opt, flag, maybe, with};
use crate::fail::Fail;

/// Options of the commands that make jobs.
pub(crate) const OPTIONS: &[Opt] = &[
    with('N', "nodes"),
    with('n', "ntasks"),
    with(' ', "nslots"),
    with('c', "cores-per-task"),
    with(' ', "cores-per-slot"),
    with('g', "gpus-per-task"),
    with(' ', "tasks-per-node"),
    flag('x', "exclusive"),
    with('o', "setopt"),
    with('S', "setattr"),
    with('t', "time-limit"),
    with(' ', "env"),
    with(' ', "env-remove"),
    with(' ', "env-file"),
    with(' ', "cwd"),
    with(' ', "job-name"),
    with(' ', "urgency"),
    with(' ', "requires"),
    with(' ', "flags"),
    with('q', "queue"),
    with('B', "bank"),
    with(' ', "input"),
    with(' ', "output"),
    with(' ', "error"),
    with(' ', "wait-event"),
    flag('l', "label-io"),
    flag('u', "unbuffered"),
    flag('v', "verbose"),
    flag(' ', "quiet"),
    flag(' ', "dry-run"),
    flag(' ', "wait"),
    flag(' ', "watch"),
    flag(' ', "bg"),
    maybe("progress"),
];

/// What a job needs by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A program with tasks.
    Program,
    /// An instance: one task per node.
    Instance,
}

/// A job to submit.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) jobspec: Value,
    pub(crate) urgency: i64,
}

/// Reads the options of `flux NAME`.
pub(crate) fn parse(name: &str, words: &[String]) -> Result<Given, Fail> {
    args::parse(name, OPTIONS, words, false)
}

/// Makes the job.
pub(crate) fn build(
    name: &str,
    given: &Given,
    command: &[String],
    shape: Shape,
) -> Result<Spec, Fail> {
    let error = |text: String| Fail::new(format!("flux-{name}: ERROR: {text}"));
    if command.is_empty() {
        return Err(error("job command and arguments are missing".to_owned()));
    }
    let number = |option: &str| -> Result<Option<u64>, Fail> {
        match given.get(option) {
            None => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(n) if n > 0 => Ok(Some(n.unsigned_abs())),
                Ok(_) => {
                    let what = match option {
                        "nodes" => "node count",
                        "ntasks" => "task count",
                        other => other,
                    };
                    Err(error(format!("{what} must be an integer >= 1")))
                }
                Err(_) => Err(error(format!("--{option}: invalid int value '{text}'"))),
            },
        }
    };
    let nodes = number("nodes")?;
    let tasks = number("ntasks")?.or(number("nslots")?);
    let cores = number("cores-per-task")?.or(number("cores-per-slot")?);
    let per_node = number("tasks-per-node")?;
    if per_node.is_some() && (tasks.is_some() || cores.is_some()) {
        return Err(error(
            "Per-resource options can't be used with per-task options. \
             (See --help for details)"
                .to_owned(),
        ));
    }
    if per_node.is_some() && nodes.is_none() {
        let text = "must specify node or core count with per_resource";
        return Err(error(text.to_owned()));
    }
    let resources = Resources {
        nodes,
        tasks,
        cores: cores.unwrap_or(1),
        exclusive: given.has("exclusive"),
    };
    let mut jobspec = resources.jobspec(command, shape).map_err(error)?;

    let system = &mut jobspec["attributes"]["system"];
    system["duration"] = match given.get("time-limit") {
        None => 0.into(),
        Some(text) => match fsd::parse(text) {
            Some(seconds) if seconds.is_finite() => seconds.into(),
            Some(_) => 0.into(),
            None => return Err(error("invalid Flux standard duration".to_owned())),
        },
    };
    let cwd = match given.get("cwd") {
        Some(dir) => dir.to_owned(),
        None => std::env::current_dir()
            .unwrap_or_default()
            .display()
            .to_string(),
    };
    system["cwd"] = cwd.into();
    system["environment"] = environment(given);
    if let Some(job_name) = given.get("job-name") {
        system["job"]["name"] = job_name.into();
    }
    let mut options = Map::new();
    if let Some(count) = per_node {
        let per = json!({ "type": "node", "count": count });
        options.insert("per-resource".to_owned(), per);
    }
    for (option, stream) in [("output", "stdout"), ("error", "stderr")] {
        if let Some(path) = given.get(option).filter(|p| !matches!(*p, "none" | "kvs")) {
            set_dotted(
                &mut options,
                &format!("output.{stream}.type"),
                "file".into(),
            );
            set_dotted(&mut options, &format!("output.{stream}.path"), path.into());
        }
    }
    for text in given.all("setopt") {
        let (key, value) = text.split_once('=').unwrap_or((text, "1"));
        set_dotted(&mut options, key, guess(value));
    }
    if given.has("unbuffered") {
        set_dotted(&mut options, "output.stdout.buffer.type", "none".into());
    }
    system["shell"]["options"] = options.into();
    for text in given.all("setattr") {
        let (key, value) = text.split_once('=').unwrap_or((text, "1"));
        let key = key.strip_prefix("system.").unwrap_or(key);
        if let Some(system) = system.as_object_mut() {
            set_dotted(system, key, guess(value));
        }
    }
    let urgency = match given.get("urgency") {
        None | Some("default") => 16,
        Some("hold") => 0,
        Some("expedite") => 31,
        Some(text) => match text.parse() {
            Ok(n) if (0..=31).contains(&n) => n,
            _ => return Err(error(format!("invalid urgency: {text}"))),
        },
    };
    Ok(Spec { jobspec, urgency })
}

#[derive(Debug)]
struct Resources {
    nodes: Option<u64>,
    tasks: Option<u64>,
    cores: u64,
    exclusive: bool,
}

impl Resources {
    fn jobspec(&self, command: &[String], shape: Shape) -> Result<Value, String> {
        let core = json!({ "type": "core", "count": self.cores });
        let slot = |count: u64| json!({ "type": "slot", "count": count, "with": [core], "label": "task" });
        let mut per_slot = json!({ "per_slot": 1 });
        let resources = match (self.nodes, self.tasks) {
            (None, tasks) => {
                if self.exclusive {
                    return Err("exclusive can only be set with a node count".to_owned());
                }
                slot(tasks.unwrap_or(1))
            }
            (Some(nodes), tasks) => {
                // Without a count of tasks, one per node and the node for it.
                let exclusive = self.exclusive || tasks.is_none();
                let tasks = tasks.unwrap_or(nodes);
                if nodes > tasks {
                    return Err("node count must not be greater than task count".to_owned());
                }
                if tasks % nodes != 0 {
                    per_slot = json!({ "total": tasks });
                }
                let mut node = json!({
                    "type": "node", "count": nodes, "with": [slot(tasks.div_ceil(nodes))],
                });
                if exclusive {
                    node["exclusive"] = true.into();
                }
                node
            }
        };
        if shape == Shape::Instance {
            let total = self.nodes.unwrap_or(1);
            per_slot = json!({ "total": total });
        }
        Ok(json!({
            "resources": [resources],
            "tasks": [{ "command": command, "slot": "task", "count": per_slot }],
            "attributes": { "system": { "duration": 0 } },
            "version": 1,
        }))
    }
}

fn environment(given: &Given) -> Value {
    let mut env: Map<String, Value> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .filter(|(k, _)| !k.starts_with("FLUX_HANDLE_") && k != "FLUX_PROXY_REMOTE")
        .map(|(k, v)| (k, v.into()))
        .collect();
    for name in given.all("env-remove") {
        match name.strip_suffix('*') {
            Some(prefix) => env.retain(|k, _| !k.starts_with(prefix)),
            None => {
                env.remove(name);
            }
        }
    }
    for text in given.all("env") {
        if let Some(name) = text.strip_prefix('-') {
            match name.strip_suffix('*') {
                Some(prefix) => env.retain(|k, _| !k.starts_with(prefix)),
                None => {
                    env.remove(name);
                }
            }
        } else if let Some((name, value)) = text.split_once('=') {
            env.insert(name.to_owned(), value.into());
        } else if let Ok(value) = std::env::var(text) {
            env.insert(text.to_owned(), value.into());
        }
    }
    env.into()
}

/// JSON when it is JSON, else text.
fn guess(value: &str) -> Value {
    serde_json::from_str(value).unwrap_or_else(|_| value.into())
}

/// Sets `a.b.c` in nested objects.
fn set_dotted(object: &mut Map<String, Value>, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            object.insert(key.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert_with(|| json!({}));
            if !inner.is_object() {
                *inner = json!({});
            }
            if let Some(inner) = inner.as_object_mut() {
                set_dotted(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(words: &[&str]) -> Result<Value, Fail> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let given = parse("run", &words)?;
        let command = given.operands.clone();
        build("run", &given, &command, Shape::Program).map(|s| s.jobspec)
    }

    #[test]
    fn shapes_are_those_of_flux() {
        let j = spec(&["-N4", "-n8", "true"]).unwrap();
        assert_eq!(j["resources"][0]["with"][0]["count"], 2);
        assert_eq!(j["resources"][0]["exclusive"], Value::Null);
        let j = spec(&["-N2", "true"]).unwrap();
        assert_eq!(j["resources"][0]["exclusive"], true);
        let j = spec(&["-N2", "-n3", "true"]).unwrap();
        assert_eq!(j["tasks"][0]["count"], json!({ "total": 3 }));
        assert!(spec(&["-N3", "-n2", "true"]).is_err());
        assert!(spec(&["-N3"]).is_err());
    }

    #[test]
    fn options_nest() {
        let j = spec(&[
            "-o", "a.b=x", "-o", "a.c=1.5", "-o", "foo", "-o", "e=", "true",
        ]);
        let options = &j.unwrap()["attributes"]["system"]["shell"]["options"];
        assert_eq!(
            *options,
            json!({ "a": { "b": "x", "c": 1.5 }, "foo": 1, "e": "" })
        );
    }
}
