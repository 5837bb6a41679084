//! A limit on bytes per second, for whoever reads the data of a transfer: what
//! others notice of it is then bounded whatever its size.

use std::time::Duration;

/// Says how long each message has to wait so that they keep to a rate.
///
/// A message goes when the time that those before it take at the rate is over,
/// so in any span of time no more goes than the rate allows, what
/// [`Pacer::SLACK`] allows, and one message. It has no clock.
#[derive(Debug)]
pub struct Pacer {
    /// Bytes per second.
    rate: u64,
    /// When all that has gone is paid for.
    paid: Duration,
}

impl Pacer {
    /// So much time that was not used is made up for at once: without it, each
    /// wait that ends late would lower the rate for good.
    pub const SLACK: Duration = Duration::from_millis(100);

    /// One that allows so many bytes per second, from time 0 on; 0 counts as 1.
    pub fn new(rate: u64) -> Self {
        Self {
            rate: rate.max(1),
            paid: Duration::ZERO,
        }
    }

    /// Most bytes of a message that keeps the flow even: those of 100 ms.
    pub fn share(rate: u64) -> u64 {
        rate / 10
    }

    /// How long the next message, of so many bytes, has to wait at the time
    /// `now`. It counts as sent then.
    pub fn pass(&mut self, now: Duration, bytes: u64) -> Duration {
        let from = self.paid.max(now.saturating_sub(Self::SLACK));
        self.paid = from.saturating_add(self.cost(bytes));
        from.saturating_sub(now)
    }

    /// The time that so many bytes take, rounded up: the rate is never exceeded.
    fn cost(&self, bytes: u64) -> Duration {
        const NANOS: u128 = 1_000_000_000;
        let nanos = (u128::from(bytes) * NANOS).div_ceil(u128::from(self.rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_message_waits_for_those_before_it() {
        let mut pacer = Pacer::new(1000);
        assert_eq!(pacer.pass(Duration::ZERO, 500), Duration::ZERO);
        assert_eq!(pacer.pass(Duration::ZERO, 2000), SECOND / 2);
        assert_eq!(pacer.pass(SECOND, 1), SECOND * 3 / 2);
    }

    #[test]
    fn a_wait_that_ends_late_is_made_up_for() {
        let mut pacer = Pacer::new(100_000);
        let mut now = Duration::ZERO;
        for _ in 0..1000 {
            now += pacer.pass(now, 1000) + Duration::from_millis(7);
        }
        // 999 of them at 10 ms each, and the last one late.
        assert_eq!(now, Duration::from_millis(9997));
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut pacer = Pacer::new(1000);
        let hour = SECOND * 3600;
        // What 100 ms allow, and one message.
        assert_eq!(pacer.pass(hour, 100), Duration::ZERO);
        assert_eq!(pacer.pass(hour, 1000), Duration::ZERO);
        assert_eq!(pacer.pass(hour, 1), SECOND);
    }

    #[test]
    fn rates_and_messages_at_their_limits() {
        for rate in [0, 1, u64::MAX] {
            let mut pacer = Pacer::new(rate);
            assert_eq!(pacer.pass(Duration::ZERO, u64::MAX), Duration::ZERO);
            assert!(pacer.pass(SECOND, u64::MAX) <= Duration::from_nanos(u64::MAX));
            pacer.pass(Duration::MAX, u64::MAX);
        }
        // Less than a nanosecond each is not nothing.
        let mut pacer = Pacer::new(u64::MAX);
        pacer.pass(Duration::ZERO, 1);
        assert_eq!(pacer.pass(Duration::ZERO, 1), Duration::from_nanos(1));
    }

    proptest! {
        /// Whoever comes when, in no span of time does more go than is allowed.
        #[test]
        fn the_rate_holds_over_any_time(
            rate in 1u64..1_000_000,
            messages in proptest::collection::vec((0u64..200_000_000, 1u64..100_000), 1..50),
        ) {
            let mut pacer = Pacer::new(rate);
            let mut now = Duration::ZERO;
            let mut sent = Vec::new();
            for (idle, bytes) in messages {
                now += Duration::from_nanos(idle);
                now += pacer.pass(now, bytes);
                sent.push((now, bytes));
            }
            for first in 0..sent.len() {
                let mut sum = 0;
                for &(then, bytes) in &sent[first..] {
                    let span = then - sent[first].0 + Pacer::SLACK;
                    let most = span.as_secs_f64() * rate as f64;
                    prop_assert!(sum as f64 <= most + 1., "{sum} bytes in {span:?}");
                    sum += bytes;
                }
            }
        }
    }
}
