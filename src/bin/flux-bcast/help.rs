//! `--help`, in the form that Flux's own commands give it.

use std::fmt::Write;

use clap::Arg;
use clap::ArgAction;
use clap::CommandFactory;

use super::args::AFTER;
use super::args::Args;
use super::args::USAGE;

/// Where the descriptions begin.
const COLUMN: usize = 27;

/// The whole text.
pub(crate) fn text() -> String {
    let command = Args::command();
    let mut text = format!("Usage: {USAGE}\n");
    if let Some(about) = command.get_about() {
        let _ = writeln!(text, "{about}");
    }
    for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
        let option = option(arg);
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "{option:COLUMN$} {help}");
    }
    text + AFTER
}

/// How an option is written: `  -j, --jobid=JOBID`.
fn option(arg: &Arg) -> String {
    let short = arg
        .get_short()
        .map_or_else(|| "    ".into(), |short| format!("-{short}, "));
    let long = arg.get_long().unwrap_or_default();
    let value = match (arg.get_action(), arg.get_value_names()) {
        (ArgAction::Set | ArgAction::Append, Some([name, ..])) => {
            if arg.is_require_equals_set() {
                format!("[={name}]")
            } else {
                format!("={name}")
            }
        }
        _ => String::new(),
    };
    format!("  {short}--{long}{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_flux() {
        let text = text();
        let line = |start: &str| {
            text.lines()
                .find(|line| line.starts_with(start))
                .unwrap_or_else(|| panic!("{start}"))
                .to_owned()
        };
        assert!(text.starts_with("Usage: flux bcast [OPTIONS]"));
        assert_eq!(
            line("  -h"),
            "  -h, --help                Display this message"
        );
        assert!(line("  -j").starts_with("  -j, --jobid=JOBID         "));
        assert!(line("      --send-libs").starts_with("      --send-libs[=DIR] "));
        assert!(line("  -v").starts_with("  -v, --verbose "));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
