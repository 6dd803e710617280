//! [`Watermarks`]: the policy in force, and what follows from it.
//!
//! The policy and the pages that it is for change under one lock, where the limit is changed and where a step of
//! reclaim finds that more was touched. Faults and glances at whether there is something to do take no lock: they load
//! the one word that they need.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::budget::Budget;
use crate::reclaim::{Margin, Policy};

/// See the head of this file.
pub(crate) struct Watermarks {
    in_force: Mutex<InForce>,
    /// Frames there are.
    frames: u64,
    /// Charged pages above which reclaim should start. Written under the lock, and read by anyone.
    start_above: AtomicU64,
}

/// What the lock is for.
struct InForce {
    /// For the limit.
    of_limit: Policy,
    /// For the soft limit, if there is one.
    of_soft_limit: Option<Policy>,
    /// Pages that may ask for room.
    pages: u64,
    /// What faults take of it before reclaim has caught up with them.
    margin: Margin,
}

impl Watermarks {
    pub(crate) fn new(policy: &Policy, frames: u64) -> Self {
        let in_force = InForce { of_limit: *policy, of_soft_limit: None, pages: 0, margin: Margin::default() };
        let start_above = AtomicU64::new(in_force.policy().start_above());
        Self { in_force: Mutex::new(in_force), frames, start_above }
    }

    /// From now on `policy` is that of the limit, here and in `budget`, which keep the same one of two changes at once.
    pub(crate) fn set_policy(&self, policy: &Policy, budget: &Budget) {
        self.change(|in_force| {
            in_force.of_limit = *policy;
            budget.set_policy(&in_force.policy_of_limit());
        });
    }

    /// From now on reclaim works for the limit of `policy`, if that is lower than the one that nobody may pass.
    pub(crate) fn set_soft_limit(&self, policy: Option<&Policy>) {
        self.change(|in_force| in_force.of_soft_limit = policy.copied());
    }

    /// The watermarks for so many pages and what faults need, which are in force from now on, and in `budget`.
    pub(crate) fn cover(&self, pages: u64, margin: &Margin, budget: &Budget) -> Policy {
        self.change(|in_force| {
            (in_force.pages, in_force.margin) = (pages, *margin);
            let policy = in_force.policy_of_limit();
            if !budget.obeys(&policy) {
                budget.set_policy(&policy);
            }
        })
    }

    /// The policy of the limit, whatever the soft limit is.
    pub(crate) fn of_limit(&self) -> Policy {
        self.in_force.lock().expect(NO_PANICS).policy_of_limit()
    }

    /// The limit that reclaim works for: the soft one, if that is lower.
    pub(crate) fn limit(&self) -> u64 {
        self.in_force.lock().expect(NO_PANICS).policy().limit()
    }

    #[inline]
    pub(crate) fn start_above(&self) -> u64 {
        self.start_above.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut InForce)) -> Policy {
        let mut in_force = self.in_force.lock().expect(NO_PANICS);
        change(&mut in_force);
        let policy = in_force.policy().for_frames(self.frames);
        self.start_above.store(policy.start_above(), Ordering::Relaxed);
        policy
    }
}

impl InForce {
    /// That of the lower limit.
    fn policy(&self) -> Policy {
        let soft = self.of_soft_limit.filter(|soft| soft.limit() < self.of_limit.limit());
        soft.map_or_else(|| self.policy_of_limit(), |soft| soft.for_pages_to_leave(self.pages, &self.margin))
    }

    fn policy_of_limit(&self) -> Policy {
        self.of_limit.for_pages(self.pages, &self.margin)
    }
}

const NO_PANICS: &str = "no code panics while it holds the policy";
