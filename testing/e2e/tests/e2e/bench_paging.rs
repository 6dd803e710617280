//! `yonder bench` of paging itself: array, seq, del-get, errors, switch, fault and reclaim, each for a moment.

use yonder_e2e::{Yonder, alone};

use crate::bench_node::{bench, bench_until, column, has};

#[test]
fn an_array_is_read_in_a_loop_and_at_a_rate() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let far = "--far emu://?latency=2.5us";
    let closed = format!("array --memory 16MiB --local 20% {far} --faults yield --duration DURATION");
    let objects = bench_until(yonder, &closed, |object| object["major_faults"].as_u64() > Some(0));
    assert!(!objects.is_empty());
    let rated = "array --memory 16MiB --rate 20k --dist zipf:0.99 --dispatch predicted --duration DURATION";
    for object in bench_until(yonder, rated, |object| object["hit_p99_us"].is_number()) {
        for key in ["hit_p99_us", "predicted_hits_right", "predicted_faults_wrong"] {
            assert!(object[key].is_number(), "{key} in {object}");
        }
    }
}

#[test]
fn every_prefetcher_reads_and_writes_in_order() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let objects = bench(yonder, "seq --memory 8MiB --local 2MiB --rounds 1");
    assert_eq!(column(&objects, "prefetch"), [["none", "readahead", "trend"]; 2].concat());
    assert_eq!(column(&objects, "op"), [["read"; 3], ["write"; 3]].concat());
}

#[test]
fn injected_errors_are_counted() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let objects =
        bench(yonder, "errors --memory 24MiB --local 4MiB --keys 10000 --swap-in-errors 50 --memory-errors 50");
    assert_eq!(column(&objects, "bench"), ["errors"; 2]);
}

#[test]
fn switches_faults_and_reclaim_are_measured() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let shortly =
        ["switch --switches 10000", "fault --memory 16MiB --touches 500", "reclaim --memory 16MiB --duration 100ms"];
    for arguments in shortly {
        let keys: &[&str] = if arguments.starts_with("switch") { &["mechanism", "ns_per_switch"] } else { &[] };
        let words: Vec<&str> = std::iter::once("bench").chain(arguments.split(' ')).chain(["--json"]).collect();
        let ended = yonder.run(&words);
        assert_eq!(ended.code, Some(0), "'{}' said: {}", ended.command, ended.stderr);
        let objects = ended.objects();
        assert!(!objects.is_empty() && objects.iter().all(|object| object["bench"] == words[1]), "{}", ended.stdout);
        assert!(objects.iter().all(|object| has(object, keys)), "{}", ended.stdout);
    }
}
