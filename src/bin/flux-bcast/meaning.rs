//! Which options have a meaning with which actions.
//!
//! An option that would be taken and then have no effect is refused by name.
//! The table has a row for every option that there is, so that a new one cannot
//! be forgotten. What an option promises under a condition (`--force`, `--mkdir`:
//! if something is there, or missing) holds where the condition never comes true,
//! as with `--unique`; and `--dry-run` takes all that says how files are sent,
//! since it is put in front of a command line that is to be tried.

use super::args::Args;
use super::args::Mode;
use super::args::When;

const SEND: u8 = 1;
const DRY_RUN: u8 = 2;
const FROM: u8 = 4;
const GATHER: u8 = 8;
const LIST: u8 = 16;
const REMOVE: u8 = 32;

/// Where files of this node are looked at.
const LOCAL: u8 = SEND | DRY_RUN;
/// Where ranks get copies, or would.
const COPIES: u8 = LOCAL | FROM;
/// Where copies are made, or would be.
const FILES: u8 = COPIES | GATHER;
/// Where data flows.
const FLOW: u8 = SEND | FROM | GATHER;
const ALL: u8 = FILES | LIST | REMOVE;

/// An option, whether it is given, and the actions that it has a meaning with.
type Row = (&'static str, fn(&Args) -> bool, u8);

const OPTIONS: [Row; 35] = [
    ("--help", |args| args.help, ALL),
    // Ends the command where it is parsed.
    ("--version", |_| false, ALL),
    ("--jobid", |args| args.jobid.is_some(), ALL),
    ("--no-wait", |args| args.no_wait, ALL),
    ("--dest", |args| args.dest.is_some(), COPIES),
    ("--unique", |args| args.unique, COPIES),
    ("--mkdir", |args| args.mkdir, FILES),
    ("--name", |args| args.name.is_some(), LOCAL),
    ("--force", |args| args.force, FILES),
    ("--append", |args| args.append, COPIES),
    ("--truncate", |args| args.truncate, COPIES),
    ("--checksum", |args| args.checksum, LOCAL),
    ("--preserve", |args| args.preserve, FILES),
    ("--mode", |args| args.mode.is_some(), FILES),
    ("--sync", |args| args.sync, FILES),
    ("--partial", |args| args.partial, FILES),
    ("--send-libs", |args| args.send_libs.is_some(), LOCAL),
    ("--exclude-libs", |args| args.exclude_libs.is_some(), LOCAL),
    ("--ranks", |args| args.ranks.is_some(), ALL),
    ("--hosts", |args| args.hosts.is_some(), ALL),
    ("--exclude", |args| args.exclude.is_some(), ALL),
    ("--fanout", |args| args.fanout.is_some(), FILES),
    ("--chunk", |args| args.chunk.is_some(), FILES),
    ("--batch", |args| args.batch.is_some(), FILES),
    ("--window", |args| args.window.is_some(), FILES),
    ("--pace", |args| args.pace.is_some(), FILES),
    // Files that are fetched come by messages, as they are.
    ("--compress", |args| args.compress, COPIES),
    ("--direct", |args| args.direct, COPIES),
    ("--timeout", |args| args.timeout.is_some(), ALL),
    // These four are the actions; the parser takes one of them.
    ("--dry-run", |args| args.dry_run, DRY_RUN),
    ("--from", |args| args.from.is_some(), FROM),
    ("--gather", |args| args.gather, GATHER),
    ("--list", |args| args.list, LIST),
    ("--remove", |args| args.remove, REMOVE),
    ("--stats", |args| args.stats, FLOW),
];

/// Those that ask for more or less to be said. `never` and `auto` hold where
/// there is no progress to show, and there may be nothing more to say.
const SPEECH: [Row; 3] = [
    ("--progress", |args| args.progress == When::Always, FLOW),
    ("--json", |args| args.json, ALL),
    ("--verbose", |args| args.verbose > 0, ALL),
];

/// What to tell the user about the first option that is given and has no meaning.
pub(crate) fn misplaced(args: &Args) -> Option<String> {
    if args.exclude_libs.is_some() && args.send_libs.is_none() {
        return Some("--exclude-libs has no meaning without --send-libs".into());
    }
    let (action, bit) = match args.mode() {
        Mode::Send => return None,
        Mode::DryRun => ("--dry-run", DRY_RUN),
        Mode::From(_) => ("--from", FROM),
        Mode::Gather => ("--gather", GATHER),
        Mode::List => ("--list", LIST),
        Mode::Remove => ("--remove", REMOVE),
    };
    let mut rows = OPTIONS.iter().chain(&SPEECH);
    let (option, ..) = rows.find(|(_, given, with)| with & bit == 0 && given(args))?;
    Some(format!("{option} has no meaning with {action}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::Parser;
    use std::collections::BTreeSet;

    fn said(line: &str) -> Option<String> {
        let words = std::iter::once("flux bcast").chain(line.split_whitespace());
        misplaced(&Args::try_parse_from(words).unwrap())
    }

    #[test]
    fn every_option_is_decided_about() {
        let command = Args::command();
        let known: BTreeSet<String> = command
            .get_arguments()
            .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
            .collect();
        let rows = OPTIONS.iter().chain(&SPEECH);
        let decided: Vec<String> = rows.map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(decided.len(), known.len());
        assert_eq!(decided.into_iter().collect::<BTreeSet<_>>(), known);
    }

    #[test]
    fn what_has_no_effect_is_refused_by_name() {
        for (line, option) in [
            ("f1 a", None),
            ("--exclude-libs=/x f1 a", Some("--exclude-libs")),
            ("--send-libs --exclude-libs=/x f1 a", None),
            ("--dry-run -f --sync -C --direct --window=1m f1 a", None),
            ("--dry-run --checksum f1 a", None),
            ("--from 3 --checksum f1 a", Some("--checksum")),
            ("--dry-run --stats f1 a", Some("--stats")),
            ("--dry-run --progress=always f1 a", Some("--progress")),
            ("--dry-run --progress=never f1 a", None),
            ("--from 3 f1 a", None),
            ("--from 3 --name=x f1 a", Some("--name")),
            ("--from 3 --send-libs f1 a", Some("--send-libs")),
            ("--gather --force f1 a d", None),
            ("--gather --append f1 a d", Some("--append")),
            ("--gather --compress f1 a d", Some("--compress")),
            ("--gather --direct f1 a d", Some("--direct")),
            ("--gather --unique f1 a d", Some("--unique")),
            ("--list -v --json --no-wait -t 1s -x 0 f1", None),
            ("--dry-run --pace=1m f1 a", None),
            ("--gather --pace=1m f1 a d", None),
            ("--list -k 2 f1", Some("--fanout")),
            ("--remove --pace=1m f1", Some("--pace")),
            ("--list --stats f1", Some("--stats")),
            ("--list --progress=always f1", Some("--progress")),
            ("--remove --mkdir f1", Some("--mkdir")),
            ("--remove --stats f1", Some("--stats")),
        ] {
            match (said(line), option) {
                (None, None) => {}
                (Some(said), Some(option)) => {
                    assert!(said.starts_with(option), "{line}: {said}")
                }
                (said, _) => panic!("{line}: {said:?}"),
            }
        }
    }
}
