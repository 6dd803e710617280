//! `bench rocksdb`: GETs and SCANs of RocksDB with its tables in far memory (Adios, section 5.2).
//!
//! Tables are made in a folder, copied to far memory, and read by requests that the dispatcher thread makes (by the `generator`), as
//! those of `array` are. Every value that comes back is compared with what was stored.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use yonder::sched::{SchedConfig, SchedStats, serve};
use yonder::{Config, FarMemory};
use yonder_load::{LatencySummary, Rate};
use yonder_rocksdb::{GET, GetsAndScans, Rocks, Rows, SCAN};

use crate::array::{dispatch_policy_name, fault_policy_name};
use crate::generator::{Counters, Generator, TimedHandler, threads_of};
use crate::{BenchError, OnProgress};

/// Settings of one run.
#[derive(Clone, Debug)]
pub struct RocksSettings {
    /// Bytes of all rows.
    pub memory: u64,
    /// Fabric.
    pub far: String,
    /// Limit of local memory, watermarks, deadlines.
    pub paging: Config,
    /// Threads and policies. The benchmark itself decides how they idle and how long their queues are.
    pub sched: SchedConfig,
    /// Share of the requests that are SCANs, of 0 to 1.
    pub scans: f64,
    /// Rows of a SCAN.
    pub scan_rows: u32,
    /// Offered load.
    pub rate: Rate,
    /// Measured time; a warm-up of a quarter of it comes before.
    pub duration: Duration,
}

/// One run's result; the fields are a contract with scripts. Times are in microseconds, from the intended start.
#[derive(Clone, Debug, Serialize)]
pub struct RocksResult {
    /// Always `rocksdb`.
    pub bench: &'static str,
    /// Bytes of all rows.
    pub memory_bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// Fabric.
    pub far: String,
    /// Worker threads.
    pub workers: usize,
    /// Fault policy: `yield`, `busy` or `hybrid`.
    pub faults: &'static str,
    /// Dispatch policy: `pf-aware`, `round-robin` or `predicted`.
    pub dispatch: &'static str,
    /// Preemption quantum in microseconds, if any.
    pub preempt_us: Option<f64>,
    /// Share of the requests that are SCANs.
    pub scans: f64,
    /// Rows of a SCAN.
    pub scan_rows: u32,
    /// Offered load in requests per second; absent in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Measured seconds.
    pub seconds: f64,
    /// Requests answered per second of the measured time.
    pub ops_per_s: f64,
    /// Median latency of all requests.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Of GETs.
    pub get: LatencySummary,
    /// Of SCANs.
    pub scan: LatencySummary,
    /// As of `array`.
    pub dropped: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Faults that needed none.
    pub minor_faults: u64,
    /// Bytes fetched.
    pub fetched_bytes: u64,
    /// Bytes written back: none once the tables have been.
    pub written_bytes: u64,
}

/// A database in far memory that runs are made on.
pub struct Tables {
    far: FarMemory,
    rocks: Arc<TimedHandler<Rocks>>,
    rows: Rows,
}

impl Tables {
    /// Makes tables of `settings.memory` bytes among the system's temporary files, and copies them to far memory.
    ///
    /// # Errors
    /// If RocksDB is missing, there is no room on the disk, or far memory cannot be had.
    pub fn prepare(settings: &RocksSettings, progress: OnProgress<'_>) -> Result<Self, BenchError> {
        let rows = Rows::of_bytes(settings.memory);
        let far = FarMemory::open(&settings.far, settings.paging)?;
        let rocks = Rocks::filled(rows, &far, progress)?;
        Ok(Self { far, rocks: Arc::new(TimedHandler(rocks)), rows })
    }

    /// Runs requests under `settings`; its memory, far and paging are those of the preparation.
    ///
    /// # Errors
    /// If a value is wrong, or the threads cannot run.
    pub fn run(&self, settings: &RocksSettings, progress: OnProgress<'_>) -> Result<RocksResult, BenchError> {
        let threads = threads_of(&settings.sched, settings.rate);
        let sched = SchedConfig { stack_bytes: yonder_rocksdb::STACK_BYTES, ..threads };
        let requests = SchedStats::default();
        let counters = || Counters { paging: self.far.stats(), predictions: requests.predictions() };
        let questions = GetsAndScans::new(self.rows, (settings.scans, settings.scan_rows), 0x00DB);
        let (load, now) = ((settings.rate, settings.duration), yonder::clock::now());
        let mut generator = Generator::new(questions, load, now, &counters, progress);
        serve(&sched, &self.far, &self.rocks, &mut generator, &requests)?;
        if generator.wrong > 0 {
            return Err(BenchError::WrongValues(generator.wrong));
        }
        let (before, after) = (&generator.before.paging, &generator.after.paging);
        let all = generator.all_latency().summary();
        let seconds = generator.measured_ns as f64 / 1e9;
        Ok(RocksResult {
            bench: "rocksdb",
            memory_bytes: self.rows.bytes(),
            rows: self.rows.count,
            local_bytes: self.far.local(),
            far: settings.far.clone(),
            workers: sched.workers,
            faults: fault_policy_name(sched.faults),
            dispatch: dispatch_policy_name(sched.dispatch),
            preempt_us: sched.preempt.map(|quantum| quantum.as_nanos() as f64 / 1e3),
            scans: settings.scans,
            scan_rows: settings.scan_rows,
            offered_per_s: generator.rate,
            seconds,
            ops_per_s: generator.answered as f64 / seconds,
            p50_us: all.p50_us,
            p99_us: all.p99_us,
            p999_us: all.p999_us,
            get: generator.latency[GET].summary(),
            scan: generator.latency[SCAN].summary(),
            dropped: generator.dropped,
            errors: generator.errors,
            major_faults: after.major_faults - before.major_faults,
            minor_faults: after.minor_faults - before.minor_faults,
            fetched_bytes: after.fetched_bytes - before.fetched_bytes,
            written_bytes: after.written_bytes - before.written_bytes,
        })
    }
}
