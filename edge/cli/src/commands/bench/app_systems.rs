//! `yonder bench kv`, `rocksdb`, `tpcc` and `vector`: applications, under several systems in turn.

use std::time::Duration;

use serde::Serialize;
use yonder::FaultPolicy;
use yonder::sched::{DispatchPolicy, InstallDelegation, SchedConfig};
use yonder::units::format_bytes;
use yonder_bench::app::{AppMemory, AppResult, AppRun};
use yonder_bench::comparison::{self, Ended, Series};
use yonder_bench::kv::{Cache, StoreDetails};
use yonder_bench::policies::Choice as _;
use yonder_bench::rocksdb::{RocksDetails, RocksMix, Tables};
use yonder_bench::tpcc::{TpccDetails, Warehouses};
use yonder_bench::vector::{Lists, SearchDetails, SearchSettings};
use yonder_bench::{BenchError, OnProgress};

use crate::args::{
    AppBenchArgs, KvBenchArgs, MemoryArgs, PagingArgs, RocksdbArgs, System, ThreadArgs, TpccArgs, VectorArgs,
};
use crate::commands::serve::tpcc_scale;
use crate::output::Bar;
use crate::setup::Setup;
use crate::table::{Column, Printer, number, offered, with_spread};

/// Run time after which a request gives way (Adios, section 5).
const QUANTUM: Duration = Duration::from_micros(5);
/// What a run takes beside its measured time, as a share of that: the warm-up, and the drain.
const BESIDE_MEASURED: f64 = 0.5;

pub(super) fn kv(args: &KvBenchArgs) -> anyhow::Result<()> {
    args.app.paging.credential.show()?;
    let bar = Bar::new("bench kv");
    let cache = Cache::prepare(memory(&args.app), args.value_size as usize, &mut |what, share| bar.show(what, share))?;
    let describe = |details: &StoreDetails| {
        let StoreDetails { items, value_bytes } = details;
        format!("{items} items with values of {value_bytes} bytes")
    };
    take_turns(&args.app, &bar, describe, |run, progress| cache.run(run, progress))
}

pub(super) fn rocksdb(args: &RocksdbArgs) -> anyhow::Result<()> {
    args.app.paging.credential.show()?;
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
    args.app.paging.credential.show()?;
    let bar = Bar::new("bench tpcc");
    let scale = tpcc_scale(args.app.paging.memory.size, args.shrink);
    let mut sized = args.app.paging.clone();
    sized.memory.size = scale.bytes(0);
    let points = args.app.points().len() * args.app.rate.len();
    let runs = args.app.turns as usize * points * args.app.systems.len().max(1);
    let time = args.app.duration.mul_f64(runs as f64 * (1.0 + BESIDE_MEASURED));
    let far = (sized.memory.far.clone(), far_memory(&args.app, &sized).paging);
    let tables = Warehouses::prepare(scale, far, time, &mut |what, share| bar.show(what, share))?;
    let describe = |details: &TpccDetails| format!("{} warehouses", details.warehouses);
    take_turns(&args.app, &bar, describe, |run, progress| tables.run(run, progress))
}

pub(super) fn vector(args: &VectorArgs) -> anyhow::Result<()> {
    args.app.paging.credential.show()?;
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
    let MemoryArgs { size, far, .. } = &args.paging.memory;
    AppMemory { data: *size, far: far.clone(), paging: far_memory(args, &args.paging).paging }
}

/// Far memory for the largest number of workers that is compared, which leaves the fewest CPUs to others.
fn far_memory(args: &AppBenchArgs, paging: &PagingArgs) -> Setup {
    let workers = args.points().iter().map(|point| point.threads.workers).max().expect("there is a point");
    Setup::from(&PagingArgs { threads: ThreadArgs { workers, ..paging.threads.clone() }, ..paging.clone() })
}

