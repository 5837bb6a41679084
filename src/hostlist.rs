//! Host lists in the bracket notation of Flux RFC 29, such as `foo[0-12],login`.
//!
//! Commands read host lists from users and print hosts in messages without a
//! Flux library at hand, so this is an implementation of its own. Order and
//! repetition are kept: a host named twice is in the list twice.

#![forbid(unsafe_code)]

use std::fmt::Write as _;

/// The most hosts that one list may name; larger ones are taken for a slip.
pub const MAX_HOSTS: usize = 1 << 20;

/// Why a text is no host list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A bracket has no partner, or stands inside another pair.
    #[error("unbalanced bracket in '{0}'")]
    Bracket(String),
    /// Something between brackets is neither a number nor a rising range.
    #[error("'{0}' is not a number or a range like 0-12")]
    Range(String),
    /// The list names more than [`MAX_HOSTS`] hosts.
    #[error("more than {MAX_HOSTS} hosts")]
    TooMany,
}

/// The hosts that `text` names, in order.
///
/// Names are separated by commas or white space; empty ones are skipped. Each
/// pair of brackets holds numbers and ranges; a lower bound with leading zeros
/// sets the width (`[08-11]` is 08, 09, 10, 11). Several pairs in one name
/// are combined, the last one varying fastest.
///
/// # Errors
///
/// [`Error`] names the part that cannot be read.
pub fn expand(text: &str) -> Result<Vec<String>, Error> {
    let mut hosts = Vec::new();
    for word in words(text)? {
        let room = MAX_HOSTS - hosts.len();
        hosts.extend(expand_word(word, room)?);
    }
    Ok(hosts)
}

/// The shortest notation for `hosts` that keeps their order:
/// neighbours with the same prefix share one pair of brackets.
#[must_use]
pub fn fold<S: AsRef<str>>(hosts: &[S]) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for host in hosts {
        let name = Name::split(host.as_ref());
        if !groups.last_mut().is_some_and(|group| group.take(&name)) {
            groups.push(Group::new(name));
        }
    }
    let mut out = String::new();
    for group in &groups {
        if !out.is_empty() {
            out.push(',');
        }
        group.print(&mut out);
    }
    out
}

/// Splits at separators that are outside brackets.
fn words(text: &str) -> Result<Vec<&str>, Error> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut inside = false;
    for (at, c) in text.char_indices() {
        match c {
            '[' | ']' if inside == (c == '[') => {
                return Err(Error::Bracket(text.to_owned()));
            }
            '[' => inside = true,
            ']' => inside = false,
            _ if !inside && (c == ',' || c.is_whitespace()) => {
                words.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if inside {
        return Err(Error::Bracket(text.to_owned()));
    }
    words.push(&text[start..]);
    words.retain(|word| !word.is_empty());
    Ok(words)
}

fn expand_word(word: &str, room: usize) -> Result<Vec<String>, Error> {
    let mut names = vec![String::new()];
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('[') {
        let (inner, tail) = after
            .split_once(']')
            .ok_or_else(|| Error::Bracket(word.to_owned()))?;
        let numbers = numbers(inner, room)?;
        if names.len().saturating_mul(numbers.len()) > room {
            return Err(Error::TooMany);
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |n| format!("{name}{before}{n}")))
            .collect();
        rest = tail;
    }
    if names.len() > room {
        return Err(Error::TooMany);
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// The numbers of one pair of brackets, padded as written.
fn numbers(inner: &str, room: usize) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    for part in inner.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let bad = || Error::Range(part.to_owned());
        let (first, last) = (number(low).ok_or_else(bad)?, number(high).ok_or_else(bad)?);
        if first > last {
            return Err(bad());
        }
        if last - first >= (room - all.len().min(room)) as u64 {
            return Err(Error::TooMany);
        }
        let width = low.len();
        all.extend((first..=last).map(|n| format!("{n:0width$}")));
    }
    Ok(all)
}

fn number(digits: &str) -> Option<u64> {
    // Eighteen digits keep every sum below within an u64.
    let plain =
        !digits.is_empty() && digits.len() <= 18 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// A host name cut before the number at its end.
struct Name<'a> {
    prefix: &'a str,
    number: Option<(&'a str, u64)>,
}

impl<'a> Name<'a> {
    fn split(host: &'a str) -> Self {
        let prefix = host.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &host[prefix.len()..];
        match number(digits) {
            Some(value) => Self {
                prefix,
                number: Some((digits, value)),
            },
            None => Self {
                prefix: host,
                number: None,
            },
        }
    }
}

/// Neighbouring hosts with one prefix.
struct Group<'a> {
    prefix: &'a str,
    ranges: Vec<Span<'a>>,
}

/// A run of consecutive numbers of one width.
struct Span<'a> {
    low: &'a str,
    high: &'a str,
    value: u64,
}

