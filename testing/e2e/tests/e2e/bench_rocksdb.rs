//! `yonder bench rocksdb`: the systems that it compares, and what it says where it cannot run.

use serde_json::Value;
use yonder_e2e::{Yonder, alone};

use crate::bench_node::{bench_until, column};

const SMALL: &str = "--memory 24MiB --local 5MiB --duration DURATION";

/// Whether RocksDB is on this machine; says so if it is not.
pub(crate) fn has_rocksdb(yonder: Yonder) -> bool {
    let ended = yonder.run(&["bench", "rocksdb", "--memory", "4MiB", "--local", "3MiB", "--duration", "100ms"]);
    if ended.code != Some(0) {
        assert!(ended.complaint(1).ends_with("type: sudo apt-get install librocksdb-dev"), "{}", ended.stderr);
        println!("SKIP: no RocksDB");
    }
    ended.code == Some(0)
}

#[test]
fn every_system_reads_what_was_stored_from_the_same_tables() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    if !has_rocksdb(yonder) {
        return;
    }
    let arguments = format!("rocksdb {SMALL} --systems busy,preempt,round-robin,yield --rate max,2k");
    let count = |object: &Value, kind: &str| object[kind]["count"].as_u64();
    let is_enough = |object: &Value| object["major_faults"].as_u64() > Some(0) && count(object, "get") >= Some(100);
    let objects = bench_until(yonder, &arguments, is_enough);
    assert_eq!(column(&objects, "bench"), ["rocksdb"; 8]);
    assert_eq!(column(&objects, "faults"), [["busy", "busy", "yield", "yield"]; 2].concat());
    let dispatch = ["round-robin", "round-robin", "round-robin", "pf-aware"];
    assert_eq!(column(&objects, "dispatch"), [dispatch; 2].concat());
    for object in &objects {
        assert_eq!((object["errors"].as_u64(), object["rows"].as_u64()), (Some(0), Some(23172)), "{object}");
        assert!(count(object, "get") > count(object, "scan"), "{object}");
    }
    let preempted: Vec<_> = objects.iter().map(|object| object["preempt_us"].as_f64()).collect();
    assert_eq!(preempted, [[None, Some(5.0), None, None]; 2].concat());
    let arguments = format!("rocksdb {SMALL} --scans 100 --scan-rows 7");
    let scanned = bench_until(yonder, &arguments, |object| count(object, "scan") > Some(50));
    assert_eq!(scanned[0]["get"]["p50_us"].as_f64(), Some(0.0), "{}", scanned[0]);
}

#[test]
fn a_share_that_is_none_is_one_line_that_says_what_to_type() {
    let yonder = Yonder::found();
    for share in ["101", "-1%", "one", "NaN"] {
        let ended = yonder.run(&["bench", "rocksdb", &format!("--scans={share}")]);
        assert!(ended.complaint(2).contains("between 0 and 100, such as 1%"), "{share}: {}", ended.stderr);
    }
}
