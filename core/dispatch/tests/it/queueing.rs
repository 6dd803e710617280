//! What predictions gain for requests that hit: a worker on a clock of its own, at 80 % of its load, with the same
//! policies that the scheduler runs.
//!
//! A hit takes one stretch on the CPU; a fault two, with a fetch between them. The worker is never interrupted and
//! nothing else costs time, so this says what the order of requests is worth, and nothing of a machine.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_dispatch::predict::{Forecast, Outcome, Prediction, Predictor};
use yonder_dispatch::{Turn, Turns, Waiting};
use yonder_units::Residence;
use yonder_units::{PageId, PageIndex};

use crate::cache::{Cache, Leaves};
use crate::keys::{uniform, zipf};

const KEYS: u32 = 20_000;
const LOCAL: usize = KEYS as usize / 5;
const REQUESTS: usize = 200_000;
/// Requests before those that count.
const WARM_UP: usize = 100_000;

/// Times in nanoseconds: a hit, the way to a fetch, the fetch, and the way from it.
const HIT: u64 = 2_000;
const BEFORE_FETCH: u64 = 5_000;
const FETCH: u64 = 2_500;
const AFTER_FETCH: u64 = 5_000;

struct Request {
    key: u32,
    arrived: u64,
    forecast: Option<Forecast>,
}

struct Worker {
    cache: Cache,
    /// None: first come, first served.
    predictor: Option<Predictor>,
    turns: Turns,
    hits: VecDeque<Request>,
    faults: VecDeque<Request>,
    /// On their way, with the time of arrival.
    fetches: VecDeque<(u64, Request)>,
    resumed: VecDeque<Request>,
    now: u64,
    faulted: usize,
    hit_latencies: Vec<u64>,
    latencies: Vec<u64>,
}

impl Worker {
    fn new(predictor: Option<Predictor>) -> Self {
        Self {
            cache: Cache::new(LOCAL, Leaves::First),
            predictor,
            turns: Turns::default(),
            hits: VecDeque::new(),
            faults: VecDeque::new(),
            fetches: VecDeque::new(),
            resumed: VecDeque::new(),
            now: 0,
            faulted: 0,
            hit_latencies: Vec::new(),
            latencies: Vec::new(),
        }
    }

    /// Serves requests for `keys` that arrive at random, one in `mean_gap` nanoseconds, until all are over.
    fn serve(&mut self, keys: impl Iterator<Item = u32>, mean_gap: f64) {
        let mut random = SmallRng::seed_from_u64(9);
        let mut time = self.now as f64;
        let arrivals = keys.map(|key| {
            time -= mean_gap * (1.0 - random.random::<f64>()).ln();
            Request { key, arrived: time as u64, forecast: None }
        });
        let mut arrivals = arrivals.peekable();
        loop {
            while let Some(request) = arrivals.next_if(|request| request.arrived <= self.now) {
                self.admit(request);
            }
            while self.fetches.front().is_some_and(|(there, _)| *there <= self.now) {
                self.resumed.extend(self.fetches.pop_front().map(|(_, request)| request));
            }
            if !self.take_turn() {
                let next = arrivals.peek().map(|request| request.arrived);
                let Some(next) = next.into_iter().chain(self.fetches.front().map(|(there, _)| *there)).min() else {
                    return;
                };
                self.now = next;
            }
        }
    }

    fn admit(&mut self, mut request: Request) {
        if let Some(predictor) = &self.predictor {
            let forecast = predictor.predict(request.key.into(), |page_id| residence(&self.cache, page_id));
            request.forecast = Some(forecast);
            if forecast.prediction == Prediction::Fault {
                self.faults.push_back(request);
                return;
            }
        }
        self.hits.push_back(request);
    }

    fn take_turn(&mut self) -> bool {
        let resumed_only = self.predictor.is_none() && !self.resumed.is_empty();
        let turn = self.turns.next(Waiting {
            hits: !self.hits.is_empty() && !resumed_only,
            resumed: !self.resumed.is_empty(),
            faults: !self.faults.is_empty(),
        });
        let Some(turn) = turn else { return false };
        let queue = match turn {
            Turn::Hit => &mut self.hits,
            Turn::Fault => &mut self.faults,
            Turn::Resumed => &mut self.resumed,
        };
        let request = queue.pop_front().expect("its turn came because it waits");
        if turn == Turn::Resumed {
            self.now += AFTER_FETCH;
            self.end(&request, 1);
        } else if self.cache.touch(request.key) {
            self.now += BEFORE_FETCH;
            self.fetches.push_back((self.now + FETCH, request));
        } else {
            self.now += HIT;
            self.end(&request, 0);
        }
        true
    }

    fn end(&mut self, request: &Request, major_faults: u32) {
        let latency = self.now - request.arrived;
        self.latencies.push(latency);
        if major_faults == 0 {
            self.hit_latencies.push(latency);
        } else {
            self.faulted += 1;
        }
        if let (Some(predictor), Some(forecast)) = (&mut self.predictor, request.forecast) {
            let page_id = (major_faults > 0).then_some(PageId { region: 0, page: PageIndex(request.key) });
            let outcome = Outcome { major_faults, page_id };
            predictor.learn(request.key.into(), forecast, outcome, |page_id| residence(&self.cache, page_id));
        }
    }
}

fn residence(cache: &Cache, page_id: PageId) -> Residence {
    if cache.has(page_id.page.0) { Residence::Local } else { Residence::Far }
}

fn p99(latencies: &mut [u64]) -> u64 {
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100]
}

/// The 99th percentiles of hits and of all requests at 80 % load.
fn run<K: Iterator<Item = u32>>(keys: impl Fn(u64) -> K, predicts: bool) -> (u64, u64) {
    let mut worker = Worker::new(predicts.then(|| Predictor::new(LOCAL as u64)));
    // Slowly at first, to learn what a request costs on average.
    worker.serve(keys(1).take(WARM_UP), 20_000.0);
    let faults = worker.faulted as f64 / WARM_UP as f64;
    let mean = faults * (BEFORE_FETCH + AFTER_FETCH) as f64 + (1.0 - faults) * HIT as f64;
    (worker.latencies, worker.hit_latencies) = (Vec::new(), Vec::new());
    worker.serve(keys(2).take(REQUESTS), mean / 0.8);
    assert_eq!(worker.latencies.len(), REQUESTS);
    (p99(&mut worker.hit_latencies), p99(&mut worker.latencies))
}

#[test]
fn hits_of_popular_keys_wait_less_by_half() {
    let keys = |seed| zipf(KEYS, 0, seed);
    let ((plain, plain_all), (predicted, predicted_all)) = (run(keys, false), run(keys, true));
    println!("zipf: hits {plain} ns, predicted {predicted} ns; all {plain_all} ns, predicted {predicted_all} ns");
    assert!(2 * predicted < plain, "P99 of hits: {predicted} ns predicted, {plain} ns in order");
    assert!(predicted_all < 2 * plain_all, "P99 of all: {predicted_all} ns predicted, {plain_all} ns in order");
}

#[test]
fn uniform_keys_lose_nothing_worth_speaking_of() {
    let keys = |seed| uniform(KEYS, seed);
    let ((plain, plain_all), (predicted, predicted_all)) = (run(keys, false), run(keys, true));
    println!("uniform: hits {plain} ns, predicted {predicted} ns; all {plain_all} ns, predicted {predicted_all} ns");
    assert!(predicted < plain, "P99 of hits: {predicted} ns predicted, {plain} ns in order");
    assert!(predicted_all * 100 < plain_all * 110, "P99 of all: {predicted_all} ns predicted, {plain_all} ns in order");
}
