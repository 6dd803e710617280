//! `yonder bench kv`, `rocksdb`, `tpcc` and `vector`: applications, under several systems in turn.

use std::time::Duration;

use serde::Serialize;
use yonder::FaultPolicy;
use yonder::sched::{DispatchPolicy, SchedConfig};
use yonder_bench::app::{AppMemory, AppResult, AppRun};
use yonder_bench::kv::{Cache, StoreDetails};
use yonder_bench::rocksdb::{RocksDetails, RocksMix, Tables};
use yonder_bench::tpcc::{TpccDetails, Warehouses};
use yonder_bench::vector::{Lists, SearchDetails, SearchSettings};
use yonder_bench::{BenchError, OnProgress};

use crate::args::{AppBenchArgs, KvBenchArgs, PagingArgs, RocksdbArgs, System, TpccArgs, VectorArgs};
use crate::commands::serve::tpcc_scale;
use crate::output::{Bar, json_line, line};
use crate::setup::Setup;

/// Run time after which a request gives way (Adios, section 5).
const QUANTUM: Duration = Duration::from_micros(5);
/// What a run takes beside its measured time, as a share of that: the warm-up, and the drain.
const BESIDE_MEASURED: f64 = 0.5;

pub(super) fn kv(args: &KvBenchArgs) -> anyhow::Result<()> {
    let bar = Bar::new("bench kv");
    let cache = Cache::prepare(memory(&args.app), args.value_size as usize, &mut |what, share| bar.show(what, share))?;
    let describe = |details: &StoreDetails| {
        let StoreDetails { items, value_bytes } = details;
        format!("{items} items with values of {value_bytes} bytes")
    };
    take_turns(&args.app, &bar, describe, |run, progress| cache.run(run, progress))
}

pub(super) fn rocksdb(args: &RocksdbArgs) -> anyhow::Result<()> {
    let bar = Bar::new("bench rocksdb");
    let mix = RocksMix { scans: args.scans, scan_rows: args.scan_rows };
    let tables = Tables::prepare(memory(&args.app), &mut |what, share| bar.show(what, share))?;
    let describe = |details: &RocksDetails| {
        let RocksDetails { rows, scans, scan_rows } = details;
        format!("{rows} rows; {} % of the requests are SCANs of {scan_rows} rows", scans * 100.0)
    };
    take_turns(&args.app, &bar, describe, |run, progress| tables.run(run, mix, progress))
}

pub(super) fn tpcc(args: &TpccArgs) -> anyhow::Result<()> {
    let bar = Bar::new("bench tpcc");
    let scale = tpcc_scale(args.app.paging.memory.size, args.shrink);
    let mut sized = args.app.paging.clone();
    sized.memory.size = scale.bytes(0);
    let runs = args.app.turns as usize * args.app.rate.len() * args.app.systems.len().max(1);
    let time = args.app.duration.mul_f64(runs as f64 * (1.0 + BESIDE_MEASURED));
    let far = (sized.memory.far.clone(), Setup::from(&sized).paging);
    let tables = Warehouses::prepare(scale, far, time, &mut |what, share| bar.show(what, share))?;
    let describe = |details: &TpccDetails| format!("{} warehouses", details.warehouses);
    take_turns(&args.app, &bar, describe, |run, progress| tables.run(run, progress))
}

pub(super) fn vector(args: &VectorArgs) -> anyhow::Result<()> {
    let bar = Bar::new("bench vector");
    let settings = SearchSettings { lists: args.lists, probes: args.probes, neighbours: args.neighbours };
    let lists = Lists::prepare(memory(&args.app), settings, &mut |what, share| bar.show(what, share))?;
    let describe = |details: &SearchDetails| {
        let SearchDetails { vectors, lists, probes, neighbours, recall } = details;
        format!("{vectors} vectors in {lists} lists; {neighbours} neighbours in {probes} of them, recall {recall:.3}")
    };
    take_turns(&args.app, &bar, describe, |run, progress| lists.run(run, progress))
}

fn memory(args: &AppBenchArgs) -> AppMemory {
    let PagingArgs { memory, .. } = &args.paging;
    AppMemory { data: memory.size, far: memory.far.clone(), paging: Setup::from(&args.paging).paging }
}

/// Runs each system at each load, as often as was asked for, and prints what comes of it.
fn take_turns<D: Serialize>(
    args: &AppBenchArgs,
    bar: &Bar,
    describe: impl Fn(&D) -> String,
    run: impl Fn(&AppRun, OnProgress<'_>) -> Result<AppResult<D>, BenchError>,
) -> anyhow::Result<()> {
    let sched = Setup::from(&args.paging).sched;
    let systems = match &*args.systems {
        [] => vec![sched],
        systems => systems.iter().map(|system| with_system(&sched, *system)).collect(),
    };
    let mut is_first = true;
    for rate in &args.rate {
        for _ in 0..args.turns {
            for sched in &systems {
                let asked = AppRun { sched: sched.clone(), rate: *rate, duration: args.duration };
                let result = run(&asked, &mut |what, share| bar.show(what, share))?;
                if args.json {
                    json_line(&result)?;
                } else {
                    if is_first {
                        print_head(&result, &describe(&result.details))?;
                    }
                    print(&result)?;
                }
                is_first = false;
            }
        }
    }
    Ok(())
}

/// These threads as those of a system.
fn with_system(sched: &SchedConfig, system: System) -> SchedConfig {
    let (faults, dispatch, preempt) = match system {
        System::Yield => (FaultPolicy::Yield, DispatchPolicy::PageFaultAware, None),
        System::RoundRobin => (FaultPolicy::Yield, DispatchPolicy::RoundRobin, None),
        System::Busy => (FaultPolicy::Busy, DispatchPolicy::RoundRobin, None),
        System::Preempt => (FaultPolicy::Busy, DispatchPolicy::RoundRobin, Some(QUANTUM)),
    };
    SchedConfig { faults, dispatch, preempt, ..sched.clone() }
}

fn print_head<D>(result: &AppResult<D>, what: &str) -> anyhow::Result<()> {
    line(&format!(
        "{what}; {} local of {}, {}; latencies of {}",
        yonder::units::format_bytes(result.local_bytes),
        yonder::units::format_bytes(result.memory_bytes),
        result.far,
        result.main_kind.0
    ))?;
    line(&format!(
        "{:>8} {:>8} {:>11} {:>9} {:>9} {:>11} {:>11} {:>11} {:>9} {:>8}",
        "faults", "preempt", "dispatch", "offered/s", "ops/s", "p50 us", "p99 us", "p99.9 us", "major/op", "dropped"
    ))
}

fn print<D>(result: &AppResult<D>) -> anyhow::Result<()> {
    let offered = result.offered_per_s.map_or_else(|| "max".to_owned(), |rate| format!("{rate:.0}"));
    let preempt = result.preempt_us.map_or_else(|| "-".to_owned(), |quantum| format!("{quantum} us"));
    let latency = &result.main_kind.1;
    line(&format!(
        "{:>8} {:>8} {:>11} {:>9} {:>9.0} {:>11.1} {:>11.1} {:>11.1} {:>9.2} {:>8}",
        result.faults,
        preempt,
        result.dispatch,
        offered,
        result.ops_per_s,
        latency.p50_us,
        latency.p99_us,
        latency.p999_us,
        result.major_faults as f64 / (result.ops_per_s * result.seconds),
        result.dropped
    ))?;
    match result.errors {
        0 => Ok(()),
        errors => line(&format!("{errors} requests have failed")),
    }
}
