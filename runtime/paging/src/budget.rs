//! [`Budget`]: exact accounting of local memory.
//!
//! One counter of charged pages: pages mapped or about to be mapped in regions, and frames the kernel backs. A page is
//! charged before it is backed and uncharged after its backing is gone, so the counter never understates. Faults may
//! not take the reserve; the reclaimer may, so that it can always copy a block in order to free it.

use std::sync::atomic::{AtomicU64, Ordering};

use yonder_reclaim::Policy;

/// On whose account a page is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Account {
    /// A fault: may not touch the reserve.
    Fault,
    /// The reclaimer: may use the reserve.
    Reclaim,
}

#[derive(Debug)]
pub(crate) struct Budget {
    charged: AtomicU64,
    limit: AtomicU64,
    /// What the reclaimer may charge up to: the limit, or the old limit until a lower one is reached.
    ceiling: AtomicU64,
    reserve: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            charged: AtomicU64::new(0),
            limit: AtomicU64::new(policy.limit()),
            ceiling: AtomicU64::new(policy.limit()),
            reserve: AtomicU64::new(policy.reserve()),
            peak: AtomicU64::new(0),
        }
    }

    /// Charges one page, or returns false if the account has no room.
    #[inline]
    pub(crate) fn charge(&self, account: Account) -> bool {
        let (limit, reserve) = match account {
            Account::Fault => (self.limit.load(Ordering::Acquire), self.reserve.load(Ordering::Relaxed)),
            Account::Reclaim => (self.ceiling.load(Ordering::Acquire), 0),
        };
        // Adding first and taking back is one atomic operation in the common case; a compare-and-swap loop is more
        // under contention. The excess of a refused charge is visible for a moment, so the peak is taken from accepted
        // charges only.
        let charged = self.charged.fetch_add(1, Ordering::AcqRel) + 1;
        if charged + reserve > limit {
            self.charged.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        if charged > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(charged, Ordering::Relaxed);
        }
        true
    }

    /// Takes back `pages` charges whose backing is gone.
    #[inline]
    pub(crate) fn uncharge(&self, pages: u64) {
        let before = self.charged.fetch_sub(pages, Ordering::AcqRel);
        assert!(before >= pages, "{pages} pages uncharged of {before}");
    }

    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Acquire)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    /// Largest number of pages ever charged.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Pages that the reclaimer may charge now.
    pub(crate) fn headroom(&self) -> u64 {
        self.ceiling.load(Ordering::Acquire).saturating_sub(self.charged())
    }

    /// Faults obey `policy` from now on; what is charged already stays, and the reclaimer may use the old limit's room to
    /// get below the new one.
    pub(crate) fn set_policy(&self, policy: &Policy) {
        self.ceiling.fetch_max(policy.limit(), Ordering::AcqRel);
        self.reserve.store(policy.reserve(), Ordering::Release);
        self.limit.store(policy.limit(), Ordering::Release);
    }

    /// Whether the new limit holds, with the reserve free: from now on for the reclaimer too. The caller holds the
    /// reclaimer, so that it charges nothing meanwhile.
    pub(crate) fn has_reached(&self, policy: &Policy) -> bool {
        let reached = self.charged() + policy.reserve() <= policy.limit();
        if reached {
            self.ceiling.store(policy.limit(), Ordering::Release);
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use yonder_reclaim::Shares;

    use super::*;

    #[test]
    fn faults_leave_the_reserve_and_nobody_passes_the_limit() {
        let policy = Policy::new(1024, Shares::default()).unwrap();
        let budget = Budget::new(&policy);
        let count =
            |account| std::iter::repeat_with(|| budget.charge(account)).take_while(|charged| *charged).count() as u64;
        assert_eq!(count(Account::Fault), 1024 - policy.reserve());
        assert_eq!(count(Account::Reclaim), policy.reserve());
        assert_eq!((budget.charged(), budget.peak()), (1024, 1024));
        budget.uncharge(1024);
        assert_eq!(budget.charged(), 0);
    }

    #[test]
    fn threads_never_pass_the_limit_together() {
        let policy = Policy::new(512, Shares::default()).unwrap();
        let budget = Budget::new(&policy);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20_000u32 {
                        if budget.charge(Account::Reclaim) && round % 3 != 0 {
                            budget.uncharge(1);
                        } else if round % 3 == 0 && budget.charged() > 4 {
                            std::hint::spin_loop();
                        }
                    }
                });
            }
        });
        assert!(budget.peak() <= 512, "peak {}", budget.peak());
    }
}
