//! `flux pmi-port`: PMI over TCP without a resource manager, and a look at the
//! PMI of one.

mod args;
mod check;
mod exec;
mod identity;
#[cfg(test)]
#[path = "../shared/manual.rs"]
mod manual;
mod output;
#[path = "../shared/plain.rs"]
mod plain;
mod serve;
#[path = "../shared/usage.rs"]
mod usage;

use std::process::ExitCode;

use clap::CommandFactory;
use clap::Parser;
use clap::error::ErrorKind;

use self::args::Args;
use self::args::Command;

/// Why the command failed.
#[derive(Debug)]
enum Failed {
    /// The user asked for something that cannot be: exit status 2.
    Usage(String),
    /// It did not work: exit status 1.
    Error(String),
    /// What was run failed with this status, and has said why.
    Status(u8),
}

/// Ends where the parser has had the last word.
fn not_run(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let mut whole = Args::command();
    // With the options that the parser adds.
    whole.build();
    let first = std::env::args().nth(1).unwrap_or_default();
    let (command, help) = match whole.find_subcommand(&first) {
        Some(command) => (command, format!("flux pmi-port {first} --help")),
        None => (&whole, "flux pmi-port --help".to_owned()),
    };
    output::error(&match error.kind() {
        // The parser would print all of its help.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            format!("one of serve, exec and check must be given; see '{help}'")
        }
        _ => usage::one_line(error, command, &help),
    });
    ExitCode::from(2)
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            return not_run(&error);
        }
    };
    let outcome = match args.command {
        Command::Serve(args) => serve::run(args),
        Command::Exec(args) => exec::run(&args),
        Command::Check(args) => check::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Usage(text)) => {
            output::error(&text);
            ExitCode::from(2)
        }
        Err(Failed::Error(text)) => {
            output::error(&text);
            ExitCode::from(1)
        }
        Err(Failed::Status(status)) => ExitCode::from(status),
    }
}
