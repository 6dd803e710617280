//! [`HitTimes`]: how long commands took that met no page which had to be fetched.
//!
//! What queueing behind faults costs is seen in these alone, so a benchmark asks for their percentiles (`stats hits`).
//! Counted by the dispatcher thread, which knows of every request that is over whether it had a major fault: a few
//! nanoseconds a command. The server's own requests, which look for expired items, are not among them.

use hdrhistogram::Histogram;
use yonder::sched::Timing;

/// Times beyond this are counted as this: 100 s.
const TIME_MAX_NS: u64 = 100_000_000_000;
/// Decimal digits that are kept of each time.
const DIGITS: u8 = 2;

/// Times from admission to the reply, in nanoseconds, of the commands without a major fault.
#[derive(Clone, Debug)]
pub(super) struct HitTimes {
    histogram: Histogram<u64>,
}

impl Default for HitTimes {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, TIME_MAX_NS, DIGITS).expect("the bounds are constants");
        Self { histogram }
    }
}

impl HitTimes {
    /// Counts a command that is over, if it was a hit.
    pub(super) fn count(&mut self, timing: &Timing) {
        if timing.major_faults == 0 {
            self.histogram.saturating_record(timing.queued_ns + timing.running_ns + timing.waiting_ns);
        }
    }

    /// How many there were.
    pub(super) fn total(&self) -> u64 {
        self.histogram.len()
    }

    /// Times that were met, in nanoseconds to a hundredth, and how often each.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.histogram.iter_recorded().map(|met| (met.value_iterated_to(), met.count_at_value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_a_major_fault_are_left_out() {
        let mut times = HitTimes::default();
        let hit = Timing { queued_ns: 700, running_ns: 200, waiting_ns: 100, ..Timing::default() };
        times.count(&hit);
        times.count(&Timing { minor_faults: 3, ..hit });
        times.count(&Timing { major_faults: 1, ..hit });
        let counts: Vec<_> = times.counts().collect();
        assert_eq!((times.total(), counts.len(), counts[0].1), (2, 1, 2));
        assert!((1000..=1010).contains(&counts[0].0), "{counts:?}");
        times.count(&Timing { queued_ns: u64::MAX / 2, ..hit });
        assert_eq!(times.total(), 3, "what is absurd is the longest time");
    }
}
