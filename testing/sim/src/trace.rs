//! [`Trace`]: what happens, in lines that a person can read, if somebody wants to.

use yonder_units::Nanos;

/// Where events are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trace {
    /// Nowhere.
    Silent,
    /// On standard output.
    Printed,
}

impl Trace {
    /// Tells what happened at `now`.
    pub fn say(self, now: Nanos, what: impl FnOnce() -> String) {
        if self == Self::Printed {
            println!("{:>12.3} us  {}", now as f64 / 1e3, what());
        }
    }
}
