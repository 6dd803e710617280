//! Servers that predict which requests will fault, and let those that hit go before them.

use std::sync::Arc;
use std::time::Duration;

use yonder_paging::{Access, Config, PagingError, Region};
use yonder_sched::{DispatchPolicy, Handler, Predictions, SchedConfig, SchedStats, serve};

use crate::serve::{LOCAL, PAGE, PAGES, Script, far, increments_are_exact};

#[test]
fn predicted_faults_with_traps() {
    let dispatch = DispatchPolicy::Predicted;
    increments_are_exact(&SchedConfig { dispatch, ..SchedConfig::default() }, Access::Trap);
}

#[test]
fn predicted_faults_on_two_workers_of_few_unithreads() {
    let preempt = Some(Duration::from_micros(5));
    let config = SchedConfig { workers: 2, max_inflight: 3, worker_queue: 1, preempt, ..SchedConfig::default() };
    increments_are_exact(&SchedConfig { dispatch: DispatchPolicy::Predicted, ..config }, Access::Probe);
}

#[test]
fn predicted_faults_of_one_request_at_a_time_still_end() {
    let config = SchedConfig { max_inflight: 1, worker_queue: 1, unithreads: 1, ..SchedConfig::default() };
    increments_are_exact(&SchedConfig { dispatch: DispatchPolicy::Predicted, ..config }, Access::Trap);
}

/// Reads the word at the start of a page.
struct Read {
    region: Region,
}

impl Handler for Read {
    type Request = u64;
    type Reply = Result<u64, PagingError>;

    fn handle(&self, page: u64) -> Self::Reply {
        self.region.read_u64(page * PAGE)
    }

    fn key(&self, page: &u64) -> Option<u64> {
        Some(*page)
    }
}

/// Nanoseconds that requests wait at the worker whose pages are here, and those whose are not: of a thousand that come
/// as fast as they are taken, after their keys have become known.
fn waits_of_hits_and_faults() -> Option<(u64, u64)> {
    const AT_ONCE: usize = 1000;
    let (far, _) = far(Config::with_local(LOCAL))?;
    let mut region = far.region(PAGES * PAGE).unwrap();
    (0..PAGES).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
    region.seal().unwrap();
    let scattered = |turn: u64| turn * 1_103 % PAGES;
    // Every other one was read lately; the others long ago.
    let lately_or_not = |turn| if turn % 2 == 0 { 2 * PAGES - 1 - turn / 2 } else { PAGES + turn };
    let pages = (0..2 * PAGES).chain((0..AT_ONCE as u64).map(lately_or_not)).map(scattered);
    let mut script = Script::new(pages);
    script.last = AT_ONCE;
    // All of them are at the worker before it has run many, however late the dispatcher gets a CPU.
    let (dispatch, worker_queue) = (DispatchPolicy::Predicted, AT_ONCE);
    let config = SchedConfig { dispatch, worker_queue, ..SchedConfig::default() };
    let stats = SchedStats::default();
    serve(&config, &far, &Arc::new(Read { region }), &mut script, &stats).unwrap();
    let Predictions { hits_right, hits_wrong, faults_right, faults_wrong } = stats.predictions();
    assert_eq!(hits_right + hits_wrong + faults_right + faults_wrong, 2 * PAGES + AT_ONCE as u64);
    let last = &script.replies[script.replies.len() - AT_ONCE..];
    let mean_queued = |is_hit| {
        let timings = last.iter().map(|done| &done.timing).filter(|timing| (timing.major_faults == 0) == is_hit);
        let (count, sum) = timings.fold((0, 0), |(count, sum), timing| (count + 1, sum + timing.queued_ns));
        assert!(count > 50, "{count} requests, of which a hit is {is_hit}");
        sum / count
    };
    Some((mean_queued(true), mean_queued(false)))
}

/// A worker that loses its CPU in the middle of its queue makes all behind it wait: it is tried a few times.
#[test]
fn requests_that_hit_go_before_requests_that_fault() {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|(hits, faults)| 2 * hits >= *faults) {
        assert!(seen.len() < 5, "hits and faults waited, in ns: {seen:?}");
        let Some(waits) = waits_of_hits_and_faults() else { return };
        seen.push(waits);
    }
}
