//! From the command line to the result.

use std::path::Path;

use flux_bcast::bcast::name::RawName;
use flux_bcast::client::Client;
use flux_bcast::client::Send;
use flux_bcast::client::Summary;
use flux_bcast::client::Target;
use flux_bcast::client::Terms;
use flux_bcast::client::gather::AT_ONCE;
use flux_bcast::client::gather::Gather;
use flux_bcast::client::gather::Gathering;
use flux_bcast::client::remote::Remote;
use flux_bcast::client::remote::SendFrom;
use flux_bcast::ffi::host;
use flux_bcast::flux::error::Error;
use flux_bcast::flux::handle::Connection;
use flux_bcast::flux::job::JobId;

use super::Failed;
use super::args::Args;
use super::args::Mode;
use super::drive;
use super::dry;
use super::enclosing;
use super::listing;
use super::meaning;
use super::output;
use super::output::Way;
use super::sources;
use super::words;
use super::words::Last;
use super::words::Words;

/// The job, and the connection to the instance that runs it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) connection: Connection,
    pub(crate) target: Target,
}

/// Does what the command line says.
pub(crate) fn run(args: &Args) -> Result<(), Failed> {
    if let Some(text) = meaning::misplaced(args) {
        return Err(Failed::Usage(text));
    }
    host::init_client().map_err(Error::from)?;
    let local = matches!(args.mode(), Mode::Send | Mode::DryRun);
    let (name, rest) = words::take_job(
        &args.words,
        args.jobid.as_deref(),
        |word| JobId::parse(word).is_ok(),
        |path: &Path| local && path.symlink_metadata().is_ok(),
    )
    .map_err(Failed::Usage)?;
    let sort = |last| words::sort(name.clone(), rest.clone(), args.dest.as_deref(), last);
    let last = if args.unique {
        Last::IsSource
    } else {
        Last::MayBeDest
    };
    match args.mode() {
        Mode::Send => send(args, &sort(last).map_err(Failed::Usage)?),
        Mode::DryRun => dry::run(args, &sort(last).map_err(Failed::Usage)?),
        Mode::From(rank) => from(args, &sort(last).map_err(Failed::Usage)?, rank),
        Mode::Gather => gather(args, &sort(Last::IsDest).map_err(Failed::Usage)?),
        Mode::List if !rest.is_empty() => {
            let word = RawName::from(Path::new(&rest[0]));
            Err(Failed::Usage(match name {
                Some(_) => format!("'{word}': --list takes nothing but a JOBID"),
                None => format!("'{word}' is not a job id, and --list takes nothing else"),
            }))
        }
        Mode::List => listing::list(args, &job(args, name.as_deref())?),
        Mode::Remove if rest.iter().any(|path| path.is_empty()) => {
            Err(Failed::Usage("a PATH is an empty word".into()))
        }
        Mode::Remove => listing::remove(args, &job(args, name.as_deref())?, rest),
    }
}

/// Finds the job.
pub(crate) fn job(args: &Args, name: Option<&str>) -> Result<Job, Failed> {
    // A mistyped JOBID has become a source.
    let typo = args.words.first().and_then(|word| word.to_str());
    let typo = typo.filter(|word| !word.contains('/') && *word != "-");
    let missing = |word: &&str| Path::new(word).symlink_metadata().is_err();
    let typo = typo.filter(missing);
    // Or it comes after the sources.
    let late = args.words.iter().skip(1).filter_map(|word| word.to_str());
    let late = late
        .filter(missing)
        .find(|word| !word.contains('/') && JobId::parse(word).is_ok());
    let (connection, name) = match name {
        Some(name) => (Connection::open(None)?, name.to_owned()),
        None => {
            let target = enclosing::find().map_err(|failed| match (failed, late, typo) {
                (Failed::Usage(text), Some(word), _) => Failed::Usage(format!(
                    "{text}; '{word}' can be one, but it is not the first word"
                )),
                (Failed::Usage(text), None, Some(word)) => Failed::Usage(format!(
                    "'{word}' is not a job id, so it is taken as a source; {text}"
                )),
                (failed, ..) => failed,
            })?;
            (target.connection, target.job)
        }
    };
    let job =
        JobId::parse(&name).map_err(|_| Failed::Usage(format!("'{name}' is not a job id")))?;
    Ok(Job {
        connection,
        target: Target {
            job,
            name,
            no_wait: args.no_wait,
        },
    })
}

