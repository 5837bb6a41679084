//! `flux pmi-port`: PMI over TCP without a resource manager, and a look at the
//! PMI of one.

mod args;
mod check;
mod exec;
mod identity;
mod output;
mod serve;

use std::process::ExitCode;

use clap::Parser;

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

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
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
