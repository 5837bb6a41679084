//! From the command line to the result.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use flux_bcast::bcast::message::PlanRequest;
use flux_bcast::bcast::message::Tuning;
use flux_bcast::bcast::message::VERSION;
use flux_bcast::bcast::name::RawName;
use flux_bcast::bcast::spec::Dest;
use flux_bcast::bcast::spec::Existing;
use flux_bcast::bcast::spec::Policy;
use flux_bcast::client::Client;
use flux_bcast::client::ClientEvent;
use flux_bcast::client::Send;
use flux_bcast::client::Summary;
use flux_bcast::ffi::host;
use flux_bcast::file::Follow;
use flux_bcast::file::Input;
use flux_bcast::file::Origin;
use flux_bcast::file::SourceSpec;
use flux_bcast::flux::handle::Connection;
use flux_bcast::flux::job::JobId;
use flux_bcast::flux::reactor::SignalWatcher;
use flux_bcast::idset::IdSet;

use super::Failed;
use super::args::Args;
use super::enclosing;
use super::output;
use super::words;
use super::words::Words;

/// Does what the command line says.
pub(crate) fn run(args: Args) -> Result<(), Failed> {
    host::init_client().map_err(|error| Failed::Transfer(vec![error.to_string()]))?;
    let words = words::sort(
        &args.words,
        args.jobid.as_deref(),
        args.dest.as_deref(),
        |word| JobId::parse(word).is_ok(),
        |path| path.symlink_metadata().is_ok(),
    )
    .map_err(Failed::Usage)?;
    let tuning = tuning(&args)?;
    let plan = plan(&args)?;
    let inputs = inputs(&args, &words)?;
    let (connection, job_name) = match &words.job {
        Some(job) => (Connection::open(None)?, job.clone()),
        None => {
            let target = enclosing::find()?;
            (target.connection, target.job)
        }
    };
    let job = JobId::parse(&job_name)
        .map_err(|_| Failed::Usage(format!("'{job_name}' is not a job id")))?;
    let send = Send {
        job,
        job_name,
        source: SourceSpec {
            inputs,
            recursive: true,
            follow: Follow::default(),
            chunk: tuning.chunk,
        },
        dest: Dest {
            path: words.dest.map(RawName::from),
            directory: false,
            mkdir: args.mkdir,
            unique: false,
        },
        policy: Policy {
            existing: if args.force {
                Existing::Replace
            } else {
                Existing::Refuse
            },
            mode: args.mode,
            times: args.preserve,
            sync: args.sync,
        },
        plan,
        tuning,
        partial: args.partial,
        timeout: args.timeout,
    };
    let summary = transfer(&connection, send)?;
    report(&args, &summary)
}

/// Runs the reactor until the transfer is over.
fn transfer(connection: &Connection, send: Send) -> Result<Summary, Failed> {
    let handle = connection.handle();
    let reactor = handle.reactor()?;
    let ended: Rc<RefCell<Option<Summary>>> = Rc::default();
    let slot = Rc::clone(&ended);
    let name = send.job_name.clone();
    let client = Rc::new(Client::start(handle, send, move |event| match event {
        ClientEvent::Waiting => output::note(&format!("waiting for job {name} to start")),
        ClientEvent::Started { .. } | ClientEvent::Progress(_) => {}
        ClientEvent::Ended(summary) => {
            slot.replace(Some(summary));
            reactor.stop();
        }
    })?);
    let mut signals = Vec::new();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let client = Rc::clone(&client);
        signals.push(SignalWatcher::new(reactor, signal, move || {
            client.cancel("interrupted");
        })?);
    }
    reactor.run()?;
    let summary = ended.take();
    summary.ok_or_else(|| Failed::Transfer(vec!["the connection to Flux was lost".into()]))
}

fn report(args: &Args, summary: &Summary) -> Result<(), Failed> {
    if args.json {
        output::json(summary);
    } else if args.verbose > 0 {
        output::placed(summary);
    }
    if args.stats && !args.json {
        output::stats(summary);
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

fn tuning(args: &Args) -> Result<Tuning, Failed> {
    let mut tuning = Tuning {
        k: args.fanout,
        ..Tuning::default()
    };
    if let Some(chunk) = args.chunk {
        tuning.chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
    }
    if let Some(batch) = args.batch {
        tuning.batch = u32::try_from(batch).unwrap_or(u32::MAX);
    }
    tuning.batch = tuning.batch.max(tuning.chunk);
    if let Some(window) = args.window {
        tuning.window = window;
    }
    tuning.check().map_err(Failed::Usage)?;
    Ok(tuning)
}

fn plan(args: &Args) -> Result<PlanRequest, Failed> {
    // A word of digits, dashes and commas is a set of ranks, else hosts.
    let ranks = args.exclude.as_deref().map(str::parse::<IdSet>);
    let (exclude, exclude_hosts) = match ranks {
        Some(Ok(set)) => (Some(set), None),
        Some(Err(_)) => (None, args.exclude.clone()),
        None => (None, None),
    };
    Ok(PlanRequest {
        version: VERSION,
        ranks: args.ranks.clone(),
        hosts: args.hosts.clone(),
        exclude,
        exclude_hosts,
        k: args.fanout,
    })
}

fn inputs(args: &Args, words: &Words) -> Result<Vec<Input>, Failed> {
    let name = args.name.clone().map(RawName::from);
    if let Some(name) = &name
        && (name.is_empty() || name.as_bytes().contains(&b'/'))
    {
        return Err(Failed::Usage(format!(
            "--name={name}: not the name of a file"
        )));
    }
    if name.is_some() && words.sources.len() > 1 {
        return Err(Failed::Usage("--name needs a single source".into()));
    }
    words
        .sources
        .iter()
        .map(|source| input(source, name.clone(), words.dest.as_ref()))
        .collect()
}

fn input(
    source: &OsStr,
    name: Option<RawName>,
    dest: Option<&OsString>,
) -> Result<Input, Failed> {
    if source.is_empty() {
        return Err(Failed::Usage("a source is an empty word".into()));
    }
    if source != "-" {
        return Ok(Input::new(Origin::Path(source.into()), name));
    }
    // Where DEST names the copy itself, standard input needs no other name.
    let named = dest.is_some_and(|dest| !dest.as_bytes().ends_with(b"/"));
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
        .map_err(|error| Failed::Transfer(vec![format!("standard input: {error}")]))?;
    Ok(Input::new(Origin::Stream(stdin), Some(name)))
}
