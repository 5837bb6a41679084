//! Cuts a byte stream into lines while holding no more than a bounded amount.

/// The longest line accepted, newline included, in bytes. The longest legal
/// put is about 1.2 KiB; the list of a group barrier can be longer.
pub const LINE_MAX: usize = 8192;

/// What may wait behind a request that is not answered yet, in bytes.
const BACKLOG_MAX: usize = 4 * LINE_MAX;

/// The peer sent more than a line, or a queue of lines, may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line longer than {LINE_MAX} bytes")]
pub struct TooLong;

/// The lines of one connection.
#[derive(Debug, Default)]
pub struct Lines {
    buf: Vec<u8>,
    /// Where the next line starts in `buf`.
    start: usize,
    /// Up to where `buf` is known to hold no newline.
    scanned: usize,
}

impl Lines {
    /// Takes in bytes as they came from the peer.
    ///
    /// # Errors
    ///
    /// [`TooLong`] when the bytes would exceed what may be held; nothing is
    /// kept of them then and the connection should be closed.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.start > 0 {
            self.buf.drain(..self.start);
            self.scanned = self.scanned.saturating_sub(self.start);
            self.start = 0;
        }
        if self.buf.len() + bytes.len() > BACKLOG_MAX {
            return Err(TooLong);
        }
        self.buf.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole line without its newline.
    ///
    /// # Errors
    ///
    /// [`TooLong`] as soon as the line is known to exceed [`LINE_MAX`].
    pub fn pop(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let from = self.scanned.max(self.start);
        let Some(rest) = self.buf.get(from..) else {
            return Ok(None);
        };
        match rest.iter().position(|&b| b == b'\n') {
            Some(at) => {
                let end = from + at;
                if end + 1 - self.start > LINE_MAX {
                    return Err(TooLong);
                }
                let line = self.buf[self.start..end].to_vec();
                self.start = end + 1;
                self.scanned = self.start;
                Ok(Some(line))
            }
            None => {
                self.scanned = self.buf.len();
                if self.scanned - self.start >= LINE_MAX {
                    return Err(TooLong);
                }
                Ok(None)
            }
        }
    }

    /// Whether bytes are held that no line has used up.
    #[must_use]
    pub fn held_back(&self) -> bool {
        self.start < self.buf.len()
    }

    /// How many bytes are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buf.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(lines: &mut Lines) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| lines.pop().unwrap()).collect()
    }

    #[test]
    fn the_longest_line_passes_and_one_byte_more_does_not() {
        let mut line = vec![b'x'; LINE_MAX - 1];
        line.push(b'\n');
        let mut lines = Lines::default();
        lines.push(&line).unwrap();
        assert_eq!(drain(&mut lines)[0].len(), LINE_MAX - 1);

        line.insert(0, b'x');
        let mut lines = Lines::default();
        lines.push(&line).unwrap();
        assert_eq!(lines.pop(), Err(TooLong));

        let mut lines = Lines::default();
        lines.push(&vec![b'x'; LINE_MAX]).unwrap();
        assert_eq!(lines.pop(), Err(TooLong), "known before the newline comes");
    }

    #[test]
    fn a_flood_is_refused_not_stored() {
        let mut lines = Lines::default();
        while lines.push(&[b'\n'; 1000]).is_ok() {}
        assert!(lines.held() <= BACKLOG_MAX);
    }

    proptest! {
        #[test]
        fn cutting_does_not_depend_on_how_bytes_arrive(
            want in prop::collection::vec("[ -~]{0,30}", 0..30),
            cuts in prop::collection::vec(1usize..9, 1..40),
        ) {
            let stream: Vec<u8> = want.iter().flat_map(|l| format!("{l}\n").into_bytes()).collect();
            let mut lines = Lines::default();
            let mut got = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                lines.push(now).unwrap();
                got.extend(drain(&mut lines));
                rest = later;
            }
            let want: Vec<Vec<u8>> = want.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(got, want);
        }
    }
}
