//! What a loading thread is to do: which requests, and when each should start. Pure and seeded.

use std::iter::Peekable;
use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_units::Nanos;

use crate::arrivals::PoissonArrivals;
use crate::keys::KeyChooser;
use crate::protocol::Op;
use crate::settings::{LoadSettings, Mix, Rate};

/// When requests start.
pub(crate) enum Pace {
    /// Closed loop: whenever one of the connections is `with_room`.
    Closed,
    /// Open loop: at these times, whatever the server does.
    Open(Peekable<PoissonArrivals>),
}

impl Pace {
    /// The pace of one of `threads` threads that together reach `rate`, from time 0 on.
    pub(crate) fn new(rate: Rate, threads: usize, seed: u64) -> Self {
        match rate {
            Rate::Max => Self::Closed,
            Rate::PerSecond(rate) => Self::Open(PoissonArrivals::new(rate / threads as f64, 0, seed).peekable()),
        }
    }

    /// The intended start of a request that is due at `now` and before `deadline`, if there is one. A closed loop's
    /// request is due at `now` itself, whenever one of the connections is `with_room`.
    pub(crate) fn next_due(&mut self, now: Nanos, deadline: Nanos, with_room: usize) -> Option<Nanos> {
        match self {
            Self::Closed => (with_room > 0 && now < deadline).then_some(now),
            Self::Open(arrivals) => arrivals.next_if(|arrival| *arrival <= now && *arrival < deadline),
        }
    }

    /// When the next request should start; none in a closed loop, which waits for replies alone.
    pub(crate) fn next_arrival(&mut self) -> Option<Nanos> {
        match self {
            Self::Closed => None,
            Self::Open(arrivals) => arrivals.peek().copied(),
        }
    }
}

/// Which requests are made.
pub(crate) enum Work {
    /// A set of each of these keys, once.
    Fill(Range<u64>),
    /// Gets and sets of chosen keys, without end.
    Mixed { keys: KeyChooser, mix: Mix, rng: SmallRng },
}

impl Work {
    /// The share of thread `thread` in setting all keys.
    pub(crate) fn fill(settings: &LoadSettings, thread: usize) -> Self {
        let (thread, threads) = (thread as u64, settings.threads as u64);
        Self::Fill(settings.keys * thread / threads..settings.keys * (thread + 1) / threads)
    }

    /// Requests as `settings` mix them.
    pub(crate) fn mixed(settings: &LoadSettings, seed: u64) -> Self {
        let keys = KeyChooser::new(settings.keys, settings.dist, seed);
        Self::Mixed { keys, mix: settings.mix, rng: SmallRng::seed_from_u64(!seed) }
    }

    /// Whether it ends by itself.
    pub(crate) fn is_finite(&self) -> bool {
        matches!(self, Self::Fill(_))
    }

    /// The next request; none when the work is done.
    pub(crate) fn next(&mut self) -> Option<(Op, u64)> {
        match self {
            Self::Fill(keys) => keys.next().map(|key| (Op::Set, key)),
            Self::Mixed { keys, mix, rng } => {
                let op = if rng.random_range(0..100) < mix.get_percent() { Op::Get } else { Op::Set };
                Some((op, keys.next_key()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_fill_every_key_once() {
        let settings = LoadSettings { keys: 1001, threads: 3, ..LoadSettings::new("") };
        let mut keys = Vec::new();
        for thread in 0..3 {
            let mut work = Work::fill(&settings, thread);
            while let Some((op, key)) = work.next() {
                assert_eq!(op, Op::Set);
                keys.push(key);
            }
        }
        assert_eq!(keys, (0..1001).collect::<Vec<u64>>());
    }

    #[test]
    fn requests_are_mixed_as_told() {
        let settings = LoadSettings { mix: Mix::gets(95), ..LoadSettings::new("") };
        let mut work = Work::mixed(&settings, 3);
        let sets = (0..100_000).filter(|_| work.next().unwrap().0 == Op::Set).count();
        assert!((4_700..5_300).contains(&sets), "{sets} sets");
    }
}
