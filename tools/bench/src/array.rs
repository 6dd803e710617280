//! `bench array`: the random-index microbenchmark (Adios, sections 2 and 5.1).
//!
//! An array larger than local memory is filled and sealed. Requests carry a random index; the handler reads the value
//! there and the dispatcher checks it. Where faults are predicted, an index is known by its page. Requests are made
//! inside the dispatcher thread (by the `generator`), in an open loop with Poisson arrivals or in a closed loop, so
//! that no network hides what paging costs.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::sched::{Handler, SchedConfig, SchedStats, checkpoint, serve};
use yonder::units::{LocalSize, PAGE_BYTES};
use yonder::{Access, Config, FarMemory, PagingError, Region};
use yonder_load::{Distribution, KeyChooser, Questions, Rate};

use crate::generator::{Counters, Generator, TimedHandler, threads_of};
use crate::policies::Choice as _;
use crate::{BenchError, OnProgress, WireBytes};

/// Words of a page that are read: the first words of its first 60 cache lines.
pub(crate) const LINES: u64 = 60;

/// Settings of one run.
#[derive(Clone, Debug)]
pub struct ArraySettings {
    /// Size of the array in bytes.
    pub memory: u64,
    /// Fabric.
    pub far: String,
    /// Limit of local memory, watermarks, deadlines.
    pub paging: Config,
    /// Threads and policies. The benchmark itself decides how they idle and how long their queues are.
    pub sched: SchedConfig,
    /// Whether the handler looks at the page table before it touches the page.
    pub access: Access,
    /// How popular pages are; the words of a page are equally so.
    pub distribution: Distribution,
    /// Offered load.
    pub rate: Rate,
    /// Measured time; a warm-up of a quarter of it comes before.
    pub duration: Duration,
}

impl ArraySettings {
    /// An array of `memory` bytes, `local` of them local, on one worker that yields, in a closed loop of five seconds.
    #[must_use]
    pub fn new(far: String, memory: u64, local: LocalSize) -> Self {
        let placement = yonder::place(1);
        Self {
            memory,
            far,
            paging: Config { reclaimer_cpu: placement.reclaimer, ..Config::with_local(local.resolve(memory)) },
            sched: SchedConfig {
                max_inflight: 32,
                reclaim: placement.reclaim(),
                cpus: placement.cpus,
                ..SchedConfig::default()
            },
            access: Access::Trap,
            distribution: Distribution::Uniform,
            rate: Rate::Max,
            duration: Duration::from_secs(5),
        }
    }
}

