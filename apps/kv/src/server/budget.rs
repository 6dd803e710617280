//! [`Budget`]: bytes that many clients share, and [`Charge`]: how many of them one client has.
//!
//! A client is charged for input before it is allocated, and for a reply as soon as it is there. Owned by the
//! dispatcher thread. Invariant: the charges of all clients add up to the bytes taken, which are never more than the
//! limit.

/// What one client has of a [`Budget`]; given back with [`Budget::release`] when the client is gone.
#[derive(Default, Debug)]
pub(super) struct Charge {
    bytes: usize,
}

impl Charge {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Bytes for many clients.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    bytes_max: usize,
    taken_bytes: usize,
    peak_bytes: usize,
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, taken_bytes: 0, peak_bytes: 0 }
    }

    /// Charges a client for `bytes` in place of what it was charged for. Returns whether there was room; without it,
    /// nothing has changed. There always is for less than before.
    #[must_use]
    pub(super) fn charge(&mut self, charge: &mut Charge, bytes: usize) -> bool {
        let others = self.taken_bytes - charge.bytes;
        if bytes > charge.bytes && bytes > self.bytes_max - others {
            return false;
        }
        charge.bytes = bytes;
        self.taken_bytes = others + bytes;
        self.peak_bytes = self.peak_bytes.max(self.taken_bytes);
        true
    }

    /// The client is gone, and its memory with it.
    pub(super) fn release(&mut self, charge: Charge) {
        self.taken_bytes -= charge.bytes;
    }

    /// Bytes that may be taken.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that are taken.
    pub(super) fn taken_bytes(&self) -> usize {
        self.taken_bytes
    }

    /// The most that were taken at a time, since [`Budget::forget_peak`].
    pub(super) fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }

    pub(super) fn forget_peak(&mut self) {
        self.peak_bytes = self.taken_bytes;
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
        let mut budget = Budget::new(BYTES_MAX);
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

    proptest! {
        /// Against a plain list: a charge is refused exactly if it is larger than before and does not fit.
        #[test]
        fn charges_add_up_and_stay_below_the_limit(
            steps in prop::collection::vec((0..CLIENTS, prop::option::of(0..BYTES_MAX + 200)), 1..200),
        ) {
            let mut budget = Budget::new(BYTES_MAX);
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
