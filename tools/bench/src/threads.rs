//! `bench threads`: pages read at random by threads, whose faults wait, and by as many light threads, whose faults
//! yield.
//!
//! Both do the same reads: each thread its share, of pages that its own generator draws, by touches that know nothing
//! of the page table. Each way has a far memory of its own; they take turns, and medians count. Threads may use all
//! CPUs that there are, light threads those of their workers: the row says how many.

use std::sync::Arc;
use std::thread;

use clap::{Args, ValueEnum};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::units::{LocalSize, PAGE_BYTES, parse_bytes};
use yonder::{Access, Config, FarMemory, Prefetch, Region, Stats, threads};
use yonder_load::LatencyRecorder;

use crate::comparison::{Ended, Series, ends, median, take_turns};
use crate::flags::{BENCHMARK, positive_count};
use crate::{BenchError, Counts, OnProgress};

const PAGE: u64 = PAGE_BYTES as u64;

/// Who reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The kernel's threads.
    Threads,
    /// Light threads.
    Light,
}

impl Way {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Light => "light",
        }
    }
}

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Memory node: tcp://host:port, shm:///path.sock, or emu://, emulated in this process with this latency and
    /// bandwidth; each way uses --memory of it
    #[arg(long, value_name = "URL", default_value = "emu://?latency=25us&gbps=100")]
    pub far: String,
    /// Far memory to use for each way
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Local memory that may be in use at a time: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "25%")]
    pub local: LocalSize,
    /// Threads, and light threads
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 32, value_parser = positive_count)]
    pub threads: usize,
    /// Workers of light threads
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub workers: usize,
    /// Reads of a pass, by all of them together
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 100_000, value_parser = positive_count)]
    pub reads: usize,
    /// Ways that take turns, with commas between
    #[arg(long = "ways", help_heading = BENCHMARK, value_name = "NAMES", default_value = "threads,light", value_delimiter = ',')]
    pub ways: Vec<Way>,
    /// Passes of each way; medians count
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 5, value_parser = positive_count)]
    pub rounds: usize,
}

/// What one way has come to; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadsResult {
    /// Always `threads`.
    pub bench: &'static str,
    /// Fabric.
    pub far: String,
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// `threads` or `light`.
    pub way: Way,
    /// Threads, or light threads.
    pub threads: usize,
    /// Workers, of light threads.
    pub workers: Option<usize>,
    /// Reads of a pass.
    pub reads: u64,
    /// Passes, of which the median counts.
    pub rounds: usize,
    /// Reads per second.
    pub ops_per_s: f64,
    /// Of the slowest and of the fastest pass.
    pub ops_per_s_spread: [f64; 2],
    /// Median of the passes' ratios to those of light threads in the same round, if they are measured too.
    pub ratio_to_light: Option<f64>,
    /// The least and the greatest of them.
    pub ratio_to_light_spread: Option<[f64; 2]>,
    /// Median time of a read.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A way and its far memory.
struct Contender {
    way: Way,
    far: FarMemory,
    region: Arc<Region>,
}

/// One pass.
struct Pass {
    ops_per_s: f64,
    latency: LatencyRecorder,
    before: Stats,
    after: Stats,
}

/// Measures every way.
pub fn run(settings: &Settings, progress: OnProgress<'_>) -> Result<Vec<ThreadsResult>, BenchError> {
    let mut contenders = Vec::new();
    for way in &settings.ways {
        progress("fill", contenders.len() as f64 / settings.ways.len() as f64);
        contenders.push(Contender::new(settings, *way)?);
    }
    let mut all: Vec<Series<usize, Pass>> = (0..contenders.len()).map(Series::new).collect();
    take_turns(
        &mut all,
        settings.rounds,
        progress,
        |number| settings.ways[*number].name().to_owned(),
        |number, turn| contenders[*number].pass(settings, turn).map(Ended::Well),
    )?;
    let light = settings.ways.iter().position(|way| *way == Way::Light);
    let to_light = |series: &Series<usize, Pass>| series.ratios(light.map(|light| &all[light]), |pass| pass.ops_per_s);
    Ok(contenders.iter().zip(&all).map(|(own, series)| own.result(settings, series, &to_light(series))).collect())
}

impl Contender {
    fn new(settings: &Settings, way: Way) -> Result<Self, BenchError> {
        // What is read at random has no next page.
        let config = Config { prefetch: Prefetch::None, ..Config::with_local(settings.local.resolve(settings.memory)) };
        let far = FarMemory::open(&settings.far, config)?;
        let region = far.region(settings.memory)?.with_access(Access::Trap);
        for page in 0..region.bytes() / PAGE {
            region.write_u64(page * PAGE, word(page))?;
        }
        Ok(Self { way, far, region: Arc::new(region) })
    }

