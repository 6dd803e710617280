//! The order of time in a simulation: [`Agenda`], a queue of events with the simulated clock, and [`Clock`], what one machine
//! makes of it.
//!
//! It knows nothing of what the events mean. Invariant: events come out by time, and those of one time in the order in which
//! they were put in, so a run depends on its seed alone.
//!
//! Neighbours: `testing/sim` simulates the protocol with it, `apps/figures` the papers' experiments.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use yonder_units::Nanos;

/// Events to come.
#[derive(Debug)]
pub struct Agenda<E> {
    entries: BinaryHeap<Entry<E>>,
    pushed: u64,
    now: Nanos,
}

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    number: u64,
    event: E,
}

impl<E> Agenda<E> {
    /// Nothing to come, at time 0.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: BinaryHeap::new(), pushed: 0, now: 0 }
    }

    /// The time of the event that came out last.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// `event` is to come `delay` from now.
    pub fn after(&mut self, delay: Nanos, event: E) {
        self.at(self.now + delay, event);
    }

    /// `event` is to come at `at`, or at once if that has passed.
    pub fn at(&mut self, at: Nanos, event: E) {
        self.entries.push(Entry { at: at.max(self.now), number: self.pushed, event });
        self.pushed += 1;
    }

    /// The next event; the clock goes on to its time.
    pub fn advance(&mut self) -> Option<E> {
        let entry = self.entries.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Ord for Entry<E> {
    /// The earliest is the greatest, which is what the heap gives out.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

/// One machine's clock: it began somewhere, and it runs a little too fast or too slow.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it showed at time 0.
    pub offset: Nanos,
    /// How much too fast it runs, in millionths; at least -1,000,000.
    pub drift_ppm: i64,
}

impl Clock {
    /// What it shows at `now`.
    #[must_use]
    pub fn read(self, now: Nanos) -> Nanos {
        let drift = i128::from(now) * i128::from(self.drift_ppm) / 1_000_000;
        self.offset + (i128::from(now) + drift) as u64
    }

    /// The first time at which it shows `reading` or more.
    #[must_use]
    pub fn when(self, reading: Nanos) -> Nanos {
        let passed = i128::from(reading.saturating_sub(self.offset));
        let mut now = (passed * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm))) as u64;
        now = now.saturating_sub(2);
        while self.read(now) < reading {
            now += 1;
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_order() {
        let mut agenda = Agenda::new();
        [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')].into_iter().for_each(|(at, event)| agenda.at(at, event));
        let order: Vec<_> = std::iter::from_fn(|| agenda.advance().map(|event| (agenda.now(), event))).collect();
        assert_eq!(order, [(3, 'b'), (3, 'd'), (5, 'a'), (5, 'c')]);
    }

    #[test]
    fn what_is_late_comes_at_once() {
        let mut agenda = Agenda::new();
        agenda.at(9, 'a');
        assert_eq!(agenda.advance(), Some('a'));
        agenda.at(1, 'b');
        agenda.after(1, 'c');
        assert_eq!((agenda.advance(), agenda.now()), (Some('b'), 9));
        assert_eq!((agenda.advance(), agenda.now()), (Some('c'), 10));
    }

    #[test]
    fn a_clock_shows_a_reading_first_when_it_says() {
        for drift_ppm in [-400, 0, 1, 399] {
            let clock = Clock { offset: 77, drift_ppm };
            for reading in [78, 1_000, 123_456_789, 10_000_000_001] {
                let when = clock.when(reading);
                assert!(clock.read(when) >= reading && (when == 0 || clock.read(when - 1) < reading), "{clock:?}");
            }
        }
    }
}
