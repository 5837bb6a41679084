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

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::Parser;

use self::args::Args;

/// Why the command failed.
#[derive(Debug)]
enum Failed {
    /// The user asked for something that cannot be: exit status 2.
    Usage(String),
    /// The transfer failed: exit status 1; these lines say why.
    Transfer(Vec<String>),
}

impl From<flux_bcast::flux::error::Error> for Failed {
    fn from(error: flux_bcast::flux::error::Error) -> Self {
        Self::Transfer(vec![error.to_string()])
    }
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            if error.use_stderr() {
                output::error(&usage::one_line(
                    &error,
                    &Args::command(),
                    "flux bcast --help",
                ));
                return ExitCode::from(2);
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
        Err(Failed::Usage(text)) => {
            output::error(&text);
            ExitCode::from(2)
        }
        Err(Failed::Transfer(lines)) => {
            for line in lines {
                output::error(&line);
            }
            ExitCode::from(1)
        }
    }
}
