//! The comparison with other programs in the place of `yonder`.

use super::series::tests::series;
use super::*;
use crate::in_process::NoLaunch;

/// Prints what `bench array` and `bench resident` would; a resident says that it is ready and waits for an answer.
const MEASURES: &str = r#"
[ "$2" = resident ] && { echo ready; read answer || exit 3; }
echo '{"bench":"x","ops_per_s":1000.0,"p50_us":1.0,"p99_us":2.0,"p999_us":3.0,"major_faults":4,"minor_faults":5,"fetched_bytes":6,"written_bytes":7,"dropped":0,"errors":0}'
"#;

pub(super) fn settings() -> Settings {
    Settings {
        works: vec![Work::Array],
        peers: vec![Peer::Yield, Peer::Swap],
        swaps: vec![SwapTo::Zram],
        far: "emu://".to_owned(),
        memory: 8 << 20,
        local: LocalSize::Percent(20.0),
        value_bytes: 4096,
        threads: vec![1, 16],
        connections: 4,
        rate: CommonRate::None,
        duration: Duration::from_millis(150),
        runs: 2,
        yonder: "true".into(),
        run_is_missing: None,
        stop: Arc::default(),
    }
}

/// A program that is run in the place of `yonder`, and its folder.
fn script(text: &str) -> (TempDir, OsString) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("yonder");
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    (folder, path.into_os_string())
}

fn names(settings: &Settings, work: Work) -> Vec<String> {
    settings.contenders(work).iter().map(Contender::label).collect()
}

#[test]
fn swaps_and_rates_are_those_that_were_typed() {
    assert_eq!((swap_to("zram"), swap_to("file")), (Ok(SwapTo::Zram), Ok(SwapTo::File(None))));
    assert_eq!(swap_to("file:/a/b"), Ok(SwapTo::File(Some("/a/b".into()))));
    for bad in ["", "disk", "file:", "file:relative", "zram:1", "none"] {
        assert!(swap_to(bad).unwrap_err().contains("type zram, file, or file:PATH"), "{bad}");
    }
    assert_eq!((common_rate("auto"), common_rate("none")), (Ok(CommonRate::Auto), Ok(CommonRate::None)));
    assert_eq!(common_rate("20k"), Ok(CommonRate::PerSecond(20_000.0)));
    for bad in ["", "max", "fast", "0"] {
        assert!(common_rate(bad).unwrap_err().contains("type auto, none, or requests"), "{bad}");
    }
}

#[test]
fn each_work_has_its_peers() {
    let all = vec![Peer::Yield, Peer::Probe, Peer::Busy, Peer::Run, Peer::Kv, Peer::KvBusy, Peer::Swap, Peer::Mmap];
    let swaps = vec![SwapTo::Zram, SwapTo::File(None)];
    let settings = Settings { peers: all, swaps, ..settings() };
    assert_eq!(
        names(&settings, Work::Array),
        [
            "yield",
            "probe",
            "busy",
            "swap-zram, 1 thread",
            "swap-zram, 16 threads",
            "swap-file, 1 thread",
            "swap-file, 16 threads",
            "mmap, 1 thread",
            "mmap, 16 threads"
        ]
    );
    assert_eq!(names(&settings, Work::Memcached), ["run", "kv", "kv-busy", "swap-zram", "swap-file"]);
    assert_eq!(names(&settings, Work::Redis), ["run", "swap-zram", "swap-file"]);
}

#[test]
fn peers_take_turns_and_those_that_cannot_run_are_skipped() {
    let (_folder, yonder) = script(MEASURES);
    let peers = vec![Peer::Yield, Peer::Busy, Peer::Swap, Peer::Mmap];
    let rate = CommonRate::PerSecond(500.0);
    let settings = Settings { peers, yonder, rate, threads: vec![1], ..settings() };
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let (mut shown, mut last) = (Vec::new(), 0.0);
    let results = bench
        .run(Work::Array, &mut |what, share| {
            assert!(share >= last && share < 1.0, "{share} after {last}");
            last = share;
            shown.push(what.to_owned());
        })
        .unwrap();
    assert_eq!(shown[..2], ["array: yield (1/2)", "array: busy (1/2)"]);
    assert!(shown.last().unwrap().ends_with(", at 500/s (2/2)"), "{shown:?}");
    let mut measured = 0;
    for result in &results {
        if let Some(missing) = &result.summary.skipped {
            println!("SKIP: {}: {missing}", result.peer);
            assert_eq!((result.summary.ops_per_s, result.summary.runs), (None, 0));
            continue;
        }
        measured += 1;
        assert_eq!(
            (result.summary.ops_per_s, result.summary.p999_us, result.summary.runs),
            (Some(1000.0), Some(3.0), 2),
            "{result:?}"
        );
        assert_eq!(result.summary.group_bytes.is_some(), result.far.is_none(), "{result:?}");
        assert_eq!(result.swap.is_some(), result.peer == "swap-zram", "{result:?}");
    }
    // What was skipped in a closed loop is not tried at the rate.
    let open = results.iter().filter(|result| result.offered_per_s == Some(500.0)).count();
    assert_eq!(measured, 2 * open);
}