fn send(args: &Args, words: &Words) -> Result<(), Failed> {
    let exists = |path: &Path| path.is_file();
    let hint = words::doubtful_dest(words, args.dest.is_some(), exists);
    let (connection, send) = request(args, words)?;
    let name = send.terms.target.name.clone();
    let summary = drive::transfer(&connection, &name, args, |handle, listener| {
        Client::start(handle, send, listener)
    })?;
    // Beside an error it would only hide it.
    if let Some(hint) = hint.filter(|_| summary.is_complete()) {
        output::note(&hint);
    }
    if summary.libs > 0 && !args.json {
        output::library_path(&summary, summary.libs);
    }
    report(args, &summary)
}

/// What is sent from here, and the connection to where it goes.
pub(crate) fn request(args: &Args, words: &Words) -> Result<(Connection, Send), Failed> {
    // Wrong options are found before the job is looked for.
    let cargo = sources::cargo(args, words, sources::tuning(args)?.chunk)?;
    let (connection, terms) = terms(args, words)?;
    let send = Send {
        terms,
        source: cargo.source,
        dest: cargo.dest,
        policy: sources::policy(args),
        partial: args.partial,
        checksum: args.checksum,
        libs: cargo.libs,
    };
    Ok((connection, send))
}

fn from(args: &Args, words: &Words, rank: u32) -> Result<(), Failed> {
    if words.sources.iter().any(|source| source == "-") {
        return Err(Failed::Usage(
            "standard input cannot be read on a rank; './-' is a file of that name".into(),
        ));
    }
    let (connection, terms) = terms(args, words)?;
    let name = terms.target.name.clone();
    let send = SendFrom {
        terms,
        rank,
        sources: words.sources.iter().cloned().map(RawName::from).collect(),
        dest: sources::dest(args, words),
        policy: sources::policy(args),
        partial: args.partial,
    };
    let summary = drive::transfer(&connection, &name, args, |handle, listener| {
        Remote::start(handle, send, listener)
    })?;
    report(args, &summary)
}

fn gather(args: &Args, words: &Words) -> Result<(), Failed> {
    let (connection, terms) = terms(args, words)?;
    let name = terms.target.name.clone();
    let gather = Gather {
        terms,
        sources: words.sources.iter().cloned().map(RawName::from).collect(),
        dir: words.dest.clone().map(RawName::from).unwrap_or_default(),
        mkdir: args.mkdir,
        policy: sources::policy(args),
        at_once: args.fanout.unwrap_or(AT_ONCE),
        partial: args.partial,
    };
    let summary = drive::transfer(&connection, &name, args, |handle, listener| {
        Gathering::start(handle, gather, listener)
    })?;
    report(args, &summary)
}

/// What all transfers need.
fn terms(args: &Args, words: &Words) -> Result<(Connection, Terms), Failed> {
    sources::tuning(args)?;
    let Job { connection, target } = job(args, words.job.as_deref())?;
    Ok((connection, sources::terms(args, target)?))
}

fn report(args: &Args, summary: &Summary) -> Result<(), Failed> {
    // Beside the object, which has standard output for itself.
    let line = match args.json {
        true => output::note,
        false => output::line,
    };
    let way = match args.gather {
        true => Way::From,
        false => Way::To,
    };
    if args.json {
        output::json(summary, way);
    }
    if args.stats {
        output::stats(summary, way, line);
    } else if args.verbose > 0 {
        output::placed(summary, line);
    }
    if args.unique && !args.json {
        output::directories(summary);
    }
    if summary.is_complete() {
        return Ok(());
    }
    let mut lines = output::failures(summary);
    if lines.is_empty() {
        lines.push("the transfer was called off".into());
    }
    Err(Failed::Transfer(lines))
}
