//! `bench store`: reads and writes of pages of each store, without paging.
//!
//! Each store gets the same pages. Then, in turn, each is read and written at random, with so many operations under way
//! all the time. Every page that is read is checked. For a store in a file, `fio` can read the same bytes of the same
//! file at the same depth in between (LightSwap, section 5.2, stands on a driver of its own instead).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;
use yonder::units::{FrameIndex, PAGE_BYTES, parse_bytes};
use yonder_fabric::{Completion, Fabric, Module, QueuePair, ReadInto, RemoteAddress, Status, WorkId};
use yonder_load::LatencyRecorder;
use yonder_mapping::Mapping;

use crate::comparison::{Ended, Series, take_turns};
use crate::flags::{BENCHMARK, FAR, positive_count, positive_duration};
use crate::{BenchError, Counts, OnProgress};

/// Most operations under way at a time.
pub const DEPTH_MAX: usize = 128;
/// How long an operation may take before the benchmark gives up.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Share of a run's time that comes before it, unmeasured.
const WARM_UP_SHARE: u32 = 8;

/// What is done with pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// They are read.
    Read,
    /// They are written.
    Write,
}

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// A store: emu://, shm:///path.sock, tcp://host:port, udp://host:port or file:///path?size=SIZE; may be repeated
    #[arg(long = "far", value_name = "URL", default_value = FAR)]
    pub fars: Vec<String>,
    /// Bytes in each store
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Operations under way at a time, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NUMBERS", default_value = "1,32", value_delimiter = ',', value_parser = positive_count)]
    pub depths: Vec<usize>,
    /// What is done, with commas between
    #[arg(long = "op", help_heading = BENCHMARK, value_name = "NAMES", default_value = "read,write", value_delimiter = ',')]
    pub operations: Vec<Operation>,
    /// Time of a run
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "2s", value_parser = positive_duration)]
    pub duration: Duration,
    /// Runs of each, of which the median is told; all take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 3, value_parser = positive_count)]
    pub runs: usize,
    /// Have fio read the files too
    #[arg(long, help_heading = BENCHMARK)]
    pub fio: bool,
}

/// What one store made of one operation at one depth; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct StoreResult {
    /// Always `store`.
    pub bench: &'static str,
    /// The store's URL.
    pub far: String,
    /// Who did it: `yonder` or `fio`.
    pub by: &'static str,
    /// `read` or `write`.
    pub op: Operation,
    /// Operations under way at a time.
    pub depth: usize,
    /// Bytes that pages were chosen from.
    pub memory_bytes: u64,
    /// Runs. What follows is the median of them.
    pub runs: usize,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Of the slowest and of the fastest run.
    pub ops_per_s_spread: [f64; 2],
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Of the best and of the worst run.
    pub p99_us_spread: [f64; 2],
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
    /// What the store has counted since it was opened, such as bytes before and after compression.
    pub counters: BTreeMap<&'static str, u64>,
}

/// One run of one way.
#[derive(Clone, Copy, Default)]
struct Run {
    operations: u64,
    seconds: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    errors: u64,
}

/// Measures. `tell` learns what is done and how much of all that is done.
pub fn run(settings: &Settings, tell: OnProgress<'_>) -> Result<Vec<StoreResult>, BenchError> {
    settings.check()?;
    let mut stores = Vec::new();
    for far in &settings.fars {
        tell(&format!("filling {far}"), 0.0);
        stores.push(Store::fill(far, settings.memory)?);
    }
    // Of each operation at each depth, each store, and fio on those that are in files.
    let mut all: Vec<Series<Variant, Run>> = Vec::new();
    for (operation, depth) in settings.points() {
        for (store, of) in stores.iter().enumerate() {
            let by_fio = settings.fio && operation == Operation::Read && of.path().is_some();
            let by = ["yonder"].into_iter().chain(by_fio.then_some("fio"));
            all.extend(by.map(|by| Series::new(Variant { operation, depth, store, by })));
        }
    }
    let label = |variant: &Variant| {
        let Variant { operation, depth, store, by } = variant;
        format!("{operation:?} at depth {depth}, {} by {by}", settings.fars[*store]).to_lowercase()
    };
    take_turns(&mut all, settings.runs, tell, label, |variant, _| {
        let Variant { operation, depth, store, by } = *variant;
        let store = &mut stores[store];
        Ok::<_, BenchError>(Ended::Well(match store.path().filter(|_| by == "fio") {
            Some(path) => fio(path, settings.memory, depth, settings.duration)?,
            None => store.run(operation, depth, settings.duration)?,
        }))
    })?;
    Ok(all.iter().map(|series| settings.result(&stores[series.variant.store], series)).collect())
}

