//! What a loading thread is to do: which requests, and when each should start. Pure and seeded.

use std::iter::Peekable;
use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_units::Nanos;

use crate::arrivals::PoissonArrivals;
use crate::keys::KeyChooser;
use crate::pipeline::{KEY_OF_INSERT, Op};
use crate::popularity::Popularity;
use crate::settings::{LoadSettings, Mix, Rate};
use crate::workload::{Requests, SCAN_KEYS_MAX, Shares};

/// When requests start.
pub enum Pace {
    /// Closed loop: whenever one of the connections is `with_room`.
    Closed,
    /// Open loop: at these times, whatever the server does.
    Open(Peekable<PoissonArrivals>),
}

impl Pace {
    /// The pace of one of `threads` threads that together reach `rate`, from time 0 on.
    #[must_use]
    pub fn new(rate: Rate, threads: usize, seed: u64) -> Self {
        match rate {
            Rate::Max => Self::Closed,
            Rate::PerSecond(rate) => Self::Open(PoissonArrivals::new(rate / threads as f64, 0, seed).peekable()),
        }
    }

    /// The intended start of a request that is due at `now` and before `deadline`, if there is one. A closed loop's
    /// request is due at `now` itself, whenever one of the connections is `with_room`.
    pub fn next_due(&mut self, now: Nanos, deadline: Nanos, with_room: usize) -> Option<Nanos> {
        match self {
            Self::Closed => (with_room > 0 && now < deadline).then_some(now),
            Self::Open(arrivals) => arrivals.next_if(|arrival| *arrival <= now && *arrival < deadline),
        }
    }

    /// When the next request should start; none in a closed loop, which waits for replies alone.
    #[must_use]
    pub fn next_arrival(&mut self) -> Option<Nanos> {
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
    /// Operations of a workload, without end.
    Workload { shares: Shares, popularity: Popularity, rng: SmallRng },
}

impl Work {
    /// The share of thread `thread` in setting all keys.
    pub(crate) fn fill(settings: &LoadSettings, thread: usize) -> Self {
        let (thread, threads) = (thread as u64, settings.threads as u64);
        Self::Fill(settings.keys * thread / threads..settings.keys * (thread + 1) / threads)
    }

    /// Requests as `settings` ask for them.
    pub(crate) fn endless(settings: &LoadSettings, seed: u64) -> Self {
        let rng = SmallRng::seed_from_u64(!seed);
        match settings.requests {
            Requests::Mixed { dist, mix } => Self::Mixed { keys: KeyChooser::new(settings.keys, dist, seed), mix, rng },
            Requests::Workload(workload) => {
                Self::Workload { shares: workload.shares(), popularity: workload.popularity(settings.keys), rng }
            }
        }
    }

    /// Whether it ends by itself.
    pub(crate) fn is_finite(&self) -> bool {
        matches!(self, Self::Fill(_))
    }

