//! [`Budget`]: exact accounting of local memory.
//!
//! One counter of charged pages: pages mapped or about to be mapped in regions, and frames the kernel backs. A page is
//! charged before it is backed and uncharged after its backing is gone, so the counter never understates. Faults may
//! not take the reserve; the reclaimer may, so that it can always copy a block in order to free it.
//!
//! Who may do what: anyone charges as a fault, uncharges and reads. `charge` for the reclaimer and `has_reached` belong
//! to whoever holds the reclaimer. `set_policy` may come from anywhere, one call at a time.
//!
//! Invariant: once `has_reached` has said so, accepted charges are within the new limit for good. So what faults may
//! charge stands in the same word as what is charged: a fault that has read an older limit and is then overtaken by the
//! change cannot exist.

use crate::reclaim::{LIMIT_PAGES_MAX, Policy};

use crate::atomic::{AtomicU64, Ordering};

/// On whose account a page is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Account {
    /// A fault: may not touch the reserve.
    Fault,
    /// The reclaimer: may use the reserve.
    Reclaim,
}

// A half of a word holds twice the largest limit, so that no number of charges that are about to be refused reaches the
// other half.
const _: () = assert!(LIMIT_PAGES_MAX <= 1 << 31);

#[derive(Debug)]
pub(crate) struct Budget {
    /// High: what faults may charge up to, the limit less the reserve. Low: what is charged.
    charged: AtomicU64,
    /// High: what the reclaimer may charge up to, the limit, or the old limit until a lower one is reached. Low: the
    /// limit.
    limits: AtomicU64,
    peak: AtomicU64,
}

/// Two page counts in one word.
#[derive(Clone, Copy, Debug)]
struct Halves {
    high: u64,
    low: u64,
}

impl Halves {
    #[inline]
    fn of(word: u64) -> Self {
        Self { high: word >> 32, low: word & u64::from(u32::MAX) }
    }

    #[inline]
    fn word(self) -> u64 {
        self.high << 32 | self.low
    }
}

impl Budget {
    pub(crate) fn new(policy: &Policy) -> Self {
        let limit = limit_of(policy);
        Self {
            charged: AtomicU64::new(Halves { high: limit - policy.reserve(), low: 0 }.word()),
            limits: AtomicU64::new(Halves { high: limit, low: limit }.word()),
            peak: AtomicU64::new(0),
        }
    }

    /// Charges one page, or returns false if the account has no room.
    #[inline]
    pub(crate) fn charge(&self, account: Account) -> bool {
        // Adding first and taking back is one atomic operation in the common case; a compare-and-swap loop is more
        // under contention. The excess of a refused charge is visible for a moment, so the peak is taken from accepted
        // charges only.
        let before = Halves::of(self.charged.fetch_add(1, Ordering::AcqRel));
        let room = match account {
            Account::Fault => before.high,
            Account::Reclaim => Halves::of(self.limits.load(Ordering::Acquire)).high,
        };
        let charged = before.low + 1;
        if charged > room {
            self.charged.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        if charged > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(charged, Ordering::Relaxed);
        }
        true
    }

    /// Charges `pages` at once, on the account of a fault, if no more than `most` are charged then.
    pub(crate) fn charge_many(&self, pages: u64, most: u64) -> bool {
        let charge = |word| {
            let Halves { high, low } = Halves::of(word);
            (low + pages <= high.min(most)).then_some(word + pages)
        };
        let charged = self.charged.fetch_update(Ordering::AcqRel, Ordering::Acquire, charge);
        if let Ok(before) = charged {
            self.peak.fetch_max(Halves::of(before).low + pages, Ordering::Relaxed);
        }
        charged.is_ok()
    }

    /// Takes back `pages` charges whose backing is gone.
    #[inline]
    pub(crate) fn uncharge(&self, pages: u64) {
        let before = Halves::of(self.charged.fetch_sub(pages, Ordering::AcqRel)).low;
        assert!(before >= pages, "{pages} pages uncharged of {before}");
    }

    #[inline]
    pub(crate) fn charged(&self) -> u64 {
        Halves::of(self.charged.load(Ordering::Acquire)).low
    }

