//! `yonder load`: load on a server, measured from the intended start of each request.

mod apps;

use std::process::ExitCode;

use yonder_load::{KvLoad, LoadResult, LoadSettings, Requests, SCANS_ARE};

use crate::args::{LoadArgs, LoadKvArgs, LoadWhat};
use crate::output::{Bar, json_line, line};

pub(crate) fn run(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        LoadWhat::Kv(args) => kv(args),
        LoadWhat::Rocksdb(args) => apps::rocksdb(args),
        LoadWhat::Tpcc(args) => apps::tpcc(args),
        LoadWhat::Vector(args) => apps::vector(args),
    }
}

fn kv(args: &LoadKvArgs) -> anyhow::Result<ExitCode> {
    let mut load = KvLoad::new(settings(args))?;
    if !args.no_fill {
        let bar = Bar::new("load kv");
        load.fill(|progress| bar.show("filling", progress.ops as f64 / args.keys as f64))?;
    }
    let result = {
        let bar = Bar::new("load kv");
        load.run(args.rate, args.duration, |progress| {
            let share = progress.elapsed.as_secs_f64() / args.duration.as_secs_f64();
            bar.show(&format!("{} requests, p99 {:.0} us", progress.ops, progress.p99_us), share);
        })?
    };
    if args.json {
        json_line(&result)?
    } else {
        print(&result)?;
    }
    result.verdict()?;
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &LoadKvArgs) -> LoadSettings {
    LoadSettings {
        keys: args.keys,
        value_size: args.value_size as usize,
        requests: match args.workload {
            Some(workload) => Requests::Workload(workload),
            None => Requests::Mixed { dist: args.dist, mix: args.mix },
        },
        connections: args.connections,
        threads: args.threads,
        depth: args.depth,
        ..LoadSettings::new(args.target.clone())
    }
}

fn print(result: &LoadResult) -> anyhow::Result<()> {
    line(&format!("offered {:>10.0} /s   answered {:>10.0} /s", result.offered_per_s, result.ops_per_s))?;
    line(&format!(
        "latency  p50 {:.1} us   p99 {:.1} us   p99.9 {:.1} us   max {:.1} us",
        result.p50_us, result.p99_us, result.p999_us, result.max_us
    ))?;
    print_workload(result)?;
    line(&format!(
        "misses {}   dropped {}   errors {}   wrong values {}",
        result.misses, result.dropped, result.errors, result.wrong_values
    ))?;
    line(&format!(
        "server: {} major faults, {} minor faults, {} fetched, {} written",
        result.major_faults,
        result.minor_faults,
        yonder::units::format_bytes(result.fetched_bytes),
        yonder::units::format_bytes(result.written_bytes)
    ))?;
    if let Some(first) = &result.first_error {
        line(&format!("first error: {first}"))?;
    }
    Ok(())
}

/// Latencies of each kind of operation of a workload, and what a scan is.
fn print_workload(result: &LoadResult) -> anyhow::Result<()> {
    let Requests::Workload(workload) = result.settings.requests else { return Ok(()) };
    line(&format!("workload {workload}:"))?;
    let kinds = [
        ("read", Some(result.get)),
        ("update", Some(result.set)),
        ("insert", result.insert),
        ("scan", result.scan),
        ("read-modify-write", result.read_modify_write),
    ];
    let kinds = kinds.into_iter().filter_map(|(kind, latency)| Some((kind, latency?)));
    for (kind, latency) in kinds.filter(|(_, latency)| latency.count > 0) {
        line(&format!(
            "{kind:>19} {:>9}   p50 {:.1} us   p99 {:.1} us   p99.9 {:.1} us",
            latency.count, latency.p50_us, latency.p99_us, latency.p999_us
        ))?;
    }
    if result.scan.is_some() {
        line(&format!("scans are {SCANS_ARE}: memcached's protocol has none"))?;
    }
    Ok(())
}
