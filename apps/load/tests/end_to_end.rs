//! Loads on a small server that is honest, or wrong, slow or rude on purpose.

mod memcached;

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use memcached::{Fault, Server};
use yonder_load::{Distribution, KvLoad, LoadError, LoadResult, LoadSettings, Mix, Rate, Requests, Workload};

const SHORT: Duration = Duration::from_millis(200);

fn mixed(get_percent: u8, dist: Distribution) -> Requests {
    Requests::Mixed { dist, mix: Mix::gets(get_percent) }
}

fn settings(server: &Server) -> LoadSettings {
    LoadSettings {
        keys: 2_000,
        value_size: 200,
        requests: mixed(80, Distribution::Uniform),
        connections: 4,
        depth: 8,
        ..LoadSettings::new(server.target())
    }
}

fn filled(settings: LoadSettings) -> KvLoad {
    let mut load = KvLoad::new(settings).unwrap();
    let fill = load.fill(|_| ()).unwrap();
    assert_eq!(fill.keys, 2_000);
    assert_eq!(fill.value_bytes, 400_000);
    load
}

/// Runs for a short time, and for longer if nothing failed and yet there were few answers: on a busy machine the server
/// may not get its turn.
fn run(load: &mut KvLoad, rate: Rate) -> LoadResult {
    let mut runs = [SHORT, 10 * SHORT, 100 * SHORT].into_iter().map(|duration| run_for(load, rate, duration));
    let is_enough = |result: &LoadResult| result.completed >= 200 || result.errors + result.dropped > 0;
    runs.find(is_enough).expect("100 times as long is enough")
}

fn run_for(load: &mut KvLoad, rate: Rate, duration: Duration) -> LoadResult {
    let result = load.run(rate, duration, |_| ()).unwrap();
    assert_eq!(result.requests, result.completed + result.errors + result.dropped, "{result:?}");
    let others = [result.insert, result.scan, result.read_modify_write];
    let others: u64 = others.into_iter().flatten().map(|latency| latency.count).sum();
    assert_eq!(result.completed, result.get.count + result.set.count + others);
    result
}

#[test]
fn an_honest_server_passes_in_both_loops() {
    for (threads, dist) in [(1, Distribution::Uniform), (2, Distribution::Zipf { theta: 0.99 })] {
        let server = Server::start(Fault::None);
        let mut load = filled(LoadSettings { threads, requests: mixed(80, dist), ..settings(&server) });
        for rate in [Rate::PerSecond(2_000.0), Rate::Max] {
            let result = run(&mut load, rate);
            result.verdict().unwrap();
            assert_eq!((result.misses, result.errors, result.dropped), (0, 0, 0), "{result:?}");
            assert!(result.get.count > 0 && result.set.count > 0);
            assert_eq!(result.major_faults, result.get.count, "the server counts a fault for each get");
            assert_eq!(result.fetched_bytes, result.get.count * 4096);
            assert!(result.p50_us > 0.0 && result.p50_us <= result.p999_us && result.p999_us <= result.max_us);
        }
    }
}

#[test]
fn every_workload_is_served_right() {
    for workload in Workload::all() {
        let server = Server::start(Fault::None);
        let requests = Requests::Workload(workload);
        let mut load = filled(LoadSettings { requests, threads: 2, ..settings(&server) });
        for rate in [Rate::Max, Rate::PerSecond(2_000.0)] {
            let result = run(&mut load, rate);
            result.verdict().unwrap();
            assert_eq!((result.misses, result.errors, result.dropped), (0, 0, 0), "{workload}: {result:?}");
            let count = |latency: Option<yonder_load::LatencySummary>| latency.map(|latency| latency.count > 0);
            let (inserts, updates) = (count(result.insert), result.set.count > 0);
            let seen = (result.get.count > 0, updates, inserts, count(result.scan), count(result.read_modify_write));
            let expected = match workload {
                Workload::YcsbA | Workload::YcsbB => (true, true, None, None, None),
                Workload::YcsbC => (true, false, None, None, None),
                Workload::YcsbD => (true, false, Some(true), None, None),
                Workload::YcsbE => (false, false, Some(true), Some(true), None),
                Workload::YcsbF => (true, false, None, None, Some(true)),
                Workload::Readmost | Workload::Readwrite | Workload::Writemost => (true, true, Some(true), None, None),
            };
            assert_eq!(seen, expected, "{workload}: {result:?}");
        }
    }
}

