//! [`AdaptiveSpin`]: whether a thread that waits for the network asks again or sleeps.
//!
//! Who sleeps is woken tens of microseconds late; who asks again uses its CPU for as long as it waits. Asking pays when
//! what is waited for comes sooner than a wake-up would cost, so a thread learns from its last waits which it is: a
//! client of a node nearby, with one request after the other, stays awake, and so does the node; an idle one sleeps.
//! What a thread may waste is bounded: `longest` for a wait, and only while most waits before it were short.
//!
//! Where others want the CPU as well, asking is worse than sleeping: whoever wakes up goes before those that compute,
//! while who asks is one of them and soon has to wait for milliseconds. A thread that finds itself stopped while it
//! asks sleeps from then on, and for twice as many waits each time that happens.
//!
//! Neighbours: the data threads of `runtime/node`, the threads of `yonder::clib`.

use std::time::Duration;

use yonder_units::{Nanos, saturating_nanos};

/// How much a wake-up may add to a wait that was slept through and would have been short.
const WAKE_UP: Nanos = 30_000;
/// Confidence of a thread all of whose last waits were short.
const CONFIDENCE_MAX: i32 = 8;
/// From this on a thread asks again.
const CONFIDENCE_TO_ASK: i32 = 4;
/// What a wait that was not short takes; a short one gives 1. So more than two thirds of the waits must be short.
const MISS_PENALTY: i32 = 2;

/// A thread that could not ask for so long had to leave its CPU to one that computes: others that ask give it back
/// sooner.
const STOPPED: Nanos = 1_000_000;
/// For how many waits a thread only sleeps after it was stopped: at first, and at most.
const BACKOFF_MIN: f32 = 32.0;
const BACKOFF_MAX: f32 = 16_384.0;
/// What a short wait takes from that.
const DECAY: f32 = 1.0 / 16.0;
/// When a thread that sleeps has asked: nobody stops it.
const SLEEPS: Nanos = Nanos::MAX;

/// What one thread has learned about its waits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdaptiveSpin {
    longest: Nanos,
    /// Below zero: so many waits are slept through in any case.
    confidence: i32,
    began: Nanos,
    asked: Nanos,
    backoff: f32,
}

impl AdaptiveSpin {
    /// How long threads ask again by default: some two wake-ups.
    pub const LONGEST_DEFAULT: Duration = Duration::from_micros(50);

    /// Of a thread that asks again for so long at most; never, if that is zero. It begins confident.
    #[must_use]
    pub fn new(longest: Duration) -> Self {
        let (longest, confidence, backoff) = (saturating_nanos(longest), CONFIDENCE_MAX, BACKOFF_MIN);
        Self { longest, confidence, began: 0, asked: 0, backoff }
    }

    /// A wait begins at `now`.
    #[inline]
    pub fn begin(&mut self, now: Nanos) {
        (self.began, self.asked) = (now, now);
    }

    /// Whether to ask again at `now`; if not, the thread is about to sleep.
    #[inline]
    pub fn asks_again(&mut self, now: Nanos) -> bool {
        if !self.is_confident() {
            return false;
        }
        if now.saturating_sub(self.asked) > STOPPED {
            self.back_off();
            return false;
        }
        let asks = now.saturating_sub(self.began) < self.longest;
        self.asked = if asks { now } else { SLEEPS };
        asks
    }

    /// What was waited for has come at `now`.
    #[inline]
    pub fn end(&mut self, now: Nanos) {
        let is_confident = self.is_confident();
        if is_confident && now.saturating_sub(self.asked) > STOPPED {
            return self.back_off();
        }
        let short = if is_confident { self.longest } else { self.longest.saturating_add(WAKE_UP) };
        if now.saturating_sub(self.began) < short {
            self.confidence = (self.confidence + 1).min(CONFIDENCE_MAX);
            if is_confident {
                self.backoff = (self.backoff - DECAY).max(BACKOFF_MIN);
            }
        } else {
            self.confidence = (self.confidence - MISS_PENALTY).max(self.confidence.min(0));
        }
    }

