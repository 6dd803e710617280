//! `bench switch`: what one switch between user-level threads costs.
//!
//! Three mechanisms take turns in several rounds, and the median round of each counts: our unithreads, glibc's
//! `swapcontext`, and the corosensei library.

use corosensei::{Coroutine, CoroutineResult};
use serde::Serialize;
use std::time::Instant;

use crate::BenchError;

/// Rounds that the median is taken of.
const ROUNDS: usize = 9;

/// One mechanism's cost.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchResult {
    /// Always `switch`.
    pub bench: &'static str,
    /// `unithread`, `ucontext` or `corosensei`.
    pub mechanism: &'static str,
    /// Nanoseconds for one switch, one way.
    pub ns_per_switch: f64,
    /// The same in cycles of the time stamp counter; absent where it is not used.
    pub cycles_per_switch: Option<f64>,
    /// Fastest and slowest round, in nanoseconds.
    pub spread_ns: [f64; 2],
    /// How many times slower than a unithread's.
    pub ratio_to_unithread: f64,
    /// Switches per second.
    pub ops_per_s: f64,
}

/// Measures all mechanisms with `switches` switches a round.
pub fn run(switches: u64) -> Result<Vec<SwitchResult>, BenchError> {
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        rounds[0].push(yonder::switch::unithread_ns(switches)?);
        rounds[1].push(yonder::switch::ucontext_ns(switches / 10));
        rounds[2].push(corosensei_ns(switches));
    }
    for round in &mut rounds {
        round.sort_by(f64::total_cmp);
    }
    let unithread = rounds[0][ROUNDS / 2];
    let cycles_per_ns = yonder::clock::counter_hz().map(|hz| hz / 1e9);
    let results = ["unithread", "ucontext", "corosensei"].into_iter().zip(rounds).map(|(mechanism, round)| {
        let median = round[ROUNDS / 2];
        SwitchResult {
            bench: "switch",
            mechanism,
            ns_per_switch: median,
            cycles_per_switch: cycles_per_ns.map(|rate| rate * median),
            spread_ns: [round[0], round[ROUNDS - 1]],
            ratio_to_unithread: median / unithread,
            ops_per_s: 1e9 / median,
        }
    });
    Ok(results.collect())
}

/// Resumes and suspends a coroutine; each is one switch.
fn corosensei_ns(switches: u64) -> f64 {
    let mut coroutine = Coroutine::new(|yielder, ()| {
        loop {
            yielder.suspend(());
        }
    });
    let turns = switches / 2;
    let start = Instant::now();
    for _ in 0..turns {
        let CoroutineResult::Yield(()) = coroutine.resume(());
    }
    let elapsed = start.elapsed().as_nanos() as f64 / (2 * turns) as f64;
    // The coroutine is unwound by its drop.
    drop(coroutine);
    elapsed
}
