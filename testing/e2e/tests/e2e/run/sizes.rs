//! `yonder size`: what it predicts of the pages that a program would miss, beside what the program misses, and what a
//! program is under it.

use serde_json::Value;
use yonder_e2e::{Ended, Yonder};

/// On a busy machine the thread that watches may come late: how often it is tried.
const TRIES: u32 = 5;
/// Something that has a sample.
const SORT: [&str; 5] = ["workload", "quicksort", "--size", "64MiB", "--check"];

/// Runs a program with a summary, which is returned as well.
fn told(yonder: Yonder, flags: &[&str], program: &[&str]) -> (Ended, Value) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("summary");
    let summary = ["--memory", "1GiB", "--summary", path.to_str().expect("a name that can be printed"), "--"];
    let ended = yonder.run(&[flags, &summary, program].concat());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("there is no summary: {}", ended.stderr));
    (ended, serde_json::from_str(&text).expect("it is JSON"))
}

#[test]
fn what_would_be_missed_is_predicted() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let own = yonder.path();
    let program = [&[own], &SORT[..]].concat();
    let alone = yonder.run(&SORT);
    let flags = ["size", "--points", "8", "--slowdown", "1000%"];
    let (ended, sized) = told(yonder, &flags, &program);
    assert_eq!((ended.code, &ended.stdout), (Some(0), &alone.stdout), "{}", ended.stderr);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    let bytes = number(&sized["bytes"]);
    assert!((66e6..80e6).contains(&bytes), "{bytes} bytes of 64 MiB");
    let of_far = &sized["far"][0];
    let points = of_far["points"].as_array().expect("points");
    assert_eq!(points.len(), 8, "{sized}");
    let misses: Vec<f64> = points.iter().map(|point| number(&point["misses"])).collect();
    assert!(misses[0] > misses[3] && misses[3] > misses[6] && misses[7] == 0.0, "{misses:?}");
    for place in [1, 4] {
        let local = points[place]["local_bytes"].to_string();
        let (ended, ran) = told(yonder, &["run", "--local", &local], &program);
        assert_eq!(ended.stdout, alone.stdout, "{}", ended.stderr);
        let fetched = number(&ran["fetched_bytes"]) / 4096.0;
        let mut predicted = misses[place];
        for _ in 1..TRIES {
            if (0.7..1.4).contains(&(predicted / fetched)) {
                break;
            }
            let (_, again) = told(yonder, &flags, &program);
            predicted = number(&again["far"][0]["points"][place]["misses"]);
        }
        assert!((0.7..1.4).contains(&(predicted / fetched)), "{predicted} predicted, {fetched} fetched with {local}");
    }
    let (seconds, all) = (number(&points[0]["seconds"]), number(&sized["seconds"]));
    assert!(seconds > all && all > 0.0, "{seconds} s with a quarter, {all} s with all");
    assert!(number(&of_far["enough_bytes"]) <= bytes, "{sized}");
}

#[test]
fn programs_are_what_they_are_without_it() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let ended = yonder.run(&["size", "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "out\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("too little memory was used"), "{}", ended.stderr);
    // It touches and frees, and its children sort.
    let own = yonder.path();
    let twice = format!("for _ in 1 2; do '{own}' {}; done", SORT.join(" "));
    let (ended, sized) = told(yonder, &["size", "--points", "2"], &["sh", "-c", &twice]);
    assert_eq!(ended.stdout, yonder.run(&SORT).stdout.repeat(2), "{}", ended.stderr);
    assert!(sized["touches"].as_u64() > Some(0), "{sized}");
}

#[test]
fn a_picture_is_drawn_and_what_cannot_be_is_said_at_once() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let own = yonder.path();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("size.svg");
    let picture = path.to_str().expect("a name that can be printed");
    let two = ["--far", "emu://?latency=2.5us", "--far", "emu://?latency=25us"];
    let flags = [&["size", "--memory", "1GiB", "--picture", picture], &two[..], &["--", own], &SORT].concat();
    let ended = yonder.run(&flags);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let svg = std::fs::read_to_string(&path).expect("a picture");
    assert!(svg.contains("latency=25us") && svg.contains("Local memory"), "{svg}");
    for (flags, words) in [
        (&["--picture", "size.png"][..], "ends with .svg"),
        (&["--slowdown", "5"], "such as 5%"),
        (&["--far", "ftp://x"], "ftp"),
    ] {
        let ended = yonder.run(&[&["size"], flags, &["--", "true"]].concat());
        assert!(ended.code == Some(2) && ended.stderr.contains(words), "{}", ended.stderr);
    }
    let ended = yonder.run(&["size", "--", "/nowhere/at-all"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("/nowhere/at-all"), "{}", ended.stderr);
}