#[test]
fn a_process_that_fails_is_told_with_what_it_said_and_the_others_go_on() {
    let (_folder, yonder) = script(&format!("[ \"$7\" = busy ] && {{ echo no memory >&2; exit 2; }}\n{MEASURES}"));
    let settings = Settings { peers: vec![Peer::Busy, Peer::Yield], yonder, ..settings() };
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let results = bench.run(Work::Array, &mut |_, _| ()).unwrap();
    if let Some(missing) = &results[0].summary.skipped {
        return println!("SKIP: {missing}");
    }
    assert_eq!(results[0].summary.failed.as_deref(), Some("exit status: 2: no memory"));
    assert_eq!((results[1].summary.runs, &results[1].summary.failed), (2, &None));
}

#[test]
fn what_is_missing_is_said() {
    let settings = Settings { run_is_missing: Some("no library".to_owned()), ..settings() };
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let missing = |work, variant| bench.missing(work, &Contender { variant, threads: None, rate: Rate::Max });
    assert_eq!(missing(Work::Array, Variant::Mmap), None);
    if yonder::abilities().userfaultfd.is_err() {
        return println!("SKIP: no userfaultfd");
    }
    assert_eq!((missing(Work::Array, Variant::Yield), missing(Work::Memcached, Variant::Kv)), (None, None));
    for work in [Work::Memcached, Work::Redis] {
        let program = stock::program(work.protocol().unwrap());
        let said = missing(work, Variant::Run).unwrap();
        if crate::children::find_program(program).is_some() {
            assert_eq!(said, "no library");
            assert_eq!(missing(work, Variant::Swap(SwapTo::Zram)), None);
        } else {
            assert!(said.contains("type `apt-get install"), "{said}");
        }
    }
}

#[test]
fn who_stops_gets_no_results_and_nothing_stays() {
    let (_folder, yonder) = script("sleep 600");
    let settings = Settings { yonder, ..settings() };
    settings.stop.store(true, Ordering::Relaxed);
    let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
    let folder = bench.folder.path().to_owned();
    let error = bench.run(Work::Array, &mut |_, _| ()).unwrap_err();
    assert_eq!(error.to_string(), "interrupted");
    drop(bench);
    assert!(!folder.exists());
}

#[test]
fn the_common_rate_is_half_of_what_compressed_memory_allows() {
    let auto = Settings { rate: CommonRate::Auto, ..settings() };
    let bench = Bench::prepare(&auto, &NoLaunch).unwrap();
    let zram = || Variant::Swap(SwapTo::Zram);
    let mut closed = vec![
        series(Variant::Yield, Some(1), Rate::Max, &[(400.0, 1.0)]),
        series(zram(), Some(1), Rate::Max, &[(100.0, 1.0)]),
        series(zram(), Some(16), Rate::Max, &[(150.0, 1.0)]),
        series(Variant::Mmap, Some(1), Rate::Max, &[(7.0, 1.0)]),
    ];
    assert_eq!(bench.common_rate(&closed), Some(75.0));
    closed.retain(|series| series.variant.variant != zram());
    assert_eq!(bench.common_rate(&closed), Some(4.0));
    assert_eq!(bench.common_rate(&[]), None);
    for (rate, expected) in [(CommonRate::None, None), (CommonRate::PerSecond(9.0), Some(9.0))] {
        let settings = Settings { rate, ..settings() };
        assert_eq!(Bench::prepare(&settings, &NoLaunch).unwrap().common_rate(&closed), expected);
    }
}

#[test]
fn settings_that_cannot_work_say_what_to_type() {
    let message = |settings: Settings| Bench::prepare(&settings, &NoLaunch).err().unwrap().to_string();
    assert!(message(Settings { works: Vec::new(), ..settings() }).contains("type --workloads"));
    assert!(message(Settings { peers: vec![Peer::Run], ..settings() }).contains("type --workloads"));
    assert!(message(Settings { memory: 999, ..settings() }).contains("smaller --value-size"));
    assert!(message(Settings { connections: 0, ..settings() }).contains("--connections 0 is out of range"));
}