impl<'a> Group<'a> {
    fn new(name: Name<'a>) -> Self {
        let ranges = name
            .number
            .map(|(digits, value)| Span {
                low: digits,
                high: digits,
                value,
            })
            .into_iter()
            .collect();
        Self {
            prefix: name.prefix,
            ranges,
        }
    }

    /// Adds `name` if it belongs here.
    fn take(&mut self, name: &Name<'a>) -> bool {
        let (Some((digits, value)), Some(last)) = (name.number, self.ranges.last_mut()) else {
            return false;
        };
        if name.prefix != self.prefix {
            return false;
        }
        let width = last.low.len();
        if value == last.value + 1 && format!("{value:0width$}") == digits {
            last.high = digits;
            last.value = value;
        } else {
            self.ranges.push(Span {
                low: digits,
                high: digits,
                value,
            });
        }
        true
    }

    fn print(&self, out: &mut String) {
        out.push_str(self.prefix);
        let single = self.ranges.len() == 1;
        let mut inner = String::new();
        for range in &self.ranges {
            if !inner.is_empty() {
                inner.push(',');
            }
            inner.push_str(range.low);
            if range.low != range.high {
                inner.push('-');
                inner.push_str(range.high);
            }
        }
        let plain = single && self.ranges.iter().all(|r| r.low == r.high);
        if plain || self.ranges.is_empty() {
            out.push_str(&inner);
        } else {
            let _ = write!(out, "[{inner}]");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expanded(text: &str) -> String {
        expand(text).unwrap().join(" ")
    }

    #[test]
    fn brackets_expand() {
        for (text, hosts) in [
            ("", ""),
            ("login", "login"),
            ("foo[0-3,5]", "foo0 foo1 foo2 foo3 foo5"),
            ("foo[08-11]", "foo08 foo09 foo10 foo11"),
            ("foo[001-3]x", "foo001x foo002x foo003x"),
            ("a[0-1]b[0-1]", "a0b0 a0b1 a1b0 a1b1"),
            ("foo,,bar baz[7]", "foo bar baz7"),
            ("foo3,foo1,foo3", "foo3 foo1 foo3"),
            ("10.0.0.[1-2]", "10.0.0.1 10.0.0.2"),
        ] {
            assert_eq!(expanded(text), hosts, "{text}");
        }
    }

    #[test]
    fn errors_name_the_part() {
        for (text, message) in [
            ("foo[1-3", "unbalanced bracket in 'foo[1-3'"),
            ("foo]", "unbalanced bracket in 'foo]'"),
            ("foo[[1]]", "unbalanced bracket in 'foo[[1]]'"),
            ("foo[3-1]", "'3-1' is not a number or a range like 0-12"),
            ("foo[]", "'' is not a number or a range like 0-12"),
            ("foo[1,,2]", "'' is not a number or a range like 0-12"),
            ("foo[a]", "'a' is not a number or a range like 0-12"),
            ("foo[0-99999999]", "more than 1048576 hosts"),
            ("a[0-9999]b[0-9999]", "more than 1048576 hosts"),
            (
                "foo[99999999999999999999]",
                "'99999999999999999999' is not a number or a range like 0-12",
            ),
        ] {
            assert_eq!(expand(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn the_limit_counts_the_whole_list() {
        assert_eq!(expand("a[1-1048576]").unwrap().len(), MAX_HOSTS);
        assert_eq!(expand("a[1-1048576],b"), Err(Error::TooMany));
        assert_eq!(expand("b,a[1-1048576]"), Err(Error::TooMany));
    }

    #[test]
    fn folding_keeps_order_and_width() {
        for (hosts, text) in [
            ("", ""),
            ("foo1", "foo1"),
            ("foo", "foo"),
            ("foo1 foo2", "foo[1-2]"),
            ("foo3 foo1 foo2", "foo[3,1-2]"),
            ("foo9 foo10 foo010", "foo[9-10,010]"),
            ("foo09 foo10 foo100", "foo[09-10,100]"),
            ("foo1 bar foo2", "foo1,bar,foo2"),
            ("foo1 foo1", "foo[1,1]"),
            ("foo foo1", "foo,foo1"),
            ("1 2 3", "[1-3]"),
        ] {
            let hosts: Vec<&str> = hosts.split_whitespace().collect();
            assert_eq!(fold(&hosts), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_folded_expands_again(
            hosts in prop::collection::vec("[a-c]{1,2}(0{0,2}[0-9]{1,3})?", 0..40)
        ) {
            prop_assert_eq!(expand(&fold(&hosts)).unwrap(), hosts);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[a-b0-9,\\[\\] -]{0,40}") {
            let _ = expand(&text);
        }
    }
}
