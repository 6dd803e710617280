//! The benchmark with other servers in the place of `yonder kv`.

use super::*;
use crate::children::find_program;
use crate::in_process::NoLaunch;

/// Finds the port among the flags of `kv` and serves with memcached there.
const MEMCACHED_AS_KV: &str = "while [ $# -gt 1 ]; do [ \"$1\" = --listen ] && port=${2##*:}; shift; done; \
                               exec memcached -u root -U 0 -l 127.0.0.1 -p \"$port\"";

fn settings(script: &str, ways: &[Way], runs: usize) -> Settings {
    Settings {
        workloads: vec![Workload::YcsbA],
        memory: 1 << 20,
        value_bytes: 1000,
        local: LocalSize::Percent(50.0),
        ways: ways.to_vec(),
        far: Some("emu://".to_owned()),
        swap: SwapPlace::Beside,
        workers: 1,
        swap_workers: 2,
        connections: 8,
        depth: 2,
        threads: 1,
        duration: Duration::from_millis(60),
        runs,
        kv: ["sh", "-c", script, "sh"].map(Into::into).to_vec(),
        stop: Arc::default(),
    }
}

#[test]
fn each_way_is_measured_in_turn_and_compared() {
    if find_program("memcached").is_none() {
        return println!("SKIP: memcached is not installed: type `apt-get install memcached`");
    }
    let settings = settings(MEMCACHED_AS_KV, &[Way::Yield, Way::Swap, Way::SwapMemcached], 2);
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let mut shown = Vec::new();
    let results = bench.run(Workload::YcsbF, &mut |what, _| shown.push(what.to_owned())).unwrap();
    assert_eq!(shown[..2], ["ycsb-f: yield (1/2)", "ycsb-f: swap (1/2)"]);
    for result in &results {
        if let Some(missing) = &result.skipped {
            println!("SKIP: {missing}");
            continue;
        }
        assert_eq!((result.runs, result.errors, result.misses, &result.failed), (2, 0, 0, &None), "{result:?}");
        assert_eq!((result.keys, result.local_bytes), (1048, 512 << 10));
        let [least, most] = result.ops_per_s_spread.unwrap();
        assert!(0.0 < least && Some(least) <= result.ops_per_s && result.ops_per_s <= Some(most), "{result:?}");
        assert!(result.p50_us <= result.p99_us && result.p99_us <= result.p999_us, "{result:?}");
        let is_kernel = result.way.is_kernel();
        assert_eq!((is_kernel, is_kernel), (result.swap.is_some(), result.group_bytes.is_some()), "{result:?}");
    }
    let kernel = results[1..].iter().filter_map(|result| result.ops_per_s).max_by(f64::total_cmp);
    let [first, ..] = &results[..] else { unreachable!() };
    assert_eq!(first.ratio_to_swap.is_some(), kernel.is_some());
    assert!(results[1..].iter().all(|result| result.ratio_to_swap.is_none()));
    let json = serde_json::to_value(first).unwrap();
    assert_eq!((&json["workload"], &json["way"]), (&"ycsb-f".into(), &"yield".into()));
}

#[test]
fn a_server_that_fails_is_told_with_what_it_said() {
    let settings = settings("echo no far memory >&2; exit 2", &[Way::Yield], 2);
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let results = bench.run(Workload::YcsbA, &mut |_, _| ()).unwrap();
    assert_eq!((results[0].runs, results[0].ops_per_s), (0, None));
    let failed = results[0].failed.as_ref().unwrap();
    assert!(failed.contains("no far memory"), "{failed}");
}

#[test]
fn who_stops_gets_no_results_and_no_server_stays() {
    let settings = settings("sleep 600", &[Way::Yield], 1);
    settings.stop.store(true, Ordering::Relaxed);
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let folder = bench._folder.path.clone();
    let error = bench.run(Workload::YcsbA, &mut |_, _| ()).unwrap_err();
    assert_eq!(error.to_string(), "interrupted");
    drop(bench);
    assert!(!folder.exists());
}

#[test]
fn settings_that_cannot_work_say_what_to_type() {
    let message = |settings: Settings| Bench::prepare(&settings, &NoLaunch).err().unwrap().to_string();
    let good = settings("true", &[Way::Yield], 1);
    assert!(message(Settings { workloads: Vec::new(), ..good.clone() }).contains("type --workloads"));
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
