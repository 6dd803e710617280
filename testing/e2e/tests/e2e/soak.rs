//! Losslessness: `yonder bench soak` against injected failures, and against a node that stands still again and again.

use std::time::Duration;

use rustix::process::Signal;
use yonder_e2e::{TIMEOUT, Yonder, alone, seconds};

/// Seconds of soaking, unless `YONDER_E2E_SECONDS` says otherwise.
const EMULATED_SECONDS: u64 = 6;
const STANDING_STILL_SECONDS: u64 = 5;
const LAYERS_SECONDS: u64 = 2;
const SECOND_COPY_SECONDS: u64 = 3;

/// How long the node stands still, and how long it then runs.
const PAUSE: Duration = Duration::from_millis(300);
const RUN: Duration = Duration::from_millis(500);

fn assert_lossless(result: &serde_json::Value) {
    for name in ["mismatches", "limit_breaches", "errors"] {
        assert_eq!(result[name], 0, "{name} in {result}");
    }
    for name in ["operations", "major_faults", "minor_faults", "written_bytes", "limit_changes", "ranges"] {
        assert!(result[name].as_u64().is_some_and(|count| count > 10), "{name} in {result}: nothing was tested");
    }
    let (peak, limit) = (result["peak_pages"].as_u64(), result["limit_pages_max"].as_u64());
    assert!(peak.is_some() && peak <= limit, "{result}");
}

#[test]
fn nothing_is_lost_while_the_fabric_fails_and_the_limit_changes() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let duration = seconds(EMULATED_SECONDS);
    let soak = yonder.spawn(&["bench", "soak", "--duration", &format!("{duration}s"), "--json"]);
    let result = soak.end_within(TIMEOUT + Duration::from_secs(duration)).object();
    assert_lossless(&result);
    assert!(result["retries"].as_u64().is_some_and(|count| count > 0), "no failure was injected: {result}");
}

#[test]
fn nothing_is_lost_while_the_node_stands_still_again_and_again() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let node = yonder.serve(&["node", "--listen", "tcp://127.0.0.1:0", "--memory", "256MiB"]);
    let far = node.url("tcp");
    let duration = seconds(STANDING_STILL_SECONDS);
    let mut soak = yonder.spawn(&["bench", "soak", "--far", &far, "--duration", &format!("{duration}s"), "--json"]);
    let mut pauses = 0;
    // Both times are part of the scenario; they end early when the soak does.
    while !soak.ends_within(RUN) {
        node.signal(Signal::STOP);
        let over = soak.ends_within(PAUSE);
        node.signal(Signal::CONT);
        pauses += 1;
        assert!(pauses < 10 * duration + 100, "the soak does not end");
        if over {
            break;
        }
    }
    assert!(pauses >= 3, "the node stood still {pauses} times only");
    assert_lossless(&soak.end().object());
    assert_eq!(node.stop().code, Some(0));
}

#[test]
fn nothing_is_lost_in_tiers_and_compressed() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let node = yonder.serve(&["node", "--listen", "tcp://127.0.0.1:0", "--memory", "256MiB"]);
    let duration = seconds(LAYERS_SECONDS);
    let (near, far) = (node.url("tcp"), "emu://?latency=20us&size=256MiB");
    for far in [format!("tier+near=16MiB+{near}+{far}"), format!("lz4+tier+near=16MiB+{near}+{far}")] {
        let soak = yonder.spawn(&["bench", "soak", "--far", &far, "--duration", &format!("{duration}s"), "--json"]);
        assert_lossless(&soak.end_within(TIMEOUT + Duration::from_secs(duration)).object());
    }
    assert_eq!(node.stop().code, Some(0));
}

#[test]
fn what_is_dropped_as_clean_is_what_the_node_was_given() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let shared = format!("shm://{}", folder.path().join("node.sock").display());
    let listen = format!("tcp://127.0.0.1:0,{shared}");
    let node = yonder.serve(&["node", "--listen", &listen, "--memory", "256MiB"]);
    let duration = seconds(SECOND_COPY_SECONDS);
    for far in ["emu://?latency=5us&gbps=100&size=256MiB".to_owned(), node.url("tcp"), shared] {
        let duration_text = format!("{duration}s");
        let args = ["bench", "soak", "--verify", "full", "--far", &far, "--duration", &duration_text, "--json"];
        let result = yonder.spawn(&args).end_within(TIMEOUT + Duration::from_secs(duration)).object();
        assert_lossless(&result);
        assert_eq!(result["verify"], "full");
        assert!(result["clean_drops_compared"].as_u64().is_some_and(|count| count > 10), "{result}");
    }
    assert_eq!(node.stop().code, Some(0));
}
