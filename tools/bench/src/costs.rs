//! What happens to a page costs a program that runs under `yonder run`, on this machine, with this far memory: for
//! `yonder size`, which makes times of what it predicts.
//!
//! A thread that is no worker touches a region by pointer, as programs do. Half of what it touches it writes to, so
//! that evictions and writes are in the figures.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use yonder::units::PAGE_BYTES;
use yonder::{Access, Config, FarMemory, Prefetch, Reads, Region};
use yonder_sizing::Costs;

use crate::BenchError;
use crate::comparison::median as median_of_sorted;

const PAGE: u64 = PAGE_BYTES as u64;
/// The region, and how much of it is local.
const REGION: u64 = 64 << 20;
const LOCAL: u64 = 16 << 20;
/// Of what is set aside.
const ASIDE: u64 = 8 << 20;
/// Rounds of each, of which the median counts, and how long one may take.
const ROUNDS: usize = 3;
const ROUND_MAX: Duration = Duration::from_millis(400);
/// Pages of a batch, and how many of 100 batches count.
const BATCH: usize = 128;
const COUNTED: usize = 90;

/// What a sample costs the program that is watched, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Watching {
    /// A page that is touched for the first time, over what it costs alone.
    pub first_ns: f64,
    /// A page that was unmapped to be seen again.
    pub again_ns: f64,
}

/// Measures what pages cost with the far memory at `url`.
pub fn costs(url: &str, prefetch: Prefetch) -> Result<Costs, BenchError> {
    let region = region(url, prefetch, LOCAL)?;
    let pages: Vec<u64> = (0..REGION / PAGE).collect();
    let mut random = SmallRng::seed_from_u64(1);
    let alone = alone_ns();
    // Local memory is short from the first quarter on.
    touch(&region, &pages[..pages.len() / 4], &mut random)?;
    let first_ns = touch(&region, &pages[pages.len() / 4..], &mut random)?.page_ns - alone;
    let (mut randoms, mut sequences) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut shuffled = pages.clone();
        shuffled.shuffle(&mut random);
        randoms.push(touch(&region, &shuffled, &mut random)?.miss_ns);
        sequences.push(touch(&region, &pages, &mut random)?.page_ns);
    }
    Ok(Costs {
        random_ns: median(randoms),
        sequence_ns: median(sequences),
        rescue_ns: watching()?.again_ns,
        first_ns: first_ns.max(0.0),
    })
}

/// Measures what it costs to watch.
pub fn watching() -> Result<Watching, BenchError> {
    let region = region("emu://", Prefetch::None, 2 * REGION)?;
    let pages: Vec<u64> = (0..REGION / PAGE).collect();
    let mut random = SmallRng::seed_from_u64(2);
    let first_ns = touch(&region, &pages, &mut random)?.page_ns - alone_ns();
    let aside = &pages[..(ASIDE / PAGE) as usize];
    let mut again = Vec::new();
    for _ in 0..ROUNDS {
        region.set_aside(0, ASIDE);
        again.push(touch(&region, aside, &mut random)?.page_ns);
    }
    Ok(Watching { first_ns: first_ns.max(0.0), again_ns: median(again) })
}

fn region(url: &str, prefetch: Prefetch, local: u64) -> Result<Region, BenchError> {
    let config = Config { prefetch, reads: Reads::Mapped, ..Config::with_local(local) };
    Ok(FarMemory::open(url, config)?.region(REGION)?.with_access(Access::Trap))
}

/// What pages took.
struct Took {
    page_ns: f64,
    /// For each that was missed.
    miss_ns: f64,
}

/// Touches pages in their order, until it has taken too long. Of batches of them the slowest do not count: whoever
/// else has the CPU for a while is in them.
fn touch(region: &Region, pages: &[u64], random: &mut SmallRng) -> Result<Took, BenchError> {
    let began = Instant::now();
    let mut batches: Vec<(Duration, usize, u64)> = Vec::new();
    for batch in pages.chunks(BATCH) {
        let before = region.far().stats().major_faults;
        let start = Instant::now();
        for page in batch {
            if random.random() {
                region.write_u64(page * PAGE, *page)?;
            } else {
                region.read_u64(page * PAGE + 8)?;
            }
        }
        batches.push((start.elapsed(), batch.len(), region.far().stats().major_faults - before));
        if began.elapsed() > ROUND_MAX {
            break;
        }
    }
    batches.sort_unstable();
    let counted = &batches[..(batches.len() * COUNTED / 100).max(1)];
    let sums = counted.iter().fold((0.0, 0, 0), |(took, pages, missed), batch| {
        (took + batch.0.as_nanos() as f64, pages + batch.1, missed + batch.2)
    });
    Ok(Took { page_ns: sums.0 / sums.1 as f64, miss_ns: sums.0 / sums.2.max(1) as f64 })
}

/// What the kernel's own first touch of a page takes.
fn alone_ns() -> f64 {
    let rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut memory: Vec<u8> = Vec::with_capacity(LOCAL as usize);
            let began = Instant::now();
            memory.resize(LOCAL as usize, 1);
            std::hint::black_box(&memory);
            began.elapsed().as_nanos() as f64 / (LOCAL / PAGE) as f64
        })
        .collect();
    median(rounds)
}

/// The median of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    median_of_sorted(&figures).expect("there were rounds")
}
