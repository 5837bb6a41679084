//! Writes one reply line in the form that every known client reads.

use std::io::Write as _;

/// The longest line that old clients read, newline included, in bytes.
///
/// Only the reply to a get may exceed it, and only for a value of more than
/// [`VALUE_FITS`] bytes: no client with a small buffer stores such a value,
/// because it works out its own limit from the ones we tell it.
pub(crate) const REPLY_MAX: usize = 1023;

/// The longest value whose get reply keeps within [`REPLY_MAX`].
pub(crate) const VALUE_FITS: usize = REPLY_MAX - "cmd=get_result rc=0 value=\n".len();

/// A reply under construction. `rc` always comes right after the name, and
/// free text only by [`Reply::last`].
#[derive(Debug)]
pub(crate) struct Reply(Vec<u8>);

impl Reply {
    pub(crate) fn ok(name: &str) -> Self {
        Self::rc(name, 0)
    }

    /// A failure; `reason` must be one word.
    pub(crate) fn fail(name: &str, rc: i32, reason: &str) -> Vec<u8> {
        debug_assert!(!reason.contains([' ', '=']), "{reason}");
        Self::rc(name, rc).word("msg", reason.as_bytes()).line()
    }

    pub(crate) fn rc(name: &str, rc: i32) -> Self {
        Self(format!("cmd={name} rc={rc}").into_bytes())
    }

    /// A line without `rc`: only the handshake has such ones.
    pub(crate) fn bare(name: &str) -> Self {
        Self(format!("cmd={name}").into_bytes())
    }

    pub(crate) fn num(mut self, key: &str, value: i64) -> Self {
        // Writing to a Vec cannot fail.
        let _ = write!(self.0, " {key}={value}");
        self
    }

    pub(crate) fn word(mut self, key: &str, value: &[u8]) -> Self {
        let _ = write!(self.0, " {key}=");
        self.0.extend_from_slice(value);
        self
    }

    /// The value that ends the line; nothing may follow it.
    pub(crate) fn last(self, key: &str, value: &[u8]) -> Vec<u8> {
        self.word(key, value).line()
    }

    pub(crate) fn line(mut self) -> Vec<u8> {
        self.0.push(b'\n');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(Reply::ok("barrier_out").line(), b"cmd=barrier_out rc=0\n");
        assert_eq!(
            Reply::ok("get_result").last("value", b"a b"),
            b"cmd=get_result rc=0 value=a b\n"
        );
        assert_eq!(
            Reply::fail("get_result", 4, "no_such_key"),
            b"cmd=get_result rc=4 msg=no_such_key\n"
        );
        assert_eq!(
            Reply::bare("set").num("size", 4).line(),
            b"cmd=set size=4\n"
        );
    }

    #[test]
    fn the_longest_value_that_fits() {
        let line = Reply::ok("get_result").last("value", &[b'x'; VALUE_FITS]);
        assert_eq!(line.len(), REPLY_MAX);
    }
}
