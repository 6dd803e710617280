//! [`Delay`]: how long an answer is waited for before another place is asked too; [`Budget`]: how often that is done.
//!
//! The delay follows the times of answers: a few times what all but one in a hundred take. Times are counted in buckets
//! whose widths grow with them, and old ones are forgotten by halves. It is of one node; `pace` has that of several. An
//! answer that was cancelled because the hedge was faster counts with the time that it was waited for, or else a slow
//! node would never be noticed as such.
//!
//! The budget keeps hedges a small part of all reads even where a node is slow throughout: each read earns a part of
//! one (the tail at scale, Dean and Barroso, section on hedged requests).
//!
//! Both belong to one queue pair. Nothing is allocated.

use yonder_units::Nanos;

/// The shortest and the longest delay.
pub const DELAY_MIN: Nanos = 200_000;
/// See [`DELAY_MIN`].
pub const DELAY_MAX: Nanos = 8_000_000;
/// An answer that is later than this is asked for elsewhere, whatever the budget: its node may stand still, and is not
/// suspect yet.
pub const PATIENCE: Nanos = 20_000_000;
const _: () = assert!(DELAY_MIN < DELAY_MAX && DELAY_MAX < PATIENCE);

/// How many times the usual longest answer is waited for.
const FACTOR: Nanos = 3;
/// Of so many answers one may be longer than the usual longest.
const ONE_OF: u32 = 100;
/// After so many answers the delay is reckoned anew.
const RECKONED_EACH: u32 = 64;
/// After so many answers each counts half.
const HALVED_EACH: u32 = 4096;
/// Each power of two has so many buckets.
const PER_OCTAVE: usize = 4;
const OCTAVES: usize = 40;
const BUCKETS: usize = PER_OCTAVE * OCTAVES;

/// Of all reads, one in so many may be hedged.
pub const READS_PER_HEDGE: u32 = 20;
/// Hedges that can be saved up.
pub const HEDGES_SAVED_MAX: u32 = 16;

/// How long an answer is waited for.
#[derive(Clone, Debug)]
pub struct Delay {
    counts: [u32; BUCKETS],
    total: u32,
    since_reckoned: u32,
    since_halved: u32,
    /// None, until enough answers were seen.
    delay: Option<Nanos>,
}

/// How many hedges may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// In parts of a hedge, of which there are as many as reads to a hedge.
    saved: u32,
}

impl Default for Delay {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0, since_reckoned: 0, since_halved: 0, delay: None }
    }
}

impl Delay {
    /// How long to wait now; none until enough answers were seen.
    #[must_use]
    pub const fn get(&self) -> Option<Nanos> {
        self.delay
    }

    /// An answer took so long, or was waited for for so long.
    pub fn took(&mut self, span: Nanos) {
        self.counts[bucket(span)] += 1;
        self.total += 1;
        self.since_reckoned += 1;
        self.since_halved += 1;
        if self.since_reckoned >= RECKONED_EACH {
            self.since_reckoned = 0;
            self.delay = Some(self.usual_longest().saturating_mul(FACTOR).clamp(DELAY_MIN, DELAY_MAX));
        }
        if self.since_halved >= HALVED_EACH {
            self.since_halved = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
    }

    /// What all but one in a hundred answers take at most.
    fn usual_longest(&self) -> Nanos {
        let mut beyond = self.total / ONE_OF;
        for (bucket, count) in self.counts.iter().enumerate().rev() {
            if *count > beyond {
                return longest_of(bucket);
            }
            beyond -= count;
        }
        0
    }
}

/// The bucket of a time: by its highest bit and the two behind it.
fn bucket(span: Nanos) -> usize {
    let span = span.max(PER_OCTAVE as u64);
    let octave = span.ilog2();
    let part = span >> (octave - PER_OCTAVE.ilog2()) & (PER_OCTAVE as u64 - 1);
    let bucket = (octave - PER_OCTAVE.ilog2()) as usize * PER_OCTAVE + usize::try_from(part).unwrap_or(0);
    bucket.min(BUCKETS - 1)
}

/// The longest time of a bucket.
fn longest_of(bucket: usize) -> Nanos {
    let (octave, part) = (bucket / PER_OCTAVE, (bucket % PER_OCTAVE) as u64);
    ((PER_OCTAVE as u64 + part + 1) << octave) - 1
}

impl Default for Budget {
    fn default() -> Self {
        Self::full()
    }
}

impl Budget {
    const SAVED_MAX: u32 = HEDGES_SAVED_MAX * READS_PER_HEDGE;

