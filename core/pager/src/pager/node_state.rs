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
    /// Whether a fetch has reached its deadline and none has succeeded since: the node is gone.
    is_lost: AtomicBool,
}

/// What can be added to any time that a clock shows: at most 146 years.
fn deadline(wanted: Duration) -> Nanos {
    saturating_nanos(wanted).min(Nanos::MAX / 4)
}

impl NodeState {
    pub(crate) fn new<M: Machine>(config: &Config, fabric: &M::Fabric) -> Self {
        let fault_deadline = deadline(config.deadlines.fault);
        let attempt_deadline =
            if M::loses_operations(fabric) { deadline(config.deadlines.attempt) } else { fault_deadline };
        Self { name: Arc::from(M::url(fabric)), fault_deadline, attempt_deadline, is_lost: AtomicBool::new(false) }
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

    /// How long a fetch that begins now may take. Once the node has let one reach its deadline, later ones only probe
    /// it: requests that need it must not fill the workers, and with them the way of those that do not.
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
