//! `yonder bench rocksdb`.

use std::time::Duration;

use yonder::FaultPolicy;
use yonder::sched::{DispatchPolicy, SchedConfig};
use yonder_bench::rocksdb::{RocksResult, RocksSettings, Tables};

use crate::args::{MemoryArgs, RocksdbArgs, System};
use crate::output::{Bar, json_line, line};
use crate::setup::Setup;

/// Run time after which a request gives way (Adios, section 5).
const QUANTUM: Duration = Duration::from_micros(5);

pub(super) fn run(args: &RocksdbArgs) -> anyhow::Result<()> {
    let Setup { paging, sched } = Setup::from(&args.paging);
    let MemoryArgs { far, size: memory, .. } = args.paging.memory.clone();
    let (scans, scan_rows, duration) = (args.scans, args.scan_rows, args.duration);
    let systems = match &*args.systems {
        [] => vec![sched.clone()],
        systems => systems.iter().map(|system| with_system(&sched, *system)).collect(),
    };
    let mut settings = RocksSettings { memory, far, paging, sched, scans, scan_rows, rate: args.rate[0], duration };
    let bar = Bar::new("bench rocksdb");
    let tables = Tables::prepare(&settings, &mut |what, share| bar.show(what, share))?;
    let mut first = true;
    for rate in &args.rate {
        for _ in 0..args.turns {
            for sched in &systems {
                settings = RocksSettings { rate: *rate, sched: sched.clone(), ..settings };
                let result = tables.run(&settings, &mut |what, share| bar.show(what, share))?;
                if args.json {
                    json_line(&result)?;
                } else {
                    print(&result, first)?;
                }
                first = false;
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

fn print(result: &RocksResult, first: bool) -> anyhow::Result<()> {
    if first {
        line(&format!(
            "{} rows; {} local of {}, {}; {} % are SCANs of {} rows",
            result.rows,
            yonder::units::format_bytes(result.local_bytes),
            yonder::units::format_bytes(result.memory_bytes),
            result.far,
            result.scans * 100.0,
            result.scan_rows
        ))?;
        line(&format!(
            "{:>8} {:>8} {:>11} {:>9} {:>9} {:>11} {:>11} {:>11} {:>12} {:>9} {:>8}",
            "faults",
            "preempt",
            "dispatch",
            "offered/s",
            "ops/s",
            "GET p50 us",
            "p99 us",
            "p99.9 us",
            "SCAN p50 us",
            "major/op",
            "dropped"
        ))?;
    }
    let offered = result.offered_per_s.map_or_else(|| "max".to_owned(), |rate| format!("{rate:.0}"));
    let preempt = result.preempt_us.map_or_else(|| "-".to_owned(), |quantum| format!("{quantum} us"));
    line(&format!(
        "{:>8} {:>8} {:>11} {:>9} {:>9.0} {:>11.1} {:>11.1} {:>11.1} {:>12.1} {:>9.2} {:>8}",
        result.faults,
        preempt,
        result.dispatch,
        offered,
        result.ops_per_s,
        result.get.p50_us,
        result.get.p99_us,
        result.get.p999_us,
        result.scan.p50_us,
        result.major_faults as f64 / (result.ops_per_s * result.seconds),
        result.dropped
    ))?;
    match result.errors {
        0 => Ok(()),
        errors => line(&format!("{errors} requests have failed")),
    }
}