/// One run's result; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ArrayResult {
    /// Always `array`.
    pub bench: &'static str,
    /// Size of the array in bytes.
    pub memory_bytes: u64,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// Fabric.
    pub far: String,
    /// Worker threads.
    pub workers: usize,
    /// Fault policy: `yield`, `busy`, `busy-delegated` or `hybrid`.
    pub faults: &'static str,
    /// Dispatch policy: `pf-aware`, `round-robin` or `predicted`.
    pub dispatch: &'static str,
    /// What a worker ran first: `classes` or `fifo`.
    pub order: &'static str,
    /// Whether residency was probed.
    pub probe: bool,
    /// Preemption quantum in microseconds, if any.
    pub preempt_us: Option<f64>,
    /// Unithreads a worker may have in flight.
    pub max_inflight: usize,
    /// Who waits for replies to leave: `on` (the dispatcher) or `off` (the worker).
    pub delegation: &'static str,
    /// Who maps pages for a worker that has other requests to run: `on` (the dispatcher too) or `off` (the worker).
    pub install_delegation: &'static str,
    /// What was fetched before it was touched: `none`, `readahead` or `trend`.
    pub prefetch: &'static str,
    /// Who made the reclaimer's steps: `thread` or `dispatcher`.
    pub reclaim: &'static str,
    /// Free share of local memory at which reclaim starts, in percent.
    pub reclaim_start_percent: f64,
    /// Free share of local memory at which reclaim stops, in percent.
    pub reclaim_end_percent: f64,
    /// How popular pages are: `uniform` or `zipf:` and its exponent.
    pub dist: Distribution,
    /// Offered load in requests per second; absent in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Measured seconds.
    pub seconds: f64,
    /// Requests answered per second of the measured time.
    pub ops_per_s: f64,
    /// Median latency, from the intended start, of the requests whose intended start lies in the measured time.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest latency.
    pub max_us: f64,
    /// Requests without a major fault, of those whose latency counts.
    pub hits: u64,
    /// Median latency of these.
    pub hit_p50_us: f64,
    /// 99th percentile.
    pub hit_p99_us: f64,
    /// 99.9th percentile.
    pub hit_p999_us: f64,
    /// Requests that were predicted to hit and did, in the measured time. These four are zero where nothing is
    /// predicted.
    pub predicted_hits_right: u64,
    /// Predicted to hit, and had a major fault.
    pub predicted_hits_wrong: u64,
    /// Predicted to fault, and did.
    pub predicted_faults_right: u64,
    /// Predicted to fault, and had no major fault.
    pub predicted_faults_wrong: u64,
    /// Arrivals in the measured time that found the queue full, or were still in it long after the end (those have the
    /// time until then as their latency).
    pub dropped: u64,
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Faults that needed none.
    pub minor_faults: u64,
    /// Fetched pages that the dispatcher mapped.
    pub helped_installs: u64,
    /// Bytes fetched.
    pub fetched_bytes: u64,
    /// Bytes written back.
    pub written_bytes: u64,
    /// What all of that came to on the wire.
    #[serde(flatten)]
    pub wire: WireBytes,
    /// Requests of the whole run that ended in a paging error or a panic; they count nowhere else.
    pub errors: u64,
    /// Median time of a request by stage, in microseconds.
    pub queued_p50_us: f64,
    /// Median time on the CPU.
    pub running_p50_us: f64,
    /// Median time waiting for pages.
    pub waiting_p50_us: f64,
    /// Median time from a page's arrival to its mapping.
    pub install_p50_us: f64,
    /// Median time from a page's mapping to the resumed handler.
    pub resume_p50_us: f64,
    /// CPU of the reclaimer as a share of one CPU.
    pub reclaim_cpu: f64,
}

/// A filled, sealed array that runs are made on, so that a sweep fills it once.
pub struct Array {
    far: FarMemory,
    region: Arc<Region>,
    pages: u64,
}

impl Array {
    /// Fills an array of `settings.memory` bytes and seals it.
    pub fn prepare(settings: &ArraySettings, progress: OnProgress<'_>) -> Result<Self, BenchError> {
        let pages = yonder::units::pages_for(settings.memory);
        let far = FarMemory::open(&settings.far, settings.paging)?;
        let mut region = far.region(pages * PAGE_BYTES as u64)?.with_access(settings.access);
        for page in 0..pages {
            for line in 0..LINES {
                let offset = page * PAGE_BYTES as u64 + line * 64;
                region.write_u64(offset, value_at(offset))?;
            }
            if page % 8192 == 0 {
                progress("filling", page as f64 / pages as f64);
            }
        }
        region.seal()?;
        Ok(Self { far, region: Arc::new(region), pages })
    }

    /// Runs requests under `settings`; its memory, far, paging and access are those of the preparation.
    pub fn run(&self, settings: &ArraySettings, progress: OnProgress<'_>) -> Result<ArrayResult, BenchError> {
        let sched = threads_of(&settings.sched, settings.rate);
        let handler = Arc::new(TimedHandler(ReadHandler { region: Arc::clone(&self.region) }));
        let questions = Indices {
            pages: KeyChooser::new(self.pages, settings.distribution, 0x5EED),
            random: SmallRng::seed_from_u64(0x00AD_1051),
        };
        let requests = SchedStats::default();
        let counters = || Counters::of(&self.far, &requests);
        let mut generator =
            Generator::new(questions, (settings.rate, settings.duration), yonder::clock::now(), &counters, progress);
        serve(&sched, &self.far, &handler, &mut generator, &requests)?;
        if generator.wrong > 0 {
            return Err(BenchError::WrongValues(generator.wrong));
        }
        Ok(self.result(settings, &sched, &generator))
    }

