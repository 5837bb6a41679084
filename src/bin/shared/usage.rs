//! The parser's complaints in the form of all errors of the commands: one line.

use clap::Command;
use clap::error::ContextKind;
use clap::error::ContextValue;
use clap::error::ErrorKind;
use flux_bcast::meant;

/// A parser's message on one line, with what a misspelt word may have been meant
/// to be; `command` is the one that did not know it, `help` the one that tells more.
pub(crate) fn one_line(error: &clap::Error, command: &Command, help: &str) -> String {
    let whole = error.to_string();
    let text: Vec<&str> = whole
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"))
        .filter(|line| {
            !(line.is_empty()
                || line.starts_with("tip:")
                || line.starts_with("For more information"))
        })
        .collect();
    let text = text.join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let hint = hint(error, command);
    format!("{text}{hint}; see '{help}'")
}

fn hint(error: &clap::Error, command: &Command) -> String {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        let known = command.get_subcommands().map(Command::get_name);
        return meant::hint("", word, known);
    }
    match error.get(ContextKind::InvalidArg) {
        // One that is known has a value that is none, or is in the way of another.
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => {
            let known = command.get_arguments().filter_map(|arg| arg.get_long());
            let word = word.strip_prefix("--");
            word.map_or_else(String::new, |word| meant::hint("--", word, known))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn said(word: &str) -> String {
        let number = Arg::new("number")
            .long("number")
            .value_parser(clap::value_parser!(u32));
        let command = Command::new("x")
            .arg(number)
            .subcommand(Command::new("serve"));
        let error = command.clone().try_get_matches_from(["x", word]);
        one_line(&error.unwrap_err(), &command, "x --help")
    }

    #[test]
    fn it_is_one_line_and_names_the_word() {
        for (word, names) in [
            ("--number=y", ["'y'", "--number"]),
            (
                "--numer=1",
                ["unexpected", "'--numer' found (did you mean --number?)"],
            ),
            ("serv", ["unrecognized", "'serv' (did you mean serve?)"]),
            ("--frobnicate", ["unexpected", "'--frobnicate' found; see"]),
            ("-y", ["unexpected", "'-y' found; see"]),
            ("bogus", ["unrecognized", "'bogus'; see"]),
        ] {
            let text = said(word);
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
            assert!(text.ends_with("; see 'x --help'"), "{text}");
            let alien = ["\n", "Usage:", "tip:", "error:"];
            assert!(!alien.iter().any(|part| text.contains(part)), "{text}");
        }
    }
}
