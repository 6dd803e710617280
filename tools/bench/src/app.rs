//! Applications with their data in far memory, requested within the process (Adios, section 5.2): what `array`, `kv`,
//! `rocksdb`, `tpcc` and `vector` have in common.
//!
//! An application is prepared once (`App`) and run under several systems in turn. Requests are made by the dispatcher
//! thread, by the `generator`, as those of `array` are, and every answer is judged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use yonder::sched::{Handler, Predictions, SchedConfig, SchedStats, serve};
use yonder::{Config, FarMemory};
use yonder_load::{LatencySummary, Predicted, Rate, RequestSource};

use crate::generator::{Counters, Generator, TimedHandler, threads_of};
use crate::policies::Choice as _;
use crate::{BenchError, Counts, OnProgress, WireBytes};

/// Far memory of an application.
#[derive(Clone, Debug)]
pub struct AppMemory {
    /// Bytes of its data.
    pub data: u64,
    /// Fabric.
    pub far: String,
    /// Limit of local memory, watermarks, deadlines.
    pub paging: Config,
}

/// Settings of one run.
#[derive(Clone, Debug)]
pub struct AppRun {
    /// Threads and policies. The benchmark itself decides how they idle and how long their queues are.
    pub sched: SchedConfig,
    /// Offered load.
    pub rate: Rate,
    /// Measured time; a warm-up of a quarter of it comes before.
    pub duration: Duration,
}

