//! For the tests of the commands: the options that a manual page names, and
//! those that the command has. They must be the same.

use std::collections::BTreeSet;

/// The options that have an entry below `heading`, such as `.SH OPTIONS`.
pub(crate) fn documented(page: &str, heading: &str) -> BTreeSet<String> {
    let page = page.replace("\\-", "-");
    let mut lines = page.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "no {heading}");
    lines
        .take_while(|line| !line.starts_with(".SH") && !line.starts_with(".SS"))
        .filter(|line| line.starts_with(".BR -") || line.starts_with(".B -"))
        .flat_map(|line| line.split([' ', ',', '=', '[', '\\']))
        .filter(|word| word.starts_with('-') && word.len() > 1)
        .map(str::to_owned)
        .collect()
}

/// The options of a command, without those that the parser adds.
pub(crate) fn known(command: &clap::Command) -> BTreeSet<String> {
    let options = command.get_arguments().filter(|arg| !arg.is_positional());
    options
        .flat_map(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            let short = arg.get_short().map(|short| format!("-{short}"));
            long.into_iter().chain(short)
        })
        .collect()
}