/// Runs each system at each point and load, as often as was asked for, and prints what comes of it.
fn take_turns<D: Serialize>(
    args: &AppBenchArgs,
    bar: &Bar,
    describe: impl Fn(&D) -> String,
    run: impl Fn(&AppRun, OnProgress<'_>) -> Result<AppResult<D>, BenchError>,
) -> anyhow::Result<()> {
    let points = args.points();
    let loads = points.iter().flat_map(|point| args.rate.iter().map(move |rate| (point, rate)));
    let (mut printer, mut is_first) = (Printer::new(args.json, columns()), true);
    for (point, rate) in loads {
        let sched = Setup::from(point).sched;
        let systems = match &*args.systems {
            [] => vec![sched],
            systems => systems.iter().map(|system| with_system(&sched, *system)).collect(),
        };
        let mut all: Vec<_> = systems.into_iter().map(Series::new).collect();
        let mut show = |what: &str, share: f64| bar.show(what, share);
        comparison::take_turns(
            &mut all,
            args.turns as usize,
            &mut show,
            |sched| sched.faults.name().to_owned(),
            |sched, _| {
                let asked = AppRun { sched: sched.clone(), rate: *rate, duration: args.duration };
                let result = run(&asked, &mut |what, share| bar.show(what, share))?;
                if std::mem::take(&mut is_first) {
                    let [local, all] = [result.local_bytes, result.memory_bytes].map(format_bytes);
                    let (what, kind) = (describe(&result.details), result.main_kind.0);
                    printer.say(&format!("{what}; {local} local of {all}, {}; latencies of {kind}", result.far))?;
                }
                printer.print(&result)?;
                anyhow::Ok(Ended::Well(result))
            },
        )?;
        if args.turns > 1 {
            all.iter().try_for_each(|series| printer.say(&medians(series)))?;
        }
    }
    Ok(())
}

/// A line for each system: what its turns have come to.
fn medians<D>(series: &Series<SchedConfig, AppResult<D>>) -> String {
    let of = |figure: fn(&AppResult<D>) -> f64, digits| {
        with_spread(series.median(figure), series.spread(figure), digits, "")
    };
    format!(
        "median of {} turns (least to most), faults {}, preempt {}, dispatch {}, installs {}: {} ops/s, p50 {} us, p99.9 {} us",
        series.trials.len(),
        series.variant.faults.name(),
        if series.variant.preempt.is_some() { "on" } else { "off" },
        series.variant.dispatch.name(),
        series.variant.installs.name(),
        of(|result| result.ops_per_s, 0),
        of(|result| result.main_kind.1.p50_us, 1),
        of(|result| result.main_kind.1.p999_us, 1)
    )
}

/// These threads as those of a system.
fn with_system(sched: &SchedConfig, system: System) -> SchedConfig {
    let (faults, dispatch) = match system {
        System::Yield | System::YieldAlone => (FaultPolicy::Yield, DispatchPolicy::PageFaultAware),
        System::RoundRobin => (FaultPolicy::Yield, DispatchPolicy::RoundRobin),
        System::Busy | System::Preempt => (FaultPolicy::Busy, DispatchPolicy::RoundRobin),
        System::BusyDelegated => (FaultPolicy::BusyDelegated, DispatchPolicy::RoundRobin),
    };
    let preempt = matches!(system, System::Preempt).then_some(QUANTUM);
    let installs = match system {
        System::YieldAlone => InstallDelegation::Off,
        System::BusyDelegated => InstallDelegation::On,
        System::Yield | System::RoundRobin | System::Busy | System::Preempt => sched.installs,
    };
    SchedConfig { faults, dispatch, preempt, installs, ..sched.clone() }
}

/// What a table shows of each run.
fn columns<D>() -> Vec<Column<AppResult<D>>> {
    vec![
        Column("workers", 7, |result| result.workers.to_string()),
        Column("depth", 6, |result| result.max_inflight.to_string()),
        Column("faults", 14, |result| result.faults.to_owned()),
        Column("preempt", 8, |result| {
            result.preempt_us.map_or_else(|| "-".to_owned(), |quantum| format!("{quantum} us"))
        }),
        Column("dispatch", 11, |result| result.dispatch.to_owned()),
        Column("installs", 8, |result| result.install_delegation.to_owned()),
        Column("offered/s", 9, |result| offered(result.offered_per_s)),
        Column("ops/s", 9, |result| number(result.ops_per_s, 0)),
        Column("p50 us", 11, |result| number(result.main_kind.1.p50_us, 1)),
        Column("p99 us", 11, |result| number(result.main_kind.1.p99_us, 1)),
        Column("p99.9 us", 11, |result| number(result.main_kind.1.p999_us, 1)),
        Column("major/op", 9, |result| {
            number(result.counts.major_faults as f64 / (result.ops_per_s * result.seconds), 2)
        }),
        Column("dropped", 8, |result| result.dropped.to_string()),
        Column("failed", 7, |result| result.counts.errors.to_string()),
    ]
}
