//! `yonder bench`: one benchmark, its table or its JSON.

mod app_systems;
mod apps;
mod auto;
mod del_get;
mod errors;
mod fault_breakdown;
mod governor;
mod launch;
mod notify;
mod peers;
mod pictures;
mod poster;
mod predictions;
mod programs;
mod redis;
mod remote;
mod sequence;
mod size;
mod store;
mod threads;
mod verdict;
mod victims;
mod ycsb;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{bail, ensure};
use yonder::{Access, FarMemory};
use yonder_bench::array::{Array, ArrayResult, ArraySettings};
use yonder_bench::fault::{FaultResult, FaultSettings};
use yonder_bench::peers::run_resident;
use yonder_bench::reclaim::{ReclaimResult, ReclaimSettings};
use yonder_bench::rread::Direction;
use yonder_bench::soak::SoakSettings;
use yonder_bench::switch::SwitchResult;
use yonder_bench::{Summary, fault, reclaim, scale_clients, soak, switch};
use yonder_metrics::{MetricsServer, Sample};

pub(super) use self::fault_breakdown::{by_name, picture as breakdown_bars};
pub(super) use self::launch::{Launcher, stop_on_ctrl_c};
pub(super) use self::programs::run_prefix;
use crate::args::{ArrayArgs, BenchArgs, BenchWhat, Json, MemoryArgs, SwitchArgs, is_of_this_machine};
use crate::output::{Bar, json_line, line, with_bar};
use crate::setup::Setup;
use crate::table::{Column, Printer, number, offered, with_spread};

const ARRAY: &[Column<ArrayResult>] = &[
    Column("faults", 14, |result| result.faults.to_owned()),
    Column("dispatch", 11, |result| result.dispatch.to_owned()),
    Column("offered/s", 9, |result| offered(result.offered_per_s)),
    Column("ops/s", 10, |result| number(result.ops_per_s, 0)),
    Column("p50 us", 9, |result| number(result.p50_us, 1)),
    Column("p99 us", 9, |result| number(result.p99_us, 1)),
    Column("p99.9 us", 9, |result| number(result.p999_us, 1)),
    Column("hit p50 us", 10, |result| number(result.hit_p50_us, 1)),
    Column("hit p99 us", 10, |result| number(result.hit_p99_us, 1)),
    Column("hit p99.9 us", 12, |result| number(result.hit_p999_us, 1)),
    Column("major/s", 12, |result| number(result.counts.major_faults as f64 / result.seconds, 0)),
    Column("dropped", 8, |result| result.dropped.to_string()),
];

const SWITCHES: &[Column<SwitchResult>] = &[
    Column("mechanism", 12, |result| result.mechanism.to_owned()),
    Column("ns (least to most)", 24, |result| with_spread(result.ns_per_switch, result.spread_ns, 2, "")),
    Column("cycles", 8, |result| number(result.cycles_per_switch, 1)),
    Column("x unithread", 11, |result| number(result.ratio_to_unithread, 2)),
];

const FAULTS: &[Column<FaultResult>] = &[
    Column("kind", 8, |result| result.kind.to_owned()),
    Column("by", 5, |result| result.access.to_owned()),
    Column("p50 us", 8, |result| number(result.p50_us, 2)),
    Column("p99 us", 8, |result| number(result.p99_us, 2)),
    Column("p99.9 us", 8, |result| number(result.p999_us, 2)),
    Column("faults", 8, |result| (result.counts.major_faults + result.counts.minor_faults).to_string()),
    Column("post", 6, |result| number(result.stages.as_ref().map(|stages| stages.post_us), 2)),
    Column("fetch", 6, |result| number(result.stages.as_ref().map(|stages| stages.fetch_us), 2)),
    Column("install", 7, |result| number(result.stages.as_ref().map(|stages| stages.install_us), 2)),
    Column("handler", 7, |result| number(result.stages.as_ref().map(|stages| stages.handler_us), 2)),
    Column("trap, return", 12, |result| number(result.stages.as_ref().map(|stages| stages.trap_us), 2)),
];

