//! What happens to a page costs a program that runs under `yonder run`, on this machine, with this far memory, or with
//! the kernel's swap: for `yonder size`, which makes times of what it predicts.
//!
//! A thread that is no worker touches a region by pointer, as programs do. Half of what it touches it writes to, so
//! that evictions and writes are in the figures.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use yonder::units::PAGE_BYTES;
use yonder::{Access, Config, FarMemory, Prefetch, Reads, Region};
use yonder_mapping::Mapping;
use yonder_sizing::Costs;

use crate::BenchError;
use crate::comparison::median as median_of_sorted;
use crate::kernel_swap::{KernelSwap, SwapOn};

const PAGE: u64 = PAGE_BYTES as u64;
/// The region, and how much of it is local.
const REGION: u64 = 64 << 20;
const LOCAL: u64 = 16 << 20;
/// What a process in a group takes beside that.
const GROUP_BYTES: u64 = 8 << 20;
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

/// Measures what pages cost with the far memory at `url`. One that is wanted back from standby costs what it does while
/// a program is watched.
pub fn costs(url: &str, prefetch: Prefetch, watching: Watching) -> Result<Costs, BenchError> {
    let region = region(url, prefetch, LOCAL)?;
    let pages: Vec<u64> = (0..REGION / PAGE).collect();
    let mut random = SmallRng::seed_from_u64(1);
    let alone = alone_ns();
    // Local memory is short from the first quarter on.
    touch(&region, &pages[..pages.len() / 4], &mut random)?;
    let first_ns = touch(&region, &pages[pages.len() / 4..], &mut random)?.page_ns - alone;
    let [random_ns, sequence_ns] = orders(&region, &pages, &mut random)?;
    Ok(Costs { random_ns, sequence_ns, rescue_ns: watching.again_ns, first_ns: first_ns.max(0.0) })
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

/// What the kernel's swap on compressed memory costs: measured by `program`, which is this one, in a group with a
/// limit. Needs root.
pub fn zram(program: &Path) -> Result<Costs, String> {
    let swap = KernelSwap::ready(&SwapOn::Zram)?;
    let group = swap.group(LOCAL + GROUP_BYTES)?;
    let prefix = group.prefix();
    let mut command = Command::new(&prefix[0]);
    let output = command.args(&prefix[1..]).arg(program).args(["bench", "kernel-costs"]).output();
    let output = output.map_err(|error| format!("sh: {error}"))?;
    serde_json::from_slice(&output.stdout)
        .map(|KernelCosts { random_ns, sequence_ns, first_ns }| Costs {
            random_ns,
            sequence_ns,
            first_ns,
            rescue_ns: 0.0,
        })
        .map_err(|_| format!("swap on zram cannot be measured: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// What [`of_kernel`] has measured, in nanoseconds, as a process tells it to another.
#[derive(Serialize, Deserialize)]
pub struct KernelCosts {
    random_ns: f64,
    sequence_ns: f64,
    first_ns: f64,
}

/// Measures what pages cost in this process, whose memory the kernel swaps.
pub fn of_kernel() -> Result<KernelCosts, BenchError> {
    let pages: Vec<u64> = (0..REGION / PAGE).collect();
    let mut random = SmallRng::seed_from_u64(3);
    let (alone, memory) = (alone_ns(), Mapping::anonymous(REGION as usize).map_err(std::io::Error::other)?);
    let first_ns = touch(&memory, &pages, &mut random)?.page_ns - alone;
    let [random_ns, sequence_ns] = orders(&memory, &pages, &mut random)?;
    Ok(KernelCosts { random_ns, sequence_ns, first_ns: first_ns.max(0.0) })
}

/// Memory whose pages are touched.
trait Touched {
    /// Writes a word to a page, or reads one.
    fn touch(&self, page: u64, writes: bool) -> Result<(), BenchError>;
    /// How many touches have waited for a page that was elsewhere.
    fn missed(&self) -> u64;
}

impl Touched for Region {
    fn touch(&self, page: u64, writes: bool) -> Result<(), BenchError> {
        if writes {
            self.write_u64(page * PAGE, page)?;
        } else {
            self.read_u64(page * PAGE + 8)?;
        }
        Ok(())
    }

    fn missed(&self) -> u64 {
        self.far().stats().major_faults
    }
}

impl Touched for Mapping {
    fn touch(&self, page: u64, writes: bool) -> Result<(), BenchError> {
        if writes {
            // Something that compresses about as well as programs' memory.
            let bytes: [u8; 2048] =
                std::array::from_fn(|at| page.wrapping_mul((at as u64 / 8) | 1).to_le_bytes()[at % 8]);
            self.write(page * PAGE, &bytes);
        } else {
            std::hint::black_box(self.load_u64(page * PAGE + 8));
        }
        Ok(())
    }

    fn missed(&self) -> u64 {
        // The twelfth field; the second may have spaces.
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().nth(9).and_then(|field| field.parse().ok()).unwrap_or_default()
    }
}

/// What a page costs that is missed when all are touched at random, and one of all when they are touched in sequence.
fn orders(memory: &impl Touched, pages: &[u64], random: &mut SmallRng) -> Result<[f64; 2], BenchError> {
    let (mut randoms, mut sequences) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut shuffled = pages.to_vec();
        shuffled.shuffle(random);
        randoms.push(touch(memory, &shuffled, random)?.miss_ns);
        sequences.push(touch(memory, pages, random)?.page_ns);
    }
    Ok([median(randoms), median(sequences)])
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
fn touch(memory: &impl Touched, pages: &[u64], random: &mut SmallRng) -> Result<Took, BenchError> {
    let began = Instant::now();
    let mut batches: Vec<(Duration, usize, u64)> = Vec::new();
    for batch in pages.chunks(BATCH) {
        let before = memory.missed();
        let start = Instant::now();
        for page in batch {
            memory.touch(*page, random.random())?;
        }
        batches.push((start.elapsed(), batch.len(), memory.missed() - before));
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
