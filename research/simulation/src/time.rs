//! The order of time in a simulation: [`EventQueue`], a queue of events with the simulated clock, and [`Clock`], what
//! one machine makes of it.
//!
//! It knows nothing of what the events mean. Invariant: events come out by time, and those of one time in the order in
//! which they were put in, so a run depends on its seed alone.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use yonder_units::Nanos;

/// Events to come.
#[derive(Debug)]
pub struct EventQueue<E> {
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

impl<E> EventQueue<E> {
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

impl<E> Default for EventQueue<E> {
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

/// One machine's clock: it began somewhere, it runs a little too fast or too slow, and it may stop, leap ahead, or
/// change its pace. It never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it showed at `since`.
    offset: Nanos,
    /// When its pace last changed.
    since: Nanos,
    /// How much too fast it runs, in millionths; more than -1,000,000.
    drift_ppm: i64,
    /// What it shows while it stands still.
    stopped: Option<Nanos>,
}

impl Clock {
    /// A clock that shows `offset` at time 0 and runs too fast by `drift_ppm` millionths, which are more than
    /// -1,000,000.
    #[must_use]
    pub const fn new(offset: Nanos, drift_ppm: i64) -> Self {
        Self { offset, since: 0, drift_ppm, stopped: None }
    }

    /// What it shows at `now`, which is not before its last change.
    #[must_use]
    pub fn read(self, now: Nanos) -> Nanos {
        let passed = i128::from(now.saturating_sub(self.since));
        let drift = passed * i128::from(self.drift_ppm) / 1_000_000;
        self.stopped.unwrap_or(self.offset + u64::try_from(passed + drift).expect("time passes"))
    }

    /// The first time at which it shows `reading` or more, unless it changes; the last of all times while it stands
    /// still.
    #[must_use]
    pub fn when(self, reading: Nanos) -> Nanos {
        if self.stopped.is_some() {
            return Nanos::MAX;
        }
        let passed = i128::from(reading.saturating_sub(self.offset));
        let undrifted = passed * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm));
        let mut now = u64::try_from(undrifted).unwrap_or(Nanos::MAX);
        now = self.since.saturating_add(now).saturating_sub(2);
        while self.read(now) < reading {
            now += 1;
        }
        now
    }

    /// It stands still from `now` on.
    pub fn stop(&mut self, now: Nanos) {
        self.stopped = Some(self.read(now));
    }

    /// It goes on at `now` from where it stopped, if it did.
    pub fn go_on(&mut self, now: Nanos) {
        self.rebase(now);
        self.stopped = None;
    }

    /// It shows `ahead` more from `now` on.
    pub fn leap(&mut self, now: Nanos, ahead: Nanos) {
        self.rebase(now);
        self.offset += ahead;
        self.stopped = self.stopped.map(|reading| reading + ahead);
    }

    /// It runs too fast by `drift_ppm` millionths from `now` on.
    pub fn drift(&mut self, now: Nanos, drift_ppm: i64) {
        self.rebase(now);
        self.drift_ppm = drift_ppm;
    }

    fn rebase(&mut self, now: Nanos) {
        (self.offset, self.since) = (self.read(now), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_order() {
        let mut events = EventQueue::new();
        [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')].into_iter().for_each(|(at, event)| events.at(at, event));
        let order: Vec<_> = std::iter::from_fn(|| events.advance().map(|event| (events.now(), event))).collect();
        assert_eq!(order, [(3, 'b'), (3, 'd'), (5, 'a'), (5, 'c')]);
    }

    #[test]
    fn what_is_late_comes_at_once() {
        let mut events = EventQueue::new();
        events.at(9, 'a');
        assert_eq!(events.advance(), Some('a'));
        events.at(1, 'b');
        events.after(1, 'c');
        assert_eq!((events.advance(), events.now()), (Some('b'), 9));
        assert_eq!((events.advance(), events.now()), (Some('c'), 10));
    }

    #[test]
    fn a_clock_shows_a_reading_first_when_it_says() {
        for drift_ppm in [-400, 0, 1, 399] {
            let clock = Clock::new(77, drift_ppm);
            for reading in [78, 1_000, 123_456_789, 10_000_000_001] {
                let when = clock.when(reading);
                assert!(clock.read(when) >= reading && (when == 0 || clock.read(when - 1) < reading), "{clock:?}");
            }
        }
    }

    #[test]
    fn a_clock_stops_leaps_and_changes_its_pace_without_going_back() {
        let mut clock = Clock::new(1_000, 0);
        clock.stop(500);
        assert_eq!((clock.read(500), clock.read(90_000), clock.when(1_501)), (1_500, 1_500, Nanos::MAX));
        clock.go_on(100_000);
        assert_eq!((clock.read(100_000), clock.read(100_010), clock.when(1_510)), (1_500, 1_510, 100_010));
        clock.leap(100_010, 5_000);
        assert_eq!(clock.read(100_010), 6_510);
        clock.drift(100_010, 20_000);
        assert_eq!((clock.read(100_010), clock.read(101_010), clock.when(7_530)), (6_510, 7_530, 101_010));
    }
}
