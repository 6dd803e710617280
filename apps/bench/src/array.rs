//! `bench array`: the random-index microbenchmark (Adios, sections 2 and 5.1).
//!
//! An array larger than local memory is filled and sealed. Requests carry a random index; the handler reads the value
//! there and the dispatcher checks it. Requests are made inside the dispatcher thread, in an open loop with Poisson
//! arrivals or in a closed loop, so that no network hides what paging costs. Latency counts from the intended start.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::sched::{
    Activity, DispatchPolicy, Done, Frontend, Handler, Idle, Outcome, PollingDelegation, Reclaim, SchedConfig,
    SchedStats, checkpoint, serve,
};
use yonder::units::{LocalSize, Nanos, PAGE_BYTES};
use yonder::{Access, Config, FarMemory, FaultPolicy, PagingError, Placement, Region, Stats};
use yonder_load::{LatencyRecorder, PoissonArrivals, Rate};

use crate::BenchError;

/// Requests that arrived and wait for room, at most; later arrivals are dropped, as a full queue of a NIC would.
const BACKLOG_MAX: usize = 100_000;
/// Requests handed to a worker ahead of time: few, so that the single queue stays single.
const WORKER_QUEUE: usize = 8;
/// The same where the dispatcher reclaims: enough to keep a worker busy for one of its steps.
const WORKER_QUEUE_RECLAIMING: usize = 64;
/// Words of a page that are read: the first words of its first 60 cache lines.
const LINES: u64 = 60;

/// Settings of one run.
#[derive(Clone, Debug)]
pub struct ArraySettings {
    /// Size of the array in bytes.
    pub memory: u64,
    /// Limit of local memory.
    pub local: LocalSize,
    /// Fabric.
    pub far: String,
    /// Worker threads.
    pub workers: usize,
    /// Fault policy.
    pub faults: FaultPolicy,
    /// Dispatch policy.
    pub dispatch: DispatchPolicy,
    /// Whether the handler looks at the page table before it touches the page.
    pub access: Access,
    /// Cooperative preemption.
    pub preempt: Option<Duration>,
    /// Offered load.
    pub rate: Rate,
    /// Measured time; a warm-up of a quarter of it comes before.
    pub duration: Duration,
    /// Unithreads a worker may have in flight.
    pub max_inflight: usize,
    /// Who waits for replies to leave.
    pub delegation: PollingDelegation,
    /// Watermarks of reclaim.
    pub shares: yonder::Shares,
}

impl Default for ArraySettings {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            local: LocalSize::Percent(20.0),
            far: "emu://?latency=2.5us&gbps=100".to_owned(),
            workers: 1,
            faults: FaultPolicy::Yield,
            dispatch: DispatchPolicy::PageFaultAware,
            access: Access::Trap,
            preempt: None,
            rate: Rate::Max,
            duration: Duration::from_secs(5),
            max_inflight: 32,
            delegation: PollingDelegation::On,
            shares: yonder::Shares::default(),
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
    /// Fault policy: `yield`, `busy` or `hybrid`.
    pub faults: &'static str,
    /// Dispatch policy: `pf-aware` or `round-robin`.
    pub dispatch: &'static str,
    /// Whether residency was probed.
    pub probe: bool,
    /// Preemption quantum in microseconds, if any.
    pub preempt_us: Option<f64>,
    /// Offered load in requests per second; absent in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Measured seconds.
    pub seconds: f64,
    /// Requests answered per second.
    pub ops_per_s: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest latency.
    pub max_us: f64,
    /// Arrivals dropped because the queue was full.
    pub dropped: u64,
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Faults that needed none.
    pub minor_faults: u64,
    /// Bytes fetched.
    pub fetched_bytes: u64,
    /// Bytes written back.
    pub written_bytes: u64,
    /// Requests that ended in a paging error.
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

/// Progress of a run, about ten times a second.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, f64);

/// A filled, sealed array that runs are made on, so that a sweep fills it once.
pub struct Array {
    far: FarMemory,
    region: Arc<Region>,
    pages: u64,
    placement: Placement,
}

impl Array {
    /// Fills an array of `settings.memory` bytes and seals it.
    pub fn prepare(settings: &ArraySettings, progress: OnProgress<'_>) -> Result<Self, BenchError> {
        let pages = yonder::units::pages_for(settings.memory);
        let placement = yonder::place(settings.workers);
        let config = Config {
            reclaimer_cpu: placement.reclaimer,
            shares: settings.shares,
            ..Config::with_local(settings.local.resolve(settings.memory))
        };
        let far = FarMemory::open(&settings.far, config)?;
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
        Ok(Self { far, region: Arc::new(region), pages, placement })
    }

