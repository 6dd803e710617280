//! [`Budget`]: bytes that many clients share, and [`Charge`]: how many of them one client, or one request, has.
//!
//! A client is charged for input before it is allocated; a request for its reply before that is, on the thread that
//! executes it ([`Account`]). When the request is over its charge becomes its client's. Any thread charges. Invariant:
//! all charges add up to the bytes taken, which are never more than the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::buffers::IDLE_BYTES_MAX;
use crate::store::Room;

/// What one client or request has of a [`Budget`]; given back with [`Budget::release`] when that is gone.
#[derive(Default, Debug)]
#[must_use]
pub(super) struct Charge {
    bytes: usize,
}

impl Charge {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes over what another was charged for.
    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
    }
}

/// Bytes for many clients. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_max: usize,
    taken_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Shared { bytes_max, taken_bytes: AtomicUsize::new(0), peak_bytes: AtomicUsize::new(0) }))
    }

    /// Charges for `bytes` in place of what was charged for. Returns whether there was room; without it, nothing has
    /// changed. There always is for less than before.
    #[must_use]
    pub(super) fn charge(&self, charge: &mut Charge, bytes: usize) -> bool {
        let Shared { bytes_max, taken_bytes, peak_bytes } = &*self.0;
        if let Some(more) = bytes.checked_sub(charge.bytes).filter(|more| *more > 0) {
            let grown = |taken: usize| taken.checked_add(more).filter(|taken| taken <= bytes_max);
            let Ok(before) = taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) else {
                return false;
            };
            peak_bytes.fetch_max(before + more, Ordering::Relaxed);
        } else if charge.bytes > bytes {
            taken_bytes.fetch_sub(charge.bytes - bytes, Ordering::Relaxed);
        }
        charge.bytes = bytes;
        true
    }

    /// What was charged for is gone.
    pub(super) fn release(&self, charge: Charge) {
        self.0.taken_bytes.fetch_sub(charge.bytes, Ordering::Relaxed);
    }

    /// Bytes that may be taken.
    pub(super) fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Bytes that are taken.
    pub(super) fn taken_bytes(&self) -> usize {
        self.0.taken_bytes.load(Ordering::Relaxed)
    }

    /// The most that were taken at a time, since [`Budget::forget_peak`].
    pub(super) fn peak_bytes(&self) -> usize {
        self.0.peak_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn forget_peak(&self) {
        self.0.peak_bytes.store(self.taken_bytes(), Ordering::Relaxed);
    }
}

/// What one request that is executed has of a [`Budget`], beyond [`IDLE_BYTES_MAX`], which each has for nothing.
#[derive(Debug)]
pub(super) struct Account<'a> {
    budget: &'a Budget,
    charge: Charge,
    was_refused: bool,
}

impl<'a> Account<'a> {
    pub(super) fn new(budget: &'a Budget) -> Self {
        Self { budget, charge: Charge::default(), was_refused: false }
    }

    /// The request is over and has left a reply of `bytes`: what that is charged for, and whether there was no room
    /// for something.
    pub(super) fn close(mut self, bytes: usize) -> (Charge, bool) {
        // A reply for which no room was asked is one line, and free.
        let bytes = bytes.saturating_sub(IDLE_BYTES_MAX).min(self.charge.bytes);
        let fits = self.budget.charge(&mut self.charge, bytes);
        debug_assert!(fits, "there is always room for less");
        (self.charge, self.was_refused)
    }
}

