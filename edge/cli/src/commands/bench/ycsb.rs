//! `yonder bench ycsb`: its table or its JSON, and Ctrl-C, which undoes what was set up.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use yonder::units::format_bytes;
use yonder_bench::ycsb::{Bench, Settings, Way, YcsbResult};
use yonder_load::{Rate, Requests, SCANS_ARE};

use super::launch::{Launcher, stop_on_ctrl_c};
use super::predictions;
use crate::args::YcsbArgs;
use crate::output::{Bar, json_line, line};

pub(super) fn run(args: &YcsbArgs) -> anyhow::Result<()> {
    let settings = settings(args, stop_on_ctrl_c()?)?;
    let launcher = Launcher::new()?;
    let bench = Bench::prepare(&settings, &launcher)?;
    let (bar, mut all) = (Bar::new("bench ycsb"), Vec::new());
    if !args.json {
        print_head(&settings, bench.far())?;
    }
    for (number, workload) in settings.workloads.iter().enumerate() {
        let all_workloads = settings.workloads.len() as f64;
        let results =
            bench.run(*workload, &mut |what, share| bar.show(what, (number as f64 + share) / all_workloads))?;
        results.iter().for_each(|result| bar.beside(|| tell(result)));
        if args.json {
            results.iter().try_for_each(json_line)?;
        } else {
            for result in &results {
                line(&row(result))?;
                predicted(result).map_or(Ok(()), |told| line(&told))?;
            }
        }
        all.extend(results);
    }
    drop((bar, bench));
    if !args.json && settings.workloads.iter().any(|workload| workload.has_scans()) {
        line(&format!("scans are {SCANS_ARE}: memcached's protocol has none"))?;
    }
    judge(&all)
}

fn settings(args: &YcsbArgs, stop: Arc<AtomicBool>) -> anyhow::Result<Settings> {
    let program = std::env::current_exe().context("cannot find this program's file, to start it again")?;
    Ok(Settings {
        workloads: args.workloads.clone(),
        memory: args.memory,
        value_bytes: args.value_size as usize,
        local: args.local,
        ways: args.ways(),
        dispatch: args.policies(),
        rate: args.rate,
        far: args.far.clone(),
        swap: args.swap_place(),
        workers: args.workers,
        swap_workers: args.swap_workers,
        connections: args.connections,
        depth: args.depth,
        threads: args.threads,
        duration: args.duration,
        runs: args.runs,
        kv: vec![program.into_os_string(), "kv".into()],
        stop,
    })
}

fn print_head(settings: &Settings, far: &str) -> anyhow::Result<()> {
    line(&format!(
        "{} of values, {} local, far memory {far}; {} connections with {} requests each, {}; medians of {} runs (least to most)",
        format_bytes(settings.memory),
        format_bytes(settings.local.resolve(settings.memory)),
        settings.connections,
        settings.depth,
        match settings.rate {
            Rate::Max => "closed loop".to_owned(),
            Rate::PerSecond(rate) => format!("{rate:.0} requests/s"),
        },
        settings.runs
    ))?;
    line(&columns(
        [
            "workload",
            "way",
            "dispatch",
            "ops/s",
            "to swap",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "hit p99 us",
            "major/op",
            "misses",
            "errors",
        ]
        .map(str::to_owned),
    ))
}

fn row(result: &YcsbResult) -> String {
    let spread = |median: Option<f64>, spread: Option<[f64; 2]>, digits: usize, unit: &str| match (median, spread) {
        (Some(median), Some([least, most])) => format!("{median:.digits$}{unit} ({least:.digits$}-{most:.digits$})"),
        _ => "-".to_owned(),
    };
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
    let operations = result.ops_per_s.map(|rate| rate * result.duration_s).filter(|operations| *operations > 0.0);
    let major = result.major_faults.zip(operations).map(|(faults, operations)| faults / operations);
    let errors = match (&result.failed, &result.skipped) {
        (Some(_), _) => "FAILED".to_owned(),
        (None, Some(_)) => "skipped".to_owned(),
        (None, None) => result.errors.to_string(),
    };
    columns([
        name(result),
        result.way.name().to_owned(),
        result.dispatch.unwrap_or("-").to_owned(),
        spread(result.ops_per_s, result.ops_per_s_spread, 0, ""),
        spread(result.ratio_to_swap, result.ratio_to_swap_spread, 2, "x"),
        number(result.p50_us),
        number(result.p99_us),
        number(result.p999_us),
        spread(result.hit_p99_us, result.hit_p99_us_spread, 0, ""),
        major.map_or_else(|| "-".to_owned(), |major| format!("{major:.2}")),
        result.misses.to_string(),
        errors,
    ])
}

fn columns([workload, way, dispatch, rate, ratio, p50, p99, p999, hit, major, misses, errors]: [String; 12]) -> String {
    format!(
        "{workload:>9} {way:>14} {dispatch:>11} {rate:>24} {ratio:>18} {p50:>8} {p99:>8} {p999:>9} {hit:>20} {major:>8} \
         {misses:>7} {errors:>7}"
    )
}

/// What was predicted, and what hits have gained by it; nothing where nothing is predicted or compared.
fn predicted(result: &YcsbResult) -> Option<String> {
    let told = predictions::told(&result.predicted);
    let gained = result.hit_p99_ratio.zip(result.hit_p99_ratio_spread).map(|(ratio, [least, most])| {
        format!("P99 of hits: {ratio:.2}x ({least:.2}-{most:.2}) that of the first policy")
    });
    let dropped = (result.dropped > 0).then(|| format!("{} requests were dropped", result.dropped));
    let all: Vec<String> = [gained, told, dropped].into_iter().flatten().collect();
    (!all.is_empty()).then(|| format!("{:>9} {}", "", all.join("; ")))
}

