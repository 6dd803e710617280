//! `bench seq`: one thread reads or writes far memory page by page, with each prefetcher.
//!
//! Every prefetcher has a far memory of its own, filled once; then they take turns, and medians count. The thread is an
//! ordinary one, and it touches memory without looking at the page table first, as a program that knows nothing of
//! Yonder does. Every page's content is checked when it is read, and after it was written.

use clap::{Args, ValueEnum};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::units::{LocalSize, PAGE_BYTES, parse_bytes};
use yonder::{Access, Config, FarMemory, Prefetch, Region, Stats};
use yonder_load::LatencyRecorder;

use crate::comparison::{Ended, Series, ends, median, take_turns};
use crate::flags::{BENCHMARK, FAR, positive_count};
use crate::policies::{Choice as _, choice};
use crate::{BenchError, Counts, OnProgress};

const PAGE: u64 = PAGE_BYTES as u64;

/// What is done with each page, as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// It is read.
    Read,
    /// It is written.
    Write,
}

/// In which order. Each page comes once in a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Every so many pages, and from the next page on again.
    Strided(u32),
    /// At random.
    Random,
}

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Memory node: tcp://host:port, shm:///path.sock, or emu://, emulated in this process with this latency and bandwidth;
    /// each prefetcher uses --memory of it
    #[arg(long, value_name = "URL", default_value = FAR)]
    pub far: String,
    /// Far memory to use for each prefetcher
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Local memory that may be in use at a time: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "12.5%")]
    pub local: LocalSize,
    /// Prefetchers that take turns, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "none,readahead,trend", value_delimiter = ',', value_parser = choice::<Prefetch>())]
    pub prefetch: Vec<Prefetch>,
    /// What is done, with commas between
    #[arg(long = "op", help_heading = BENCHMARK, value_name = "NAMES", default_value = "read,write", value_delimiter = ',')]
    pub operations: Vec<Operation>,
    /// In which order: sequential, random, or every so many pages, such as stride:7
    #[arg(long, help_heading = BENCHMARK, value_name = "ORDER", default_value = "sequential", value_parser = pattern)]
    pub pattern: Pattern,
    /// Passes over the memory with each prefetcher; medians count
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 5, value_parser = positive_count)]
    pub rounds: usize,
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let stride = text.strip_prefix("stride:").and_then(|pages| pages.parse().ok()).filter(|pages| *pages > 1);
    match (text, stride) {
        ("sequential", _) => Ok(Pattern::Sequential),
        ("random", _) => Ok(Pattern::Random),
        (_, Some(pages)) => Ok(Pattern::Strided(pages)),
        _ => Err(format!("'{text}' is no order: type sequential, random, or stride:7")),
    }
}

/// What one prefetcher made of one operation; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct SeqResult {
    /// Always `seq`.
    pub bench: &'static str,
    /// Fabric.
    pub far: String,
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// `read` or `write`.
    pub op: Operation,
    /// `sequential`, `strided` or `random`.
    pub pattern: &'static str,
    /// Pages from one to the next, if strided.
    pub stride: Option<u32>,
    /// `none`, `readahead` or `trend`.
    pub prefetch: &'static str,
    /// Passes, of which the median counts.
    pub rounds: usize,
    /// Pages per second.
    pub ops_per_s: f64,
    /// Of the slowest and of the fastest pass.
    pub ops_per_s_spread: [f64; 2],
    /// Median of the passes' ratios to those without prefetching in the same round, if that is measured too.
    pub ratio_to_none: Option<f64>,
    /// The least and the greatest of them.
    pub ratio_to_none_spread: Option<[f64; 2]>,
    /// Median time for a page.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Pages of a pass.
    pub pages: u64,
    /// Pages fetched ahead.
    pub prefetched_pages: u64,
    /// Faults on pages that had been fetched ahead.
    pub prefetch_hits: u64,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A prefetcher's far memory.
struct Contender {
    prefetch: Prefetch,
    far: FarMemory,
    region: Region,
    /// What the pages hold: each pass that writes adds one.
    version: u64,
}

/// One pass.
struct Pass {
    ops_per_s: f64,
    latency: LatencyRecorder,
    before: Stats,
    after: Stats,
}

