//! `bench soak`: losslessness under everything at once.
//!
//! Requests on workers and plain threads write and check words of random pages and of sequences of pages, which are
//! fetched ahead, while the local limit changes, ranges are allocated and freed, and an emulated fabric delays, fails
//! and loses operations or dies for a moment. Every word has one writer (its *lane*), which remembers what it stored
//! last; a word that reads as anything else is a mismatch.
//!
//! A store can yield, so the value is computed first, stored, and only then remembered. A store that ended in a paging
//! error leaves the word unknown until the next store. Versions only grow, so no old content passes for a new one.
//!
//! With [`SoakVerify::Full`] the fabric keeps a second copy of each page ([`yonder::SecondCopy`]), and each page that
//! the pager forgets as clean, without writing it, is compared with that. The first that differs ends the soak.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::sched::{Activity, Done, Frontend, Handler, Outcome, SchedConfig, SchedStats, serve};
use yonder::units::parse_bytes;
use yonder::units::{Nanos, PAGE_BYTES};
use yonder::{Access, Copies, FarMemory, PagingError, Region};
use yonder_load::{LatencyRecorder, LatencySummary};

use crate::flags::{positive_count, positive_duration};
use crate::{BenchError, parking};

mod world;

use world::{Watch, World, trouble};

const PAGE: u64 = PAGE_BYTES as u64;
/// Lanes of requests and of plain threads; each owns one slot in every page.
const REQUEST_LANES: u64 = 24;
const THREAD_LANES: u64 = 4;
const SLOT_BYTES: u64 = 128;
const _: () = assert!((REQUEST_LANES + THREAD_LANES) * SLOT_BYTES <= PAGE);
/// Longest sequence.
const SEQUENCE_PAGES_MAX: u64 = 100;
/// Smallest region that is worth it.
const MEMORY_MIN: u64 = 1 << 20;
/// Marks the version of a word whose last store ended in an error, or has not ended: the word may be one older.
const UNKNOWN: u64 = 1 << 63;
/// Words of a slot: a version and a checksum of it with its place.
const WORDS: usize = 2;

/// Settings of one run.
#[derive(Clone, Debug, Args)]
pub struct SoakSettings {
    /// Memory node: tcp://host:port, shm:///path.sock, or emu://, emulated in this process; then failures are injected
    #[arg(long, value_name = "URL", default_value = "emu://?latency=5us&gbps=100&size=256MiB")]
    pub far: String,
    /// Far memory to use: the data that is checked
    #[arg(long, value_name = "SIZE", default_value = "48MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Smallest limit of local memory; it changes between this and three times as much
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_bytes)]
    pub local: u64,
    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = positive_count)]
    pub workers: usize,
    /// Time under load; the check of all data comes after
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_duration)]
    pub duration: Duration,
    /// How long a page that cannot be had is tried for before the access fails
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    pub deadline: Duration,
    /// Seed of the load and the failures: the same number draws the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Which pages are compared with what was written, besides all data
    #[arg(long, value_name = "WHICH", default_value = "on")]
    pub verify: SoakVerify,
}

/// What a soak compares besides the words that it reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SoakVerify {
    /// Those that are fetched
    On,
    /// Also those that are dropped as clean, with a second copy of all that was written, in local memory
    Full,
}

/// What a run found; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct SoakResult {
    /// Always `soak`.
    pub bench: &'static str,
    /// Fabric.
    pub far: String,
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Seed.
    pub seed: u64,
    /// Stores and checks.
    pub operations: u64,
    /// What was compared.
    pub verify: SoakVerify,
    /// Words that were not what was stored, and dropped pages that were not what the next touch would find. Anything
    /// but 0 is a bug.
    pub mismatches: u64,
    /// The first such page, and which of its bytes differ.
    #[serde(skip)]
    pub first_wrong_drop: Option<String>,
    /// Pages that were dropped as clean and compared with a second copy; 0 unless that is asked for.
    pub clean_drops_compared: u64,
    /// Accesses that ended in a paging error.
    pub errors: u64,
    /// Worker threads.
    pub workers: usize,
    /// Seconds under load; the check of every word comes after.
    pub seconds: f64,
    /// Ranges that were allocated, filled, checked and freed meanwhile; 0 if the node had no room for them.
    pub ranges: u64,
    /// Most local memory ever used, in pages, and the limit then in force at the highest.
    pub peak_pages: u64,
    /// The highest limit that was set, in pages.
    pub limit_pages_max: u64,
    /// Times local memory was seen above the limit in force. Anything but 0 is a bug.
    pub limit_breaches: u64,
    /// Changes of the limit that were reached.
    pub limit_changes: u64,
    /// Reads and writes that were posted again.
    pub retries: u64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Median latency of a request, from its admission.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Fetched pages that the dispatcher mapped.
    pub helped_installs: u64,
    /// Faults that needed none.
    pub minor_faults: u64,
    /// Pages fetched ahead.
    pub prefetched_pages: u64,
    /// Faults on pages that had been fetched ahead.
    pub prefetch_hits: u64,
    /// Bytes fetched.
    pub fetched_bytes: u64,
    /// Bytes written back.
    pub written_bytes: u64,
}

