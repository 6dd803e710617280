//! [`RoundTrip`]: how long an answer takes, smoothed as TCP does it (RFC 6298), and how long to wait for one.

use yonder_units::Nanos;

/// Shortest time to wait for an answer of the slow or the extend path, in shortest times for one of a data thread.
const SLOW_TIMEOUTS: Nanos = 10;
/// The most times that the waiting time is doubled; the longest wait is reached before.
const DOUBLINGS_MAX: u32 = 20;

/// Estimates of the round trip and its variation.
#[derive(Debug)]
pub(crate) struct RoundTrip {
    smoothed: Option<Nanos>,
    variation: Nanos,
    timeout_min: Nanos,
    timeout_max: Nanos,
}

impl RoundTrip {
    pub(crate) fn new(timeout_min: Nanos, timeout_max: Nanos) -> Self {
        Self { smoothed: None, variation: 0, timeout_min, timeout_max }
    }

    /// Takes the time between an attempt and its own answer. More than the longest wait says nothing of the network: a
    /// clock has leapt, or the peer was stopped. Believed, it would pace a small window for minutes.
    #[inline]
    pub(crate) fn sample(&mut self, rtt: Nanos) {
        let rtt = rtt.min(self.timeout_max);
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(rtt), rtt / 2),
            Some(smoothed) => {
                self.variation = self.variation - self.variation / 4 + smoothed.abs_diff(rtt) / 4;
                self.smoothed = Some(smoothed - smoothed / 8 + rtt / 8);
            }
        }
    }

    /// The smoothed round trip; `None` before the first sample.
    pub(crate) fn smoothed(&self) -> Option<Nanos> {
        self.smoothed
    }

    /// The round trip to reckon with: smoothed, or a guess before the first sample.
    #[inline]
    pub(crate) fn expected(&self) -> Nanos {
        self.smoothed.unwrap_or(self.timeout_min).max(1)
    }

    /// How long to wait for the answer to an attempt before which `failed` others went unanswered.
    #[inline]
    pub(crate) fn timeout(&self, failed: u32) -> Nanos {
        let once = self.smoothed.map_or(self.timeout_min, |smoothed| smoothed.saturating_add(4 * self.variation));
        self.doubled(once.max(self.timeout_min), failed)
    }

    /// The same for requests that no data thread executes: they take as long as what they ask for, and not a round
    /// trip.
    pub(crate) fn slow_timeout(&self, failed: u32) -> Nanos {
        self.doubled(self.timeout(0).max(SLOW_TIMEOUTS * self.timeout_min), failed)
    }

    /// How long to leave a node alone that was busy `refusals` times.
    pub(crate) fn back_off(&self, refusals: u32) -> Nanos {
        self.doubled(self.expected(), refusals.saturating_sub(1))
    }

    fn doubled(&self, nanos: Nanos, times: u32) -> Nanos {
        nanos.saturating_mul(1 << times.min(DOUBLINGS_MAX)).min(self.timeout_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_round_trip_within_its_limits() {
        let mut round_trip = RoundTrip::new(100, 10_000);
        assert_eq!((round_trip.timeout(0), round_trip.timeout(3)), (100, 800));
        round_trip.sample(1000);
        assert_eq!((round_trip.smoothed(), round_trip.timeout(0)), (Some(1000), 3000));
        assert_eq!((round_trip.timeout(1), round_trip.timeout(2), round_trip.timeout(60)), (6000, 10_000, 10_000));
        (0..100).for_each(|_| round_trip.sample(10));
        assert_eq!(round_trip.timeout(0), 100);
    }

    #[test]
    fn a_leap_of_the_clock_is_no_round_trip() {
        let mut round_trip = RoundTrip::new(100, 10_000);
        round_trip.sample(50);
        round_trip.sample(1 << 60);
        assert!(round_trip.expected() < 10_000, "{}", round_trip.expected());
    }

    #[test]
    fn back_off_doubles_from_one_round_trip() {
        let mut round_trip = RoundTrip::new(100, 10_000);
        round_trip.sample(50);
        assert_eq!([1, 2, 3, 30].map(|refusals| round_trip.back_off(refusals)), [50, 100, 200, 10_000]);
    }
}
