//! [`Watermarks`]: the policy in force, and what follows from it.
//!
//! The policy and the pages that it is for change under one lock, where the limit is changed and where a step of
//! reclaim finds that more was touched. Faults and glances at whether there is something to do take no lock: they load
//! the one word that they need.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::reclaim::Policy;

/// See the head of this file.
pub(crate) struct Watermarks {
    in_force: Mutex<InForce>,
    /// Charged pages above which reclaim should start. Written under the lock, and read by anyone.
    start_above: AtomicU64,
}

/// What the lock is for.
struct InForce {
    policy: Policy,
    /// Pages that may ask for room.
    pages: u64,
}

impl Watermarks {
    pub(crate) fn new(policy: &Policy) -> Self {
        let policy = policy.for_pages(0);
        let start_above = AtomicU64::new(policy.start_above());
        Self { in_force: Mutex::new(InForce { policy, pages: 0 }), start_above }
    }

    /// From now on `policy` is in force; `also` is what has to keep the same one of two changes at once.
    pub(crate) fn set_policy(&self, policy: &Policy, also: impl FnOnce()) {
        self.change(|in_force| {
            in_force.policy = *policy;
            also();
        });
    }

    /// The watermarks for so many pages, which are in force from now on.
    pub(crate) fn cover(&self, pages: u64) -> Policy {
        self.change(|in_force| in_force.pages = pages)
    }

    #[inline]
    pub(crate) fn start_above(&self) -> u64 {
        self.start_above.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut InForce)) -> Policy {
        let mut in_force = self.in_force.lock().expect(NO_PANICS);
        change(&mut in_force);
        in_force.policy = in_force.policy.for_pages(in_force.pages);
        self.start_above.store(in_force.policy.start_above(), Ordering::Relaxed);
        in_force.policy
    }
}

const NO_PANICS: &str = "no code panics while it holds the policy";
