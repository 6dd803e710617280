//! `yonder bench kv`, `tpcc` and `vector`: what they compare, and that answers are right under each system.

use yonder_e2e::{Yonder, alone};

use serde_json::Value;

use crate::bench_node::{answered, bench_until, column};

const SYSTEMS: &str = "--systems busy,preempt,round-robin,yield";

/// Whether Faiss is on this machine; says so if it is not.
pub(crate) fn has_faiss(yonder: Yonder) -> bool {
    let small = ["bench", "vector", "--memory", "4MiB", "--local", "3MiB", "--lists", "8", "--duration", "50ms"];
    let ended = yonder.run(&small);
    if ended.code != Some(0) {
        assert!(ended.complaint(1).contains("type: sudo apt-get install g++ libfaiss-dev"), "{}", ended.stderr);
        println!("SKIP: no Faiss");
    }
    ended.code == Some(0)
}

#[test]
fn a_store_answers_gets_under_every_system() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let arguments = format!("kv --memory 24MiB --value-size 1000 --duration DURATION --rate max,2k {SYSTEMS}");
    let objects = bench_until(yonder, &arguments, |object| answered(object, "get") >= 100);
    assert_eq!(column(&objects, "bench"), ["kv"; 8]);
    for object in &objects {
        let count = |name: &str| object[name].as_u64().unwrap();
        assert_eq!((count("errors"), count("items"), count("value_bytes")), (0, 22961, 1000), "{object}");
        // How many there are is the machine's mood, but a fifth of the items is local.
        let gets = object["get"]["count"].as_u64().unwrap();
        assert!(count("major_faults") > 0 && count("hits") < gets / 2 + 10, "{object}");
    }
}

#[test]
fn transactions_run_on_the_same_tables_under_every_system() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let arguments = format!("tpcc --memory 30MiB --shrink 10 --duration DURATION --rate max,500 {SYSTEMS}");
    // A tenth of a mix that is drawn by chance are the rare ones.
    let count = |object: &Value, kind: &str| object[kind]["count"].as_u64().unwrap();
    let rare = |object: &Value| {
        ["order_status", "delivery", "stock_level"].map(|kind| count(object, kind)).iter().sum::<u64>()
    };
    let objects = bench_until(yonder, &arguments, |object| answered(object, "new_order") >= 50 && rare(object) >= 5);
    assert_eq!(column(&objects, "bench"), ["tpcc"; 8]);
    assert_eq!(column(&objects, "faults"), [["busy", "busy", "yield", "yield"]; 2].concat());
    for object in &objects {
        assert_eq!((object["errors"].as_u64(), object["warehouses"].as_u64()), (Some(0), Some(2)), "{object}");
        assert!(object["major_faults"].as_u64() > Some(0) && object["written_bytes"].as_u64() > Some(0), "{object}");
        let rare = rare(object);
        assert!(count(object, "new_order") > rare && count(object, "payment") > rare && rare > 0, "{object}");
    }
}

#[test]
fn searches_find_under_every_system_what_they_find_in_local_memory() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let small = "vector --memory 8MiB --local 2MiB --lists 32 --probes 1 --max-inflight 8 --duration DURATION";
    if !has_faiss(yonder) {
        return;
    }
    let arguments = format!("{small} {SYSTEMS}");
    let objects = bench_until(yonder, &arguments, |object| answered(object, "search") > 5);
    assert_eq!(column(&objects, "bench"), ["vector"; 4]);
    for object in &objects {
        assert_eq!((object["errors"].as_u64(), object["vectors"].as_u64()), (Some(0), Some(16131)), "{object}");
        assert!(object["major_faults"].as_u64() > Some(0), "{object}");
        assert!(object["recall"].as_f64() > Some(0.3), "{object}");
    }
    let refused = yonder.run(&["bench", "vector", "--memory", "8MiB", "--local", "2MiB", "--lists", "100000"]);
    assert!(refused.complaint(1).contains("type more --memory, or fewer --lists"), "{}", refused.stderr);
}