const RECLAIMED: &[Column<ReclaimResult>] = &[
    Column("pages", 7, |result| result.pages.to_owned()),
    Column("pages/s", 9, |result| number(result.ops_per_s, 0)),
    Column("CPU us/page", 11, |result| number(result.cpu_us_per_page, 3)),
    Column("pages/block", 11, |result| number(result.pages_per_block, 0)),
    Column("touches/s", 9, |result| number(result.touches_per_s, 0)),
];

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        BenchWhat::Array(args) => run_array(args)?,
        BenchWhat::Kv(args) => app_systems::kv(args)?,
        BenchWhat::Rocksdb(args) => app_systems::rocksdb(args)?,
        BenchWhat::Tpcc(args) => app_systems::tpcc(args)?,
        BenchWhat::Vector(args) => app_systems::vector(args)?,
        BenchWhat::Switch(args) => run_switch(args)?,
        BenchWhat::Notify(args) => notify::run(args)?,
        BenchWhat::Fault(args) => run_fault(args)?,
        BenchWhat::FaultBreakdown(args) => fault_breakdown::run(args.parts())?,
        BenchWhat::Reclaim(args) => run_reclaim(args)?,
        BenchWhat::Soak(args) => run_soak(args)?,
        BenchWhat::Seq(args) => sequence::run(args)?,
        BenchWhat::Threads(args) => threads::run(args)?,
        BenchWhat::Victims(args) => victims::run(args)?,
        BenchWhat::Auto(args) => auto::run(args)?,
        BenchWhat::Governor(args) => governor::run(args)?,
        BenchWhat::Size(args) => size::run(args)?,
        BenchWhat::Store(args) => store::run(args)?,
        BenchWhat::Rread(args) => remote::run_rread(args)?,
        BenchWhat::Rwrite(args) => remote::run_access(args.parts(), Direction::Write)?,
        BenchWhat::Ralloc(args) => remote::run_ralloc(args)?,
        BenchWhat::ScaleClients(args) => remote::run_scale_clients(args)?,
        BenchWhat::ScalePages(args) => remote::run_scale_pages(args)?,
        BenchWhat::Migrate(args) => apps::run_migrate(args)?,
        BenchWhat::Tenants(args) => remote::run_tenants(args)?,
        BenchWhat::Image(args) => apps::run_image(args)?,
        BenchWhat::Tree(args) => apps::run_tree(args)?,
        BenchWhat::Objects(args) => apps::run_objects(args)?,
        BenchWhat::Frame(args) => apps::run_frame(args)?,
        BenchWhat::Programs(args) => programs::run(args)?,
        BenchWhat::DelGet(args) => del_get::run(args)?,
        BenchWhat::Errors(args) => errors::run(args)?,
        BenchWhat::Redis(args) => redis::run(args)?,
        BenchWhat::Ycsb(args) => ycsb::run(args)?,
        BenchWhat::Poster(args) => poster::run(args.parts())?,
        BenchWhat::Peers(args) => peers::run(args.parts())?,
        BenchWhat::Resident(args) => run_resident(args)?,
        BenchWhat::KernelCosts => json_line(&yonder_bench::costs::of_kernel()?)?,
        BenchWhat::ScaleClient(args) => scale_clients::run_client(&launch::client_task(args))?,
        BenchWhat::Guarded(args) => launch::become_guarded(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Major faults of an operation, where both were counted, of runs that lasted so long.
fn major_faults_per_operation(summary: &Summary, seconds: f64) -> Option<f64> {
    let operations = summary.ops_per_s.map(|rate| rate * seconds).filter(|operations| *operations > 0.0);
    summary.major_faults.zip(operations).map(|(faults, operations)| faults / operations)
}

fn run_array(args: &ArrayArgs) -> anyhow::Result<()> {
    args.paging.credential.show()?;
    let Setup { paging, sched } = Setup::from(&args.paging);
    let MemoryArgs { far, size: memory, local } = args.paging.memory.clone();
    let mut settings = ArraySettings {
        paging,
        sched,
        access: if args.probe { Access::Probe } else { Access::Trap },
        distribution: args.dist,
        duration: args.duration,
        ..ArraySettings::new(far, memory, local)
    };
    let bar = Bar::new("bench array");
    let array = Array::prepare(&settings, &mut |what, share| bar.show(what, share))?;
    let _metrics = args.metrics.as_deref().map(|address| serve_metrics(address, array.far().clone())).transpose()?;
    let mut printer = Printer::new(args.json, ARRAY);
    for (number, rate) in args.rate.iter().enumerate() {
        settings.rate = *rate;
        let result = array.run(&settings, &mut |what, share| bar.show(what, share))?;
        if number == 0 {
            let [local, all] = [result.local_bytes, result.memory_bytes].map(yonder::units::format_bytes);
            printer.say(&format!("{local} local of {all}, {}", result.far))?;
        }
        printer.print(&result)?;
        predictions::words(&result.predicted).map_or(Ok(()), |words| printer.say(&format!("{:>8} {words}", "")))?;
    }
    Ok(())
}

/// Shows what far memory counts while the benchmark runs, until the result is dropped.
fn serve_metrics(address: &str, far: FarMemory) -> anyhow::Result<MetricsServer> {
    let example = yonder_metrics::DEFAULT_ADDRESS;
    ensure!(
        is_of_this_machine(address),
        "{address} is reached from other machines: type an address of this machine, such as {example}"
    );
    let sample = move || Sample { paging: Some(far.stats()), ..Sample::default() };
    Ok(yonder_metrics::serve(address, Arc::new(sample))?)
}

fn run_switch(args: &Json<SwitchArgs>) -> anyhow::Result<()> {
    Printer::new(args.json, SWITCHES).all(&switch::run(args.bench.switches)?)
}

fn run_fault(args: &Json<FaultSettings>) -> anyhow::Result<()> {
    let results = with_bar("bench fault", |progress| fault::run(&args.bench, progress))?;
    Printer::new(args.json, FAULTS).all(&results)
}

fn run_reclaim(args: &Json<ReclaimSettings>) -> anyhow::Result<()> {
    let results = with_bar("bench reclaim", |progress| reclaim::run(&args.bench, progress))?;
    Printer::new(args.json, RECLAIMED).all(&results)
}

fn run_soak(args: &Json<SoakSettings>) -> anyhow::Result<()> {
    let result = with_bar("bench soak", |progress| soak::run(&args.bench, progress))?;
    if args.json {
        json_line(&result)?;
    } else {
        line(&format!(
            "{} operations, {} mismatches, {} clean drops compared, {} errors, {} limit changes, {} breaches, {} retries, \
             {} major faults",
            result.operations,
            result.mismatches,
            result.clean_drops_compared,
            result.errors,
            result.limit_changes,
            result.limit_breaches,
            result.retries,
            result.major_faults
        ))?;
    }
    if let Some(wrong_drop) = &result.first_wrong_drop {
        bail!("far memory is damaged: {wrong_drop}; please report the command and its seed");
    }
    if result.mismatches > 0 || result.limit_breaches > 0 {
        bail!(
            "far memory is damaged: {} mismatches, {} limit breaches; please report the command and its seed",
            result.mismatches,
            result.limit_breaches
        );
    }
    Ok(())
}