    fn result(
        &self,
        settings: &ArraySettings,
        sched: &SchedConfig,
        generator: &Generator<'_, Indices, PagingError>,
    ) -> ArrayResult {
        let latency = generator.all_latency().summary();
        let hit = generator.hit_latency.summary();
        let (before, after) = (&generator.before.paging, &generator.after.paging);
        let predictions = generator.after.predictions.since(&generator.before.predictions);
        let seconds = generator.measured_ns as f64 / 1e9;
        ArrayResult {
            bench: "array",
            memory_bytes: self.pages * PAGE_BYTES as u64,
            local_bytes: self.far.local(),
            far: settings.far.clone(),
            workers: sched.workers,
            faults: sched.faults.name(),
            dispatch: sched.dispatch.name(),
            order: sched.order.name(),
            probe: settings.access == Access::Probe,
            preempt_us: sched.preempt.map(|quantum| quantum.as_nanos() as f64 / 1e3),
            max_inflight: sched.max_inflight,
            delegation: sched.delegation.name(),
            install_delegation: sched.installs.name(),
            prefetch: settings.paging.prefetch.name(),
            reclaim: sched.reclaim.name(),
            reclaim_start_percent: settings.paging.shares.start_percent,
            reclaim_end_percent: settings.paging.shares.end_percent,
            dist: settings.distribution,
            offered_per_s: generator.rate,
            seconds,
            ops_per_s: generator.answered as f64 / seconds,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            p999_us: latency.p999_us,
            max_us: latency.max_us,
            hits: generator.hit_latency.len(),
            hit_p50_us: hit.p50_us,
            hit_p99_us: hit.p99_us,
            hit_p999_us: hit.p999_us,
            predicted_hits_right: predictions.hits_right,
            predicted_hits_wrong: predictions.hits_wrong,
            predicted_faults_right: predictions.faults_right,
            predicted_faults_wrong: predictions.faults_wrong,
            dropped: generator.dropped,
            major_faults: after.major_faults - before.major_faults,
            minor_faults: after.minor_faults - before.minor_faults,
            helped_installs: after.delegated_installs - before.delegated_installs,
            fetched_bytes: after.fetched_bytes - before.fetched_bytes,
            written_bytes: after.written_bytes - before.written_bytes,
            wire: generator.after.wire.since(generator.before.wire),
            errors: generator.errors,
            queued_p50_us: generator.queued.percentile_us(50.0),
            running_p50_us: generator.running.percentile_us(50.0),
            waiting_p50_us: generator.waiting.percentile_us(50.0),
            install_p50_us: after.stages.install.since(&before.stages.install).quantile(0.5) as f64 / 1e3,
            resume_p50_us: after.stages.resume.since(&before.stages.resume).quantile(0.5) as f64 / 1e3,
            reclaim_cpu: (after.reclaim_cpu_ns - before.reclaim_cpu_ns) as f64 / generator.measured_ns as f64,
        }
    }
}

/// What the array holds at `offset`.
pub(crate) fn value_at(offset: u64) -> u64 {
    (offset ^ 0x5EED).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Random words of the array.
struct Indices {
    pages: KeyChooser,
    /// Chooses the word of a page.
    random: SmallRng,
}

impl Questions for Indices {
    /// Where to read.
    type Request = u64;
    type Answer = Value;
    const KINDS: &'static [&'static str] = &["read"];

    fn ask(&mut self) -> u64 {
        let (page, line) = (self.pages.next_key(), self.random.random_range(0..LINES));
        page * PAGE_BYTES as u64 + line * 64
    }

    fn judge(&self, answer: &Value) -> Option<usize> {
        (answer.value == value_at(answer.offset)).then_some(0)
    }
}

/// What was where.
struct Value {
    offset: u64,
    value: u64,
}

struct ReadHandler {
    region: Arc<Region>,
}

impl Handler for ReadHandler {
    type Request = u64;
    type Reply = Result<Value, PagingError>;

    fn handle(&self, offset: u64) -> Self::Reply {
        checkpoint();
        let value = self.region.read_u64(offset);
        checkpoint();
        Ok(Value { offset, value: value? })
    }

    fn key(&self, offset: &u64) -> Option<u64> {
        Some(offset / PAGE_BYTES as u64)
    }
}