/// The region, what should be in it, and what was found.
struct Field {
    region: Region,
    pages: u64,
    /// Last version stored in each slot, page by page.
    stored: Vec<AtomicU64>,
    mismatches: AtomicU64,
    errors: AtomicU64,
    operations: AtomicU64,
    ranges: AtomicU64,
    stop: AtomicBool,
}

/// A store or a check in a lane's slot of a page and of those behind it.
#[derive(Clone, Copy, Debug)]
struct Touch {
    lane: u64,
    page: u64,
    pages: u64,
    store: bool,
}

/// Runs until the duration is over, then checks every word.
pub fn run(settings: &SoakSettings, progress: &mut dyn FnMut(&str, f64)) -> Result<SoakResult, BenchError> {
    if settings.memory < MEMORY_MIN {
        let least = yonder::units::format_bytes(MEMORY_MIN);
        return Err(BenchError::Settings(format!(
            "--memory is too small for a soak: type --memory with {least} or more"
        )));
    }
    soak(settings, &World::open(settings)?, progress)
}

fn soak(settings: &SoakSettings, world: &World, progress: &mut dyn FnMut(&str, f64)) -> Result<SoakResult, BenchError> {
    let far = &world.far;
    let pages = settings.memory / PAGE;
    // Traps, because they are the harder way; the plain threads of a second handle would probe the same pages.
    let region = far.region(pages * PAGE)?.with_access(Access::Trap);
    let lanes = REQUEST_LANES + THREAD_LANES;
    let field = Arc::new(Field {
        region,
        pages,
        stored: (0..pages * lanes).map(|_| AtomicU64::new(0)).collect(),
        mismatches: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        operations: AtomicU64::new(0),
        ranges: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let start = yonder::clock::now();
    let mut requests = Requests::new(settings, world.copies.as_deref(), start, progress);
    let stats = SchedStats::default();
    let watch = std::thread::scope(|scope| {
        for lane in REQUEST_LANES..lanes {
            let (field, seed) = (&field, settings.seed);
            scope.spawn(move || plain_thread(field, lane, seed));
        }
        scope.spawn(|| alloc_and_free(far, &field));
        let watcher = scope.spawn(|| trouble(settings, world, &field.stop));
        let config = SchedConfig::with_workers(settings.workers);
        let served = serve(&config, far, &field, &mut requests, &stats);
        field.stop.store(true, Ordering::Release);
        served.map(|()| watcher.join().expect("the watcher does not panic"))
    })?;
    if stats.panicked() > 0 {
        return Err(BenchError::Panicked(stats.panicked()));
    }
    let load = Load {
        operations: field.operations.load(Ordering::Relaxed),
        seconds: (yonder::clock::now() - start) as f64 / 1e9,
        latency: requests.latency.summary(),
    };
    field.check_all(lanes);
    Ok(result(settings, world, &field, &watch, &load))
}

/// What was done until the last check of every word.
struct Load {
    operations: u64,
    seconds: f64,
    latency: LatencySummary,
}

fn result(settings: &SoakSettings, world: &World, field: &Field, watch: &Watch, load: &Load) -> SoakResult {
    let (stats, copies) = (world.far.stats(), world.copies.as_deref());
    SoakResult {
        bench: "soak",
        far: settings.far.clone(),
        memory_bytes: settings.memory,
        workers: settings.workers,
        seed: settings.seed,
        seconds: load.seconds,
        operations: load.operations,
        verify: settings.verify,
        mismatches: field.mismatches.load(Ordering::Relaxed) + copies.map_or(0, Copies::mismatches),
        first_wrong_drop: copies.and_then(Copies::first_mismatch).map(|mismatch| mismatch.to_string()),
        clean_drops_compared: copies.map_or(0, Copies::compared),
        errors: field.errors.load(Ordering::Relaxed),
        ranges: field.ranges.load(Ordering::Relaxed),
        peak_pages: stats.peak_pages,
        limit_pages_max: 3 * settings.local / PAGE,
        limit_breaches: watch.breaches + u64::from(stats.peak_pages > 3 * settings.local / PAGE),
        limit_changes: watch.changes,
        retries: stats.fetch_retries + stats.write_retries,
        ops_per_s: load.operations as f64 / load.seconds,
        p50_us: load.latency.p50_us,
        p99_us: load.latency.p99_us,
        p999_us: load.latency.p999_us,
        major_faults: stats.major_faults,
        helped_installs: stats.delegated_installs,
        minor_faults: stats.minor_faults,
        prefetched_pages: stats.prefetched_pages,
        prefetch_hits: stats.prefetch_hits,
        fetched_bytes: stats.fetched_bytes,
        written_bytes: stats.written_bytes,
    }
}

impl Field {
    fn touch(&self, touch: Touch) {
        let end = (touch.page + touch.pages).min(self.pages);
        (touch.page..end).for_each(|page| _ = self.touch_page(touch.lane, page, touch.store));
    }

    /// Checks every word. Of a page that cannot be had one is enough, and of many such pages in a row the first: each
    /// takes a deadline, and the node is lost.
    fn check_all(&self, lanes: u64) {
        const IN_A_ROW_MAX: u64 = 16;
        let mut in_a_row = 0;
        for page in 0..self.pages {
            let is_had = (0..lanes).all(|lane| self.touch_page(lane, page, false));
            in_a_row = if is_had { 0 } else { in_a_row + 1 };
            if in_a_row == IN_A_ROW_MAX {
                return eprintln!(
                    "{IN_A_ROW_MAX} pages in a row cannot be had: those from page {page} on are not checked"
                );
            }
        }
    }

    /// Whether the page could be had.
    fn touch_page(&self, lane: u64, page: u64, store: bool) -> bool {
        let stored = &self.stored[(page * (REQUEST_LANES + THREAD_LANES) + lane) as usize];
        let last = stored.load(Ordering::Relaxed);
        let result = if store || last & UNKNOWN != 0 {
            self.store(lane, page, stored, last)
        } else {
            self.check(lane, page, last)
        };
        self.operations.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = &result {
            eprintln!("{error}");
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        result.is_ok()
    }

    fn store(&self, lane: u64, page: u64, stored: &AtomicU64, last: u64) -> Result<(), PagingError> {
        let version = (last & !UNKNOWN) + 1;
        let mut bytes = [0; 8 * WORDS];
        bytes[..8].copy_from_slice(&version.to_le_bytes());
        bytes[8..].copy_from_slice(&checksum(lane, page, version).to_le_bytes());
        stored.store(UNKNOWN | version, Ordering::Relaxed);
        self.region.write(place(lane, page), &bytes)?;
        stored.store(version, Ordering::Relaxed);
        Ok(())
    }

    fn check(&self, lane: u64, page: u64, last: u64) -> Result<(), PagingError> {
        let mut bytes = [0; 8 * WORDS];
        self.region.read(place(lane, page), &mut bytes)?;
        let word = |index: usize| u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"));
        let wanted = if last == 0 { 0 } else { checksum(lane, page, last) };
        if word(0) != last || word(1) != wanted {
            self.mismatches.fetch_add(1, Ordering::Relaxed);
            eprintln!("mismatch: page {page} lane {lane}: version {} instead of {last}", word(0));
        }
        Ok(())
    }
}

fn place(lane: u64, page: u64) -> u64 {
    page * PAGE + lane * SLOT_BYTES
}

fn checksum(lane: u64, page: u64, version: u64) -> u64 {
    let mut sum = version ^ lane.rotate_left(20) ^ page.rotate_left(40) ^ 0x5EED_F00D;
    for _ in 0..3 {
        sum = (sum ^ (sum >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    sum
}

impl Handler for Field {
    type Request = Touch;
    type Reply = u64;

    fn handle(&self, touch: Touch) -> u64 {
        self.touch(touch);
        touch.lane
    }
}

/// One touch in flight for each request lane.
struct Requests<'a> {
    copies: Option<&'a Copies>,
    free: VecDeque<u64>,
    random: SmallRng,
    pages: u64,
    start: Nanos,
    end: Nanos,
    next_progress: Nanos,
    over: bool,
    latency: LatencyRecorder,
    progress: &'a mut dyn FnMut(&str, f64),
}

impl<'a> Requests<'a> {
    fn new(
        settings: &SoakSettings,
        copies: Option<&'a Copies>,
        start: Nanos,
        progress: &'a mut dyn FnMut(&str, f64),
    ) -> Self {
        Self {
            copies,
            free: (0..REQUEST_LANES).collect(),
            random: SmallRng::seed_from_u64(settings.seed),
            pages: settings.memory / PAGE,
            start,
            end: start + settings.duration.as_nanos() as Nanos,
            next_progress: start,
            over: false,
            latency: LatencyRecorder::new(),
            progress,
        }
    }
}

impl Frontend for Requests<'_> {
    type Request = Touch;
    type Reply = u64;

    fn poll(&mut self, now: Nanos, room: usize, admit: &mut dyn FnMut(Touch)) -> Activity {
        if now >= self.next_progress {
            self.next_progress = now + 100_000_000;
            (self.progress)("soaking", (now - self.start) as f64 / (self.end - self.start) as f64);
        }
        self.over = now >= self.end || self.copies.is_some_and(|copies| copies.mismatches() > 0);
        if self.over {
            return Activity::Idle;
        }
        let count = room.min(self.free.len());
        for _ in 0..count {
            let lane = self.free.pop_front().expect("counted");
            admit(random_touch(&mut self.random, lane, self.pages));
        }
        if count > 0 { Activity::Busy } else { Activity::Idle }
    }

    fn complete(&mut self, now: Nanos, done: Done<u64>) {
        self.latency.record(now.saturating_sub(done.timing.admitted));
        if let Outcome::Reply(lane) = done.outcome {
            self.free.push_back(lane);
        }
    }

    fn wait(&mut self, timeout: Duration) {
        parking::park(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        parking::waker_of_this_thread()
    }

    fn is_finished(&self) -> bool {
        self.over
    }
}

/// Half of the touches store; a third go to a twentieth of the pages; one in twenty goes on with the pages behind.
fn random_touch(random: &mut SmallRng, lane: u64, pages: u64) -> Touch {
    let range = if random.random_range(0..3) == 0 { pages / 20 } else { pages };
    let run = if random.random_range(0..20) == 0 { random.random_range(2..=SEQUENCE_PAGES_MAX) } else { 1 };
    Touch { lane, page: random.random_range(0..range.max(1)), pages: run, store: random.random() }
}

fn plain_thread(field: &Field, lane: u64, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed ^ lane);
    while !field.stop.load(Ordering::Acquire) {
        field.touch(random_touch(&mut random, lane, field.pages));
    }
}

/// Allocates ranges of a second region, checks that they are zero, fills, checks and frees them. A node without room
/// for a second region is soaked without this.
fn alloc_and_free(far: &FarMemory, field: &Field) {
    const RANGE: u64 = 24 * PAGE;
    let Ok(region) = far.region(64 * RANGE) else { return };
    let mut round = 0;
    while !field.stop.load(Ordering::Acquire) {
        let Some(offset) = region.alloc(RANGE) else { return };
        round += 1;
        for (pass, wanted) in [(0, 0), (1, round)] {
            for page in 0..RANGE / PAGE {
                let at = offset + page * PAGE + 8 * page;
                match region.read_u64(at) {
                    Ok(value) if value == wanted => {}
                    Ok(_) => drop(field.mismatches.fetch_add(1, Ordering::Relaxed)),
                    Err(_) => drop(field.errors.fetch_add(1, Ordering::Relaxed)),
                }
                if pass == 0 && region.write_u64(at, round).is_err() {
                    // The range cannot be judged any more.
                    field.errors.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
        if region.free(offset, RANGE).is_err() {
            field.errors.fetch_add(1, Ordering::Relaxed);
            return;
        }
        field.ranges.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
