//! `yonder bench redis` and `bench del-get`: a real server under `yonder run`, asked by a load generator of ours, whose
//! values come back right.

use std::time::Duration;

use yonder_e2e::{Ended, Yonder, alone};

/// How long it may take. It only decides when a hang is called one.
const TIME: Duration = Duration::from_secs(120);

fn bench(yonder: Yonder, arguments: &str) -> Option<Ended> {
    let words: Vec<&str> = ["bench", "redis"].into_iter().chain(arguments.split(' ')).collect();
    let ended = yonder.spawn(&words).end_within(TIME);
    if let Some(missing) = ended.stderr.lines().find(|line| line.starts_with("SKIP: redis")) {
        println!("{missing}");
        return None;
    }
    Some(ended)
}

#[test]
fn a_server_that_is_mostly_far_answers_right_and_its_faults_are_those_of_the_queries() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let _alone = alone();
    let flags =
        "--queries get-64k --local 25% --ahead none,readahead --data 8MiB --requests 300 --memory 256MiB --json";
    let Some(ended) = bench(yonder, flags) else { return };
    assert_eq!(ended.code, Some(0), "'{}' said: {}", ended.command, ended.stderr);
    let objects = ended.objects();
    let ways: Vec<_> = objects.iter().map(|object| (&object["query"], &object["ahead"])).collect();
    assert_eq!(ways, [(&"get-64k".into(), &"none".into()), (&"get-64k".into(), &"readahead".into())]);
    for object in &objects {
        let number = |name: &str| object[name].as_f64().unwrap_or_else(|| panic!("no {name} in {object}"));
        assert_eq!((number("errors"), &object["failed"]), (0.0, &serde_json::Value::Null), "{object}");
        assert!(number("ops_per_s") > 0.0 && number("p50_ms") <= number("p99_ms"), "{object}");
        assert!((number("used_bytes") / 4.0 - number("local_bytes")).abs() < 1.0, "{object}");
        // Three quarters of a value are far, more or less: not all of it several times, as after filling.
        assert!((4096.0..3.0 * 65536.0).contains(&number("fetched_bytes_per_request")), "{object}");
    }
    let faults = |object: &serde_json::Value| object["major_faults_per_request"].as_f64();
    assert!(faults(&objects[0]) > faults(&objects[1]), "{objects:?}");
}

#[test]
fn the_gets_that_are_left_after_deletes_fetch_less_if_only_what_is_live_travels() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let _alone = alone();
    let flags = "bench del-get --keys 60000 --memory 64MiB --local 4MiB --runs 1 --json";
    let ended = yonder.spawn(&flags.split(' ').collect::<Vec<_>>()).end_within(TIME);
    if ended.stderr.contains("redis-server is not installed") {
        println!("SKIP: {}", ended.complaint(1));
        return;
    }
    assert_eq!(ended.code, Some(0), "'{}' said: {}", ended.command, ended.stderr);
    let objects = ended.objects();
    let of_both = |name: &str| objects.iter().map(|object| object[name].clone()).collect::<Vec<_>>();
    assert_eq!(of_both("transfer"), ["pages", "live"]);
    assert_eq!(of_both("errors"), [0, 0]);
    let fetched = |object: &serde_json::Value| object["get_fetched_bytes"].as_u64();
    let (pages, live) = (fetched(&objects[0]), fetched(&objects[1]));
    assert!(pages > live && live > Some(0), "{objects:?}");
}
