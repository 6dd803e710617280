//! A database with a fifth of its tables in local memory, against one that has all of them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder::sched::{Outcome, SchedConfig, serve_all};
use yonder::{Config, Deadlines, FarMemory, FaultPolicy};
use yonder_rocksdb::{Found, Request, RequestError, Rocks, RocksError, Rows};

const ROWS: Rows = Rows { count: 30_000 };

/// Whether something that is needed is not on this machine; says so.
fn is_missing(folder: &Path) -> bool {
    if let Err(why) = yonder::abilities().userfaultfd {
        println!("SKIP: no userfaultfd: {why}");
        return true;
    }
    match ROWS.store(folder, &mut |_| ()) {
        Err(RocksError::Library(missing)) => {
            println!("SKIP: {missing}");
            true
        }
        stored => {
            stored.unwrap();
            false
        }
    }
}

fn far_tables(folder: &Path, url: &str) -> (FarMemory, Arc<Rocks>) {
    let far = FarMemory::open(url, Config::with_local(ROWS.bytes() / 5)).unwrap();
    let region = far.region(ROWS.bytes() * 2).unwrap();
    let rocks = Rocks::open(folder, Some(region)).unwrap();
    (far, Arc::new(rocks))
}

fn serve_requests(
    far: &FarMemory,
    rocks: &Arc<Rocks>,
    faults: FaultPolicy,
    requests: Vec<Request>,
) -> Vec<Result<Found, RequestError>> {
    let config = SchedConfig { faults, preempt: Some(Duration::from_micros(5)), ..SchedConfig::with_workers(2) };
    let reply = |outcome| match outcome {
        Outcome::Reply(reply) => reply,
        Outcome::Panicked => panic!("a request has panicked"),
    };
    serve_all(&config, far, rocks, requests).unwrap().into_iter().map(reply).collect()
}

/// GETs, a hundredth SCANs, and some for keys that are not there.
fn mixed(count: usize) -> Vec<Request> {
    let mut random = SmallRng::seed_from_u64(5);
    let mut next = || {
        let number = random.random_range(0..ROWS.count + 20);
        if random.random_ratio(1, 100) { Request::Scan(ROWS.key(number), 100) } else { Request::Get(ROWS.key(number)) }
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn answers_are_those_of_a_local_database_whoever_waits_for_pages() {
    let folder = tempfile::tempdir().unwrap();
    if is_missing(folder.path()) {
        return;
    }
    let mut expected: Vec<Found> = {
        let local = Rocks::open(folder.path(), None).unwrap();
        mixed(20_000).iter().map(|request| local.serve(request).unwrap()).collect()
    };
    expected.sort_unstable();
    for faults in [FaultPolicy::Yield, FaultPolicy::Busy] {
        let (far, rocks) = far_tables(folder.path(), "emu://?latency=2us&gbps=100");
        let answers = serve_requests(&far, &rocks, faults, mixed(20_000));
        let mut answers: Vec<Found> = answers.into_iter().map(Result::unwrap).collect();
        // Requests end in any order.
        answers.sort_unstable();
        assert!(answers == expected, "an answer is not that of the local database");
        assert!(far.stats().major_faults > 1000, "{} faults", far.stats().major_faults);
    }
    let rows = |found: &Found| found.len() as u64;
    let is_right = |found: &Found| found.is_empty() || ROWS.are(ROWS.number(&found[0].0).unwrap(), rows(found), found);
    assert!(expected.iter().all(is_right), "the local database has other rows");
}

#[test]
fn a_lost_node_fails_requests_and_not_the_server() {
    let folder = tempfile::tempdir().unwrap();
    if is_missing(folder.path()) {
        return;
    }
    let fabric = Arc::new(yonder::EmuFabric::open("emu://?latency=2us&gbps=100").unwrap());
    let control = fabric.control();
    let patience = Deadlines { fault: Duration::from_secs(2), ..Deadlines::default() };
    let config = Config { deadlines: patience, ..Config::with_local(ROWS.bytes() / 5) };
    let far = FarMemory::new(fabric, config).unwrap();
    let rocks = Arc::new(Rocks::open(folder.path(), Some(far.region(ROWS.bytes() * 2).unwrap())).unwrap());
    control.set_dead(true);
    let answers = serve_requests(&far, &rocks, FaultPolicy::Yield, mixed(500));
    let failures: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(answers.len(), 500);
    assert!(!failures.is_empty(), "nothing has failed");
    assert!(failures.iter().all(|why| matches!(why, RequestError::Paging(_))), "{failures:?}");
}
