//! An index with a fifth of its lists in local memory, against one that has all of them.

use std::sync::Arc;
use std::time::Duration;

use yonder::sched::{Handler, Outcome, SchedConfig, serve_all};
use yonder::{Config, Deadlines, FarMemory, FaultPolicy};
use yonder_vector::{
    Clusters, FaissError, Index, Neighbour, Numbered, QUERIES, Request, STACK_BYTES, SearchError, Searcher, Vectors,
    build, nearest, recall,
};

const VECTORS: u64 = 24_000;
const NLIST: usize = 64;
const LIST_BYTES: u64 = VECTORS * (128 * 4 + 8);
const SEED: u64 = 9;
const K: usize = 10;
/// Lists of which a search looks at so many finds almost all.
const NPROBE: usize = 8;
const URL: &str = "emu://?latency=2.5us&gbps=100";

/// Vectors, and an index of them. None if something that is needed is not on this machine, which it says.
fn index() -> Option<(Vectors, Index)> {
    if let Err(why) = yonder::abilities().userfaultfd {
        println!("SKIP: no userfaultfd: {why}");
        return None;
    }
    let vectors = Clusters::new(SEED).vectors(0..VECTORS);
    match build(&vectors, NLIST, &mut |_| ()) {
        Err(error) if error.is_missing() => {
            println!("SKIP: {error}");
            None
        }
        index => Some((vectors, index.unwrap())),
    }
}

fn requests(count: u64, nprobe: usize) -> Vec<Request> {
    let queries = Clusters::new(SEED).vectors(QUERIES..QUERIES + count);
    (0..queries.count()).map(|at| Request { query: queries.get(at).into(), k: K, nprobe }).collect()
}

/// What Faiss' own search finds.
fn expected(index: &Index, requests: &[Request]) -> Vec<Vec<Neighbour>> {
    let find = |request: &Request| index.search_at_once(&request.query, request.k, request.nprobe).unwrap();
    requests.iter().map(find).collect()
}

fn far(index: Index, far: &FarMemory) -> Arc<Searcher> {
    let region = far.region(LIST_BYTES * 2).unwrap();
    Arc::new(Searcher::open(index, Some(region)).unwrap())
}

/// Searches in one go.
struct AtOnce(Arc<Searcher>);

impl Handler for AtOnce {
    type Request = Numbered<Request>;
    type Reply = Result<Numbered<Vec<Neighbour>>, SearchError>;

    fn handle(&self, (number, request): Self::Request) -> Self::Reply {
        Ok((number, self.0.serve_at_once(&request)?))
    }
}

fn serve_requests<H: Handler<Request = Numbered<Request>, Reply = Result<Numbered<Vec<Neighbour>>, SearchError>>>(
    config: &SchedConfig,
    far: &FarMemory,
    searcher: &Arc<H>,
    requests: Vec<Request>,
) -> Vec<Result<Vec<Neighbour>, SearchError>> {
    let config = SchedConfig { stack_bytes: STACK_BYTES, ..config.clone() };
    let reply = |outcome: Outcome<Result<Numbered<_>, _>>| match outcome {
        Outcome::Reply(reply) => reply.map(|(_, found)| found),
        Outcome::Panicked => panic!("a search has panicked"),
    };
    serve_all(&config, far, searcher, (0..).zip(requests)).unwrap().into_iter().map(reply).collect()
}

/// Answers in an order of their own: requests end in any.
fn sorted(answers: Vec<Vec<Neighbour>>) -> Vec<Vec<(i64, u32)>> {
    let plain = |answer: Vec<Neighbour>| answer.into_iter().map(|(id, distance)| (id, distance.to_bits())).collect();
    let mut answers: Vec<Vec<(i64, u32)>> = answers.into_iter().map(plain).collect();
    answers.sort_unstable();
    answers
}

#[test]
fn answers_are_those_of_local_lists_whoever_waits_for_pages() {
    let preempt = Some(Duration::from_micros(5));
    for (faults, preempt) in [
        (FaultPolicy::Yield, None),
        (FaultPolicy::Busy, None),
        (FaultPolicy::Busy, preempt),
        (FaultPolicy::Yield, preempt),
    ] {
        let Some((_, index)) = index() else { return };
        let requests = requests(150, NPROBE);
        let expected = expected(&index, &requests);
        let memory = FarMemory::open(URL, Config::with_local(LIST_BYTES / 5)).unwrap();
        let searcher = far(index, &memory);
        let config = SchedConfig { faults, preempt, ..SchedConfig::with_workers(2) };
        let answers = serve_requests(&config, &memory, &searcher, requests).into_iter().map(Result::unwrap).collect();
        assert!(
            sorted(answers) == sorted(expected),
            "{faults:?} {preempt:?}: an answer is not that of the local lists"
        );
        assert!(memory.stats().major_faults > 1000, "{} faults", memory.stats().major_faults);
    }
}

#[test]
fn faiss_own_search_is_left_and_gone_on_with_in_the_middle() {
    let Some((_, index)) = index() else { return };
    let requests = requests(150, NPROBE);
    let expected = expected(&index, &requests);
    let memory = FarMemory::open(URL, Config::with_local(LIST_BYTES / 5)).unwrap();
    let searcher = Arc::new(AtOnce(far(index, &memory)));
    let answers = serve_requests(&SchedConfig::with_workers(2), &memory, &searcher, requests);
    let answers = answers.into_iter().map(Result::unwrap).collect();
    assert!(sorted(answers) == sorted(expected), "an answer is not that of the local lists");
    assert!(memory.stats().major_faults > 1000, "{} faults", memory.stats().major_faults);
}

