//! `yonder bench fault-breakdown`, `yonder bench poster` and `yonder bench ycsb --dispatch`: what they print, with real
//! processes.

use serde_json::Value;
use yonder_e2e::{Yonder, alone};

use crate::bench_node::{bench, bench_until, column, has};

fn number(object: &Value, name: &str) -> f64 {
    object[name].as_f64().unwrap_or_else(|| panic!("{name} is no number in {object}"))
}

#[test]
fn a_fault_is_taken_apart_over_every_fabric() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let node = yonder.serve(&["node", "--listen", "tcp://127.0.0.1:0", "--memory", "64MiB"]);
    let far = node.url("tcp");
    let flags = format!(
        "fault-breakdown --far emu://?latency=50us --far {far} --memory 8MiB --local 2MiB --touches 400 --runs 1"
    );
    let objects = bench(yonder, &flags);
    assert_eq!(column(&objects, "faults"), ["yield", "busy", "yield", "busy"]);
    for object in &objects {
        assert!(has(object, &["far", "runtime_percent"]), "{object}");
        let steps = object["steps"].as_array().expect("there are steps");
        let names: Vec<_> = steps.iter().map(|step| step["step"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["exception", "post", "away", "fetch", "install", "back", "return"]);
        let shares: f64 = steps.iter().map(|step| number(step, "percent")).sum();
        assert!((shares - 100.0).abs() < 1e-6, "{object}");
        assert!(steps.iter().all(|step| number(step, "p50_us") <= number(step, "p99_us")), "{object}");
        assert!(number(object, "major_faults") > 300.0, "{object}");
    }
    assert!(objects[..2].iter().all(|object| number(&object["steps"][3], "p50_us") > 40.0), "{objects:?}");
}

#[test]
fn bars_are_drawn_where_they_are_wanted() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().display().to_string();
    let flags = ["--memory", "8MiB", "--local", "2MiB", "--touches", "100", "--runs", "1", "--out", &out];
    let ended = yonder.run(&[&["bench", "fault-breakdown"][..], &flags].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let rows = |name: &str| ended.stdout.lines().filter(|line| line.split_whitespace().next() == Some(name)).count();
    assert_eq!(
        ["exception", "post", "away", "fetch", "install", "back", "return"].map(rows),
        [2; 7],
        "{}",
        ended.stdout
    );
    let svg = std::fs::read_to_string(folder.path().join("fault-breakdown.svg")).expect("the picture is there");
    assert!(svg.contains("exception") && svg.contains("busy, emu://"), "{svg}");
}

#[test]
fn the_posters_table_is_made_with_emulated_and_with_real_faults() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let flags = "poster --memory 8MiB --value-size 512 --fault-share 40% --connections 8 --duration DURATION --runs 1";
    let objects = bench_until(yonder, flags, |object| {
        let faults = object["paging"] == "no-fault" || number(object, "fault_percent") > 0.0;
        faults && object["hit_p99_us"].as_f64() != Some(0.0)
    });
    let emulated = ["no-fault", "sync", "async"];
    assert_eq!(column(&objects, "paging"), [&emulated[..], &emulated, &["predicted"]].concat());
    for object in &objects {
        assert_eq!((number(object, "errors"), number(object, "misses")), (0.0, 0.0), "{object}");
        assert!(has(object, &["hit_p99_us", "predicted_hits_right", "predicted_faults_wrong"]), "{object}");
        assert!(number(object, "min_us") <= number(object, "p95_us"), "{object}");
        assert_eq!(number(object, "fault_percent") > 0.0, object["paging"] != "no-fault", "{object}");
        assert_eq!(object["predicted_right_percent"].is_number(), object["paging"] == "predicted", "{object}");
    }
    assert!(objects[4..].iter().all(|object| number(object, "hit_p99_us") > 0.0), "{objects:?}");
}

#[test]
fn policies_take_turns_at_a_rate_and_tell_the_latency_of_hits() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let flags = "ycsb --far emu://?latency=20us --memory 8MiB --local 40% --workloads b --swap none --runs 1 --rate 2k \
                 --dispatch pf-aware,predicted --connections 16 --duration DURATION";
    let objects = bench_until(yonder, flags, |object| object["hit_p99_us"].as_f64() > Some(0.0));
    assert_eq!(column(&objects, "dispatch"), ["pf-aware", "predicted"]);
    for object in &objects {
        assert_eq!((number(object, "offered_per_s"), number(object, "errors")), (2000.0, 0.0), "{object}");
        assert!(has(object, &["predicted_hits_right", "predicted_faults_wrong"]), "{object}");
        let [least, most] = [0, 1].map(|end| object["hit_p99_us_spread"][end].as_f64());
        let hit = object["hit_p99_us"].as_f64();
        assert!(hit > Some(0.0) && least <= hit && hit <= most, "{object}");
    }
    let predicted = |object: &Value| number(object, "predicted_hits_right") + number(object, "predicted_faults_right");
    assert_eq!((predicted(&objects[0]), objects[0]["hit_p99_ratio"].is_null()), (0.0, true), "{objects:?}");
    assert!(predicted(&objects[1]) > 0.0 && number(&objects[1], "hit_p99_ratio") > 0.0, "{objects:?}");
}
