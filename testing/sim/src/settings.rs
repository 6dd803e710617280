//! [`Settings`]: what a seed decides before anything happens. Swarm testing: each seed turns some faults off and draws
//! its limits from the small end, so that every limit is hit in some run, and each fault is seen alone in some.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use yonder_client::Transport;
use yonder_session::{Admission, Cipher, Protection, RenewalTimes, Rules};
use yonder_units::Nanos;

use crate::faults::Fault;
use crate::network::Weather;
use crate::node::WAITING_MAX;

/// A microsecond.
pub(crate) const MICROSECOND: Nanos = 1_000;
/// A millisecond.
pub(crate) const MILLISECOND: Nanos = 1_000_000;
/// Bytes of a node's pages.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Memory nodes.
    pub(crate) nodes: usize,
    /// Data threads of each node.
    pub(crate) threads: usize,
    /// Physical pages of each node.
    pub(crate) pages: u32,
    /// Zeroed pages that are held ready for first writes.
    pub(crate) ready_pages: usize,
    /// How often they are looked after.
    pub(crate) refill_period: Nanos,
    /// Operations that a data thread remembers.
    pub(crate) recent: usize,
    /// Time that the slow path takes for one request, at most.
    pub(crate) slow_time: Nanos,
    /// Client processes.
    pub(crate) processes: usize,
    /// Lanes of each process to each node.
    pub(crate) lanes: usize,
    /// Operations of each lane in the storm, about.
    pub(crate) operations: u32,
    /// Operations under way on a lane, at most.
    pub(crate) depth: usize,
    /// What lanes are made of: the share of datagrams is 0, some, or all.
    pub(crate) datagrams: f64,
    /// Largest fragment.
    pub(crate) fragment_bytes: usize,
    /// Pages by which clients order operations.
    pub(crate) dependency_page_bytes: u64,
    /// Slots for fragments.
    pub(crate) fragments: usize,
    /// Bytes of answers that a client expects at once.
    pub(crate) incast_bytes: u64,
    /// Shortest and longest retry timer.
    pub(crate) timeouts: (Nanos, Nanos),
    /// Delay at which congestion begins.
    pub(crate) delay_target: Nanos,
    /// What may happen to datagrams, and how long all messages take.
    pub(crate) weather: Weather,
    /// Mean time between two faults of a kind; 0 for never.
    pub(crate) faults: [(Fault, Nanos); Fault::ALL.len()],
    /// Pages of an allocation, at most.
    pub(crate) region_pages: u64,
    /// Pages that a node frees in one piece.
    pub(crate) piece_pages: u32,
    /// Length of leases, in whole milliseconds.
    pub(crate) lease: Nanos,
    /// How nodes know who asks, if they do.
    pub(crate) guard: Option<Guard>,
    /// How an operation is chosen.
    pub(crate) habits: Habits,
}

/// How nodes know who asks: by cookies of datagrams, or by sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    /// What nodes decide.
    pub(crate) rules: Rules,
    /// What clients want done to messages.
    pub(crate) protection: Protection,
    /// When clients make sessions again.
    pub(crate) times: RenewalTimes,
    /// How often they look at whether to.
    pub(crate) renew_period: Nanos,
}

impl Guard {
    /// Of four seeds one has plain messages, one has cookies, and two have sessions. These last for little longer than
    /// it takes to notice.
    pub(crate) fn draw(seed: u64, slow_time: Nanos, rng: &mut SmallRng) -> Option<Self> {
        if seed.is_multiple_of(4) {
            return None;
        }
        let rules = Rules {
            admission: if seed.is_multiple_of(2) { Admission::Plain } else { Admission::Protected },
            cipher: *[Cipher::Aegis128L, Cipher::ChaCha20Poly1305].choose(rng).unwrap_or(&Cipher::Aegis128L),
            tables: rng.random_range(1..=3),
            sets_per_table: *[1, 4, 16].choose(rng).unwrap_or(&16),
            hour: *[4, 8, 20].choose(rng).unwrap_or(&8) * MILLISECOND,
            // Longer than a client that was refused for long waits before it asks again.
            cookie_period: rng.random_range(100..300) * MILLISECOND,
        };
        let protections = [Protection::Encrypted, Protection::Authenticated];
        Some(Self {
            rules,
            protection: *protections.choose(rng).unwrap_or(&Protection::Encrypted),
            times: RenewalTimes {
                // Who waits for the slow path is not silent.
                silent: rng.random_range(1..4) * MILLISECOND + WAITING_MAX as Nanos * slow_time,
                retry: rng.random_range(100..1000) * MICROSECOND,
            },
            renew_period: rng.random_range(100..1000) * MICROSECOND,
        })
    }
}