    /// Runs requests under `settings`; its memory, local memory, far, access and shares are those of the preparation.
    pub fn run(&self, settings: &ArraySettings, progress: OnProgress<'_>) -> Result<ArrayResult, BenchError> {
        let reclaim = self.placement.reclaim();
        let worker_queue = if reclaim == Reclaim::Dispatcher { WORKER_QUEUE_RECLAIMING } else { WORKER_QUEUE };
        let config = SchedConfig {
            workers: settings.workers,
            faults: settings.faults,
            dispatch: settings.dispatch,
            preempt: settings.preempt,
            max_inflight: if settings.faults == FaultPolicy::Busy && settings.preempt.is_none() {
                1
            } else {
                settings.max_inflight
            },
            unithreads: settings.workers * (settings.max_inflight + worker_queue + 8),
            delegation: settings.delegation,
            idle: Idle::BusyPoll,
            cpus: self.placement.cpus.clone(),
            reclaim,
            worker_queue,
            ..SchedConfig::default()
        };
        let handler = Arc::new(ReadHandler { region: Arc::clone(&self.region) });
        let mut generator = Generator::new(settings, &self.far, self.pages, progress);
        serve(&config, &self.far, &handler, &mut generator, &SchedStats::default())?;
        if generator.wrong > 0 {
            return Err(BenchError::WrongValues(generator.wrong));
        }
        Ok(self.result(settings, generator))
    }

    fn result(&self, settings: &ArraySettings, generator: Generator<'_>) -> ArrayResult {
        let latency = generator.latency.summary();
        let (before, after) = (&generator.before, &generator.after);
        let seconds = generator.measured_ns as f64 / 1e9;
        ArrayResult {
            bench: "array",
            memory_bytes: self.pages * PAGE_BYTES as u64,
            local_bytes: self.far.local(),
            far: settings.far.clone(),
            workers: settings.workers,
            faults: fault_policy_name(settings.faults),
            dispatch: dispatch_policy_name(settings.dispatch),
            probe: settings.access == Access::Probe,
            preempt_us: settings.preempt.map(|quantum| quantum.as_nanos() as f64 / 1e3),
            offered_per_s: generator.rate,
            seconds,
            ops_per_s: latency.count as f64 / seconds,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            p999_us: latency.p999_us,
            max_us: latency.max_us,
            dropped: generator.dropped,
            major_faults: after.major_faults - before.major_faults,
            minor_faults: after.minor_faults - before.minor_faults,
            fetched_bytes: after.fetched_bytes - before.fetched_bytes,
            written_bytes: after.written_bytes - before.written_bytes,
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

/// The name that flags and results use.
#[must_use]
pub fn fault_policy_name(policy: FaultPolicy) -> &'static str {
    match policy {
        FaultPolicy::Yield => "yield",
        FaultPolicy::Busy => "busy",
        FaultPolicy::Hybrid(_) => "hybrid",
    }
}

/// The name that flags and results use.
#[must_use]
pub fn dispatch_policy_name(policy: DispatchPolicy) -> &'static str {
    match policy {
        DispatchPolicy::RoundRobin => "round-robin",
        DispatchPolicy::PageFaultAware => "pf-aware",
    }
}

/// What the array holds at `offset`.
fn value_at(offset: u64) -> u64 {
    (offset ^ 0x5EED).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

struct Index {
    offset: u64,
    intended: Nanos,
}

struct Value {
    offset: u64,
    intended: Nanos,
    value: Result<u64, PagingError>,
}

struct ReadHandler {
    region: Arc<Region>,
}

impl Handler for ReadHandler {
    type Request = Index;
    type Reply = Value;

    fn handle(&self, request: Index) -> Value {
        checkpoint();
        let value = self.region.read_u64(request.offset);
        checkpoint();
        Value { offset: request.offset, intended: request.intended, value }
    }
}

/// Makes requests and checks replies, on the dispatcher thread.
struct Generator<'a> {
    far: &'a FarMemory,
    pages: u64,
    random: SmallRng,
    arrivals: Option<std::iter::Peekable<PoissonArrivals>>,
    backlog: VecDeque<Nanos>,
    rate: Option<f64>,
    measure_from: Nanos,
    end: Nanos,
    measuring: bool,
    over: bool,
    measured_ns: Nanos,
    before: Stats,
    after: Stats,
    latency: LatencyRecorder,
    queued: LatencyRecorder,
    running: LatencyRecorder,
    waiting: LatencyRecorder,
    dropped: u64,
    errors: u64,
    wrong: u64,
    completed: u64,
    progress: OnProgress<'a>,
    next_progress: Nanos,
    started: Nanos,
}

impl<'a> Generator<'a> {
    fn new(settings: &ArraySettings, far: &'a FarMemory, pages: u64, progress: OnProgress<'a>) -> Self {
        let started = yonder::clock::now();
        let duration = settings.duration.as_nanos() as Nanos;
        let rate = match settings.rate {
            Rate::Max => None,
            Rate::PerSecond(rate) => Some(rate),
        };
        Self {
            far,
            pages,
            random: SmallRng::seed_from_u64(0x00AD_1051),
            arrivals: rate.map(|rate| PoissonArrivals::new(rate, started, 7).peekable()),
            backlog: VecDeque::with_capacity(BACKLOG_MAX),
            rate,
            measure_from: started + duration / 4,
            end: started + duration / 4 + duration,
            measuring: false,
            over: false,
            measured_ns: 0,
            before: Stats::default(),
            after: Stats::default(),
            latency: LatencyRecorder::new(),
            queued: LatencyRecorder::new(),
            running: LatencyRecorder::new(),
            waiting: LatencyRecorder::new(),
            dropped: 0,
            errors: 0,
            wrong: 0,
            completed: 0,
            progress,
            next_progress: started,
            started,
        }
    }