impl Settings {
    fn check(&self) -> Result<(), BenchError> {
        let deepest = self.depths.iter().copied().max().unwrap_or(1);
        if deepest > DEPTH_MAX {
            return Err(BenchError::Settings(format!("a depth of {deepest} is too large: type at most {DEPTH_MAX}")));
        }
        if self.memory < (DEPTH_MAX * PAGE_BYTES) as u64 {
            return Err(BenchError::Settings("so little memory has no random pages: type at least 1MiB".to_owned()));
        }
        Ok(())
    }

    fn points(&self) -> Vec<(Operation, usize)> {
        self.operations.iter().flat_map(|op| self.depths.iter().map(|depth| (*op, *depth))).collect()
    }

    fn result(&self, store: &Store, series: &Series<Variant, Run>) -> StoreResult {
        let Variant { operation: op, depth, by, .. } = series.variant;
        let rate = |run: &Run| run.operations as f64 / run.seconds;
        let median = series.median_trial(rate).expect("there are runs");
        let median_p99 = series.median_trial(|run| run.p99_us).expect("there are runs");
        let bytes = |moves: Operation| if moves == op { median.operations * PAGE_BYTES as u64 } else { 0 };
        StoreResult {
            bench: "store",
            far: store.far.clone(),
            by,
            op,
            depth,
            memory_bytes: self.memory,
            runs: series.trials.len(),
            ops_per_s: rate(median),
            ops_per_s_spread: series.spread(rate).unwrap_or_default(),
            p50_us: median.p50_us,
            p99_us: median_p99.p99_us,
            p99_us_spread: series.spread(|run| run.p99_us).unwrap_or_default(),
            p999_us: median_p99.p999_us,
            counts: Counts {
                fetched_bytes: bytes(Operation::Read),
                written_bytes: bytes(Operation::Write),
                errors: series.sum(|run| run.errors),
                ..Counts::default()
            },
            counters: store.fabric.counters().into_iter().map(|counter| (counter.name, counter.value)).collect(),
        }
    }
}

/// What is measured in a turn.
#[derive(Clone, Copy)]
struct Variant {
    operation: Operation,
    depth: usize,
    /// The store's place among all.
    store: usize,
    by: &'static str,
}

/// A store that is full of pages which say who they are.
struct Store {
    far: String,
    // Before the fabric, which outlives them.
    queues: [Box<dyn QueuePair>; 2],
    frames: Arc<Mapping>,
    fabric: Arc<dyn Fabric>,
    start: RemoteAddress,
    pages: u64,
    random: SmallRng,
}

