//! The benchmark with other servers in the place of `yonder kv`.

use std::sync::atomic::Ordering;

use super::*;
use crate::children::find_program;
use crate::in_process::NoLaunch;
use crate::kernel_swap::OUT_OF_MEMORY;

/// Finds the port among the flags of `kv` and serves with memcached there.
const MEMCACHED_AS_KV: &str = "while [ $# -gt 1 ]; do [ \"$1\" = --listen ] && port=${2##*:}; shift; done; \
                               exec memcached -u root -U 0 -l 127.0.0.1 -p \"$port\"";

fn settings(script: &str, ways: &[Variant], runs: usize) -> Settings {
    let has = |way| ways.contains(&way);
    let faults = [(Faults::Yield, Variant::Yield), (Faults::Busy, Variant::Busy)];
    let swapped = [(Swapped::Kv, Variant::Swap), (Swapped::Memcached, Variant::SwapMemcached)];
    Settings {
        workloads: vec![Workload::YcsbA],
        // So much that the kernel finds pages to swap out: with half a MiB it sometimes kills the server instead.
        memory: 8 << 20,
        value_bytes: 1000,
        local: LocalSize::Percent(50.0),
        faults: faults.into_iter().filter(|(_, way)| has(*way)).map(|(mode, _)| mode).collect(),
        swap_servers: swapped.into_iter().filter(|(_, way)| has(*way)).map(|(server, _)| server).collect(),
        dispatch: vec![DispatchPolicy::PageFaultAware],
        rate: Rate::Max,
        far: Some("emu://".to_owned()),
        swap: None,
        workers: 1,
        swap_workers: 2,
        connections: 8,
        depth: 2,
        threads: 1,
        duration: Duration::from_millis(250),
        runs,
        kv: ["sh", "-c", script, "sh"].map(Into::into).to_vec(),
        stop: Arc::default(),
    }
}

#[test]
fn workloads_are_letters_or_names_and_swap_has_a_place() {
    assert_eq!(
        ["a", "ycsb-f", "writemost"].map(workload),
        [Ok(Workload::YcsbA), Ok(Workload::YcsbF), Ok(Workload::Writemost)]
    );
    assert!(workload("g").unwrap_err().contains("type a, b, c"));
    assert_eq!((swap_place("none"), swap_place("zram")), (Ok(SwapPlace::None), Ok(SwapPlace::Zram)));
    assert_eq!(swap_place("file:/a/b"), Ok(SwapPlace::File("/a/b".into())));
    for bad in ["", "disk", "file:", "file:relative", "zram:1"] {
        assert!(swap_place(bad).unwrap_err().contains("type zram, none, or file:PATH"), "{bad}");
    }
}

#[test]
fn each_way_is_measured_in_turn_and_compared() {
    if find_program("memcached").is_none() {
        return println!("SKIP: memcached is not installed: type `apt-get install memcached`");
    }
    // On a busy machine a short run may not get its turn.
    let mut runs = [250, 2_000, 10_000].into_iter().map(|duration_ms| {
        let ways = [Variant::Yield, Variant::Swap, Variant::SwapMemcached];
        let duration = Duration::from_millis(duration_ms);
        let bench_settings = Settings { duration, ..settings(MEMCACHED_AS_KV, &ways, 2) };
        let bench = Bench::prepare(&bench_settings, &NoLaunch).unwrap();
        let mut shown = Vec::new();
        let results = bench.run(Workload::YcsbF, &mut |what, _| shown.push(what.to_owned())).unwrap();
        (results, shown)
    });
    let has_answered = |result: &YcsbResult| result.summary.ops_per_s_spread.is_none_or(|[least, _]| least > 0.0);
    let (results, shown) = runs.find(|(results, _)| results.iter().all(has_answered)).expect("10 s are enough");
    assert_eq!(shown[..2], ["ycsb-f: yield (1/2)", "ycsb-f: swap (1/2)"]);
    for result in &results {
        if let Some(missing) = &result.summary.skipped {
            println!("SKIP: {missing}");
            continue;
        }
        if result.way.is_kernel() && result.summary.failed.as_deref() == Some(OUT_OF_MEMORY) {
            println!("SKIP: {OUT_OF_MEMORY}: it finds too few pages to swap out on a busy machine");
            continue;
        }
        assert_eq!(
            (result.summary.runs, result.summary.errors, result.misses, &result.summary.failed),
            (2, 0, 0, &None),
            "{result:?}"
        );
        assert_eq!((result.keys, result.local_bytes), (8388, 4 << 20));
        let [least, most] = result.summary.ops_per_s_spread.unwrap();
        assert!(
            0.0 < least && Some(least) <= result.summary.ops_per_s && result.summary.ops_per_s <= Some(most),
            "{result:?}"
        );
        assert!(
            result.summary.p50_us <= result.summary.p99_us && result.summary.p99_us <= result.summary.p999_us,
            "{result:?}"
        );
        let is_kernel = result.way.is_kernel();
        assert_eq!((is_kernel, is_kernel), (result.swap.is_some(), result.summary.group_bytes.is_some()), "{result:?}");
    }
    let kernel = results[1..].iter().filter_map(|result| result.summary.ops_per_s).max_by(f64::total_cmp);
    let [first, ..] = &results[..] else { unreachable!() };
    assert_eq!(
        (first.dispatch, results[1].dispatch, first.hit_p99_us),
        (Some("pf-aware"), None, None),
        "memcached has no hits"
    );
    assert_eq!(first.ratio_to_swap.is_some(), kernel.is_some());
    assert!(results[1..].iter().all(|result| result.ratio_to_swap.is_none()));
    let json = serde_json::to_value(first).unwrap();
    assert_eq!((&json["workload"], &json["way"]), (&"ycsb-f".into(), &"yield".into()));
}

