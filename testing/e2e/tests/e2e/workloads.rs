//! YCSB's workloads and LightSwap's: `yonder load kv --workload` on a server that is mostly far, and
//! `yonder bench ycsb`, which leaves nothing behind.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use yonder_e2e::{Client, Ended, Yonder, alone};

use crate::bench_node::{KEYS, has};

/// Keys at the start: 10 MB of values.
const KEYS_AT_START: u64 = 10_000;

/// How long a benchmark may take. It only decides when a hang is called one.
const TIME: Duration = Duration::from_secs(120);

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {object}"))
}

/// How many operations of a kind a load has measured; none if the workload has no such kind.
fn count(object: &Value, kind: &str) -> Option<u64> {
    object[kind]["count"].as_u64()
}

#[test]
fn every_workload_gets_right_values_from_a_server_that_is_mostly_far() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    for (workload, dist, kinds) in [
        ("ycsb-a", "scrambled-zipf:0.99", &["get", "set"][..]),
        ("ycsb-b", "scrambled-zipf:0.99", &["get", "set"]),
        ("ycsb-c", "scrambled-zipf:0.99", &["get"]),
        ("ycsb-d", "latest:0.99", &["get", "insert"]),
        ("ycsb-e", "scrambled-zipf:0.99", &["scan", "insert"]),
        ("ycsb-f", "scrambled-zipf:0.99", &["get", "read_modify_write"]),
        ("readmost", "scrambled-zipf:0.99", &["get", "set", "insert"]),
        ("readwrite", "scrambled-zipf:0.99", &["get", "set", "insert"]),
        ("writemost", "scrambled-zipf:0.99", &["get", "set", "insert"]),
    ] {
        // On a busy machine a short run may not get its turn. There is room for twenty times the keys that one inserts.
        let mut runs = ["300ms", "3s"].into_iter().map(|duration| {
            let server = yonder.serve(&["kv", "--listen", "127.0.0.1:0", "--memory", "256MiB", "--local", "4MiB"]);
            let (target, keys) = (server.address().to_string(), KEYS_AT_START.to_string());
            let flags = ["load", "kv", "--json", "--target", &target, "--keys", &keys, "--value-size", "1000"];
            let more = ["--workload", workload, "--connections", "32", "--depth", "4", "--duration", duration];
            (server, yonder.run(&[&flags[..], &more].concat()).object())
        });
        let has_all = |result: &Value| kinds.iter().all(|kind| count(result, kind) > Some(0));
        let (server, result) = runs.find(|(_, result)| has_all(result)).expect("3 s are enough for each kind");
        assert_eq!((&result["workload"], &result["dist"]), (&workload.into(), &dist.into()));
        for name in ["wrong_values", "errors", "misses", "dropped"] {
            assert_eq!(number(&result, name), 0, "{name} in {result}");
        }
        for kind in ["get", "set", "insert", "scan", "read_modify_write"] {
            let counted = count(&result, kind).unwrap_or(0);
            assert_eq!(counted > 0, kinds.contains(&kind), "{workload}: {counted} of {kind}: {result}");
        }
        assert_eq!(result["scans_are"].is_string(), workload == "ycsb-e");
        assert!(number(&result, "major_faults") > 0, "{result}");
        // Inserts are items beside those of the start.
        let items = Client::connect(server.address()).stats().number("curr_items");
        let inserted = count(&result, "insert");
        assert_eq!(items > KEYS_AT_START, inserted.is_some(), "{workload}: {items} items");
        assert!(items >= KEYS_AT_START + inserted.unwrap_or(0), "{workload}: {items} items, {inserted:?} inserted");
    }
}

#[test]
fn flags_that_a_workload_decides_are_refused_beside_it() {
    let yonder = Yonder::found();
    for conflict in [["--mix", "get=95,set=5"], ["--dist", "uniform"]] {
        let words = [&["load", "kv", "--workload", "ycsb-a"][..], &conflict].concat();
        let ended = yonder.run(&words);
        let complaint = ended.complaint(2);
        assert!(complaint.contains(conflict[0]) && complaint.contains("type `yonder load kv --help`"), "{complaint}");
    }
    let ended = yonder.run(&["load", "kv", "--workload", "ycsb-g"]);
    assert!(ended.complaint(2).contains("type ycsb-a, ycsb-b"), "{}", ended.stderr);
    let ended = yonder.run(&["bench", "ycsb", "--swap", "disk"]);
    assert!(ended.complaint(2).contains("type zram, none, or file:PATH"), "{}", ended.stderr);
}