#[test]
fn more_lists_find_more_and_all_lists_all() {
    let Some((vectors, index)) = index() else { return };
    let all = requests(60, NLIST);
    let truth: Vec<_> = all.iter().map(|request| nearest(&vectors, &request.query, K)).collect();
    let memory = FarMemory::open(URL, Config::with_local(LIST_BYTES / 5)).unwrap();
    let local: Vec<_> = [1, NPROBE].map(|nprobe| expected(&index, &requests(60, nprobe))).into();
    let searcher = far(index, &memory);
    let mean = |found: &[Vec<Neighbour>]| {
        found.iter().zip(&truth).map(|(found, truth)| recall(found, truth)).sum::<f64>() / truth.len() as f64
    };
    let found =
        |nprobe| -> Vec<_> { requests(60, nprobe).iter().map(|request| searcher.serve(request).unwrap()).collect() };
    let (one, some, all) = (found(1), found(NPROBE), found(NLIST));
    println!("recall@{K} of 1, {NPROBE} and all lists: {:.3}, {:.3}, {:.3}", mean(&one), mean(&some), mean(&all));
    assert!([one.clone(), some.clone()] == local[..], "far lists find what local ones find");
    assert!(mean(&one) < mean(&some) && mean(&some) > 0.9);
    assert!((mean(&all) - 1.0).abs() < 1e-9);
    // Exact, to the last bit: squared distances of whole numbers are whole numbers.
    let distances =
        |found: &[Vec<Neighbour>]| -> Vec<f32> { found.iter().flatten().map(|(_, distance)| *distance).collect() };
    assert_eq!(distances(&all), distances(&truth));
}

#[test]
fn a_long_search_gives_way_if_the_server_preempts() {
    let Some((_, index)) = index() else { return };
    let memory = FarMemory::open(URL, Config::with_local(LIST_BYTES / 5)).unwrap();
    let searcher = far(index, &memory);
    // How many neighbours they find tells the answers apart: that of the search of all lists, which is asked first, has one.
    let asked = || -> Vec<Request> {
        let mut asked = requests(2, 1);
        (asked[0].nprobe, asked[0].k) = (NLIST, 1);
        asked
    };
    for (preempt, first) in [(None, 1), (Some(Duration::from_micros(5)), K)] {
        let config = SchedConfig { faults: FaultPolicy::Busy, preempt, ..SchedConfig::with_workers(1) };
        let answers = serve_requests(&config, &memory, &searcher, asked());
        assert_eq!(answers[0].as_ref().unwrap().len(), first, "preemption: {preempt:?}");
    }
}

#[test]
fn a_lost_node_fails_searches_and_not_the_server() {
    let Some((_, index)) = index() else { return };
    let fabric = Arc::new(yonder::EmuFabric::open(URL).unwrap());
    let control = fabric.control();
    let patience = Deadlines { fault: Duration::from_millis(500), ..Deadlines::default() };
    let memory = FarMemory::new(fabric, Config { deadlines: patience, ..Config::with_local(LIST_BYTES / 5) }).unwrap();
    let requests = requests(60, NPROBE);
    let expected = expected(&index, &requests);
    let searcher = far(index, &memory);
    let config = SchedConfig::with_workers(2);
    control.set_dead(true);
    let answers = serve_requests(&config, &memory, &searcher, requests.clone());
    assert_eq!(answers.len(), requests.len());
    let failures: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(!failures.is_empty() && failures.iter().all(|why| matches!(why, SearchError::Paging(_))), "{failures:?}");
    // Searches that were left in the middle have changed nothing for those that come later.
    control.set_dead(false);
    let answers = serve_requests(&config, &memory, &searcher, requests).into_iter().map(Result::unwrap).collect();
    assert!(sorted(answers) == sorted(expected), "an answer is not that of the local lists");
}

#[test]
fn a_region_that_is_too_small_and_requests_that_make_no_sense_are_refused() {
    let Some((_, index)) = index() else { return };
    let memory = FarMemory::open(URL, Config::with_local(LIST_BYTES / 5)).unwrap();
    let region = memory.region(LIST_BYTES / 2).unwrap();
    let error = Searcher::open(index, Some(region)).err().expect("half of them have room").to_string();
    assert!(error.ends_with("find no room: give more far memory"), "{error}");
    let Some((_, index)) = self::index() else { return };
    let searcher = far(index, &memory);
    let error = |request: &Request| match searcher.serve(request) {
        Err(SearchError::Faiss(error)) => error,
        other => panic!("{other:?}"),
    };
    let right = &requests(1, 1)[0];
    assert!(matches!(
        error(&Request { query: right.query[1..].into(), ..right.clone() }),
        FaissError::Dimension { .. }
    ));
    assert!(matches!(error(&Request { k: 0, ..right.clone() }), FaissError::Neighbours(0)));
    assert!(matches!(error(&Request { nprobe: 0, ..right.clone() }), FaissError::NoProbe));
}
