//! What a context switch costs: ours and glibc's, measured the same way.
//!
//! Both functions bounce between two stacks `iterations` times, which is two one-way switches each time, and return the
//! nanoseconds of ONE one-way switch, everything a caller pays for included. The `ucontext` side is what Shinjuku and
//! Adios compare with: glibc's `swapcontext`, which makes a system call for the signal mask.

use std::io;
use std::time::{Duration, Instant};

#[cfg(target_env = "gnu")]
pub use crate::ucontext::ucontext_ns;
use crate::{Pool, Resumed, STACK_BYTES_DEFAULT, suspend};

/// Nanoseconds of one switch into or out of a unithread: [`crate::Running::resume`] and [`suspend`].
///
/// # Errors
/// What the kernel said about the memory for a stack.
pub fn unithread_ns(iterations: u64) -> io::Result<f64> {
    let pool = Pool::new(1, STACK_BYTES_DEFAULT)?;
    let unithread = pool.take(iterations).unwrap_or_else(|_| unreachable!("a new pool has its one slot"));
    let mut running = unithread.start(|iterations| {
        for _ in 0..*iterations {
            suspend();
        }
    });
    let start = Instant::now();
    while let Resumed::Suspended(again) = running.resume() {
        running = again;
    }
    Ok(per_switch_ns(start.elapsed(), iterations))
}

pub(crate) fn per_switch_ns(elapsed: Duration, iterations: u64) -> f64 {
    elapsed.as_nanos() as f64 / (2 * iterations) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_costs_far_less_than_ucontext() {
        const ITERATIONS: u64 = 20_000;
        let best = |measure: &dyn Fn() -> f64| (0..5).map(|_| measure()).fold(f64::INFINITY, f64::min);
        let ours_ns = best(&|| unithread_ns(ITERATIONS).unwrap());
        let glibc_ns = best(&|| ucontext_ns(ITERATIONS));
        println!("one switch: unithread {ours_ns:.1} ns, ucontext {glibc_ns:.1} ns");
        assert!(ours_ns > 0.0 && ours_ns < glibc_ns, "unithread {ours_ns} ns, ucontext {glibc_ns} ns");
    }
}