impl Store {
    fn fill(far: &str, memory: u64) -> Result<Self, BenchError> {
        let fabric = yonder_fabric::open(far).map_err(yonder::FarError::from)?;
        let frames = Arc::new(Mapping::anonymous(DEPTH_MAX * PAGE_BYTES).map_err(std::io::Error::other)?);
        let queue = |module| fabric.queue_pair(module, Arc::clone(&frames)).map_err(yonder::FarError::from);
        let queues = [queue(Module::Fault)?, queue(Module::WriteBack)?];
        let pages = memory / PAGE_BYTES as u64;
        let start = fabric.allocate(pages * PAGE_BYTES as u64).map_err(yonder::FarError::from)?;
        let random = SmallRng::seed_from_u64(11);
        let mut store = Self { far: far.to_owned(), queues, frames, fabric, start, pages, random };
        let mut next = 0;
        let mut all = |_: &mut SmallRng, _slot: u64| {
            next += 1;
            (next <= pages).then_some(next - 1)
        };
        let filled = store.drive(Operation::Write, DEPTH_MAX, &mut all)?;
        if filled.errors > 0 {
            return Err(BenchError::Child(format!("{far} did not take {} pages", filled.errors)));
        }
        Ok(store)
    }

    /// The file, if the store is in one.
    fn path(&self) -> Option<&Path> {
        self.far.strip_prefix("file://").and_then(|rest| rest.split('?').next()).map(Path::new)
    }

    fn run(&mut self, operation: Operation, depth: usize, duration: Duration) -> Result<Run, BenchError> {
        let share = self.pages / depth as u64;
        let until = |end: Instant| {
            // Each slot has pages of its own, so that no page is written twice at a time.
            move |random: &mut SmallRng, slot: u64| {
                (Instant::now() < end).then(|| slot * share + random.random_range(0..share))
            }
        };
        self.drive(operation, depth, &mut until(Instant::now() + duration / WARM_UP_SHARE))?;
        self.drive(operation, depth, &mut until(Instant::now() + duration))
    }

    /// Keeps `depth` operations under way until there is no `next` page for a slot.
    fn drive(
        &mut self,
        operation: Operation,
        depth: usize,
        next: &mut dyn FnMut(&mut SmallRng, u64) -> Option<u64>,
    ) -> Result<Run, BenchError> {
        let (mut latencies, mut under_way) = (LatencyRecorder::new(), [(0, 0); DEPTH_MAX]);
        let (mut posted, mut ended, mut errors, mut wrong) = (0, 0, 0, 0);
        let mut idle: Vec<usize> = (0..depth).rev().collect();
        let mut completions: Vec<Completion> = Vec::with_capacity(DEPTH_MAX);
        let begun = Instant::now();
        let mut last = begun;
        loop {
            let mut refused = None;
            while let Some(slot) = idle.pop() {
                let Some(page) = next(&mut self.random, slot as u64) else {
                    refused = Some(slot);
                    break;
                };
                under_way[slot] = (page, yonder::clock::now());
                self.post(operation, slot, page, last)?;
                posted += 1;
            }
            if ended == posted && refused.is_some() {
                break;
            }
            self.queues[operation as usize].poll(yonder::clock::now(), &mut completions);
            let now = yonder::clock::now();
            if completions.is_empty() {
                give_up_after(TIMEOUT, last)?;
            } else {
                last = Instant::now();
            }
            for Completion { id, status } in completions.drain(..) {
                let slot = id.0 as usize;
                let (page, since) = under_way[slot];
                latencies.record(now - since);
                let mut found = [0; 8];
                self.frames.read(FrameIndex(slot as u32).offset(), &mut found);
                errors += u64::from(status != Status::Done);
                wrong += u64::from(status == Status::Done && found != stamp(page));
                ended += 1;
                idle.push(slot);
            }
            idle.extend(refused);
        }
        if wrong > 0 {
            return Err(BenchError::WrongValues(wrong));
        }
        let percentile = |percent| latencies.percentile_us(percent);
        Ok(Run {
            operations: ended,
            seconds: begun.elapsed().as_secs_f64(),
            p50_us: percentile(50.0),
            p99_us: percentile(99.0),
            p999_us: percentile(99.9),
            errors,
        })
    }