impl Room for Account<'_> {
    fn grow_to(&mut self, bytes: usize) -> bool {
        let bytes = bytes.saturating_sub(IDLE_BYTES_MAX).max(self.charge.bytes);
        let fits = self.budget.charge(&mut self.charge, bytes);
        self.was_refused |= !fits;
        fits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES_MAX: usize = 1000;
    const CLIENTS: usize = 5;

    #[test]
    fn what_one_client_cannot_have_stays_for_others() {
        let budget = Budget::new(BYTES_MAX);
        let (mut first, mut second) = (Charge::default(), Charge::default());
        assert!(budget.charge(&mut first, 600));
        assert!(!budget.charge(&mut second, 401));
        assert_eq!((second.bytes(), budget.taken_bytes()), (0, 600));
        assert!(budget.charge(&mut second, 400));
        assert!(!budget.charge(&mut first, 601) && budget.charge(&mut first, 600) && budget.charge(&mut first, 0));
        budget.release(second);
        assert_eq!((budget.taken_bytes(), budget.peak_bytes()), (0, BYTES_MAX));
        budget.forget_peak();
        assert_eq!(budget.peak_bytes(), 0);
    }

    #[test]
    fn a_request_is_charged_for_what_is_more_than_all_have() {
        let budget = Budget::new(BYTES_MAX);
        let (mut one, mut other) = (Account::new(&budget), Account::new(&budget));
        assert!(one.grow_to(IDLE_BYTES_MAX) && other.grow_to(IDLE_BYTES_MAX));
        assert_eq!(budget.taken_bytes(), 0);
        assert!(one.grow_to(IDLE_BYTES_MAX + 600) && !other.grow_to(IDLE_BYTES_MAX + 401));
        assert!(one.grow_to(1), "what it has once it keeps until it is over");
        assert_eq!(budget.taken_bytes(), 600);
        let (charge, was_refused) = one.close(IDLE_BYTES_MAX + 500);
        assert_eq!((charge.bytes(), was_refused, budget.taken_bytes()), (500, false, 500));
        let (nothing, was_refused) = other.close(100);
        assert_eq!((nothing.bytes(), was_refused), (0, true));
        let mut client = Charge::default();
        client.add(charge);
        assert!(budget.charge(&mut client, 400));
        budget.release(client);
        assert_eq!(budget.taken_bytes(), 0);
    }

    /// Charges of many threads add up, and never to more than there is.
    #[test]
    fn threads_share_what_there_is() {
        let budget = Budget::new(BYTES_MAX);
        std::thread::scope(|scope| {
            for number in 1..5 {
                let budget = &budget;
                scope.spawn(move || {
                    let mut charge = Charge::default();
                    for step in 0..10_000 {
                        let fits = budget.charge(&mut charge, step * number % 500);
                        assert!(budget.taken_bytes() <= BYTES_MAX && (fits || step * number % 500 > charge.bytes()));
                    }
                    budget.release(charge);
                });
            }
        });
        assert_eq!(budget.taken_bytes(), 0);
        assert!((1..=BYTES_MAX).contains(&budget.peak_bytes()));
    }

    proptest! {
        /// Against a plain list: a charge is refused exactly if it is larger than before and does not fit.
        #[test]
        fn charges_add_up_and_stay_below_the_limit(
            steps in prop::collection::vec((0..CLIENTS, prop::option::of(0..BYTES_MAX + 200)), 1..200),
        ) {
            let budget = Budget::new(BYTES_MAX);
            let mut charges: [Charge; CLIENTS] = Default::default();
            let mut model = [0; CLIENTS];
            for (client, wanted) in steps {
                match wanted {
                    None => {
                        budget.release(std::mem::take(&mut charges[client]));
                        model[client] = 0;
                    }
                    Some(bytes) => {
                        let others = model.iter().sum::<usize>() - model[client];
                        let fits = bytes <= model[client] || others + bytes <= BYTES_MAX;
                        prop_assert_eq!(budget.charge(&mut charges[client], bytes), fits);
                        if fits {
                            model[client] = bytes;
                        }
                    }
                }
                prop_assert_eq!(charges[client].bytes(), model[client]);
                prop_assert_eq!(budget.taken_bytes(), model.iter().sum::<usize>());
                prop_assert!(budget.peak_bytes() <= BYTES_MAX);
            }
        }
    }
}