/// Measures every operation with every prefetcher.
pub fn run(settings: &Settings, progress: OnProgress<'_>) -> Result<Vec<SeqResult>, BenchError> {
    let mut contenders = Vec::new();
    for prefetch in &settings.prefetch {
        progress("fill", contenders.len() as f64 / settings.prefetch.len() as f64);
        contenders.push(Contender::new(settings, *prefetch)?);
    }
    let pages = settings.memory.div_ceil(PAGE) as u32;
    let order = order(settings.pattern, pages);
    let mut results = Vec::new();
    for operation in &settings.operations {
        let mut all: Vec<Series<usize, Pass>> = (0..contenders.len()).map(Series::new).collect();
        let names: Vec<_> = settings.prefetch.iter().map(|prefetch| prefetch.name()).collect();
        take_turns(
            &mut all,
            settings.rounds,
            progress,
            |number| names[*number].to_owned(),
            |number, _| contenders[*number].pass(*operation, &order).map(Ended::Well),
        )?;
        let none = settings.prefetch.iter().position(|prefetch| *prefetch == Prefetch::None);
        for (contender, series) in contenders.iter().zip(&all) {
            let to_none = series.ratios(none.map(|none| &all[none]), |pass| pass.ops_per_s);
            results.push(result(settings, *operation, contender, series, &to_none));
        }
    }
    Ok(results)
}

fn order(pattern: Pattern, pages: u32) -> Vec<u32> {
    match pattern {
        Pattern::Sequential => (0..pages).collect(),
        Pattern::Strided(stride) => (0..stride).flat_map(|first| (first..pages).step_by(stride as usize)).collect(),
        Pattern::Random => {
            let mut order: Vec<u32> = (0..pages).collect();
            order.shuffle(&mut SmallRng::seed_from_u64(5));
            order
        }
    }
}

impl Contender {
    fn new(settings: &Settings, prefetch: Prefetch) -> Result<Self, BenchError> {
        let config = Config { prefetch, ..Config::with_local(settings.local.resolve(settings.memory)) };
        let far = FarMemory::open(&settings.far, config)?;
        let region = far.region(settings.memory)?.with_access(Access::Trap);
        let mut buffer = vec![0; PAGE_BYTES];
        for page in 0..region.bytes() / PAGE {
            fill(&mut buffer, page, 0);
            region.write(page * PAGE, &buffer)?;
        }
        Ok(Self { prefetch, far, region, version: 0 })
    }

    fn pass(&mut self, operation: Operation, order: &[u32]) -> Result<Pass, BenchError> {
        let mut buffer = vec![0; PAGE_BYTES];
        let mut latency = LatencyRecorder::new();
        let before = self.far.stats();
        let start = yonder::clock::now();
        let mut now = start;
        for page in order {
            let page = u64::from(*page);
            match operation {
                Operation::Read => {
                    self.region.read(page * PAGE, &mut buffer)?;
                    check(&buffer, page, self.version)?;
                }
                Operation::Write => {
                    fill(&mut buffer, page, self.version + 1);
                    self.region.write(page * PAGE, &buffer)?;
                }
            }
            let done = yonder::clock::now();
            latency.record(done - now);
            now = done;
        }
        let after = self.far.stats();
        if operation == Operation::Write {
            self.version += 1;
            self.spot_check(order)?;
        }
        Ok(Pass { ops_per_s: order.len() as f64 * 1e9 / (now - start) as f64, latency, before, after })
    }

    /// Reads some of the pages that were written.
    fn spot_check(&self, order: &[u32]) -> Result<(), BenchError> {
        let mut buffer = vec![0; PAGE_BYTES];
        let mut random = SmallRng::seed_from_u64(self.version);
        for _ in 0..order.len().min(1000) {
            let page = u64::from(order[random.random_range(0..order.len())]);
            self.region.read(page * PAGE, &mut buffer)?;
            check(&buffer, page, self.version)?;
        }
        Ok(())
    }
}

/// The words of a page tell which one it is, and how often it was written.
fn fill(buffer: &mut [u8], page: u64, version: u64) {
    let word = (page + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version;
    buffer.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word.to_le_bytes()));
}

