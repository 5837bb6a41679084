//! Command lines: short and long options in front of operands.

use crate::fail::Fail;

/// An option that a command knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    /// Its letter, or a space.
    pub(crate) short: char,
    /// Its word.
    pub(crate) long: &'static str,
    /// Whether it takes a value.
    pub(crate) value: Value,
}

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// None.
    No,
    /// Always.
    Yes,
    /// Only as `--long=VALUE`.
    Maybe,
}

/// An option with a value.
pub(crate) const fn with(short: char, long: &'static str) -> Opt {
    Opt {
        short,
        long,
        value: Value::Yes,
    }
}

/// An option without.
pub(crate) const fn flag(short: char, long: &'static str) -> Opt {
    Opt {
        short,
        long,
        value: Value::No,
    }
}

/// An option whose value may be left out.
pub(crate) const fn maybe(long: &'static str) -> Opt {
    Opt {
        short: ' ',
        long,
        value: Value::Maybe,
    }
}

/// What was given.
#[derive(Debug, Default)]
pub(crate) struct Given {
    options: Vec<(&'static str, String)>,
    /// What follows the options.
    pub(crate) operands: Vec<String>,
}

impl Given {
    /// Whether an option was given.
    pub(crate) fn has(&self, long: &str) -> bool {
        self.options.iter().any(|(name, _)| *name == long)
    }

    /// How often an option was given.
    pub(crate) fn count(&self, long: &str) -> usize {
        self.all(long).count()
    }

    /// The last value of an option.
    pub(crate) fn get(&self, long: &str) -> Option<&str> {
        let given = self.options.iter().rev().find(|(name, _)| *name == long);
        given.map(|(_, value)| value.as_str())
    }

    /// All values of an option, in order.
    pub(crate) fn all<'a>(&'a self, long: &'a str) -> impl Iterator<Item = &'a str> {
        self.options
            .iter()
            .filter(move |(name, _)| *name == long)
            .map(|(_, value)| value.as_str())
    }
}

/// Reads options up to the first operand. With `mixed`, options may follow
/// operands too.
pub(crate) fn parse(
    command: &str,
    known: &[Opt],
    args: &[String],
    mixed: bool,
) -> Result<Given, Fail> {
    let mut given = Given::default();
    let mut rest = args.iter();
    let usage = |text: String| {
        let usage = format!("usage: flux {command} [OPTIONS...] COMMAND [ARGS...]");
        Fail::with_code(format!("{usage}\nflux {command}: error: {text}"), 2)
    };
    while let Some(arg) = rest.next() {
        if arg == "--" {
            given.operands.extend(rest.cloned());
            break;
        }
        if let Some(word) = arg.strip_prefix("--") {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word, None),
            };
            let opt = known.iter().find(|o| o.long == name);
            let Some(opt) = opt else {
                return Err(usage(format!("unrecognized arguments: {arg}")));
            };
            let value = match (opt.value, inline) {
                (Value::No, Some(_)) => {
                    return Err(usage(format!(
                        "argument --{name}: ignored explicit argument"
                    )));
                }
                (Value::Yes, None) => rest.next().cloned().ok_or_else(|| {
                    usage(format!("argument {}: expected one argument", shown(opt)))
                })?,
                (_, inline) => inline.unwrap_or_default(),
            };
            given.options.push((opt.long, value));
        } else if arg.len() > 1 && arg.starts_with('-') {
            for (at, letter) in arg[1..].char_indices() {
                let opt = known.iter().find(|o| o.short == letter && letter != ' ');
                let Some(opt) = opt else {
                    return Err(usage(format!("unrecognized arguments: {arg}")));
                };
                if opt.value != Value::Yes {
                    given.options.push((opt.long, String::new()));
                    continue;
                }
                let inline = &arg[1 + at + letter.len_utf8()..];
                let value = if inline.is_empty() {
                    rest.next().cloned().ok_or_else(|| {
                        usage(format!("argument {}: expected one argument", shown(opt)))
                    })?
                } else {
                    inline.strip_prefix('=').unwrap_or(inline).to_owned()
                };
                given.options.push((opt.long, value));
                break;
            }
        } else {
            given.operands.push(arg.clone());
            if !mixed {
                given.operands.extend(rest.cloned());
                break;
            }
        }
    }
    Ok(given)
}

fn shown(opt: &Opt) -> String {
    if opt.short == ' ' {
        format!("--{}", opt.long)
    } else {
        format!("-{}/--{}", opt.short, opt.long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    const KNOWN: &[Opt] = &[with('n', "ntasks"), flag('l', "label-io"), maybe("tail")];

    #[test]
    fn options_end_at_the_command() {
        let args = strings(&["-ln4", "--ntasks", "5", "--tail", "sh", "-c", "x"]);
        let given = parse("run", KNOWN, &args, false).unwrap();
        assert_eq!(given.get("ntasks"), Some("5"));
        assert_eq!(given.count("ntasks"), 2);
        assert!(given.has("label-io") && given.has("tail"));
        assert_eq!(given.operands, ["sh", "-c", "x"]);
    }

    #[test]
    fn mistakes() {
        for words in [&["--nosuch"][..], &["-n"], &["-x"], &["--label-io=3"]] {
            assert!(
                parse("run", KNOWN, &strings(words), false).is_err(),
                "{words:?}"
            );
        }
    }
}