    /// With as many hedges as can be saved up.
    #[must_use]
    pub const fn full() -> Self {
        Self { saved: Self::SAVED_MAX }
    }

    /// Without any.
    #[must_use]
    pub const fn empty() -> Self {
        Self { saved: 0 }
    }

    /// A read was begun.
    pub fn earn(&mut self) {
        self.saved = (self.saved + 1).min(Self::SAVED_MAX);
    }

    /// A hedge is wanted. Whether it may be sent; it is paid then.
    pub fn take(&mut self) -> bool {
        let rest = self.saved.checked_sub(READS_PER_HEDGE);
        self.saved = rest.unwrap_or(self.saved);
        rest.is_some()
    }

    /// A hedge that was paid was not sent.
    pub fn give_back(&mut self) {
        self.saved = (self.saved + READS_PER_HEDGE).min(Self::SAVED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: Nanos = 1_000;

    #[test]
    fn the_delay_is_a_few_times_what_answers_take() {
        let mut delay = Delay::default();
        assert_eq!(delay.get(), None);
        (0..64).for_each(|_| delay.took(5 * US));
        assert_eq!(delay.get(), Some(DELAY_MIN));
        (0..10_000).for_each(|_| delay.took(400 * US));
        let got = delay.get().unwrap();
        assert!((1_200 * US..1_600 * US).contains(&got), "{got}");
        (0..10_000).for_each(|_| delay.took(2_000 * US));
        assert!((6_000 * US..8_000 * US).contains(&delay.get().unwrap()), "{delay:?}");
        (0..10_000).for_each(|_| delay.took(100_000 * US));
        assert_eq!(delay.get(), Some(DELAY_MAX));
    }

    #[test]
    fn one_late_answer_of_many_changes_nothing_and_a_slow_time_is_forgotten() {
        let mut delay = Delay::default();
        for index in 0..50_000 {
            delay.took(if index % 200 == 0 { 40_000 * US } else { 100 * US });
        }
        assert!((300 * US..400 * US).contains(&delay.get().unwrap()), "{delay:?}");
        (0..2_000).for_each(|_| delay.took(5_000 * US));
        assert_eq!(delay.get(), Some(DELAY_MAX));
        (0..60_000).for_each(|_| delay.took(100 * US));
        assert!((300 * US..400 * US).contains(&delay.get().unwrap()), "{delay:?}");
    }

    #[test]
    fn hedges_are_a_small_part_of_reads() {
        let mut budget = Budget::full();
        // What is earned while all is saved is lost.
        let sent = (0..=10_000).filter(|_| (budget.earn(), budget.take()).1).count();
        assert_eq!(sent, 10_000 / READS_PER_HEDGE as usize + HEDGES_SAVED_MAX as usize);
        assert!(!budget.take());
        budget.give_back();
        assert!(budget.take() && !Budget::empty().take());
    }

    proptest! {
        #[test]
        fn a_time_is_in_a_bucket_that_is_little_wider(span in 4u64..1 << 40) {
            let longest = longest_of(bucket(span));
            prop_assert!(longest >= span && longest <= span + span / 4, "{span} {longest}");
            prop_assert!(bucket(span + 1) >= bucket(span));
        }

        #[test]
        fn a_delay_is_within_its_bounds(spans in prop::collection::vec(any::<u64>(), 0..300)) {
            let mut delay = Delay::default();
            for span in spans {
                delay.took(span);
                prop_assert!(delay.get().is_none_or(|delay| (DELAY_MIN..=DELAY_MAX).contains(&delay)));
            }
        }
    }
}