    /// The next request, where `keys` keys may be read; none when the work is done. The key of an insert is not chosen
    /// here.
    pub(crate) fn next(&mut self, keys: u64) -> Option<(Op, u64)> {
        match self {
            Self::Fill(range) => range.next().map(|key| (Op::Set, key)),
            Self::Mixed { keys: chooser, mix, rng } => {
                let op = if rng.random_range(0..100) < mix.get_percent() { Op::Get } else { Op::Set };
                Some((op, chooser.next_key()))
            }
            Self::Workload { shares, popularity, rng } => {
                let op = choose(*shares, rng);
                let key = if op == Op::Insert { KEY_OF_INSERT } else { popularity.choose(keys, rng) };
                Some((within(op, key, keys), key))
            }
        }
    }
}

/// A kind of operation, by its share.
fn choose(shares: Shares, rng: &mut SmallRng) -> Op {
    let mut point = rng.random_range(0..100);
    let scan = Op::Scan { keys: rng.random_range(1..=SCAN_KEYS_MAX) };
    let kinds = [(Op::Get, shares.read), (Op::Set, shares.update), (Op::Insert, shares.insert), (scan, shares.scan)];
    for (op, share) in kinds {
        if point < share {
            return op;
        }
        point -= share;
    }
    Op::ReadModifyWrite
}

/// A scan ends with the last key that may be read.
fn within(op: Op, first: u64, keys: u64) -> Op {
    match op {
        Op::Scan { keys: wanted } => Op::Scan { keys: u64::from(wanted).min(keys - first) as u8 },
        op => op,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::workload::Workload;

    const DRAWS: u64 = 100_000;

    fn workload(workload: Workload, keys: u64, seed: u64) -> Work {
        let settings = LoadSettings { keys, requests: Requests::Workload(workload), ..LoadSettings::new("") };
        Work::endless(&settings, seed)
    }

    /// The name of a kind of operation.
    fn kind(op: Op) -> &'static str {
        match op {
            Op::Get => "read",
            Op::Set => "update",
            Op::Insert => "insert",
            Op::Scan { .. } => "scan",
            Op::ReadModifyWrite => "read-modify-write",
        }
    }

    #[test]
    fn threads_fill_every_key_once() {
        let settings = LoadSettings { keys: 1001, threads: 3, ..LoadSettings::new("") };
        let mut keys = Vec::new();
        for thread in 0..3 {
            let mut work = Work::fill(&settings, thread);
            while let Some((op, key)) = work.next(1001) {
                assert_eq!(op, Op::Set);
                keys.push(key);
            }
        }
        assert_eq!(keys, (0..1001).collect::<Vec<u64>>());
    }

    #[test]
    fn requests_are_mixed_as_told() {
        let mut work = Work::endless(&LoadSettings::new(""), 3);
        let sets = (0..DRAWS).filter(|_| work.next(100_000).unwrap().0 == Op::Set).count();
        assert!((4_700..5_300).contains(&sets), "{sets} sets");
    }

    #[test]
    fn workloads_have_their_shares() {
        for (name, shares) in [
            ("ycsb-a", &[("read", 50), ("update", 50)][..]),
            ("ycsb-b", &[("read", 95), ("update", 5)]),
            ("ycsb-c", &[("read", 100)]),
            ("ycsb-d", &[("read", 95), ("insert", 5)]),
            ("ycsb-e", &[("scan", 95), ("insert", 5)]),
            ("ycsb-f", &[("read", 50), ("read-modify-write", 50)]),
            ("readmost", &[("read", 90), ("insert", 5), ("update", 5)]),
            ("readwrite", &[("read", 50), ("insert", 25), ("update", 25)]),
            ("writemost", &[("read", 10), ("insert", 45), ("update", 45)]),
        ] {
            let mut work = workload(name.parse().unwrap(), 1_000, 5);
            let mut counts: HashMap<&str, u64> = HashMap::new();
            (0..DRAWS).for_each(|_| *counts.entry(kind(work.next(1_000).unwrap().0)).or_default() += 1);
            assert_eq!(counts.len(), shares.len(), "{name}: {counts:?}");
            for (kind, percent) in shares {
                let (seen, expected) = (counts[kind] as f64, (DRAWS * percent / 100) as f64);
                // Five standard deviations of a binomial distribution.
                let tolerance = 5.0 * (expected * (1.0 - *percent as f64 / 100.0)).sqrt();
                assert!((seen - expected).abs() <= tolerance, "{name}: {seen} of {kind}, not {expected}");
            }
        }
    }

    #[test]
    fn operations_repeat_with_the_seed_and_differ_without() {
        for name in Workload::all() {
            let first = |seed| {
                let mut work = workload(name, 1_000, seed);
                // Keys are added meanwhile, as inserts do.
                (0..1_000).map(|number| work.next(1_000 + number / 20).unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(first(7), first(7), "{name}");
            assert_ne!(first(7), first(8), "{name}");
        }
    }

    #[test]
    fn reads_are_of_the_keys_that_are_there_and_the_latest_are_read_most() {
        let mut work = workload(Workload::YcsbD, 100, 1);
        let (mut keys, mut among_the_newest, mut reads) = (100, 0, 0);
        for _ in 0..DRAWS {
            match work.next(keys).unwrap() {
                (Op::Insert, _) => keys += 1,
                (_, key) => {
                    assert!(key < keys);
                    reads += 1;
                    among_the_newest += u64::from(key >= keys - keys / 10);
                }
            }
        }
        // The newest tenth has about three quarters of a zipfian distribution over some thousand keys.
        let share = among_the_newest as f64 / reads as f64;
        assert!((0.65..0.85).contains(&share), "{share} of the reads are of the newest tenth");
    }

    #[test]
    fn scans_are_of_one_to_a_hundred_keys_that_are_there() {
        let mut work = workload(Workload::YcsbE, 1_000, 1);
        let (mut lengths, mut scans) = (HashMap::new(), 0_u64);
        for _ in 0..DRAWS {
            let (op, first) = work.next(1_000).unwrap();
            let Op::Scan { keys } = op else { continue };
            assert!(keys >= 1 && first + u64::from(keys) <= 1_000);
            // Those that begin near the end are cut off there.
            if first + u64::from(SCAN_KEYS_MAX) <= 1_000 {
                *lengths.entry(keys).or_default() += 1;
                scans += 1;
            }
        }
        assert_eq!(lengths.len(), 100);
        let expected = scans as f64 / 100.0;
        let chi: f64 = lengths.values().map(|count: &u64| (*count as f64 - expected).powi(2) / expected).sum();
        // 99 degrees of freedom: mean 99, deviation 14.
        assert!((45.0..170.0).contains(&chi), "chi-square {chi}");
    }
}
