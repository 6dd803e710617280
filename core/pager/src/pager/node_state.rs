//! [`NodeState`]: the node that a pager's pages are on, and how long it is waited for.
//!
//! All of it stays what it is, but for whether the node is lost: that any thread writes whose fetch has ended, and
//! every fault reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use yonder_units::{Nanos, saturating_nanos};

use crate::config::Config;
use crate::event::event;
use crate::machine::Machine;

/// See the head of this file.
pub(crate) struct NodeState {
    name: Arc<str>,
    fault_deadline: Nanos,
    attempt_deadline: Nanos,
    patience: Nanos,
    /// Whether a fetch has reached its deadline and none has succeeded since: the node is gone.
    is_lost: AtomicBool,
}

/// Attempts that are waited for where nothing is lost, and nothing depends on the answer.
const PATIENCE_ATTEMPTS: u32 = 10;

/// What can be added to any time that a clock shows: at most 146 years.
fn deadline(wanted: Duration) -> Nanos {
    saturating_nanos(wanted).min(Nanos::MAX / 4)
}

impl NodeState {
    pub(crate) fn new<M: Machine>(config: &Config, fabric: &M::Fabric) -> Self {
        let fault_deadline = deadline(config.deadlines.fault);
        let attempt = deadline(config.deadlines.attempt);
        let (attempt_deadline, patience) = match M::loses_operations(fabric) {
            true => (attempt, attempt),
            // What is slow then is no sign of a loss.
            false => (fault_deadline, deadline(config.deadlines.attempt.saturating_mul(PATIENCE_ATTEMPTS))),
        };
        let (patience, is_lost) = (patience.min(fault_deadline), AtomicBool::new(false));
        Self { name: Arc::from(M::url(fabric)), fault_deadline, attempt_deadline, patience, is_lost }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How long a fault may take.
    #[inline]
    pub(crate) fn fault_deadline(&self) -> Nanos {
        self.fault_deadline
    }

    /// How long one operation may take until it counts as lost.
    #[inline]
    pub(crate) fn attempt_deadline(&self) -> Nanos {
        self.attempt_deadline
    }

    /// How long an answer is waited for that nobody needs.
    #[inline]
    pub(crate) fn patience(&self) -> Nanos {
        self.patience
    }

    /// How long a fetch that begins now may take. Once the node has let one reach its deadline, later ones only probe
    /// it: requests that need it must not fill the workers, and with them the way of those that do not. Where nothing
    /// is lost they are waited for as ever: what is only slow would never be heard else.
    #[inline]
    pub(crate) fn fault_timeout(&self) -> Nanos {
        if self.is_lost.load(Ordering::Relaxed) {
            self.attempt_deadline.min(self.fault_deadline)
        } else {
            self.fault_deadline
        }
    }

    /// A fetch has succeeded.
    #[inline]
    pub(crate) fn answered(&self) {
        if self.is_lost.load(Ordering::Relaxed) {
            self.is_lost.store(false, Ordering::Relaxed);
            event!(info, node = &*self.name, "the node is back");
        }
    }

    /// A fetch has reached its deadline without an answer of the node.
    #[cold]
    pub(crate) fn lost(&self) {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            event!(warn, node = &*self.name, "the node is lost: later fetches only probe it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_deadline_is_beyond_what_a_clock_can_show() {
        assert_eq!(deadline(Duration::from_secs(5)), 5_000_000_000);
        assert!(deadline(Duration::MAX).checked_add(Nanos::MAX / 2).is_some());
    }
}