/// Probabilities of what clients do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// An operation has a deadline that it may miss.
    pub(crate) deadline: f64,
    /// An operation is cancelled.
    pub(crate) cancel: f64,
    /// A fence is set.
    pub(crate) fence: f64,
    /// Something that must be refused is tried.
    pub(crate) mischief: f64,
    /// An allocation is freed, and another made.
    pub(crate) renew: f64,
    /// An allocation is used that was freed, or is being freed.
    pub(crate) dare: f64,
    /// Part of an allocation is discarded.
    pub(crate) discard: f64,
    /// A read or write goes to the same few words as others.
    pub(crate) hot: f64,
    /// An operation waits a while before the next, in place of following at once.
    pub(crate) think: f64,
    /// Address spaces have a lease.
    pub(crate) lease: f64,
}

impl Settings {
    /// What `rng` decides.
    #[must_use]
    pub(crate) fn draw(rng: &mut SmallRng) -> Self {
        let pages = *[8, 16, 32, 64, 128].choose(rng).unwrap_or(&32);
        let slowest = *[30, 100, 1000].choose(rng).unwrap_or(&100);
        let fragment_bytes = *[256, 512, 1024, 4096].choose(rng).unwrap_or(&512);
        Self {
            nodes: rng.random_range(1..=2),
            threads: rng.random_range(1..=3),
            pages,
            ready_pages: rng.random_range(1..=8),
            refill_period: rng.random_range(5..200) * MICROSECOND,
            recent: *[7, 14, 64, 512].choose(rng).unwrap_or(&64),
            slow_time: rng.random_range(1..slowest) * MICROSECOND,
            processes: rng.random_range(1..=3),
            lanes: rng.random_range(1..=2),
            operations: *[10, 40, 100, 200].choose(rng).unwrap_or(&40),
            depth: rng.random_range(1..=12),
            datagrams: *[0.0, 0.7, 1.0, 1.0].choose(rng).unwrap_or(&1.0),
            fragment_bytes,
            dependency_page_bytes: *[512, 4096, 4096, 16384].choose(rng).unwrap_or(&4096),
            fragments: *[2, 4, 16].choose(rng).unwrap_or(&4),
            incast_bytes: *[512, 4096, 65536].choose(rng).unwrap_or(&4096),
            timeouts: (rng.random_range(20..200) * MICROSECOND, rng.random_range(1..10) * MILLISECOND),
            delay_target: rng.random_range(20..400) * MICROSECOND,
            weather: draw_weather(rng),
            faults: Fault::ALL.map(|(fault, share, mean)| (fault, sometimes(rng, share, mean))),
            region_pages: *[1, 2, 3, 4, 12].choose(rng).unwrap_or(&4),
            piece_pages: rng.random_range(1..=4),
            lease: *[4, 8, 20].choose(rng).unwrap_or(&8) * MILLISECOND,
            guard: None,
            habits: Habits {
                deadline: share(rng, 0.2),
                cancel: share(rng, 0.1),
                fence: share(rng, 0.1),
                mischief: share(rng, 0.1),
                renew: share(rng, 0.3),
                dare: 0.02 + share(rng, 0.2),
                discard: share(rng, 0.1),
                hot: rng.random_range(0.0..0.9),
                think: share(rng, 0.5),
                lease: share(rng, 1.0),
            },
        }
    }

    /// How sessions are made, if messages go under them.
    pub(crate) fn sessions(&self) -> Option<Guard> {
        self.guard.filter(|guard| guard.rules.admission == Admission::Protected)
    }

    /// Most that leases run between two looks of a node at its clock.
    pub(crate) const fn lease_step(&self) -> Nanos {
        self.lease / 8
    }

    /// How often a node looks at leases.
    pub(crate) const fn lease_period(&self) -> Nanos {
        self.lease / 32
    }

    /// What the transport of a lane is.
    #[must_use]
    pub(crate) fn transport(&self, rng: &mut SmallRng) -> Transport {
        if rng.random_bool(self.datagrams) { Transport::Datagram } else { Transport::Stream }
    }
}

fn draw_weather(rng: &mut SmallRng) -> Weather {
    let shortest = rng.random_range(1..20) * MICROSECOND;
    Weather {
        drop: share(rng, 0.3),
        duplicate: share(rng, 0.3),
        corrupt: share(rng, 0.1),
        delay: shortest..shortest + rng.random_range(1..100) * MICROSECOND,
        straggle: share(rng, 0.1),
        straggle_max: rng.random_range(1..5) * MILLISECOND,
    }
}

/// A probability of up to `most`; 0 in every second run.
fn share(rng: &mut SmallRng, most: f64) -> f64 {
    if rng.random_bool(0.5) { rng.random_range(0.0..most) } else { 0.0 }
}

/// `mean` with this probability, or never.
fn sometimes(rng: &mut SmallRng, probability: f64, mean: Nanos) -> Nanos {
    if rng.random_bool(probability) { mean } else { 0 }
}
