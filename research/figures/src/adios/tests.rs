//! What must hold of the compute node's events, whatever the costs.

use yonder_dispatch::{DispatchPolicy, Order};

use super::measure::Measured;
use super::node::run;
use super::state::Setup;
use super::sweep::testbed;
use super::system::System;
use super::workload::Workload;
use crate::costs::{adios as costs, testbed as hardware, yonder};

fn simulate(system: System, rate: f64, change: impl FnOnce(&mut Setup)) -> Measured {
    let mut setup = Setup { rate, requests: 50_000, seed: 3, ..testbed(system, Workload::array()) };
    change(&mut setup);
    run(&setup)
}

/// Without a queue a request takes what the paper says, with and without a fault.
#[test]
fn a_request_alone_takes_the_papers_time() {
    let measured = simulate(System::Dilos, 1e4, |_| {});
    let handled = costs::DISPATCH.value + costs::HANDOVER.value;
    let hit = f64::from(measured.at(5.0, None).whole());
    assert_eq!(hit, costs::HIT.value + handled);
    let faulted = f64::from(measured.at(60.0, None).whole()) - handled;
    assert!((faulted - costs::FAULTED.value).abs() < hardware::FETCH_SPREAD.value / 2.0, "{faulted} ns");
}

/// About as many requests fault as pages are elsewhere, and every request is answered, dropped or still there.
#[test]
fn faults_follow_the_share_of_local_memory() {
    for system in System::ALL {
        let measured = simulate(system, 0.8e6, |_| {});
        let share = measured.fetched as f64 / measured.answered as f64;
        assert!((0.80..0.86).contains(&share), "{}: {share}", system.name());
        assert!(measured.arrived - measured.answered < 200, "{}: {measured:?}", system.name());
        assert_eq!(measured.dropped, 0, "{}", system.name());
    }
    assert_eq!(simulate(System::Adios, 1e6, |setup| setup.local_percent = 100.0).fetched, 0);
}

/// Busy-waiting has at most one fault a worker, yielding has many; beyond its peak a system drops.
#[test]
fn yielding_has_many_faults_under_way() {
    let [busy, yielding] = [System::Dilos, System::Adios].map(|system| simulate(system, 3e6, |_| {}));
    assert_eq!(busy.faults_most, costs::WORKERS.value as u32);
    assert!(yielding.faults_most > busy.faults_most, "{}", yielding.faults_most);
    assert!(busy.dropped > yielding.dropped && yielding.dropped > 0 && !busy.keeps_up());
    assert!(yielding.ops_per_s() > 1.4 * busy.ops_per_s());
}

/// Faults that wait for longer than a fetch takes are faults that busy-wait, and those that wait for less are faults
/// that yield.
#[test]
fn how_long_faults_wait_is_between_busy_waiting_and_yielding() {
    let least = hardware::FETCH_LEAST.ns();
    let of = |rate| {
        [0, least / 2, 20 * least].map(|spins| simulate(System::Yonder, rate, |setup| setup.profile.spins = spins))
    };
    let peaks = of(3e6).map(|measured| measured.ops_per_s());
    assert!(peaks[0] > 1.05 * peaks[1] && peaks[1] > 1.05 * peaks[2], "{peaks:?}");
    let [yields, _, waits] = of(0.2e6).map(|measured| measured.latency_us(50.0, None));
    let switches = (yonder::AWAY.value + yonder::BACK.value) / 1e3;
    assert!((0.4..1.6).contains(&((yields - waits) / switches)), "waiting saves the switches: {yields} and {waits} us");
}

/// What is ready goes first, but only what was ready at the last poll: nothing new starves behind scans.
#[test]
fn new_requests_do_not_starve_behind_long_ones() {
    let tail = |order| {
        let setup =
            Setup { order, rate: 0.4e6, requests: 100_000, seed: 3, ..testbed(System::Adios, Workload::rocksdb()) };
        run(&setup).latency_us(99.9, Some(0))
    };
    let (classes, in_turn) = (tail(Order::Classes), tail(Order::Fifo));
    assert!(classes < 1.5 * in_turn && in_turn < 1.5 * classes, "{classes} us and {in_turn} us");
}

/// Two dispatchers feed what one cannot, and nothing gets lost between them.
#[test]
fn dispatchers_have_workers_of_their_own() {
    let all_local = |dispatchers| {
        let measured = simulate(System::Adios, 5e6, |setup| {
            (setup.workers, setup.dispatchers, setup.local_percent) = (16, dispatchers, 100.0);
            setup.policy = DispatchPolicy::RoundRobin;
        });
        measured.ops_per_s()
    };
    assert!(all_local(2) > 1.5 * all_local(1));
}

/// Where nobody may be evicted fast enough, faults wait for room; the limit holds (asserted in `memory`).
#[test]
fn faults_wait_for_a_reclaimer_that_cannot_keep_up() {
    let measured = simulate(System::Adios, 16e6, |setup| {
        (setup.workers, setup.dispatchers, setup.nodes) = (64, 8, 16);
    });
    let bound = 1e9 / costs::RECLAIM_PAGE.value / 0.8;
    assert!(measured.ops_per_s() < 1.3 * bound, "{} of {bound}", measured.ops_per_s());
}
