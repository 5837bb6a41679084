//! Time as a driver lives it.
//!
//! A process that was stopped, or had no processor for long, finds the answers of
//! its peers and its own timers due in the same moment, and which it sees first is
//! chance. By the clock on the wall all peers would have been silent. So the time
//! in which this process could not have listened does not count.

use std::time::Duration;
use std::time::Instant;

use crate::bcast::relay::Millis;
use crate::bcast::relay::Relay;

/// Time between two looks that counts in full; ticks make one look in half of it.
const LONGEST: Duration = Relay::TICK.saturating_mul(2);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Clock {
    last: Instant,
    lived: Duration,
}

impl Clock {
    /// It begins at 0.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: now,
            lived: Duration::ZERO,
        }
    }

    /// The time lived so far.
    pub(super) fn look(&mut self, now: Instant) -> Millis {
        let since = now.saturating_duration_since(self.last);
        self.last = now;
        self.lived = self.lived.saturating_add(since.min(LONGEST));
        u64::try_from(self.lived.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_while_somebody_looks() {
        let start = Instant::now();
        let mut clock = Clock::new(start);
        for tick in 1..=100 {
            let lived = clock.look(start + Relay::TICK * tick);
            assert_eq!(u128::from(lived), (Relay::TICK * tick).as_millis());
        }
        // Nor does looking often cost anything.
        let late = start + Relay::TICK * 100;
        for micros in 1..=2000 {
            clock.look(late + Duration::from_micros(micros));
        }
        let lived = clock.look(late + Duration::from_millis(2));
        assert_eq!(u128::from(lived), (Relay::TICK * 100).as_millis() + 2);
    }

    #[test]
    fn what_nobody_could_hear_does_not_count() {
        let start = Instant::now();
        let mut clock = Clock::new(start);
        let before = clock.look(start + Relay::TICK);
        let after = clock.look(start + Duration::from_secs(3600));
        assert_eq!(u128::from(after - before), LONGEST.as_millis());
        assert_eq!(clock.look(start), after, "it never goes back");
    }
}
