//! The BLAKE3 digest of contents in which holes count as zeros.

use crate::bcast::item::Digest;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A digest in the making.
#[derive(Default)]
pub(super) struct Hasher(blake3::Hasher);

impl Hasher {
    /// Adds bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds `len` zeros.
    pub(super) fn update_zeros(&mut self, mut len: u64) {
        while len > 0 {
            let step = usize::try_from(len).unwrap_or(usize::MAX).min(ZEROS.len());
            self.0.update(&ZEROS[..step]);
            len -= step as u64;
        }
    }

    /// The digest of what was added.
    pub(super) fn finish(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_count_as_zeros() {
        for len in [0usize, 1, 65_535, 65_536, 200_001] {
            let mut whole = Hasher::default();
            whole.update(&vec![0; len]);
            let mut hole = Hasher::default();
            hole.update_zeros(len as u64);
            assert_eq!(whole.finish(), hole.finish(), "{len}");
        }
    }
}
