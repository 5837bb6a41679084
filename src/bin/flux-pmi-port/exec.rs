//! `exec`: turns a connection to `PMI_PORT` into the `PMI_FD` of a program.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use flux_bcast::errno::Errno;
use flux_bcast::errno::reason;
use flux_bcast::pmi::client::Client;
use rustix::io::FdFlags;

use crate::Failed;
use crate::args::Exec;
use crate::identity;
use crate::output;

/// How long the provider may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &Exec) -> Result<(), Failed> {
    identity::surroundings(args.secret_stdin)?;
    let id = match identity::id(None)? {
        Some(id) if args.rank.is_none() => id,
        _ => identity::derived_id(args.rank, args.secret_stdin)?,
    };
    let stream = identity::connect(None, TIMEOUT)?;
    let fail = |error: &dyn std::fmt::Display| Failed::Error(format!("PMI handshake: {error}"));
    stream
        .set_read_timeout(Some(TIMEOUT))
        .map_err(|error| fail(&reason(&error)))?;
    let client = Client::handshake(stream, id).map_err(|error| fail(&error))?;
    let (rank, size) = (client.rank, client.size);
    let stream = client.into_stream();
    stream
        .set_read_timeout(None)
        .map_err(|error| fail(&reason(&error)))?;
    let fd = OwnedFd::from(stream);
    rustix::io::fcntl_setfd(&fd, FdFlags::empty())
        .map_err(|error| fail(&Errno::from(error)))?;

    let [program, rest @ ..] = &args.words[..] else {
        return Err(Failed::Usage("no program given".to_owned()));
    };
    // PMI_PORT must go: the program would otherwise have two providers, and
    // its children would take their parent's id.
    let error = Command::new(program)
        .args(rest)
        .env_remove("PMI_PORT")
        .env_remove("PMI_ID")
        .env_remove("PMI_SECRET")
        .env_remove("PMI_SPAWNED")
        .env_remove("PMI_TOTALVIEW")
        .env_remove("PMIX_NAMESPACE")
        .env("PMI_FD", fd.as_raw_fd().to_string())
        .env("PMI_RANK", rank.to_string())
        .env("PMI_SIZE", size.to_string())
        .exec();
    output::error(&format!(
        "{}: {}",
        program.to_string_lossy(),
        reason(&error)
    ));
    // As shells have it, and serve.
    Err(Failed::Status(match error.kind() {
        ErrorKind::NotFound => 127,
        _ => 126,
    }))
}
