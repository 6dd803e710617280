//! `yonder bench`: one benchmark, its table or its JSON.

use std::process::ExitCode;

use anyhow::bail;
use yonder::{Access, Deadlines, Shares};
use yonder_bench::array::{Array, ArrayResult, ArraySettings};
use yonder_bench::fault::FaultSettings;
use yonder_bench::reclaim::ReclaimSettings;
use yonder_bench::soak::SoakSettings;
use yonder_bench::{fault, reclaim, soak, switch};

use crate::args::{ArrayArgs, BenchArgs, BenchWhat, FaultArgs, PagingArgs, ReclaimArgs, SoakArgs, SwitchArgs};
use crate::output::{Bar, json_line};

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        BenchWhat::Array(args) => run_array(args)?,
        BenchWhat::Switch(args) => run_switch(args)?,
        BenchWhat::Fault(args) => run_fault(args)?,
        BenchWhat::Reclaim(args) => run_reclaim(args)?,
        BenchWhat::Soak(args) => run_soak(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The array benchmark's settings for paging flags.
pub(crate) fn array_settings(paging: &PagingArgs) -> ArraySettings {
    ArraySettings {
        memory: paging.memory,
        local: paging.local,
        far: paging.far.clone(),
        workers: paging.workers,
        faults: paging.faults.into(),
        dispatch: paging.dispatch.into(),
        preempt: paging.preempt,
        max_inflight: paging.max_inflight,
        delegation: paging.delegation.into(),
        shares: shares(paging),
        ..ArraySettings::default()
    }
}

pub(crate) fn shares(paging: &PagingArgs) -> Shares {
    Shares { start_percent: paging.reclaim_start, end_percent: paging.reclaim_end, ..Shares::default() }
}

fn run_array(args: &ArrayArgs) -> anyhow::Result<()> {
    let mut settings = array_settings(&args.paging);
    settings.access = if args.probe { Access::Probe } else { Access::Trap };
    settings.duration = args.duration;
    let bar = Bar::new("bench array");
    let array = Array::prepare(&settings, &mut |what, share| bar.show(what, share))?;
    let mut first = true;
    for rate in &args.rate {
        settings.rate = *rate;
        let result = array.run(&settings, &mut |what, share| bar.show(what, share))?;
        if args.json {
            json_line(&result)?;
        } else {
            print_array(&result, first);
        }
        first = false;
    }
    Ok(())
}

fn print_array(result: &ArrayResult, first: bool) {
    if first {
        println!(
            "{} local of {}, {}",
            yonder::units::format_bytes(result.local_bytes),
            yonder::units::format_bytes(result.memory_bytes),
            result.far
        );
        println!(
            "{:>8} {:>9} {:>10} {:>9} {:>9} {:>9} {:>12} {:>8}",
            "faults", "offered/s", "ops/s", "p50 us", "p99 us", "p99.9 us", "major/s", "dropped"
        );
    }
    let offered = result.offered_per_s.map_or_else(|| "max".to_owned(), |rate| format!("{rate:.0}"));
    println!(
        "{:>8} {:>9} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>12.0} {:>8}",
        result.faults,
        offered,
        result.ops_per_s,
        result.p50_us,
        result.p99_us,
        result.p999_us,
        result.major_faults as f64 / result.seconds,
        result.dropped
    );
}

fn run_switch(args: &SwitchArgs) -> anyhow::Result<()> {
    for result in switch::run(args.switches)? {
        if args.json {
            json_line(&result)?;
        } else {
            let cycles = result.cycles_per_switch.map_or_else(String::new, |cycles| format!("{cycles:>8.1} cycles"));
            println!(
                "{:>12} {:>8.2} ns{cycles}   {:>6.2}x a unithread's   ({:.2} to {:.2} ns)",
                result.mechanism,
                result.ns_per_switch,
                result.ratio_to_unithread,
                result.spread_ns[0],
                result.spread_ns[1]
            );
        }
    }
    Ok(())
}

fn run_fault(args: &FaultArgs) -> anyhow::Result<()> {
    let settings =
        FaultSettings { far: args.far.clone(), memory: args.memory, local: args.local, touches: args.touches };
    let bar = Bar::new("bench fault");
    let results = fault::run(&settings, &mut |what, share| bar.show(what, share))?;
    drop(bar);
    for result in results {
        if args.json {
            json_line(&result)?;
            continue;
        }
        println!(
            "{:>8} by {:<5}  p50 {:>7.2} us   p99 {:>7.2} us   p99.9 {:>8.2} us   ({} faults)",
            result.kind,
            result.access,
            result.p50_us,
            result.p99_us,
            result.p999_us,
            result.major_faults + result.minor_faults
        );
        if let Some(stages) = result.stages {
            println!(
                "{:>18} post {:.2}, fetch {:.2}, install {:.2}; handler {:.2}, trap and return {:.2} us",
                "medians:", stages.post_us, stages.fetch_us, stages.install_us, stages.handler_us, stages.trap_us
            );
        }
    }
    Ok(())
}

fn run_reclaim(args: &ReclaimArgs) -> anyhow::Result<()> {
    let settings =
        ReclaimSettings { far: args.far.clone(), memory: args.memory, local: args.local, duration: args.duration };
    let bar = Bar::new("bench reclaim");
    let results = reclaim::run(&settings, &mut |what, share| bar.show(what, share))?;
    drop(bar);
    for result in results {
        if args.json {
            json_line(&result)?;
        } else {
            println!(
                "{:>7} pages  {:>9.0} pages/s   {:>6.3} us CPU a page   {:>5.0} pages a block   {:>9.0} touches/s",
                result.pages, result.ops_per_s, result.cpu_us_per_page, result.pages_per_block, result.touches_per_s
            );
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
    };
    let bar = Bar::new("bench soak");
    let result = soak::run(&settings, &mut |what, share| bar.show(what, share))?;
    drop(bar);
    if args.json {
        json_line(&result)?;
    } else {
        println!(
            "{} operations, {} mismatches, {} errors, {} limit changes, {} breaches, {} retries, {} major faults",
            result.operations,
            result.mismatches,
            result.errors,
            result.limit_changes,
            result.limit_breaches,
            result.retries,
            result.major_faults
        );
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
