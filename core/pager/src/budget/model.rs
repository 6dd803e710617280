//! Models of [`Budget`]: whoever charges at the same moment, and whoever changes the limit meanwhile, accepted charges
//! stay within it.

use std::sync::Arc;

use crate::reclaim::{Policy, Shares};
use loom::thread::{self, JoinHandle};

use super::{Account, Budget, Halves};
use crate::atomic::Ordering;

fn policy(limit: u64) -> Policy {
    Policy::new(limit, Shares::default()).unwrap()
}

/// A budget of which `pages` are charged: one step, where charging them one by one would be a step each to explore.
fn charged(policy: &Policy, pages: u64) -> Arc<Budget> {
    let budget = Budget::new(policy);
    budget.charged.fetch_add(pages, Ordering::Relaxed);
    budget.peak.fetch_max(pages, Ordering::Relaxed);
    Arc::new(budget)
}

fn spawn<T: 'static>(budget: &Arc<Budget>, work: impl FnOnce(&Budget) -> T + 'static) -> JoinHandle<T> {
    let budget = Arc::clone(budget);
    thread::spawn(move || work(&budget))
}

fn fault(budget: &Budget) -> u64 {
    u64::from(budget.charge(Account::Fault))
}

/// How many of the charges were accepted.
fn joined(charges: [JoinHandle<u64>; 2]) -> u64 {
    charges.into_iter().map(|charge| charge.join().unwrap()).sum()
}

fn reclaim(budget: &Budget) -> u64 {
    u64::from(budget.charge(Account::Reclaim))
}

#[test]
fn faults_together_leave_the_reserve() {
    loom::model(|| {
        let policy = policy(512);
        let open = policy.limit() - policy.reserve();
        let budget = charged(&policy, open - 1);
        let faults = [spawn(&budget, fault), spawn(&budget, fault)];
        let reclaimed = reclaim(&budget);
        let accepted = joined(faults);
        assert!(accepted <= 1 && reclaimed == 1);
        assert_eq!(budget.charged(), open - 1 + accepted + reclaimed);
    });
}

#[test]
fn faults_and_the_reclaimer_never_pass_the_limit() {
    loom::model(|| {
        let policy = policy(512);
        let budget = charged(&policy, 511);
        let faults = [spawn(&budget, fault), spawn(&budget, fault)];
        let taken = reclaim(&budget);
        let passed = reclaim(&budget);
        budget.uncharge(taken);
        assert_eq!(joined(faults), 0, "a fault took of the reserve");
        assert!(taken + passed <= 1 && budget.peak() <= 512);
        assert_eq!(budget.charged(), 511 + passed);
    });
}

/// A fault may be anywhere in its charge when the limit is lowered and found to be reached.
#[test]
fn a_lower_limit_that_is_reached_is_never_passed() {
    loom::model(|| {
        let (high, low) = (policy(1024), policy(512));
        let open = low.limit() - low.reserve();
        let budget = charged(&high, open);
        let faults = [spawn(&budget, fault), spawn(&budget, fault)];
        budget.set_policy(&low);
        let reached = budget.has_reached(&low);
        if reached {
            assert!(budget.headroom() <= low.reserve(), "the reclaimer may still use the old limit");
        }
        let accepted = joined(faults);
        assert_eq!(budget.charged(), open + accepted);
        assert!(!reached || accepted == 0, "{accepted} pages above a limit that was reached");
        budget.uncharge(accepted);
        assert!(budget.has_reached(&low) && fault(&budget) == 0);
    });
}

/// The reclaimer takes the whole reserve as soon as it may: nobody may come on top.
#[test]
fn the_reserve_of_a_lower_limit_fits_below_it() {
    loom::model(|| {
        let (high, low) = (policy(1024), policy(512));
        let budget = charged(&high, low.limit() - low.reserve());
        let faults = [spawn(&budget, fault), spawn(&budget, fault)];
        budget.set_policy(&low);
        let reached = budget.has_reached(&low);
        if reached {
            budget.charged.fetch_add(low.reserve() - 1, Ordering::AcqRel);
            reclaim(&budget);
        }
        joined(faults);
        assert!(!reached || budget.charged() <= low.limit(), "{} pages of {}", budget.charged(), low.limit());
    });
}

#[test]
fn a_higher_limit_set_meanwhile_keeps_its_room() {
    loom::model(|| {
        let (high, low) = (policy(1024), policy(512));
        let budget = charged(&high, 100);
        budget.set_policy(&low);
        let raiser = spawn(&budget, |budget| budget.set_policy(&policy(1024)));
        // A step that changes the word lets loom put the whole change before what follows.
        budget.limits.fetch_add(0, Ordering::Relaxed);
        assert!(budget.has_reached(&low), "it is reached, or replaced");
        raiser.join().unwrap();
        let word = Halves::of(budget.charged.load(Ordering::Relaxed));
        assert_eq!((budget.limit(), budget.headroom()), (high.limit(), high.limit() - 100));
        assert_eq!(word.high, high.limit() - high.reserve());
    });
}