#[test]
fn far_ways_are_run_with_each_policy_and_the_others_once() {
    let two = vec![DispatchPolicy::PageFaultAware, DispatchPolicy::Predicted];
    let settings = Settings { dispatch: two, ..settings("true", &[Variant::Yield, Variant::Swap, Variant::Busy], 1) };
    let labels: Vec<_> = settings.contenders().into_iter().map(|one| settings.label(one)).collect();
    assert_eq!(labels, ["yield, pf-aware", "yield, predicted", "busy, pf-aware", "busy, predicted", "swap"]);
}

#[test]
fn hits_of_policies_are_compared_turn_by_turn() {
    let trial = |p99_us: f64| Trial {
        measured: Measured { dropped: 2, ..Measured::default() },
        hit: Some(LatencySummary { count: 1, p99_us, ..Default::default() }),
        predicted: Predicted { hits_right: 9, faults_wrong: 1, ..Default::default() },
        misses: 0,
        wrong_values: 0,
    };
    let series = |dispatch, p99s: &[f64]| {
        let trials = p99s.iter().map(|p99| trial(*p99)).collect();
        Series { trials, ..Series::new(Contender { variant: Variant::Yield, dispatch: Some(dispatch) }) }
    };
    let settings = settings("true", &[Variant::Yield], 3);
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let all = [
        series(DispatchPolicy::PageFaultAware, &[100.0, 300.0, 200.0]),
        series(DispatchPolicy::Predicted, &[50.0, 60.0, 20.0]),
    ];
    let [first, second] = all.each_ref().map(|series| series.result(&bench, Workload::YcsbC, &all));
    assert_eq!((first.hit_p99_us, first.hit_p99_ratio, first.dispatch), (Some(200.0), None, Some("pf-aware")));
    assert_eq!((second.hit_p99_us, second.hit_p99_us_spread), (Some(50.0), Some([20.0, 60.0])));
    assert_eq!((second.hit_p99_ratio, second.hit_p99_ratio_spread), (Some(0.2), Some([0.1, 0.5])));
    assert_eq!(
        (second.predicted.hits_right, second.predicted_right_percent, second.summary.dropped),
        (27, Some(90.0), 6)
    );
    let json = serde_json::to_value(&second).unwrap();
    assert_eq!((&json["dispatch"], &json["predicted_hits_right"]), (&"predicted".into(), &27.into()));
}

#[test]
fn a_server_that_fails_is_told_with_what_it_said() {
    let settings = settings("echo no far memory >&2; exit 2", &[Variant::Yield], 2);
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let results = bench.run(Workload::YcsbA, &mut |_, _| ()).unwrap();
    assert_eq!((results[0].summary.runs, results[0].summary.ops_per_s), (0, None));
    let failed = results[0].summary.failed.as_ref().unwrap();
    assert!(failed.contains("no far memory"), "{failed}");
}

#[test]
fn who_stops_gets_no_results_and_no_server_stays() {
    let settings = settings("sleep 600", &[Variant::Yield], 1);
    settings.stop.store(true, Ordering::Relaxed);
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let folder = bench.folder.path().to_owned();
    let error = bench.run(Workload::YcsbA, &mut |_, _| ()).unwrap_err();
    assert_eq!(error.to_string(), "interrupted");
    drop(bench);
    assert!(!folder.exists());
}

#[test]
fn settings_that_cannot_work_say_what_to_type() {
    let message = |settings: Settings| Bench::prepare(&settings, &NoLaunch).err().unwrap().to_string();
    let good = settings("true", &[Variant::Yield], 1);
    assert!(message(Settings { workloads: Vec::new(), ..good.clone() }).contains("type --workloads"));
    assert!(message(Settings { dispatch: Vec::new(), ..good.clone() }).contains("type --dispatch"));
    assert!(message(Settings { memory: 999, ..good.clone() }).contains("smaller --value-size"));
    assert!(message(Settings { threads: 9, ..good }).contains("--threads 9 is out of range"));
}

#[test]
fn the_swap_is_beside_the_far_file() {
    assert_eq!(beside("file:///mnt/ssd/far?size=1GiB"), Some("/mnt/ssd/far.swap".into()));
    assert_eq!(beside("file:///far"), Some("/far.swap".into()));
    assert_eq!(beside("tcp://host:1"), None);
    assert_eq!(beside("file:///"), None);
}