    /// Posts an operation on `page`, when the queue pair takes it. Nothing has ended since `last`.
    fn post(&mut self, operation: Operation, slot: usize, page: u64, last: Instant) -> Result<(), BenchError> {
        let queue = &mut self.queues[operation as usize];
        let (id, frame) = (WorkId(slot as u64), FrameIndex(slot as u32));
        let address = RemoteAddress(self.start.0 + page * PAGE_BYTES as u64);
        if operation == Operation::Write {
            self.frames.write(frame.offset(), &stamp(page));
        }
        loop {
            let now = yonder::clock::now();
            let posted = match operation {
                Operation::Read => queue.post_read(id, address, ReadInto::Frame(frame), now),
                Operation::Write => queue.post_write(id, address, frame, now),
            };
            if posted.is_ok() {
                return Ok(());
            }
            // It takes more when something has ended; who asked for that is told later.
            queue.poll(now, &mut Vec::new());
            give_up_after(TIMEOUT, last)?;
        }
    }
}

/// What a page begins with.
fn stamp(page: u64) -> [u8; 8] {
    (page ^ 0x5157_0e5d_ca4e_b10c).to_le_bytes()
}

fn give_up_after(patience: Duration, last: Instant) -> Result<(), BenchError> {
    std::hint::spin_loop();
    if last.elapsed() < patience {
        return Ok(());
    }
    Err(BenchError::Child(format!("the store has ended nothing for {} s", patience.as_secs())))
}

/// Random reads of the first `memory` bytes of the log in the file at `path`, by `fio`.
fn fio(path: &Path, memory: u64, depth: usize, duration: Duration) -> Result<Run, BenchError> {
    let failed = |what: String| BenchError::Child(format!("fio: {what}; install it with `sudo apt install fio`"));
    let mut command = Command::new("fio");
    command.args(["--name=store", "--readonly", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring"]);
    command.args(["--fixedbufs", "--registerfiles", "--norandommap", "--randrepeat=0", "--time_based"]);
    command.args(["--lat_percentiles=1", "--percentile_list=50:99:99.9", "--output-format=json"]);
    command.arg(format!("--filename={}", path.display()));
    command.arg(format!("--offset={PAGE_BYTES}")).arg(format!("--size={memory}")).arg(format!("--iodepth={depth}"));
    command.arg(format!("--runtime={}ms", duration.as_millis()));
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let told = String::from_utf8_lossy(&output.stdout);
    let json = told.find('{').map(|start| &told[start..]).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(json)
        .map_err(|error| failed(format!("{error}: {}", String::from_utf8_lossy(&output.stderr).trim())))?;
    let read = &value["jobs"][0]["read"];
    let percentile = |key: &str| read["lat_ns"]["percentile"][key].as_f64().map(|ns| ns / 1e3);
    let told = || {
        Some(Run {
            operations: read["total_ios"].as_u64()?,
            seconds: read["runtime"].as_f64()? / 1e3,
            p50_us: percentile("50.000000")?,
            p99_us: percentile("99.000000")?,
            p999_us: percentile("99.900000")?,
            errors: value["jobs"][0]["error"].as_u64()?,
        })
    };
    told().ok_or_else(|| failed("its output lacks what was asked for".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_take_turns_and_every_page_is_checked() {
        let settings = Settings {
            fars: vec!["emu://?latency=1us".to_owned(), "emu://?latency=50us".to_owned()],
            memory: 1 << 20,
            depths: vec![1, 8],
            operations: vec![Operation::Read, Operation::Write],
            duration: Duration::from_millis(20),
            runs: 2,
            fio: true,
        };
        let results = run(&settings, &mut |_, _| {}).unwrap();
        assert_eq!(results.len(), 8);
        assert!(results.iter().all(|result| result.counts.errors == 0 && result.runs == 2 && result.ops_per_s > 0.0));
        let slow = results.iter().find(|result| result.far.contains("50us") && result.depth == 1).unwrap();
        assert!(slow.p50_us >= 50.0, "{slow:?}");
        let deep = Settings { depths: vec![DEPTH_MAX + 1], ..settings };
        assert!(run(&deep, &mut |_, _| {}).unwrap_err().to_string().contains("type at most"));
    }
}
