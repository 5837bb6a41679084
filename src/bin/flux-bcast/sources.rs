//! From options and words to what is sent, where to, and how.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flux_bcast::bcast::message::PlanRequest;
use flux_bcast::bcast::message::Tuning;
use flux_bcast::bcast::message::VERSION;
use flux_bcast::bcast::name::RawName;
use flux_bcast::bcast::spec::Dest;
use flux_bcast::bcast::spec::Existing;
use flux_bcast::bcast::spec::Policy;
use flux_bcast::client::Target;
use flux_bcast::client::Terms;
use flux_bcast::elf::Libs;
use flux_bcast::errno::Errno;
use flux_bcast::errno::reason;
use flux_bcast::file::Follow;
use flux_bcast::file::Input;
use flux_bcast::file::Origin;
use flux_bcast::file::SourceSpec;
use flux_bcast::idset::IdSet;

use super::Failed;
use super::args::Args;
use super::words::Words;

/// What is sent, and where to.
#[derive(Debug)]
pub(crate) struct Cargo {
    pub(crate) source: SourceSpec,
    pub(crate) dest: Dest,
    /// What to do about shared objects, if anything.
    pub(crate) libs: Option<Libs>,
}

/// Reads the words as sources on this node.
pub(crate) fn cargo(args: &Args, words: &Words, chunk: u32) -> Result<Cargo, Failed> {
    let name = args.name.clone().map(RawName::from);
    if let Some(name) = &name
        && (matches!(name.as_bytes(), b"" | b"." | b"..") || name.as_bytes().contains(&b'/'))
    {
        return Err(Failed::Usage(format!(
            "--name={name}: not the name of a file"
        )));
    }
    if name.is_some() && words.sources.len() > 1 {
        return Err(Failed::Usage("--name needs a single source".into()));
    }
    // As the service will take it: one name would be dropped.
    if let (Some(name), Some(dest)) = (&name, &words.dest)
        && dest_is_a_name(dest)
    {
        let dest = RawName::from(Path::new(dest));
        return Err(Failed::Usage(format!(
            "--name={name} and DEST '{dest}' both name the copy; a DEST that ends in '/' is the \
             directory that it goes to"
        )));
    }
    let mut stdin = false;
    let mut inputs = Vec::with_capacity(words.sources.len());
    for source in &words.sources {
        if source == "-" {
            if std::mem::replace(&mut stdin, true) {
                return Err(Failed::Usage("standard input can be sent only once".into()));
            }
            inputs.push(standard_input(name.clone(), words.dest.as_deref())?);
        } else {
            inputs.push(Input::new(Origin::Path(source.into()), name.clone()));
        }
    }
    if stdin && args.checksum {
        return Err(Failed::Usage(
            "--checksum reads the sources twice, which standard input cannot be".into(),
        ));
    }
    if args.preserve && words.sources.iter().all(|source| source == "-") {
        return Err(Failed::Usage(
            "--preserve has no meaning with standard input, which has no times".into(),
        ));
    }
    Ok(Cargo {
        source: SourceSpec {
            inputs,
            recursive: true,
            follow: Follow::default(),
            chunk,
        },
        dest: dest(args, words),
        libs: libs(args)?,
    })
}

fn libs(args: &Args) -> Result<Option<Libs>, Failed> {
    let Some(dir) = &args.send_libs else {
        return Ok(None);
    };
    let dir = dir.clone().map(RawName::from);
    match Libs::new(dir, args.exclude_libs.as_deref()) {
        Ok(libs) => Ok(Some(libs)),
        Err(text) => Err(Failed::Usage(format!("--send-libs: {text}"))),
    }
}

/// Whether a destination names the copy of a single source itself, rather than
/// the directory for it.
fn dest_is_a_name(dest: &OsStr) -> bool {
    let last = dest.as_bytes().rsplit(|byte| *byte == b'/').next();
    !matches!(last, None | Some(b"" | b"." | b".."))
}

fn standard_input(name: Option<RawName>, dest: Option<&OsStr>) -> Result<Input, Failed> {
    // Where DEST names the copy itself, standard input needs no other name.
    let named = dest.is_some_and(dest_is_a_name);
    let name = match name {
        Some(name) => name,
        None if named => RawName::from("stdin"),
        None => {
            return Err(Failed::Usage(
                "standard input has no name: use --name=NAME".into(),
            ));
        }
    };
    let stdin = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| {
            let text = format!("standard input: {}", reason(&error));
            Failed::Whole(Errno::from(&error), text)
        })?;
    Ok(Input::new(Origin::Stream(stdin), Some(name)))
}

/// Where the copies go.
pub(crate) fn dest(args: &Args, words: &Words) -> Dest {
    Dest {
        path: words.dest.clone().map(RawName::from),
        directory: words.sources.len() > 1,
        mkdir: args.mkdir,
        unique: args.unique,
    }
}

/// How they are made.
pub(crate) fn policy(args: &Args) -> Policy {
    let existing = match (args.force, args.append, args.truncate) {
        (true, ..) => Existing::Replace,
        (_, true, _) => Existing::Append,
        (.., true) => Existing::Truncate,
        _ => Existing::Refuse,
    };
    Policy {
        existing,
        mode: args.mode,
        times: args.preserve,
        sync: args.sync,
    }
}

/// The job, which ranks take part, how data flows, and how long.
pub(crate) fn terms(args: &Args, target: Target) -> Result<Terms, Failed> {
    Ok(Terms {
        target,
        plan: plan(args),
        tuning: tuning(args)?,
        // As in the C interface, no time is no limit.
        timeout: args.timeout.filter(|timeout| !timeout.is_zero()),
    })
}

/// How they are fed.
pub(crate) fn tuning(args: &Args) -> Result<Tuning, Failed> {
    let mut tuning = Tuning {
        k: args.fanout,
        pace: args.pace,
        compress: args.compress,
        direct: args.direct,
        ..Tuning::default()
    };
    if let Some(chunk) = args.chunk {
        tuning.chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
    }
    if let Some(batch) = args.batch {
        tuning.batch = u32::try_from(batch).unwrap_or(u32::MAX);
    }
    // A message carries at least one chunk. What is asked for is not changed
    // silently, what is not follows.
    if args.batch.is_none() {
        tuning.batch = tuning.batch.max(tuning.chunk);
    }
    if let Some(window) = args.window {
        tuning.window = window;
    }
    tuning
        .check()
        .map_err(|text| Failed::Usage(format!("--{text}")))?;
    Ok(tuning)
}

fn plan(args: &Args) -> PlanRequest {
    // A word of digits, dashes and commas is a set of ranks, else hosts.
    let ranks = args.exclude.as_deref().map(str::parse::<IdSet>);
    let (exclude, exclude_hosts) = match ranks {
        Some(Ok(set)) => (Some(set), None),
        Some(Err(_)) => (None, args.exclude.clone()),
        None => (None, None),
    };
    PlanRequest {
        version: VERSION,
        ranks: args.ranks.clone(),
        hosts: args.hosts.clone(),
        exclude,
        exclude_hosts,
        k: args.fanout,
    }
}
