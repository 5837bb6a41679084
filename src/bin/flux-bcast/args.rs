//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::ArgGroup;
use clap::Parser;
use clap::ValueEnum;
use flux_bcast::bcast::message::CHUNK_MAX;
use flux_bcast::hostlist;
use flux_bcast::idset::IdSet;
use flux_bcast::units::parse_fsd;
use flux_bcast::units::parse_size;

pub(super) const USAGE: &str = "flux bcast [OPTIONS] [JOBID] SOURCE... [DEST]
       flux bcast [OPTIONS] --from=RANK [JOBID] PATH... [DEST]
       flux bcast [OPTIONS] --gather [JOBID] PATH... DIR
       flux bcast [OPTIONS] --list [JOBID]
       flux bcast [OPTIONS] --remove [JOBID] [PATH...]";

pub(super) const AFTER: &str = "
Without JOBID, the job that encloses this process is meant: the batch job or
allocation in which it runs. The first word is a JOBID if it can be one and no
file has that name; --jobid removes doubt. Of several words that follow, the
last one is DEST, unless --dest or --unique is given.

DEST is below the job's temporary directory (FLUX_JOB_TMPDIR) on each node, or
an absolute path; it is a directory if it ends in '/'. Without DEST a copy keeps
its name. Tags such as {{node.id}} are filled in on each node.

Exit status: 0 all ranks have the files, 1 the transfer failed, 2 wrong usage.
";

/// Send files to the nodes of a running job
#[derive(Debug, Parser)]
#[command(
    infer_long_args = true,
    name = "flux bcast",
    version,
    disable_version_flag = true,
    disable_help_flag = true,
    override_usage = USAGE,
    group = ArgGroup::new("what").args(["from", "gather", "list", "remove", "dry_run"]),
    group = ArgGroup::new("present").args(["force", "append", "truncate"]),
)]
pub(crate) struct Args {
    /// [JOBID] SOURCE... [DEST]
    #[arg(value_name = "WORD", hide = true)]
    pub(crate) words: Vec<OsString>,

    /// Display this message
    #[arg(short, long)]
    pub(crate) help: bool,

    /// Display the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    /// Send to this job
    #[arg(short = 'j', long, value_name = "JOBID")]
    pub(crate) jobid: Option<String>,

    /// Fail at once if the job has not started
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Where the copies go, instead of a last word DEST
    #[arg(short = 'd', long, value_name = "DEST", conflicts_with = "unique")]
    pub(crate) dest: Option<OsString>,

    /// Send to a new directory, and print its path
    #[arg(short, long)]
    pub(crate) unique: bool,

    /// Make missing parent directories of DEST
    #[arg(long)]
    pub(crate) mkdir: bool,

    /// Name of the copy of a single source, such as '-'
    #[arg(short, long, value_name = "NAME")]
    pub(crate) name: Option<OsString>,

    /// Replace existing files (atomically)
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Append to existing files (not atomic)
    #[arg(long)]
    pub(crate) append: bool,

    /// Overwrite existing files in place (not atomic)
    #[arg(long)]
    pub(crate) truncate: bool,

    /// Send nothing to ranks that have the files already
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// Keep modification and access times
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Permission bits of the copies
    #[arg(short, long, value_name = "OCTAL", value_parser = parse_mode)]
    pub(crate) mode: Option<u32>,

    /// Flush the copies to disk before they appear
    #[arg(long)]
    pub(crate) sync: bool,

    /// Let healthy ranks have the files if others fail
    #[arg(long)]
    pub(crate) partial: bool,

    /// Send programs' shared objects, too (NAME_libs)
    #[arg(long, value_name = "DIR", require_equals = true, num_args = 0..=1)]
    pub(crate) send_libs: Option<Option<OsString>>,

    /// Send none that are below PATHS
    #[arg(long, value_name = "PATHS")]
    pub(crate) exclude_libs: Option<OsString>,

    /// Send to these shell ranks only
    #[arg(short, long, value_name = "IDSET", value_parser = ranks)]
    pub(crate) ranks: Option<IdSet>,

    /// Send to these hosts only
    #[arg(long, value_name = "HOSTLIST", value_parser = hosts)]
    pub(crate) hosts: Option<String>,

    /// Leave these ranks (or hosts) out
    #[arg(short = 'x', long, value_name = "TARGETS", value_parser = targets)]
    pub(crate) exclude: Option<String>,

    /// Arity of the tree (default: that of the brokers)
    #[arg(short = 'k', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) fanout: Option<u32>,

    /// Bytes of a chunk (default 4k)
    #[arg(long, value_name = "SIZE", value_parser = chunk)]
    pub(crate) chunk: Option<u64>,

    /// Most bytes of data in one message (default 120k)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) batch: Option<u64>,

    /// Most bytes in flight from one node (default 840k)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) window: Option<u64>,

    /// Most bytes of data per second (default: no limit)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) pace: Option<u64>,

    /// Compress data on its way (for slow networks)
    #[arg(short = 'C', long)]
    pub(crate) compress: bool,

    /// Send data by TCP, past the brokers, where possible
    #[arg(long)]
    pub(crate) direct: bool,

