//! `yonder bench ycsb`: its table or its JSON, and Ctrl-C, which undoes what was set up.

use yonder::units::format_bytes;
use yonder_bench::Summary;
use yonder_bench::flags::each_once;
use yonder_bench::ycsb::{Bench, Settings, Variant, YcsbResult};
use yonder_load::{Rate, Requests, SCANS_ARE};

use super::launch::{Launcher, stop_on_ctrl_c};
use super::major_faults_per_operation;
use super::predictions;
use super::verdict::{Verdict, judge};
use crate::args::Json;
use crate::output::Bar;
use crate::table::{Column, Printer, number, with_spread};

const COLUMNS: &[Column<YcsbResult>] = &[
    Column("workload", 9, name),
    Column("way", 14, |result| result.way.name().to_owned()),
    Column("dispatch", 11, |result| result.dispatch.unwrap_or("-").to_owned()),
    Column("ops/s", 24, |result| with_spread(result.summary.ops_per_s, result.summary.ops_per_s_spread, 0, "")),
    Column("to swap", 18, |result| with_spread(result.ratio_to_swap, result.ratio_to_swap_spread, 2, "x")),
    Column("p50 us", 8, |result| number(result.summary.p50_us, 0)),
    Column("p99 us", 8, |result| number(result.summary.p99_us, 0)),
    Column("p99.9 us", 9, |result| number(result.summary.p999_us, 0)),
    Column("hit p99 us", 20, |result| with_spread(result.hit_p99_us, result.hit_p99_us_spread, 0, "")),
    Column("major/op", 8, |result| number(major_faults_per_operation(&result.summary, result.duration_s), 2)),
    Column("misses", 7, |result| result.misses.to_string()),
    Column("errors", 7, Verdict::errors),
];

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let launcher = Launcher::new()?;
    let kv = vec![launcher.program().into(), "kv".into()];
    let mut settings = Settings { kv, stop: stop_on_ctrl_c()?, ..args.bench.clone() };
    each_once(&mut settings.dispatch);
    let bench = Bench::prepare(&settings, &launcher)?;
    let (bar, mut all, mut printer) = (Bar::new("bench ycsb"), Vec::new(), Printer::new(args.json, COLUMNS));
    printer.begin(&format!(
        "{} of values, {} local, far memory {}; {} connections with {} requests each, {}; medians of {} runs (least to most)",
        format_bytes(settings.memory),
        format_bytes(settings.local.resolve(settings.memory)),
        bench.far(),
        settings.connections,
        settings.depth,
        match settings.rate {
            Rate::Max => "closed loop".to_owned(),
            Rate::PerSecond(rate) => format!("{rate:.0} requests/s"),
        },
        settings.runs
    ))?;
    for (number, workload) in settings.workloads.iter().enumerate() {
        let workloads = settings.workloads.len() as f64;
        let results = bench.run(*workload, &mut |what, share| bar.show(what, (number as f64 + share) / workloads))?;
        results.iter().for_each(|result| bar.beside(|| result.tell()));
        for result in &results {
            printer.print(result)?;
            predicted(result).map_or(Ok(()), |words| printer.say(&words))?;
        }
        all.extend(results);
    }
    drop((bar, bench));
    if settings.workloads.iter().any(|workload| workload.has_scans()) {
        printer.say(&format!("scans are {SCANS_ARE}: memcached's protocol has none"))?;
    }
    judge(&all)
}

impl Verdict for YcsbResult {
    fn subject(&self) -> String {
        format!("{}, {}", name(self), self.way.name())
    }

    fn summary(&self) -> Option<&Summary> {
        Some(&self.summary)
    }

    fn wrong(&self) -> u64 {
        self.wrong_values
    }

    /// What the kernel's swap cannot hold is a result.
    fn may_fail(&self) -> bool {
        !matches!(self.way, Variant::Yield | Variant::Busy)
    }
}

