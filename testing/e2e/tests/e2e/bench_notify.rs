//! `yonder bench notify`: what it prints, and that every fault is noticed.

use yonder_e2e::{Yonder, alone};

use crate::bench_node::{bench, column};

#[test]
fn every_mechanism_is_measured_with_every_number_of_threads() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let objects = bench(yonder, "notify --threads 1,6 --faults-per-thread 100 --runs 3");
    assert_eq!(column(&objects, "bench"), ["notify"; 6]);
    let mechanisms = ["sigbus", "monitor", "signal"];
    assert_eq!(column(&objects, "mechanism"), [mechanisms, mechanisms].concat());
    assert_eq!(column(&objects, "threads"), [1, 1, 1, 6, 6, 6]);
    assert_eq!(column(&objects, "faults"), [100, 100, 100, 600, 600, 600]);
    for object in &objects {
        let positive = ["mean_us", "p50_us", "p99_us", "p50_ratio_to_one_thread", "p50_ratio_to_monitor"];
        assert!(positive.iter().all(|key| object[key].as_f64() > Some(0.0)), "{object}");
        let [least, most] = [0, 1].map(|end| object["p50_us_spread"][end].as_f64());
        assert!(least <= object["p50_us"].as_f64() && object["p50_us"].as_f64() <= most, "{object}");
    }
}

#[test]
fn the_table_has_a_row_for_each_and_nothing_else_is_on_standard_output() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let ended = yonder.run(&["bench", "notify", "--threads", "1,2", "--faults-per-thread", "50", "--runs", "1"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let rows = |name: &str| ended.stdout.lines().filter(|line| line.split_whitespace().nth(1) == Some(name)).count();
    assert_eq!(["sigbus", "monitor", "signal"].map(rows), [2, 2, 2], "{}", ended.stdout);
}

#[test]
fn a_count_that_is_none_is_one_line_that_says_what_to_type() {
    let yonder = Yonder::found();
    for arguments in ["--threads 0", "--threads 1,many", "--faults-per-thread 0", "--runs 0"] {
        let words: Vec<&str> = ["bench", "notify"].into_iter().chain(arguments.split(' ')).collect();
        let ended = yonder.run(&words);
        assert!(ended.complaint(2).contains("type a whole number"), "{arguments}: {}", ended.stderr);
    }
}
