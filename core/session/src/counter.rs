//! [`RequestCounter`] and [`AnswerCounter`]: counters of messages, which are their nonces.
//!
//! A request's counter is `time 28 | sequence 36`, from the top. The time is that of the node's clock in units of 2^20
//! nanoseconds, about a millisecond, modulo 2^28 of them, which are 78 hours. The sequence begins with 1. An answer's
//! counter is `thread 10 | count 54`.
//!
//! Invariant: neither gives a counter twice. A counter is not copied, because the copies would.

use yonder_units::Narrow;

/// Nanoseconds in a unit of time, as a power of two.
const UNIT_SHIFT: u32 = 20;
/// Bits of the time in a request's counter.
pub(crate) const TIME_BITS: u32 = 28;
/// Bits of the sequence in a request's counter.
const SEQUENCE_BITS: u32 = 36;
/// The last sequence: two hours at ten million messages in a second.
pub(crate) const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;
/// Bits of the count in an answer's counter.
const COUNT_BITS: u32 = 54;
/// Threads of a node that count answers.
pub const NODE_THREADS_MAX: u16 = 1 << (u64::BITS - COUNT_BITS);

const _: () = assert!(TIME_BITS + SEQUENCE_BITS == u64::BITS);

/// The time in a whole number of units, not reduced.
pub(crate) const fn units(time_ns: u64) -> u64 {
    time_ns >> UNIT_SHIFT
}

/// The two parts of a request's counter: the time, modulo 2^[`TIME_BITS`], and the sequence.
pub(crate) const fn parts(counter: u64) -> (u64, u64) {
    (counter >> SEQUENCE_BITS, counter & SEQUENCE_MAX)
}

/// Counts the requests of a lane, retries too. A lane has one as long as its session lasts, and no process inherits it.
#[derive(Debug, Default)]
pub struct RequestCounter {
    sequence: u64,
}

impl RequestCounter {
    /// The counter of a new lane.
    #[must_use]
    pub const fn new() -> Self {
        Self { sequence: 0 }
    }

    /// The counter of the next message, which is sent at `time_ns` of the node's clock; `None` once all have been used,
    /// and the lane has ended.
    ///
    /// The time is a bound that the node's clock has reached: a node refuses what comes from its future. A sender that
    /// gets no answers lowers it, in case the node's clock has stood still. Times need not grow.
    #[must_use]
    #[inline]
    pub fn next(&mut self, time_ns: u64) -> Option<u64> {
        if self.sequence == SEQUENCE_MAX {
            return None;
        }
        self.sequence += 1;
        // What is above the 28 bits of the time is shifted out.
        Some(units(time_ns) << SEQUENCE_BITS | self.sequence)
    }
}

/// Counts the answers of one thread of a node, whichever lanes they go to.
#[derive(Debug)]
pub struct AnswerCounter {
    next: u64,
}

impl AnswerCounter {
    /// The counter of `thread`. A thread has one as long as the node has its secret.
    ///
    /// # Panics
    /// If `thread` is not below [`NODE_THREADS_MAX`].
    #[must_use]
    pub const fn new(thread: u16) -> Self {
        assert!(thread < NODE_THREADS_MAX);
        Self { next: (thread as u64) << COUNT_BITS }
    }

    /// The counter of the next answer.
    ///
    /// # Panics
    /// After 2^54 answers, which are 57 years at ten million in a second.
    #[must_use]
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        let counter = self.next;
        assert!(counter.trailing_ones() < COUNT_BITS, "a thread has counted all its answers");
        self.next += 1;
        counter
    }

    /// The thread that counts.
    #[must_use]
    pub fn thread(&self) -> u16 {
        (self.next >> COUNT_BITS).narrow_u16()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_time_and_sequence() {
        let mut counter = RequestCounter::new();
        assert_eq!(counter.next(0), Some(1));
        assert_eq!(counter.next((1 << 20) - 1), Some(2));
        assert_eq!(counter.next(1 << 20), Some(1 << 36 | 3));
        assert_eq!(counter.next(0), Some(4));
        assert_eq!(counter.next(u64::MAX), Some(((1 << 28) - 1) << 36 | 5));
        assert_eq!(counter.next(1 << 48), Some(6));
        assert_eq!(parts(3 << 36 | 9), (3, 9));
    }

    #[test]
    fn a_lane_ends_with_its_last_sequence() {
        let mut counter = RequestCounter { sequence: SEQUENCE_MAX - 1 };
        assert_eq!(counter.next(0), Some(SEQUENCE_MAX));
        assert_eq!((counter.next(0), counter.next(1 << 20)), (None, None));
    }

    #[test]
    fn threads_count_apart() {
        let mut last = AnswerCounter::new(NODE_THREADS_MAX - 1);
        assert_eq!((last.next(), last.next()), (1023 << 54, 1023 << 54 | 1));
        assert_eq!(last.thread(), 1023);
        assert_eq!(AnswerCounter::new(0).next(), 0);
    }

    #[test]
    #[should_panic(expected = "a thread has counted all its answers")]
    fn a_thread_does_not_count_into_the_next() {
        let mut counter = AnswerCounter { next: (1 << 54) - 1 };
        let _ = counter.next();
    }
}