#[test]
fn wrong_values_are_found_by_scans_and_by_modifying() {
    for workload in [Workload::YcsbE, Workload::YcsbF, Workload::YcsbD] {
        for fault in [Fault::FlipBits, Fault::SwapKeys] {
            let server = Server::start(fault);
            let requests = Requests::Workload(workload);
            let result = run(&mut filled(LoadSettings { requests, ..settings(&server) }), Rate::Max);
            assert!(result.wrong_values > 0, "{workload}, {fault:?}");
        }
    }
    // A server that loses updates of keys that it has is found by reading what was modified.
    let server = Server::start(Fault::LoseUpdates);
    let requests = Requests::Workload(Workload::YcsbF);
    assert!(run(&mut filled(LoadSettings { requests, ..settings(&server) }), Rate::Max).wrong_values > 0);
    let server = Server::start(Fault::Forget);
    let requests = Requests::Workload(Workload::YcsbE);
    let result = run(&mut filled(LoadSettings { requests, ..settings(&server) }), Rate::Max);
    result.verdict().unwrap();
    assert!(result.misses > 0, "scans that find less than all keys are misses");
}

#[test]
fn an_open_loop_offers_the_rate_it_was_told() {
    let server = Server::start(Fault::None);
    let result = run_for(&mut filled(settings(&server)), Rate::PerSecond(5_000.0), SHORT);
    // 1000 arrivals are expected; five standard deviations of a Poisson process around them.
    assert!((840..=1160).contains(&result.requests), "{} requests", result.requests);
}

#[test]
fn a_run_ends_when_it_is_told_to() {
    let server = Server::start(Fault::None);
    let (mut load, is_over) = (filled(settings(&server)), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        let run =
            scope.spawn(|| load.run_until(Rate::PerSecond(2_000.0), Duration::from_secs(3_600), &is_over, |_| ()));
        is_over.store(true, Ordering::Relaxed);
        run.join().unwrap().unwrap()
    });
    assert!(result.duration_s < 60.0, "{result:?}");
    assert_eq!((result.errors, result.dropped), (0, 0), "{result:?}");
}

#[test]
fn wrong_values_are_found() {
    for fault in [Fault::FlipBits, Fault::LoseUpdates, Fault::SwapKeys] {
        let server = Server::start(fault);
        let result = run(&mut filled(settings(&server)), Rate::Max);
        assert!(result.wrong_values > 0, "{fault:?}");
        let message = result.verdict().unwrap_err().to_string();
        assert!(message.contains("wrong values came back, the first: key-0000000"), "{message}");
    }
}

#[test]
fn values_of_another_load_are_accepted_until_this_one_has_stored_its_own() {
    let server = Server::start(Fault::None);
    let mut first = filled(settings(&server));
    let mut second =
        KvLoad::new(LoadSettings { requests: mixed(50, Distribution::Uniform), ..settings(&server) }).unwrap();
    run(&mut second, Rate::Max).verdict().expect("the second load has not filled, so the first one's values are right");
    let message = run(&mut first, Rate::Max).verdict().unwrap_err().to_string();
    assert!(message.contains("it was stored by another load, though version 1 had been stored"), "{message}");
}

#[test]
fn misses_are_counted() {
    let server = Server::start(Fault::Forget);
    let result = run(&mut filled(settings(&server)), Rate::Max);
    result.verdict().unwrap();
    let share = result.misses as f64 / result.get.count as f64;
    assert!((0.05..0.15).contains(&share), "{share} of the gets missed");
}