    fn pass(&self, settings: &Settings, turn: usize) -> Result<Pass, BenchError> {
        let before = self.far.stats();
        let start = yonder::clock::now();
        let shares: Vec<Share> = (0..settings.threads).map(|thread| Share::of(settings, turn, thread)).collect();
        let read: Vec<Result<LatencyRecorder, BenchError>> = match self.way {
            Way::Threads => thread::scope(|scope| {
                let readers: Vec<_> =
                    shares.iter().map(|share| scope.spawn(move || share.read(&self.region))).collect();
                readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect()
            }),
            Way::Light => {
                let config = threads::Config {
                    light_threads: settings.threads + 1,
                    ..threads::Config::with_workers(settings.workers)
                };
                let region = Arc::clone(&self.region);
                threads::run(&config, &self.far, move || {
                    let spawn = |share: Share| {
                        let region = Arc::clone(&region);
                        threads::spawn(move || share.read(&region))
                    };
                    let readers: Vec<_> = shares.into_iter().map(spawn).collect();
                    readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect()
                })?
            }
        };
        let seconds = (yonder::clock::now() - start) as f64 / 1e9;
        let after = self.far.stats();
        let mut latency = LatencyRecorder::new();
        for read in read {
            latency.merge(&read?);
        }
        Ok(Pass { ops_per_s: latency.len() as f64 / seconds, latency, before, after })
    }

    fn result(&self, settings: &Settings, series: &Series<usize, Pass>, ratios_to_light: &[f64]) -> ThreadsResult {
        let trial = series.median_trial(|pass| pass.ops_per_s).expect("there are passes");
        ThreadsResult {
            bench: "threads",
            far: settings.far.clone(),
            memory_bytes: settings.memory,
            local_bytes: self.far.local(),
            way: self.way,
            threads: settings.threads,
            workers: (self.way == Way::Light).then_some(settings.workers),
            reads: trial.latency.len(),
            rounds: series.trials.len(),
            ops_per_s: trial.ops_per_s,
            ops_per_s_spread: series.spread(|pass| pass.ops_per_s).unwrap_or_default(),
            ratio_to_light: median(ratios_to_light),
            ratio_to_light_spread: ends(ratios_to_light),
            p50_us: trial.latency.percentile_us(50.0),
            p99_us: trial.latency.percentile_us(99.0),
            p999_us: trial.latency.percentile_us(99.9),
            counts: Counts::between(&trial.before, &trial.after),
        }
    }
}

/// What one thread reads.
struct Share {
    reads: usize,
    seed: u64,
}

impl Share {
    fn of(settings: &Settings, turn: usize, thread: usize) -> Self {
        // The first ones read one more, where it does not come out even.
        let reads = (settings.reads + settings.threads - 1 - thread) / settings.threads;
        // Both ways read the same in a turn, and other pages than in the turn before, which may still be here.
        Self { reads, seed: (turn * settings.threads + thread) as u64 }
    }

    fn read(&self, region: &Region) -> Result<LatencyRecorder, BenchError> {
        let (mut random, mut latency) = (SmallRng::seed_from_u64(self.seed), LatencyRecorder::new());
        let pages = region.bytes() / PAGE;
        for _ in 0..self.reads {
            let page = random.random_range(0..pages);
            let begun = yonder::clock::now();
            let seen = region.read_u64(page * PAGE)?;
            latency.record(yonder::clock::now() - begun);
            if seen != word(page) {
                return Err(BenchError::WrongValues(1));
            }
        }
        Ok(latency)
    }
}

/// What a page begins with.
fn word(page: u64) -> u64 {
    (page + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reads_are_shared_out() {
        let settings = settings(7, 100);
        let shares: Vec<usize> = (0..7).map(|thread| Share::of(&settings, 0, thread).reads).collect();
        assert_eq!((shares.iter().sum::<usize>(), shares[0], shares[6]), (100, 15, 14));
    }

    #[test]
    fn both_ways_read_everything() {
        if let Err(error) = yonder::abilities().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        let results = run(&settings(8, 1_001), &mut |_, _| {}).unwrap();
        assert_eq!(results.iter().map(|result| result.way).collect::<Vec<_>>(), [Way::Threads, Way::Light]);
        for result in &results {
            assert_eq!((result.reads, result.rounds), (1_001, 2));
            assert!(result.counts.major_faults > 500, "{result:?}");
        }
        assert_eq!((results[0].workers, results[1].workers), (None, Some(1)));
        assert!(results[0].ratio_to_light.is_some());
    }

    fn settings(threads: usize, reads: usize) -> Settings {
        Settings {
            far: "emu://?latency=25us&gbps=100".to_owned(),
            memory: 16 << 20,
            local: LocalSize::Bytes(4 << 20),
            threads,
            workers: 1,
            reads,
            ways: vec![Way::Threads, Way::Light],
            rounds: 2,
        }
    }
}
