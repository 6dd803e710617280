//! [`Tenure`]: how long a leader may take itself for one, by its own clock.
//!
//! A lease in a store has begun no earlier than it was asked for, so it ends no earlier than its length after that.
//! The leader takes it for over a little sooner: clocks differ, and what it says takes a moment to go out. Then it
//! waits for what becomes of the renewal that is under way: it may have come to the store in time.
//!
//! The thread that renews the lease calls [`Tenure::renew`], and [`Tenure::end`] at last; others ask.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use yonder_units::{Nanos, saturating_nanos};

/// How much sooner than the store the leader takes its lease for over: one part in so many.
const EARLIER: u32 = 20;

/// The time of one leader.
#[derive(Debug)]
pub(super) struct Tenure {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    until: Nanos,
    /// The lease is over, or was not renewed in time: there is no other renewal.
    is_over: bool,
}

impl Tenure {
    /// Of a lease of this length, which was asked for at `asked`.
    pub(super) fn new(asked: Nanos, length: Duration) -> Self {
        Self { state: Mutex::new(State { until: until(asked, length), is_over: false }), changed: Condvar::new() }
    }

    /// The store has renewed the lease, as was asked for at `asked`.
    pub(super) fn renew(&self, asked: Nanos, length: Duration) {
        self.change(|state| state.until = state.until.max(until(asked, length)));
    }

    /// It is over.
    pub(super) fn end(&self) {
        self.change(|state| state.is_over = true);
    }

    /// Whether [`Tenure::end`] was called.
    pub(super) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Whether the lease may be over at `now` as far as is known.
    pub(super) fn is_past(&self, now: Nanos) -> bool {
        self.state().until <= now
    }

    /// Whether the leader leads still, by this clock. Where that is not known, a renewal is waited for, up to `wait`.
    pub(super) fn lasts(&self, clock: impl Fn() -> Nanos, wait: Duration) -> bool {
        let is_late = |state: &mut State| !state.is_over && state.until <= clock();
        let waited = self.changed.wait_timeout_while(self.state(), wait, is_late);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.is_over && clock() < state.until
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn until(asked: Nanos, length: Duration) -> Nanos {
    asked.saturating_add(saturating_nanos(length - length / EARLIER))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const LENGTH: Duration = Duration::from_secs(2);
    const SECOND: Nanos = 1_000_000_000;
    /// How long the tests wait for what comes.
    const WAIT_MAX: Duration = Duration::from_secs(60);

    fn lasts_at(tenure: &Tenure, now: Nanos) -> bool {
        tenure.lasts(|| now, Duration::ZERO)
    }

    #[test]
    fn a_leader_takes_its_lease_for_over_sooner_than_the_store_may() {
        let tenure = Tenure::new(10 * SECOND, LENGTH);
        let latest = 12 * SECOND - SECOND / 10;
        assert_eq!([latest - 1, latest, 12 * SECOND].map(|now| lasts_at(&tenure, now)), [true, false, false]);
        // From when it was asked for, whenever the answer has come; an older answer changes nothing.
        tenure.renew(11 * SECOND, LENGTH);
        tenure.renew(10 * SECOND, LENGTH);
        assert_eq!([latest + SECOND - 1, latest + SECOND].map(|now| lasts_at(&tenure, now)), [true, false]);
        tenure.end();
        assert!(!lasts_at(&tenure, 10 * SECOND), "the store has said so");
    }

    /// As after a pause of the whole process: the thread that renews may not have looked yet.
    #[test]
    fn a_leader_whose_lease_may_be_over_waits_for_what_its_renewal_comes_to() {
        for comes in [true, false] {
            let (tenure, asked) = (Tenure::new(0, LENGTH), AtomicU64::new(0));
            let clock = || {
                asked.fetch_add(1, Ordering::AcqRel);
                3 * SECOND
            };
            std::thread::scope(|scope| {
                let leads = scope.spawn(|| tenure.lasts(clock, WAIT_MAX));
                while asked.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                if comes {
                    tenure.renew(2 * SECOND, LENGTH)
                } else {
                    tenure.end()
                }
                assert_eq!(leads.join().unwrap(), comes);
            });
        }
    }
}
