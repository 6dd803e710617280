//! A system at a series of loads: its curve, and its peak.

use yonder_dispatch::{DispatchPolicy, Order};

use super::measure::Measured;
use super::node::run;
use super::state::Setup;
use super::system::System;
use super::workload::Workload;
use crate::costs::adios as costs;

/// Adios' testbed with a system, at 20 % local; rate, requests and seed are to be filled in.
pub(crate) fn testbed(system: System, workload: Workload) -> Setup {
    let policy = if system == System::Adios { DispatchPolicy::PageFaultAware } else { DispatchPolicy::RoundRobin };
    Setup {
        profile: system.profile(),
        workload,
        local_percent: 20.0,
        rate: 1e6,
        requests: 0,
        policy,
        order: Order::Classes,
        workers: costs::WORKERS.value as usize,
        dispatchers: 1,
        reclaimers: 1,
        nodes: 1,
        seed: 0,
    }
}

/// One point of a curve.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    /// Arrivals a second that were offered.
    pub(crate) offered: f64,
    /// What came of it.
    pub(crate) measured: Measured,
}

/// The setup at each of the rates.
pub(crate) fn curve(setup: &Setup, rates: impl Iterator<Item = f64>) -> Vec<Point> {
    rates.map(|rate| Point { offered: rate, measured: run(&Setup { rate, ..setup.clone() }) }).collect()
}

/// The most that was answered a second.
pub(crate) fn peak(points: &[Point]) -> f64 {
    points.iter().map(|point| point.measured.ops_per_s()).fold(0.0, f64::max)
}