    /// Give up after this time
    #[arg(short, long, value_name = "FSD", value_parser = fsd)]
    pub(crate) timeout: Option<Duration>,

    /// Tell what would happen on each rank; send nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Send files that are on the node of this rank
    #[arg(long, value_name = "RANK", value_parser = rank)]
    pub(crate) from: Option<u32>,

    /// Fetch PATH from each rank, into DIR/RANK/ here
    #[arg(long)]
    pub(crate) gather: bool,

    /// List what was put on the job's nodes
    #[arg(short, long)]
    pub(crate) list: bool,

    /// Remove what was put there, or PATH of it
    #[arg(long)]
    pub(crate) remove: bool,

    /// Show progress: auto (on a terminal), always, never
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) progress: When,

    /// Print path, bytes, time and error of each rank
    #[arg(long)]
    pub(crate) stats: bool,

    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Print where each copy is (-vv: more)
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// When to show progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Send files from here.
    Send,
    /// Tell what sending would do.
    DryRun,
    /// Send files from a node of the job.
    From(u32),
    /// Fetch files.
    Gather,
    /// List what is there.
    List,
    /// Remove what is there.
    Remove,
}

impl Args {
    /// What is asked for.
    pub(crate) fn mode(&self) -> Mode {
        match self.from {
            Some(rank) => Mode::From(rank),
            None if self.gather => Mode::Gather,
            None if self.list => Mode::List,
            None if self.remove => Mode::Remove,
            None if self.dry_run => Mode::DryRun,
            None => Mode::Send,
        }
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "not an octal mode up to 777".into())
}

fn size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("must be at least 1 byte".into()),
        size => Ok(size),
    }
}

fn chunk(text: &str) -> Result<u64, String> {
    match size(text)? {
        size if size > u64::from(CHUNK_MAX) => {
            Err(format!("must be at most {CHUNK_MAX} bytes"))
        }
        size => Ok(size),
    }
}

fn rank(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "not a shell rank such as 0".to_owned())
}

fn ranks(text: &str) -> Result<IdSet, String> {
    match text.parse::<IdSet>() {
        Ok(set) if set.is_empty() => Err("it names no rank".into()),
        Ok(set) => Ok(set),
        Err(error) => Err(error.to_string()),
    }
}

fn hosts(text: &str) -> Result<String, String> {
    match hostlist::expand(text) {
        Ok(hosts) if hosts.is_empty() => Err("it names no host".into()),
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Ranks or hosts.
fn targets(text: &str) -> Result<String, String> {
    match text.parse::<IdSet>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => hosts(text),
    }
}

fn fsd(text: &str) -> Result<Duration, String> {
    parse_fsd(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual;
    use clap::CommandFactory;
    use flux_bcast::bcast::message::Tuning;

    const PAGE: &str = include_str!("flux-bcast.1");

    fn parse(line: &str) -> Args {
        Args::try_parse_from(std::iter::once("flux bcast").chain(line.split_whitespace()))
            .unwrap()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn modes() {
        for (line, mode) in [
            ("f1 a", Mode::Send),
            ("--dry-run -f f1 a", Mode::DryRun),
            ("--from 3 f1 a", Mode::From(3)),
            ("--gather --force f1 a d", Mode::Gather),
            ("--list f1", Mode::List),
            ("--remove f1", Mode::Remove),
        ] {
            assert_eq!(parse(line).mode(), mode, "{line}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            "--force --append a",
            "--list --remove",
            "--unique --dest=d a",
            "--progress=maybe a",
            "--mode=999 a",
        ] {
            let words = std::iter::once("flux bcast").chain(line.split_whitespace());
            assert!(Args::try_parse_from(words).is_err(), "{line}");
        }
        let libs = parse("--send-libs f1 a").send_libs;
        assert_eq!(libs, Some(None));
        assert_eq!(parse("--send-libs=d a").send_libs, Some(Some("d".into())));
    }

    /// The manual page must name exactly the options that there are.
    #[test]
    fn the_manual_page_has_the_same_options() {
        let documented = manual::documented(PAGE, ".SH OPTIONS");
        assert_eq!(documented, manual::known(&Args::command()));
    }

    /// Help and page tell the numbers that are in force.
    #[test]
    fn the_defaults_that_are_told_are_true() {
        let tuning = Tuning::default();
        let help = super::super::help::text();
        for (option, bytes) in [
            ("chunk", u64::from(tuning.chunk)),
            ("batch", u64::from(tuning.batch)),
            ("window", tuning.window),
        ] {
            let told = format!("(default {}k)", bytes / 1024);
            let start = format!("      --{option}=");
            let line = help.lines().find(|line| line.starts_with(&start)).unwrap();
            assert!(line.ends_with(&told), "{line}");
            let entry = format!(".BR \\-\\-{option} =\\fISIZE\\fR\n");
            let (_, text) = PAGE.split_once(&entry).unwrap();
            let (text, _) = text.split_once(".TP").unwrap();
            assert!(text.contains(&told), "--{option}: {text}");
        }
    }
}
