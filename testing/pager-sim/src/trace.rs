//! [`Trace`]: what happens, in lines that a person can read, if somebody wants to.

use yonder_units::Nanos;

/// Where events are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trace {
    /// Nowhere.
    Silent,
    /// On standard output, from this time on.
    Printed(Nanos),
}

impl Trace {
    /// Tells what a thread, or a unithread of it, did at `now`.
    pub(crate) fn say(self, now: Nanos, thread: &str, unithread: Option<u32>, what: impl FnOnce() -> String) {
        if let Self::Printed(from) = self
            && now >= from
        {
            let unithread = unithread.map(|token| format!(".{token}")).unwrap_or_default();
            println!("{:>12.3} us  {:<12} {}", now as f64 / 1e3, format!("{thread}{unithread}"), what());
        }
    }
}
