//! The one source of chance: everything in a run follows from one number.

/// SplitMix64: small, fast, the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number within 0 and `most`, both included.
    pub(crate) fn upto(&mut self, most: u64) -> u64 {
        match most.checked_add(1) {
            Some(count) => self.next() % count,
            None => self.next(),
        }
    }

    /// A number within `least` and `most`, both included.
    pub(crate) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.upto(most - least)
    }

    /// As [`Rng::within`], small numbers as likely as large ones.
    pub(crate) fn scale(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = (least.max(1).ilog2(), most.max(1).ilog2());
        let bits = self.within(low.into(), high.into());
        self.within(1 << bits, (2 << bits) - 1).clamp(least, most)
    }

    /// True with so many chances in a hundred.
    pub(crate) fn percent(&mut self, chances: u64) -> bool {
        self.next() % 100 < chances
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.next() % from.len() as u64).unwrap()].clone()
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.next() % len as u64).unwrap()
    }
}
