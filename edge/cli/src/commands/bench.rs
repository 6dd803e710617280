//! `yonder bench`: one benchmark, its table or its JSON.

mod app_systems;
mod apps;
mod del_get;
mod errors;
mod fault_breakdown;
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
mod store;
mod ycsb;

use std::process::ExitCode;

use anyhow::bail;
use yonder::{Access, Deadlines};
use yonder_bench::array::{Array, ArrayResult, ArraySettings};
use yonder_bench::fault::FaultSettings;
use yonder_bench::peers::run_resident;
use yonder_bench::reclaim::ReclaimSettings;
use yonder_bench::rread::Direction;
use yonder_bench::soak::SoakSettings;
use yonder_bench::{fault, reclaim, scale_clients, soak, switch};
use yonder_load::Predicted;

pub(super) use self::fault_breakdown::picture as breakdown_bars;
use crate::args::{ArrayArgs, BenchArgs, BenchWhat, FaultArgs, MemoryArgs, ReclaimArgs, SoakArgs, SwitchArgs};
use crate::output::{Bar, json_line, line};
use crate::setup::Setup;

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
        BenchWhat::Store(args) => store::run(args)?,
        BenchWhat::Rread(args) => remote::run_rread(args)?,
        BenchWhat::Rwrite(args) => remote::run_access(args.parts(), Direction::Write)?,
        BenchWhat::Ralloc(args) => remote::run_ralloc(args)?,
        BenchWhat::ScaleClients(args) => remote::run_scale_clients(args)?,
        BenchWhat::ScalePages(args) => remote::run_scale_pages(args)?,
        BenchWhat::Migrate(args) => apps::run_migrate(args)?,
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
        BenchWhat::Resident(args) => run_resident(&args.into())?,
        BenchWhat::ScaleClient(args) => scale_clients::run_client(&launch::client_task(args))?,
        BenchWhat::Guarded(args) => launch::become_guarded(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run_array(args: &ArrayArgs) -> anyhow::Result<()> {
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
    let mut first = true;
    for rate in &args.rate {
        settings.rate = *rate;
        let result = array.run(&settings, &mut |what, share| bar.show(what, share))?;
        if args.json {
            json_line(&result)?;
        } else {
            print_array(&result, first)?;
        }
        first = false;
    }
    Ok(())
}

fn print_array(result: &ArrayResult, first: bool) -> anyhow::Result<()> {
    if first {
        line(&format!(
            "{} local of {}, {}",
            yonder::units::format_bytes(result.local_bytes),
            yonder::units::format_bytes(result.memory_bytes),
            result.far
        ))?;
        line(&format!(
            "{:>8} {:>11} {:>9} {:>10} {:>9} {:>9} {:>9} {:>10} {:>10} {:>12} {:>12} {:>8}",
            "faults",
            "dispatch",
            "offered/s",
            "ops/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "hit p50 us",
            "hit p99 us",
            "hit p99.9 us",
            "major/s",
            "dropped"
        ))?;
    }
    let offered = result.offered_per_s.map_or_else(|| "max".to_owned(), |rate| format!("{rate:.0}"));
    line(&format!(
        "{:>8} {:>11} {:>9} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>10.1} {:>10.1} {:>12.1} {:>12.0} {:>8}",
        result.faults,
        result.dispatch,
        offered,
        result.ops_per_s,
        result.p50_us,
        result.p99_us,
        result.p999_us,
        result.hit_p50_us,
        result.hit_p99_us,
        result.hit_p999_us,
        result.major_faults as f64 / result.seconds,
        result.dropped
    ))?;
    let predicted = Predicted {
        hits_right: result.predicted_hits_right,
        hits_wrong: result.predicted_hits_wrong,
        faults_right: result.predicted_faults_right,
        faults_wrong: result.predicted_faults_wrong,
    };
    predictions::told(&predicted).map_or(Ok(()), |told| line(&format!("{:>8} {told}", "")))
}

fn run_switch(args: &SwitchArgs) -> anyhow::Result<()> {
    for result in switch::run(args.switches)? {
        if args.json {
            json_line(&result)?;
        } else {
            let cycles = result.cycles_per_switch.map_or_else(String::new, |cycles| format!("{cycles:>8.1} cycles"));
            line(&format!(
                "{:>12} {:>8.2} ns{cycles}   {:>6.2}x a unithread's   ({:.2} to {:.2} ns)",
                result.mechanism,
                result.ns_per_switch,
                result.ratio_to_unithread,
                result.spread_ns[0],
                result.spread_ns[1]
            ))?;
        }
    }
    Ok(())
}

fn run_fault(args: &FaultArgs) -> anyhow::Result<()> {
    let MemoryArgs { far, size: memory, local } = args.memory.clone();
    let settings = FaultSettings { far, memory, local, touches: args.touches };
    let bar = Bar::new("bench fault");
    let results = fault::run(&settings, &mut |what, share| bar.show(what, share))?;
    drop(bar);
    for result in results {
        if args.json {
            json_line(&result)?;
            continue;
        }
        line(&format!(
            "{:>8} by {:<5}  p50 {:>7.2} us   p99 {:>7.2} us   p99.9 {:>8.2} us   ({} faults)",
            result.kind,
            result.access,
            result.p50_us,
            result.p99_us,
            result.p999_us,
            result.major_faults + result.minor_faults
        ))?;
        if let Some(stages) = result.stages {
            line(&format!(
                "{:>18} post {:.2}, fetch {:.2}, install {:.2}; handler {:.2}, trap and return {:.2} us",
                "medians:", stages.post_us, stages.fetch_us, stages.install_us, stages.handler_us, stages.trap_us
            ))?;
        }
    }
    Ok(())
}

fn run_reclaim(args: &ReclaimArgs) -> anyhow::Result<()> {
    let MemoryArgs { far, size: memory, local } = args.memory.clone();
    let settings = ReclaimSettings { far, memory, local, duration: args.duration };
    let bar = Bar::new("bench reclaim");
    let results = reclaim::run(&settings, &mut |what, share| bar.show(what, share))?;
    drop(bar);
    for result in results {
        if args.json {
            json_line(&result)?;
        } else {
            line(&format!(
                "{:>7} pages  {:>9.0} pages/s   {:>6.3} us CPU a page   {:>5.0} pages a block   {:>9.0} touches/s",
                result.pages, result.ops_per_s, result.cpu_us_per_page, result.pages_per_block, result.touches_per_s
            ))?;
        }
    }
    Ok(())
}

fn run_soak(args: &SoakArgs) -> anyhow::Result<()> {
    let settings = SoakSettings {
        far: args.far.clone(),
        memory: args.memory,
        local: args.local,
        workers: args.workers,
        duration: args.duration,
        seed: args.seed,
        deadlines: Deadlines { fault: args.deadline, ..Deadlines::default() },
        verify: args.verify.into(),
    };
    let bar = Bar::new("bench soak");
    let result = soak::run(&settings, &mut |what, share| bar.show(what, share))?;
    drop(bar);
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