/// One run's result; the fields are a contract with scripts, and so are those of an application's `D` and the latencies
/// of each kind of its requests, which stand beside them. Times are in microseconds, from the intended start.
#[derive(Clone, Debug, Serialize)]
pub struct AppResult<D> {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// Bytes of the data.
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
    /// Preemption quantum in microseconds, if any.
    pub preempt_us: Option<f64>,
    /// Requests that a worker may have under way.
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
    /// By kinds of requests.
    #[serde(flatten)]
    pub kinds: BTreeMap<&'static str, LatencySummary>,
    /// The kind that the paper reports.
    #[serde(skip)]
    pub main_kind: (&'static str, LatencySummary),
    /// Requests without a major fault, of those whose latency counts.
    pub hits: u64,
    /// Median latency of these.
    pub hit_p50_us: f64,
    /// 99th percentile.
    pub hit_p99_us: f64,
    /// 99.9th percentile.
    pub hit_p999_us: f64,
    /// What was predicted in the measured time, and what came true.
    #[serde(flatten)]
    pub predicted: Predicted,
    /// Arrivals in the measured time that found the queue full, or were still in it long after the end (those have the
    /// time until then as their latency).
    pub dropped: u64,
    /// Fetched pages that the dispatcher mapped.
    pub helped_installs: u64,
    /// What all of that came to on the wire.
    #[serde(flatten)]
    pub wire: WireBytes,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
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
    /// What is the application's own.
    #[serde(flatten)]
    pub details: D,
}

/// An application that runs are made on.
pub(crate) struct App<H> {
    bench: &'static str,
    memory: AppMemory,
    far: FarMemory,
    handler: Arc<TimedHandler<H>>,
    /// Stack of a unithread that handles a request.
    stack_bytes: usize,
    runs: AtomicU64,
}

impl<H, Reply, E> App<H>
where
    H: Handler<Reply = Result<Reply, E>>,
    Reply: Send + 'static,
    E: Send + 'static,
{
    /// An application that answers by `handler`, whose data are in `far`.
    pub(crate) fn new(
        bench: &'static str,
        memory: AppMemory,
        far: FarMemory,
        (handler, stack_bytes): (H, usize),
    ) -> Self {
        Self { bench, memory, far, handler: Arc::new(TimedHandler(handler)), stack_bytes, runs: AtomicU64::new(0) }
    }

    /// Where its data are.
    pub(crate) fn far(&self) -> &FarMemory {
        &self.far
    }

    /// What answers.
    pub(crate) fn handler(&self) -> &H {
        &self.handler.0
    }

    /// Asks `source` for a while, which is made of another seed for each run: what a short run asks for would else lie
    /// in local memory already, where the run before it has left it. `details` are asked for afterwards.
    pub(crate) fn run<Q, D>(
        &self,
        run: &AppRun,
        source: impl FnOnce(u64) -> Q,
        details: impl FnOnce() -> D,
        progress: OnProgress<'_>,
    ) -> Result<AppResult<D>, BenchError>
    where
        Q: RequestSource<Request = H::Request, Answer = Reply>,
    {
        let sched = SchedConfig { stack_bytes: self.stack_bytes, ..threads_of(&run.sched, run.rate) };
        let requests = SchedStats::default();
        let counters = || Counters::of(&self.far, &requests);
        let (load, now) = ((run.rate, run.duration), yonder::clock::now());
        let mut generator =
            Generator::<Q, E>::new(source(self.runs.fetch_add(1, Ordering::Relaxed)), load, now, &counters, progress);
        serve(&sched, &self.far, &self.handler, &mut generator, &requests)?;
        if generator.wrong > 0 {
            return Err(BenchError::WrongValues(generator.wrong));
        }
        Ok(self.result(&sched, &generator, details()))
    }

    /// What the measured time has come to.
    fn result<Q, D>(&self, sched: &SchedConfig, generator: &Generator<'_, Q, E>, details: D) -> AppResult<D>
    where
        Q: RequestSource<Request = H::Request, Answer = Reply>,
    {
        let (before, after) = (&generator.before.paging, &generator.after.paging);
        let (all, hit) = (generator.all_latency().summary(), generator.hit_latency.summary());
        let kinds: Vec<LatencySummary> = generator.latency.iter().map(yonder_load::LatencyRecorder::summary).collect();
        let Predictions { hits_right, hits_wrong, faults_right, faults_wrong } =
            generator.after.predictions.since(&generator.before.predictions);
        let (seconds, shares) = (generator.measured_ns as f64 / 1e9, self.memory.paging.shares);
        AppResult {
            bench: self.bench,
            memory_bytes: self.memory.data,
            local_bytes: self.far.local(),
            far: self.memory.far.clone(),
            workers: sched.workers,
            faults: sched.faults.name(),
            dispatch: sched.dispatch.name(),
            order: sched.order.name(),
            preempt_us: sched.preempt.map(|quantum| quantum.as_nanos() as f64 / 1e3),
            max_inflight: sched.max_inflight,
            delegation: sched.delegation.name(),
            install_delegation: sched.installs.name(),
            prefetch: self.memory.paging.prefetch.name(),
            reclaim: sched.reclaim.name(),
            reclaim_start_percent: shares.start_percent,
            reclaim_end_percent: shares.end_percent,
            offered_per_s: generator.rate,
            seconds,
            ops_per_s: generator.answered as f64 / seconds,
            p50_us: all.p50_us,
            p99_us: all.p99_us,
            p999_us: all.p999_us,
            max_us: all.max_us,
            main_kind: (Q::KINDS[0], kinds[0]),
            kinds: Q::KINDS.iter().copied().zip(kinds).collect(),
            hits: hit.count,
            hit_p50_us: hit.p50_us,
            hit_p99_us: hit.p99_us,
            hit_p999_us: hit.p999_us,
            predicted: Predicted { hits_right, hits_wrong, faults_right, faults_wrong },
            dropped: generator.dropped,
            helped_installs: after.delegated_installs - before.delegated_installs,
            wire: generator.after.wire.since(generator.before.wire),
            counts: Counts { errors: generator.errors, ..Counts::between(before, after) },
            queued_p50_us: generator.queued.percentile_us(50.0),
            running_p50_us: generator.running.percentile_us(50.0),
            waiting_p50_us: generator.waiting.percentile_us(50.0),
            install_p50_us: after.stages.install.since(&before.stages.install).quantile(0.5) as f64 / 1e3,
            resume_p50_us: after.stages.resume.since(&before.stages.resume).quantile(0.5) as f64 / 1e3,
            reclaim_cpu: (after.reclaim_cpu_ns - before.reclaim_cpu_ns) as f64 / generator.measured_ns as f64,
            details,
        }
    }
}
