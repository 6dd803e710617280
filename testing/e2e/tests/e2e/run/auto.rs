//! `yonder run --local auto`: a program gives back what it does not need, and is what it is.

use serde_json::Value;
use yonder_e2e::{Ended, Yonder, alone};

/// Most of its time it works on a tenth of its memory.
const PHASES: [&str; 5] = ["workload", "phases", "--size", "16MiB", "--check"];

fn told(yonder: Yonder, local: &[&str]) -> (Ended, Value) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("summary");
    let summary = ["--memory", "1GiB", "--summary", path.to_str().expect("a name that can be printed"), "--"];
    let ended = yonder.run(&[&["run"], local, &summary, &[yonder.path()], &PHASES].concat());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("there is no summary: {}", ended.stderr));
    (ended, serde_json::from_str(&text).expect("it is JSON"))
}

#[test]
fn a_program_gives_back_what_it_does_not_need() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    // How long a page may stay follows from what faults have taken of late.
    let _alone = alone();
    let number = |summary: &Value, name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("{name}: {summary}"));
    let alone = yonder.run(&PHASES);
    let (ended, all) = told(yonder, &["--local", "100%"]);
    assert_eq!((ended.code, &ended.stdout), (Some(0), &alone.stdout), "{}", ended.stderr);
    assert!(all["slowdown"].is_null() && number(&all, "average_local_bytes") > 8 << 20, "{all}");
    // Others hold it up as well on a busy machine, and it may be slowed down so much.
    let (ended, auto) = told(yonder, &["--local", "auto", "--slowdown", "50%"]);
    assert_eq!((ended.code, &ended.stdout), (Some(0), &alone.stdout), "{}", ended.stderr);
    assert!(ended.stderr.contains("local on average and"), "{}", ended.stderr);
    assert_eq!(auto["slowdown"], 0.5, "{auto}");
    let [average, most] = ["average_local_bytes", "peak_local_bytes"].map(|name| number(&auto, name));
    assert!(average < number(&all, "average_local_bytes") * 9 / 10 && average < most * 9 / 10, "{auto}");
    assert!(number(&auto, "fetched_bytes") > 0, "{auto}");
}

#[test]
fn a_slowdown_without_anything_to_find_out_is_refused() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let ended = yonder.run(&["run", "--slowdown", "5%", "--", "true"]);
    assert!(ended.complaint(2).contains("type --local auto"), "{}", ended.stderr);
    let ended = yonder.run(&["run", "--local", "much", "--", "true"]);
    assert!(ended.complaint(2).contains("or auto"), "{}", ended.stderr);
}