fn check(buffer: &[u8], page: u64, version: u64) -> Result<(), BenchError> {
    let word = ((page + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version).to_le_bytes();
    let is_right = buffer.chunks_exact(8).all(|chunk| *chunk == word);
    if is_right { Ok(()) } else { Err(BenchError::WrongValues(1)) }
}

fn result(
    settings: &Settings,
    op: Operation,
    contender: &Contender,
    series: &Series<usize, Pass>,
    ratios_to_none: &[f64],
) -> SeqResult {
    let trial = series.median_trial(|pass| pass.ops_per_s).expect("there are passes");
    let ops_per_s_spread = series.spread(|pass| pass.ops_per_s).unwrap_or_default();
    let (pattern, stride) = match settings.pattern {
        Pattern::Sequential => ("sequential", None),
        Pattern::Strided(stride) => ("strided", Some(stride)),
        Pattern::Random => ("random", None),
    };
    let counted = |count: fn(&Stats) -> u64| count(&trial.after) - count(&trial.before);
    SeqResult {
        bench: "seq",
        far: settings.far.clone(),
        memory_bytes: settings.memory,
        local_bytes: contender.far.local(),
        op,
        pattern,
        stride,
        prefetch: contender.prefetch.name(),
        rounds: series.trials.len(),
        ops_per_s: trial.ops_per_s,
        ops_per_s_spread,
        ratio_to_none: median(ratios_to_none),
        ratio_to_none_spread: ends(ratios_to_none),
        p50_us: trial.latency.percentile_us(50.0),
        p99_us: trial.latency.percentile_us(99.0),
        p999_us: trial.latency.percentile_us(99.9),
        pages: contender.region.bytes() / PAGE,
        prefetched_pages: counted(|stats| stats.prefetched_pages),
        prefetch_hits: counted(|stats| stats.prefetch_hits),
        counts: Counts::between(&trial.before, &trial.after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_has_every_page_once() {
        for pattern in [Pattern::Sequential, Pattern::Strided(7), Pattern::Random] {
            let mut pages = order(pattern, 100);
            pages.sort_unstable();
            assert_eq!(pages, (0..100).collect::<Vec<_>>(), "{pattern:?}");
        }
        assert_eq!(order(Pattern::Strided(3), 7), [0, 3, 6, 1, 4, 2, 5]);
    }

    #[test]
    fn contents_tell_pages_and_versions_apart() {
        let mut buffer = [0; PAGE_BYTES];
        fill(&mut buffer, 3, 1);
        check(&buffer, 3, 1).unwrap();
        assert!(check(&buffer, 4, 1).is_err() && check(&buffer, 3, 2).is_err());
        buffer[4000] ^= 1;
        assert!(check(&buffer, 3, 1).is_err());
    }

    /// A machine that is busy with something else is no reason to call a prefetcher wrong.
    const TRIES_MAX: usize = 5;

    #[test]
    fn prefetchers_leave_few_major_faults() {
        if let Err(error) = yonder::abilities().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        let settings = Settings {
            far: "emu://?latency=2.5us&gbps=100".to_owned(),
            memory: 16 << 20,
            local: LocalSize::Bytes(4 << 20),
            prefetch: vec![Prefetch::None, Prefetch::Readahead, Prefetch::Trend],
            operations: vec![Operation::Read, Operation::Write],
            pattern: Pattern::Sequential,
            rounds: 1,
        };
        let is_much_missed =
            |result: &SeqResult| result.prefetch != "none" && result.counts.major_faults > result.pages / 8;
        // On a busy machine much of what was fetched ahead leaves again before it is used.
        let mut runs = (0..TRIES_MAX).map(|_| run(&settings, &mut |_, _| {}).unwrap());
        let results = runs.find(|results| !results.iter().any(is_much_missed)).expect("a run leaves few major faults");
        assert_eq!(results.len(), 6);
        for result in results {
            let is_ahead = result.prefetch != "none";
            assert_eq!(result.prefetched_pages > 0, is_ahead, "{result:?}");
        }
    }
}