    #[inline]
    pub(crate) fn limit(&self) -> u64 {
        Halves::of(self.limits.load(Ordering::Acquire)).low
    }

    /// Largest number of pages ever charged.
    #[inline]
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Pages that are charged, and up to how many faults may charge.
    #[inline]
    pub(crate) fn charged_of(&self) -> (u64, u64) {
        let charged = Halves::of(self.charged.load(Ordering::Acquire));
        (charged.low, charged.high)
    }

    /// Up to how many pages may be charged at most: the limit, or an older one that is higher until the limit is
    /// reached.
    #[inline]
    pub(crate) fn most(&self) -> u64 {
        Halves::of(self.limits.load(Ordering::Acquire)).high
    }

    /// Pages that the reclaimer may charge now.
    #[inline]
    pub(crate) fn headroom(&self) -> u64 {
        Halves::of(self.limits.load(Ordering::Acquire)).high.saturating_sub(self.charged())
    }

    /// Faults obey `policy` from now on; what is charged already stays, and the reclaimer may use the old limit's room
    /// to get below the new one.
    pub(crate) fn set_policy(&self, policy: &Policy) {
        let limit = limit_of(policy);
        change(&self.limits, |limits| Halves { high: limits.high.max(limit), low: limit });
        change(&self.charged, |charged| Halves { high: limit - policy.reserve(), ..charged });
    }

    /// Whether faults obey `policy`.
    pub(crate) fn obeys(&self, policy: &Policy) -> bool {
        self.charged_of().1 == policy.limit() - policy.reserve()
    }

    /// Whether the limit that was set holds, with the reserve free: from now on for the reclaimer too. Also true once
    /// another limit has taken its place: then there is nothing left to wait for.
    pub(crate) fn has_reached(&self, policy: &Policy) -> bool {
        let limit = limit_of(policy);
        if self.limit() != limit {
            return true;
        }
        let reached = self.charged() + policy.reserve() <= limit;
        if reached {
            change(&self.limits, |limits| if limits.low == limit { Halves { high: limit, ..limits } } else { limits });
        }
        reached
    }
}

fn limit_of(policy: &Policy) -> u64 {
    let limit = policy.limit();
    assert!(limit <= LIMIT_PAGES_MAX, "{limit} pages are more local memory than can be counted");
    limit
}

fn change(word: &AtomicU64, change: impl Fn(Halves) -> Halves) {
    let changed = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(change(Halves::of(word)).word()));
    changed.expect("a change is never refused");
}

#[cfg(all(test, yonder_loom))]
mod model;

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use crate::reclaim::Shares;

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
    fn many_pages_are_charged_together_or_not_at_all() {
        let policy = Policy::new(1024, Shares::default()).unwrap();
        let budget = Budget::new(&policy);
        let room = 1024 - policy.reserve();
        assert!(!budget.charge_many(room + 1, 1024), "faults leave the reserve");
        assert!(!budget.charge_many(512, 511));
        assert_eq!((budget.charged(), budget.peak()), (0, 0));
        assert!(budget.charge_many(512, 512) && !budget.charge_many(1, 512));
        assert_eq!((budget.charged(), budget.peak()), (512, 512));
    }

    #[test]
    fn a_lower_limit_is_reached_before_the_reclaimer_loses_the_old_ones_room() {
        let [high, low] = [1024, 512].map(|pages| Policy::new(pages, Shares::default()).unwrap());
        let budget = Budget::new(&high);
        (0..600).for_each(|_| assert!(budget.charge(Account::Fault)));
        budget.set_policy(&low);
        assert!(!budget.charge(Account::Fault) && !budget.has_reached(&low));
        assert_eq!((budget.limit(), budget.headroom()), (512, 424));
        budget.uncharge(600 - (512 - low.reserve()));
        assert!(budget.has_reached(&low) && !budget.charge(Account::Fault));
        assert_eq!(budget.headroom(), low.reserve());
        // Nobody waits for a limit that another has replaced, and the other keeps its room.
        budget.set_policy(&high);
        assert!(budget.has_reached(&low) && budget.charge(Account::Fault));
        assert_eq!(budget.headroom(), 1024 - 449);
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
