//! Runs by seeds: how one ends, [`Failure`] or [`Counts`], and [`Trace`], which tells what happens in it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use yonder_unithread::panic_message;
use yonder_units::Nanos;

/// What was wrong in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// What was wrong.
    pub cause: String,
}

/// Lets `run` simulate `seed`. A panic of the code under test is a failure too.
///
/// # Errors
/// What was wrong in the run.
pub fn caught<T>(seed: u64, run: impl FnOnce() -> Result<T, String>) -> Result<T, Failure> {
    let ended = catch_unwind(AssertUnwindSafe(run));
    let ended = ended.unwrap_or_else(|panic| Err(format!("panic: {}", panic_message(&*panic))));
    ended.map_err(|cause| Failure { seed, cause })
}

/// How often things happened in a run, to see that runs are about something. `K` names the things.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts<K: Ord>(BTreeMap<K, u64>);

impl<K: Ord> Default for Counts<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Counts<K> {
    /// It happened `times` more. Returns how often it has.
    pub fn add(&mut self, what: K, times: u64) -> u64 {
        let count = self.0.entry(what).or_insert(0);
        *count += times;
        *count
    }

    /// How often it happened.
    #[must_use]
    pub fn of(&self, what: K) -> u64 {
        self.0.get(&what).copied().unwrap_or(0)
    }

    /// Adds what happened in another run.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, times)| _ = self.add(*what, *times));
    }
}

/// Where events are told, in lines that a person can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trace {
    /// Nowhere.
    Silent,
    /// On standard output, from this time on.
    Printed(Nanos),
}

impl Trace {
    /// Tells what happened at `now`.
    pub fn say(self, now: Nanos, what: impl FnOnce() -> String) {
        if matches!(self, Self::Printed(from) if now >= from) {
            println!("{:>12.3} us  {}", now as f64 / 1e3, what());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_of_its_seed() {
        let ended = caught(7, || -> Result<(), String> { panic!("{} is broken", 3) });
        assert_eq!(ended, Err(Failure { seed: 7, cause: "panic: 3 is broken".into() }));
        assert_eq!(caught(7, || Ok(3)), Ok(3));
    }

    #[test]
    fn counts_of_runs_add_up() {
        let (mut one, mut other) = (Counts::default(), Counts::default());
        assert_eq!((one.add('a', 2), one.add('a', 1), other.add('b', 4)), (2, 3, 4));
        one.merge(&other);
        one.merge(&other);
        assert_eq!([one.of('a'), one.of('b'), one.of('c')], [3, 8, 0]);
    }
}