fn name(result: &YcsbResult) -> String {
    match result.requests {
        Requests::Workload(workload) => workload.to_string(),
        Requests::Mixed { mix, .. } => mix.to_string(),
    }
}

/// Says on standard error why a way was skipped or failed.
fn tell(result: &YcsbResult) {
    let (workload, way) = (name(result), result.way.name());
    if let Some(reason) = &result.skipped {
        eprintln!("SKIP: {workload}, {way}: {reason}");
    }
    if let Some(reason) = &result.failed {
        eprintln!("{workload}, {way}: {reason}");
    }
}

/// Wrong values are a failure of the command, and so is a server whose memory is far and that fails. What the kernel's
/// swap cannot hold is a result.
fn judge(results: &[YcsbResult]) -> anyhow::Result<()> {
    let named = |is_bad: fn(&YcsbResult) -> bool| {
        let bad = results.iter().filter(|result| is_bad(result));
        let names: Vec<_> = bad.map(|result| format!("{} ({})", name(result), result.way.name())).collect();
        names.join(", ")
    };
    let wrong = named(|result| result.wrong_values > 0);
    if !wrong.is_empty() {
        bail!("wrong values of {wrong}; please report this with the command that was run");
    }
    let failed = named(|result| result.failed.is_some() && matches!(result.way, Way::Yield | Way::Busy));
    if !failed.is_empty() {
        bail!("these ended badly, for the reasons above: {failed}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use yonder_load::{Predicted, Workload};

    use super::*;

    fn result(way: Way, ops_per_s: Option<f64>) -> YcsbResult {
        let is_far = matches!(way, Way::Yield | Way::Busy);
        YcsbResult {
            bench: "ycsb",
            requests: Requests::Workload(Workload::YcsbA),
            way,
            dispatch: is_far.then_some("pf-aware"),
            far: is_far.then(|| "emu://".to_owned()),
            swap: (!is_far).then(|| "zram".to_owned()),
            memory_bytes: 1 << 20,
            keys: 1024,
            value_size: 1024,
            local_bytes: 1 << 18,
            group_bytes: None,
            workers: 1,
            connections: 8,
            depth: 1,
            threads: 1,
            duration_s: 2.0,
            offered_per_s: None,
            runs: 3,
            ops_per_s,
            ops_per_s_spread: ops_per_s.map(|rate| [rate - 10.0, rate + 10.0]),
            ratio_to_swap: is_far.then_some(3.5),
            ratio_to_swap_spread: is_far.then_some([3.25, 4.0]),
            p50_us: Some(100.4),
            p99_us: Some(200.0),
            p99_us_spread: None,
            p999_us: Some(300.0),
            hit_p50_us: is_far.then_some(40.0),
            hit_p99_us: is_far.then_some(80.0),
            hit_p99_us_spread: is_far.then_some([70.0, 95.0]),
            hit_p999_us: is_far.then_some(120.0),
            hit_p99_ratio: None,
            hit_p99_ratio_spread: None,
            predicted: Predicted::default(),
            predicted_right_percent: None,
            dropped: 0,
            major_faults: Some(1000.0),
            minor_faults: Some(1.0),
            fetched_bytes: Some(4096.0),
            written_bytes: Some(0.0),
            misses: 0,
            wrong_values: 0,
            errors: 0,
            failed: None,
            skipped: None,
        }
    }

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ways_stand_below_each_other() {
        let far = words(&row(&result(Way::Yield, Some(1000.0))));
        assert_eq!(far, "ycsb-a yield pf-aware 1000 (990-1010) 3.50x (3.25-4.00) 100 200 300 80 (70-95) 0.50 0 0");
        let mut skipped = YcsbResult { p50_us: None, p99_us: None, p999_us: None, ..result(Way::Swap, None) };
        skipped.skipped = Some("run as root".to_owned());
        assert_eq!(words(&row(&skipped)), "ycsb-a swap - - - - - - - - 0 skipped");
    }

    #[test]
    fn what_was_predicted_is_told_below() {
        let mut result = result(Way::Yield, Some(1000.0));
        assert_eq!(predicted(&result), None);
        result.predicted = Predicted { hits_right: 90, hits_wrong: 4, faults_right: 5, faults_wrong: 1 };
        (result.hit_p99_ratio, result.hit_p99_ratio_spread) = (Some(0.31), Some([0.28, 0.352]));
        result.dropped = 3;
        assert_eq!(
            predicted(&result).unwrap().trim(),
            "P99 of hits: 0.31x (0.28-0.35) that of the first policy; 95.00 % of 100 predictions were right; 1 hits were taken \
             for faults, 4 faults for hits; 3 requests were dropped"
        );
    }

    #[test]
    fn wrong_values_and_far_servers_that_fail_fail_the_command() {
        let mut results = vec![result(Way::Yield, Some(1.0)), result(Way::Swap, None)];
        results[1].failed = Some("out of memory".to_owned());
        judge(&results).unwrap();
        assert!(row(&results[1]).ends_with("FAILED"));
        results[0].failed = Some("paging error".to_owned());
        assert!(
            judge(&results).unwrap_err().to_string().contains("ended badly, for the reasons above: ycsb-a (yield)")
        );
        results[1].wrong_values = 2;
        assert!(judge(&results).unwrap_err().to_string().starts_with("wrong values of ycsb-a (swap)"));
    }
}