    /// After the thread was stopped.
    #[expect(clippy::cast_possible_truncation, reason = "it is at most BACKOFF_MAX, and its part does not matter")]
    fn back_off(&mut self) {
        self.confidence = -(self.backoff as i32);
        self.backoff = (2.0 * self.backoff).min(BACKOFF_MAX);
    }

    fn is_confident(&self) -> bool {
        self.confidence >= CONFIDENCE_TO_ASK
    }

    /// Between two attempts: whoever has work for this CPU goes first, such as the node that is waited for.
    #[inline]
    pub fn pause() {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Nanos = 50_000;

    /// Waits until `comes`, in steps of a microsecond, and says how much of it was spent asking.
    fn wait(timeout: &mut AdaptiveSpin, comes: Nanos) -> Nanos {
        timeout.begin(1_000_000);
        let mut asked = 0;
        while asked < comes && timeout.asks_again(1_000_000 + asked) {
            asked += 1000;
        }
        timeout.end(1_000_000 + if asked < comes { comes + 20_000 } else { comes });
        asked
    }

    #[test]
    fn short_waits_are_never_slept_through() {
        let mut timeout = AdaptiveSpin::new(Duration::from_nanos(LONGEST));
        for _ in 0..100 {
            assert_eq!(wait(&mut timeout, 20_000), 20_000);
        }
    }

    #[test]
    fn long_waits_soon_cost_nothing() {
        let mut timeout = AdaptiveSpin::new(Duration::from_nanos(LONGEST));
        let wasted: Nanos = (0..1000).map(|_| wait(&mut timeout, 1_000_000)).sum();
        assert!(wasted <= 3 * LONGEST, "{wasted} ns of asking in vain");
    }

    #[test]
    fn hope_comes_back_when_waits_are_short_again() {
        let mut timeout = AdaptiveSpin::new(Duration::from_nanos(LONGEST));
        for _ in 0..100 {
            wait(&mut timeout, 1_000_000);
        }
        let asked: Vec<_> = (0..6).map(|_| wait(&mut timeout, 20_000)).collect();
        assert_eq!(asked, [0, 0, 0, 0, 20_000, 20_000]);
    }

    #[test]
    fn a_mixture_of_which_half_is_long_wastes_little() {
        let mut timeout = AdaptiveSpin::new(Duration::from_nanos(LONGEST));
        let mut wasted = 0;
        for _ in 0..500 {
            wait(&mut timeout, 10_000);
            wasted += wait(&mut timeout, 1_000_000);
        }
        assert!(wasted <= 10 * LONGEST, "{wasted} ns of asking in vain");
    }

    /// Waits of which every fourth, when it is spent asking, loses its CPU to another thread for 3 ms.
    #[test]
    fn a_thread_that_is_stopped_sleeps_more_and_more() {
        let mut timeout = AdaptiveSpin::new(Duration::from_nanos(LONGEST));
        let mut stops = 0;
        for number in 0..100_000u64 {
            timeout.begin(1_000_000);
            if number % 4 == 0 && timeout.asks_again(1_000_000) {
                stops += 1;
                timeout.end(4_000_000);
            } else {
                timeout.end(1_020_000);
            }
        }
        assert!((5..=20).contains(&stops), "stopped {stops} times");
        // Alone again, it asks again after a while.
        let asked = (0..20_000).position(|_| wait(&mut timeout, 20_000) > 0);
        assert!(asked.is_some());
    }

    #[test]
    fn a_thread_that_sleeps_was_not_stopped() {
        let mut timeout = AdaptiveSpin::new(Duration::from_nanos(LONGEST));
        wait(&mut timeout, 5_000_000);
        assert_eq!(wait(&mut timeout, 20_000), 20_000);
    }

    #[test]
    fn zero_never_asks() {
        let mut timeout = AdaptiveSpin::new(Duration::ZERO);
        assert_eq!(wait(&mut timeout, 1000), 0);
    }
}