#[test]
fn an_open_loop_drops_what_a_stalled_server_cannot_take() {
    let server = Server::start(Fault::Gate);
    let settings = LoadSettings { backlog: 50, patience: Duration::from_millis(50), ..settings(&server) };
    let result = run(&mut KvLoad::new(settings).unwrap(), Rate::PerSecond(10_000.0));
    assert_eq!(result.completed, 0);
    // The pipelines took their depth, unanswered; the rest was dropped at once or left in the backlog at the end.
    assert_eq!(result.errors, 4 * 8, "{result:?}");
    assert!(result.dropped > 1_000, "{} dropped", result.dropped);
    assert_eq!(result.first_error.as_deref(), Some("no answer came within 50ms after the end of the run"));
}

#[test]
fn latency_counts_from_the_intended_start() {
    let server = Server::start(Fault::Gate);
    let settings = LoadSettings { connections: 1, depth: 1, backlog: 100_000, ..settings(&server) };
    let mut load = KvLoad::new(settings).unwrap();
    // The gate opens with the first progress report, after one second. Only one request is on its way until then: a
    // generator that measures from the actual send would see one slow request, not a thousand.
    let result = load.run(Rate::PerSecond(1_000.0), Duration::from_millis(1_200), |_| server.open_gate()).unwrap();
    assert_eq!((result.errors, result.dropped), (0, 0));
    assert!(result.p50_us > 100_000.0, "P50 {} us", result.p50_us);
    assert!(result.max_us > 900_000.0, "max {} us", result.max_us);
}

#[test]
fn refusals_are_reported_in_the_servers_words() {
    let server = Server::start(Fault::RefuseSets);
    let mut load = KvLoad::new(settings(&server)).unwrap();
    assert_eq!(
        load.fill(|_| ()).unwrap_err().to_string(),
        "2000 of 2000 keys could not be set, the first because: SERVER_ERROR out of memory storing object"
    );
    let result = run(&mut load, Rate::Max);
    assert!(result.errors > 0 && result.misses > 0);
    assert_eq!(result.first_error.as_deref(), Some("SERVER_ERROR out of memory storing object"));
}

#[test]
fn a_server_that_goes_away_ends_the_run() {
    let server = Server::start(Fault::HangUp(100));
    let error = KvLoad::new(settings(&server)).unwrap().run(Rate::Max, SHORT, |_| ()).unwrap_err();
    assert!(matches!(error, LoadError::ServerGone { .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("the server at {} went away after ", server.target())), "{error}");
}

#[test]
fn a_fill_of_a_silent_server_fails() {
    let server = Server::start(Fault::Gate);
    let mut load = KvLoad::new(LoadSettings { patience: Duration::from_millis(50), ..settings(&server) }).unwrap();
    let expected = format!("the server at {} went away after 0 answers: it has been silent for 50ms", server.target());
    assert_eq!(load.fill(|_| ()).unwrap_err().to_string(), expected);
}

#[test]
fn connection_errors_say_what_to_type() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut load = KvLoad::new(LoadSettings::new(&target)).unwrap();
    assert_eq!(
        load.fill(|_| ()).unwrap_err().to_string(),
        format!("nothing listens at {target}: start `yonder kv --listen {target} ...` first")
    );
    let error = KvLoad::new(LoadSettings::new("nowhere")).err().unwrap();
    assert_eq!(error.to_string(), "'nowhere' is not an address: type --target HOST:PORT, such as 127.0.0.1:11211");
}

#[test]
fn results_are_one_flat_object() {
    let server = Server::start(Fault::None);
    let result = run_for(&mut filled(settings(&server)), Rate::PerSecond(1_000.0), SHORT);
    let json = serde_json::to_value(&result).unwrap();
    let object = json.as_object().unwrap();
    for name in "bench target keys value_size dist mix connections threads depth backlog waiting seed rate loop \
                 duration_s offered_per_s ops_per_s p50_us p99_us p999_us max_us get set major_faults minor_faults \
                 fetched_bytes written_bytes misses wrong_values dropped errors"
        .split_whitespace()
    {
        assert!(object.contains_key(name), "{name} is missing in {json}");
    }
    assert_eq!(json["bench"], "load-kv");
    assert_eq!(json["dist"], "uniform");
    assert_eq!(json["mix"], "get=80,set=20");
    assert_eq!(json["rate"], "1000");
    assert_eq!(json["loop"], "open");
    assert_eq!(json["get"]["count"], result.get.count);
}