/// What was predicted, and what hits have gained by it; nothing where nothing is predicted or compared.
fn predicted(result: &YcsbResult) -> Option<String> {
    let predictions = predictions::words(&result.predicted);
    let gained = result.hit_p99_ratio.zip(result.hit_p99_ratio_spread).map(|(ratio, [least, most])| {
        format!("P99 of hits: {ratio:.2}x ({least:.2}-{most:.2}) that of the first policy")
    });
    let dropped = (result.summary.dropped > 0).then(|| format!("{} requests were dropped", result.summary.dropped));
    let all: Vec<String> = [gained, predictions, dropped].into_iter().flatten().collect();
    (!all.is_empty()).then(|| format!("{:>9} {}", "", all.join("; ")))
}

fn name(result: &YcsbResult) -> String {
    match result.requests {
        Requests::Workload(workload) => workload.to_string(),
        Requests::Mixed { mix, .. } => mix.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use yonder_load::{Predicted, Workload};

    use super::*;
    use crate::table::row;

    fn result(way: Variant, ops_per_s: Option<f64>) -> YcsbResult {
        let is_far = matches!(way, Variant::Yield | Variant::Busy);
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
            workers: 1,
            connections: 8,
            depth: 1,
            threads: 1,
            duration_s: 2.0,
            offered_per_s: None,
            summary: Summary {
                runs: 3,
                ops_per_s,
                ops_per_s_spread: ops_per_s.map(|rate| [rate - 10.0, rate + 10.0]),
                p50_us: ops_per_s.map(|_| 100.4),
                p99_us: ops_per_s.map(|_| 200.0),
                p999_us: ops_per_s.map(|_| 300.0),
                major_faults: Some(1000.0),
                ..Summary::default()
            },
            ratio_to_swap: is_far.then_some(3.5),
            ratio_to_swap_spread: is_far.then_some([3.25, 4.0]),
            hit_p50_us: is_far.then_some(40.0),
            hit_p99_us: is_far.then_some(80.0),
            hit_p99_us_spread: is_far.then_some([70.0, 95.0]),
            hit_p999_us: is_far.then_some(120.0),
            hit_p99_ratio: None,
            hit_p99_ratio_spread: None,
            predicted: Predicted::default(),
            predicted_right_percent: None,
            misses: 0,
            wrong_values: 0,
        }
    }

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ways_stand_below_each_other() {
        let far = words(&row(COLUMNS, &result(Variant::Yield, Some(1000.0))));
        assert_eq!(far, "ycsb-a yield pf-aware 1000 (990-1010) 3.50x (3.25-4.00) 100 200 300 80 (70-95) 0.50 0 0");
        let mut skipped = result(Variant::Swap, None);
        skipped.summary.skipped = Some("run as root".to_owned());
        assert_eq!(words(&row(COLUMNS, &skipped)), "ycsb-a swap - - - - - - - - 0 SKIP");
    }

    #[test]
    fn what_was_predicted_is_told_below() {
        let mut result = result(Variant::Yield, Some(1000.0));
        assert_eq!(predicted(&result), None);
        result.predicted = Predicted { hits_right: 90, hits_wrong: 4, faults_right: 5, faults_wrong: 1 };
        (result.hit_p99_ratio, result.hit_p99_ratio_spread) = (Some(0.31), Some([0.28, 0.352]));
        result.summary.dropped = 3;
        assert_eq!(
            predicted(&result).unwrap().trim(),
            "P99 of hits: 0.31x (0.28-0.35) that of the first policy; 95.00 % of 100 predictions were right; 1 hits were taken \
             for faults, 4 faults for hits; 3 requests were dropped"
        );
    }

    #[test]
    fn wrong_values_and_far_servers_that_fail_fail_the_command() {
        let mut results = vec![result(Variant::Yield, Some(1.0)), result(Variant::Swap, None)];
        results[1].summary.failed = Some("out of memory".to_owned());
        judge(&results).unwrap();
        assert!(row(COLUMNS, &results[1]).ends_with("FAILED"));
        results[0].summary.failed = Some("paging error".to_owned());
        assert!(judge(&results).unwrap_err().to_string().contains("for the reasons above: (ycsb-a, yield)"));
        results[1].wrong_values = 2;
        assert!(judge(&results).unwrap_err().to_string().contains("wrong, of (ycsb-a, swap)"));
    }
}