    fn request(&mut self, intended: Nanos) -> Index {
        let (page, line) = (self.random.random_range(0..self.pages), self.random.random_range(0..LINES));
        Index { offset: page * PAGE_BYTES as u64 + line * 64, intended }
    }

    /// Moves from warm-up to measurement to the end.
    fn advance(&mut self, now: Nanos) {
        if !self.measuring && now >= self.measure_from {
            self.measuring = true;
            self.before = self.far.stats();
            // From here, not from where it was planned: a machine that stood still must not shorten the measurement.
            self.end = now + (self.end - self.measure_from);
            self.measure_from = now;
        }
        if now >= self.end && !self.over {
            self.over = true;
            self.after = self.far.stats();
            self.measured_ns = now - self.measure_from;
        }
        if now >= self.next_progress {
            self.next_progress = now + 100_000_000;
            (self.progress)("running", (now - self.started) as f64 / (self.end - self.started) as f64);
        }
    }

    /// Moves arrivals whose time has come to the backlog.
    fn arrive(&mut self, now: Nanos) {
        let Some(arrivals) = &mut self.arrivals else { return };
        while let Some(intended) = arrivals.next_if(|intended| *intended <= now) {
            if self.backlog.len() < BACKLOG_MAX {
                self.backlog.push_back(intended);
            } else if self.measuring {
                self.dropped += 1;
            }
        }
    }
}

impl Frontend for Generator<'_> {
    type Request = Index;
    type Reply = Value;

    fn poll(&mut self, now: Nanos, room: usize, admit: &mut dyn FnMut(Index)) -> Activity {
        self.advance(now);
        if self.over {
            return Activity::Idle;
        }
        if self.arrivals.is_none() {
            for _ in 0..room {
                let request = self.request(now);
                admit(request);
            }
            return if room > 0 { Activity::Busy } else { Activity::Idle };
        }
        self.arrive(now);
        let mut activity = Activity::Idle;
        for _ in 0..room {
            let Some(intended) = self.backlog.pop_front() else { break };
            let request = self.request(intended);
            admit(request);
            activity = Activity::Busy;
        }
        activity
    }

    fn complete(&mut self, now: Nanos, done: Done<Value>) {
        let Outcome::Reply(reply) = done.outcome else {
            self.errors += 1;
            return;
        };
        self.completed += 1;
        match reply.value {
            Ok(value) if value == value_at(reply.offset) => {}
            Ok(_) => self.wrong += 1,
            Err(_) => self.errors += 1,
        }
        if self.measuring && !self.over {
            self.latency.record(now.saturating_sub(reply.intended));
            if self.completed.is_multiple_of(16) {
                self.queued.record(done.timing.queued_ns);
                self.running.record(done.timing.running_ns);
                self.waiting.record(done.timing.waiting_ns);
            }
        }
    }

    fn wait(&mut self, timeout: Duration) {
        std::thread::park_timeout(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let dispatcher = std::thread::current();
        Arc::new(move || dispatcher.unpark())
    }

    fn is_finished(&self) -> bool {
        self.over
    }
}
