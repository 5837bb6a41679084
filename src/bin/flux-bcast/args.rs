//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;
use clap::ValueEnum;
use flux_bcast::idset::IdSet;
use flux_bcast::units::parse_fsd;
use flux_bcast::units::parse_size;

/// Send files to the nodes of a running job.
///
/// Without JOBID the files go to the job that encloses this process, that is to
/// all nodes of the batch job or allocation in which it runs. Without DEST a
/// copy keeps its name and goes to the job's temporary directory
/// (FLUX_JOB_TMPDIR) on each node.
#[derive(Debug, Parser)]
#[command(
    name = "flux bcast",
    version,
    override_usage = "flux bcast [OPTIONS] [JOBID] SOURCE [DEST]\n       \
                      flux bcast [OPTIONS] [JOBID] SOURCE... DEST\n       \
                      flux bcast [OPTIONS] --dest=DEST [JOBID] SOURCE...",
    after_help = "The first word is a JOBID if it can be one and no file has that name; --jobid \
                  removes doubt. Of several words that follow, the last is DEST unless --dest is \
                  given.\n\nExit status: 0 all ranks have the files, 1 the transfer failed, \
                  2 wrong usage."
)]
pub(crate) struct Args {
    /// [JOBID] SOURCE... [DEST]
    #[arg(value_name = "WORD", required = true, hide = true)]
    pub(crate) words: Vec<OsString>,

    /// Send to this job
    #[arg(short = 'j', long, value_name = "JOBID")]
    pub(crate) jobid: Option<String>,

    /// Where the copies go: below FLUX_JOB_TMPDIR, or an absolute path; a
    /// directory if it ends in '/'. Tags such as {{node.id}} are filled in on
    /// each node
    #[arg(short = 'd', long, value_name = "DEST")]
    pub(crate) dest: Option<OsString>,

    /// Replace existing files (atomically)
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Keep modification and access times
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Permission bits of the copies instead of the source's
    #[arg(long, value_name = "OCTAL", value_parser = parse_mode)]
    pub(crate) mode: Option<u32>,

    /// Make missing parent directories of DEST
    #[arg(long)]
    pub(crate) mkdir: bool,

    /// Send to these shell ranks only
    #[arg(short, long, value_name = "IDSET")]
    pub(crate) ranks: Option<IdSet>,

    /// Send to these hosts only
    #[arg(long, value_name = "HOSTLIST")]
    pub(crate) hosts: Option<String>,

    /// Leave these ranks (or hosts) out
    #[arg(short = 'x', long, value_name = "IDSET|HOSTLIST")]
    pub(crate) exclude: Option<String>,

    /// Arity of the tree; by default it follows the brokers' own
    #[arg(short = 'k', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) fanout: Option<u32>,

    /// Bytes of a chunk
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) chunk: Option<u64>,

    /// Most bytes of data in one message
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) batch: Option<u64>,

    /// Most bytes in flight from one node
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) window: Option<u64>,

    /// Give up after this time
    #[arg(short, long, value_name = "FSD", value_parser = fsd)]
    pub(crate) timeout: Option<Duration>,

    /// Flush the copies to disk before they appear
    #[arg(long)]
    pub(crate) sync: bool,

    /// Let healthy ranks have the files although others fail
    #[arg(long)]
    pub(crate) partial: bool,

    /// Name of the copy of standard input (SOURCE -), or of a single source
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<OsString>,

    /// Show progress
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) progress: Progress,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print bytes, time and rate
    #[arg(long)]
    pub(crate) stats: bool,

    /// Print where each copy is
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// When to show progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "not an octal mode up to 777".into())
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text)
}

fn fsd(text: &str) -> Result<Duration, String> {
    parse_fsd(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
