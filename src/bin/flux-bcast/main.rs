//! `flux bcast`: sends files to the nodes of a running job.

mod args;
mod drive;
mod dry;
mod enclosing;
mod help;
mod listing;
#[cfg(test)]
#[path = "../shared/manual.rs"]
mod manual;
mod meaning;
mod output;
#[path = "../shared/plain.rs"]
mod plain;
mod progress;
mod run;
mod sources;
#[path = "../shared/usage.rs"]
mod usage;
mod words;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::Parser;
use flux_bcast::errno::Errno;

use self::args::Args;

/// Why the command failed.
#[derive(Debug)]
enum Failed {
    /// The user asked for something that cannot be: exit status 2.
    Usage(String),
    /// The transfer failed: exit status 1; these lines say why, and so does the
    /// object of `--json`.
    Transfer(Vec<String>),
    /// It could not begin, or not be followed to its end: exit status 1.
    Whole(Errno, String),
}

impl From<flux_bcast::flux::error::Error> for Failed {
    fn from(error: flux_bcast::flux::error::Error) -> Self {
        Self::Whole(error.errno(), error.to_string())
    }
}

/// Tells why the command failed; with `json` also on standard output, where
/// exactly one object is to be read, whatever happens.
fn end(failed: Failed, json: bool) -> ExitCode {
    let (status, errno, lines) = match failed {
        Failed::Usage(text) => (2, Errno::EINVAL, vec![text]),
        Failed::Whole(errno, text) => (1, errno, vec![text]),
        Failed::Transfer(lines) => (1, Errno::EIO, lines),
    };
    if json && let Some(text) = lines.first() {
        output::nothing(errno, text);
    }
    for line in lines {
        output::error(&line);
    }
    ExitCode::from(status)
}

/// Whether a command line that the parser did not take asks for `--json`.
fn json(words: impl Iterator<Item = OsString>) -> bool {
    let words = words.take_while(|word| word != "--");
    // The parser takes a beginning that can be nothing else.
    let asked = |word: OsString| matches!(word.to_str(), Some("--json" | "--jso" | "--js"));
    words.into_iter().any(asked)
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            if error.use_stderr() {
                let command = Args::command();
                let text = usage::one_line(&error, &command, "flux bcast --help");
                return end(Failed::Usage(text), json(std::env::args_os()));
            }
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
    };
    if args.help {
        let _ = std::io::stdout().write_all(help::text().as_bytes());
        return ExitCode::SUCCESS;
    }
    let done = run::run(&args).and_then(|()| match output::unwritten() {
        Some(text) => Err(Failed::Transfer(vec![text])),
        None => Ok(()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => end(failed, args.json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_where_the_parser_would_take_it() {
        for (line, asked) in [
            ("f1 --forse --json a", true),
            ("--js a", true),
            ("--j a", false),
            ("a --jobid", false),
            ("-- --json", false),
        ] {
            let words = line.split_whitespace().map(OsString::from);
            assert_eq!(json(words), asked, "{line}");
            if asked {
                let words = line.split_whitespace().filter(|word| *word != "--forse");
                let words = std::iter::once("flux bcast").chain(words);
                assert!(Args::try_parse_from(words).unwrap().json, "{line}");
            }
        }
    }
}
