//! `yonder kv` with a data set five times larger than its local memory, under saturating load, and beyond all memory.

use yonder_e2e::{Client, Content, Process, Stats, Yonder, alone, seconds};

/// Seconds of saturating load, unless `YONDER_E2E_SECONDS` says otherwise.
const LOAD_SECONDS: u64 = 5;

/// Values of one client beside the load: 8 MiB.
const BESIDE: Content = Content { name: "beside", keys: 8000, value_bytes: 1024 };

fn number(object: &serde_json::Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {object}"))
}

fn assert_within_limit(stats: &Stats) {
    let (peak, limit) = (stats.number("local_peak_bytes"), stats.number("local_limit_bytes"));
    assert!(peak <= limit, "{peak} bytes were local under a limit of {limit}");
    assert!(peak > limit / 2, "{peak} of {limit} bytes were used: nothing was tested");
}

/// A closed loop of gets and sets of 1 KiB values.
fn load(yonder: Yonder, server: &Process, mix: &str, keys: u64) -> serde_json::Value {
    let (target, keys) = (server.address().to_string(), keys.to_string());
    let duration = format!("{}s", seconds(LOAD_SECONDS));
    let flags = ["load", "kv", "--json", "--target", &target, "--keys", &keys, "--value-size", "1024"];
    let load = yonder.spawn(&[&flags[..], &["--mix", mix, "--duration", &duration]].concat());
    load.end_within(yonder_e2e::TIMEOUT + std::time::Duration::from_secs(seconds(LOAD_SECONDS))).object()
}

#[test]
fn five_times_the_local_memory_is_served_right_at_saturation() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    // 60 MB of items in a store of 96 MiB, so that nothing is evicted; 12 % of it is 11.5 MiB.
    let server = yonder.serve(&["kv", "--listen", "127.0.0.1:0", "--memory", "96MiB", "--local", "12%"]);
    let mut client = Client::connect(server.address());
    client.fill(&BESIDE, 0..BESIDE.keys, 1);

    let result = load(yonder, &server, "get=80,set=20", 50_000);
    for name in ["wrong_values", "errors", "misses", "dropped"] {
        assert_eq!(number(&result, name), 0, "{name} in {result}");
    }
    assert!(number(&result, "completed") > 1000 && number(&result, "major_faults") > 1000, "{result}");
    assert!(number(&result, "fetched_bytes") > 0 && number(&result, "written_bytes") > 0, "{result}");

    // What the load did not touch is as it was.
    client.verify(&BESIDE, 0..BESIDE.keys, 1);
    let stats = client.stats();
    assert!(stats.number("bytes") >= 5 * stats.number("local_limit_bytes"), "the data set is five times larger");
    assert_within_limit(&stats);
    assert_eq!((stats.number("evictions"), stats.number("paging_errors")), (0, 0));
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_fifth_of_memory_is_local_and_old_items_make_room() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let server = yonder.serve(&["kv", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--local", "20%"]);
    let result = load(yonder, &server, "get=50,set=50", 50_000);
    for name in ["wrong_values", "errors", "dropped"] {
        assert_eq!(number(&result, name), 0, "{name} in {result}");
    }
    assert!(number(&result, "misses") > 0, "more was stored than fits: {result}");
    let stats = Client::connect(server.address()).stats();
    assert!(stats.number("evictions") > 0);
    assert_eq!(stats.number("local_limit_bytes"), (32 << 20) / 5 / 4096 * 4096);
    assert_within_limit(&stats);
    assert_eq!(server.stop().code, Some(0));
}

/// With requests that overtake others, so that none is answered with another's value.
#[test]
fn every_value_is_right_after_every_page_was_evicted_and_rewritten() {
    let Some(yonder) = Yonder::ready() else { return };
    let content = Content { name: "all", keys: 24_000, value_bytes: 960 };
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--local", "4MiB", "--workers", "2"];
    let server = yonder.serve(&[&flags[..], &["--dispatch", "predicted"]].concat());
    let mut client = Client::connect(server.address());
    client.fill(&content, 0..content.keys, 1);
    client.verify(&content, 0..content.keys, 1);
    client.fill(&content, (0..content.keys).step_by(2), 2);
    client.verify(&content, (0..content.keys).step_by(2), 2);
    client.verify(&content, (1..content.keys).step_by(2), 1);
    let stats = client.stats();
    assert!(stats.number("bytes") >= 5 * stats.number("local_limit_bytes"), "the data set is five times larger");
    assert!(stats.number("fetched_bytes") > stats.number("bytes") && stats.number("written_bytes") > 0);
    assert_eq!((stats.number("evictions"), stats.number("paging_errors")), (0, 0));
    assert!(stats.number("predicted_hits_right") > 1000 && stats.number("predicted_faults_right") > 0);
    assert_within_limit(&stats);
}
