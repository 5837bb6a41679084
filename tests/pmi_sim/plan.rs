//! What a simulated job looks like, and a seeded source of chance.

/// xorshift64*: small, seeded, good enough to shuffle with.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Ranks of each shell.
    pub(crate) shells: Vec<u32>,
    pub(crate) cyclic: bool,
    pub(crate) lanes: u32,
    pub(crate) k: u32,
    pub(crate) batch: usize,
    pub(crate) rounds: usize,
    pub(crate) value: usize,
    pub(crate) groups: bool,
    /// In percent: how often ranks of odd number start with their last lane.
    pub(crate) opposite: usize,
}

impl Plan {
    pub(crate) fn ranks(&self) -> usize {
        self.shells.iter().map(|&n| n as usize).sum()
    }

    pub(crate) fn shell_of_rank(&self) -> Vec<u32> {
        if !self.cyclic {
            return (0u32..)
                .zip(&self.shells)
                .flat_map(|(shell, &n)| (0..n).map(move |_| shell))
                .collect();
        }
        let mut left = self.shells.clone();
        let mut order = Vec::new();
        while order.len() < self.ranks() {
            for (shell, n) in (0u32..).zip(&mut left) {
                if *n > 0 {
                    *n -= 1;
                    order.push(shell);
                }
            }
        }
        order
    }

    /// The value of a rank in a round: random, but known to the checker.
    pub(crate) fn value(&self, lane: u32, round: usize, rank: usize) -> Vec<u8> {
        let mut rng = Rng(self.seed
            ^ (u64::from(lane) << 48)
            ^ ((round as u64) << 24)
            ^ (rank as u64 + 1));
        rng.next();
        let n = 1 + rng.below(self.value);
        (0..n)
            .map(|_| b"0123456789ABCDEFabcdef+/=,.{}[]\" :"[rng.below(34)])
            .collect()
    }

    /// The ranks of the group barrier of a round; same on all ranks.
    pub(crate) fn group(&self, lane: u32, round: usize) -> Vec<usize> {
        let mut rng = Rng(self
            .seed
            .wrapping_add(1 + round as u64 * 64 + u64::from(lane)));
        rng.next();
        (0..self.ranks()).filter(|_| rng.below(2) == 0).collect()
    }
}

pub(crate) fn plan(seed: u64) -> Plan {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    rng.next();
    let shells = 1 + rng.below(9);
    Plan {
        seed: rng.next(),
        shells: (0..shells).map(|_| 1 + rng.below(3) as u32).collect(),
        cyclic: rng.below(2) == 0,
        lanes: 1 + rng.below(3) as u32,
        k: [1, 2, 3, 16][rng.below(4)],
        batch: [64, 500, 4096, 96 * 1024][rng.below(4)],
        rounds: 1 + rng.below(8),
        value: [1, 30, 300, 1000][rng.below(4)],
        groups: rng.below(3) == 0,
        opposite: 50,
    }
}