/// Where nothing of the test's own may be left: what is swapped to, and the files in a folder.
fn left(folder: &std::path::Path) -> (bool, Vec<std::ffi::OsString>) {
    let name = folder.to_str().expect("temporary folders have plain names");
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let files = std::fs::read_dir(folder).expect("the folder is there").filter_map(Result::ok);
    (swaps.contains(name), files.map(|entry| entry.file_name()).collect())
}

fn bench(yonder: Yonder, flags: &str) -> Ended {
    let words: Vec<&str> = ["bench", "ycsb"].into_iter().chain(flags.split(' ')).collect();
    yonder.spawn(&words).end_within(TIME)
}

#[test]
fn far_memory_on_a_disk_stands_beside_the_kernels_swap_on_it_and_both_are_undone() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let far = format!("file://{}?size=256MiB", folder.path().join("far").display());
    // On a busy machine a short run may not get its turn.
    let of_lengths = ["200ms", "3s", "20s"].map(|duration| {
        format!(
            "--far {far} --memory 8MiB --local 50% --workloads a,e --faults yield,busy --connections 64 --duration \
             {duration} --runs 1 --json"
        )
    });
    let is_enough =
        |ended: &Ended| ended.code != Some(0) || ended.objects().iter().all(|object| object["ops_per_s"] != 0.0);
    let mut runs = of_lengths.iter().map(|flags| bench(yonder, flags));
    let ended = runs.find(is_enough).expect("something is answered in 20 s");
    if ended.code != Some(0) && ["io_uring", "direct access"].iter().any(|lack| ended.stderr.contains(lack)) {
        println!("SKIP: {}", ended.stderr.trim());
        return;
    }
    assert_eq!(ended.code, Some(0), "'{}' said: {}", ended.command, ended.stderr);
    let objects = ended.objects();
    let ways: Vec<_> = objects.iter().map(|object| (&object["workload"], &object["way"])).collect();
    let expected = ["ycsb-a", "ycsb-e"].map(|name| ["yield", "busy", "swap"].map(|way| (name, way))).concat();
    assert_eq!(ways.len(), expected.len());
    for (object, (workload, way)) in objects.iter().zip(expected) {
        assert!(has(object, &KEYS), "a key is missing in {object}");
        assert_eq!((&object["workload"], &object["way"]), (&workload.into(), &way.into()));
        if way == "swap" && (object["skipped"].is_string() || object["failed"].is_string()) {
            println!("SKIP: {} {}", object["skipped"], object["failed"]);
            continue;
        }
        for name in ["errors", "misses", "wrong_values"] {
            assert_eq!(number(object, name), 0, "{name} in {object}");
        }
        let figure = |name: &str| object[name].as_f64().unwrap_or_else(|| panic!("no {name} in {object}"));
        assert!(figure("ops_per_s") > 0.0 && figure("p50_us") <= figure("p999_us"), "{object}");
        assert!(figure("major_faults") > 0.0 && figure("fetched_bytes") > 0.0, "{object}");
        assert_eq!(number(object, "local_bytes"), 4 << 20);
    }
    // The store stays, empty; the swap beside it does not.
    assert_eq!(left(folder.path()), (false, vec!["far".into()]));
}

#[test]
fn a_benchmark_that_is_interrupted_takes_its_swap_and_its_servers_with_it() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let swap = folder.path().join("swap");
    let flag = format!("file:{}", swap.display());
    let flags = ["--swap", &flag, "--far", "emu://", "--memory", "8MiB", "--duration", "60s", "--runs", "1"];
    let mut process = yonder.spawn(&[&["bench", "ycsb"][..], &flags].concat());
    // The head of the table is printed once everything is set up.
    process.wait_for("workload");
    process.signal(Signal::INT);
    let ended = process.end();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
    assert_eq!(left(folder.path()), (false, Vec::new()));
}
