//! The parser's complaints in the form of all errors of the commands: one line.

/// A parser's message on one line; `help` is the command that tells more.
pub(crate) fn one_line(error: &clap::Error, help: &str) -> String {
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
    format!("{text}; see '{help}'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;
    use clap::Command;

    fn said(word: &str) -> String {
        let number = Arg::new("number")
            .long("number")
            .value_parser(clap::value_parser!(u32));
        let command = Command::new("x")
            .arg(number)
            .subcommand(Command::new("serve"));
        let error = command.try_get_matches_from(["x", word]).unwrap_err();
        one_line(&error, "x --help")
    }

    #[test]
    fn it_is_one_line_and_names_the_word() {
        for (word, names) in [
            ("--number=y", ["'y'", "--number"]),
            ("--numer=1", ["unexpected", "'--numer'"]),
            ("serv", ["unrecognized", "'serv'"]),
        ] {
            let text = said(word);
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
            assert!(text.ends_with("; see 'x --help'"), "{text}");
            let alien = ["\n", "Usage:", "tip:", "error:"];
            assert!(!alien.iter().any(|part| text.contains(part)), "{text}");
        }
    }
}
