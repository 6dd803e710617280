//! [`Source`]: where a request comes from, as far as the shell can tell; and [`Share`]: how much of what there is a
//! bounded number of one of them may have, so that none takes all of it.
//!
//! A source is no proof of anything, but for a tenant that has shown who it is: the address of a datagram may be
//! forged. So a share bounds what one host or user takes, and what needs proof needs a capability.

/// Who asks, as a number that the shell chooses: an address of the network without its port, or a user of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source(pub u64);

/// Sources from this one on are tenants that are known by name. No network in use has an address as small as theirs.
const TENANTS: u64 = 1 << 33;

impl Source {
    /// What comes from the tenant with this number, not 0, wherever it comes from.
    #[must_use]
    pub const fn of_tenant(number: u16) -> Self {
        Self(TENANTS | number as u64)
    }

    /// The number of the tenant, if it is one.
    #[must_use]
    pub fn tenant(self) -> Option<u16> {
        let number = self.0.checked_sub(TENANTS).and_then(|number| u16::try_from(number).ok());
        number.filter(|number| *number != 0)
    }
}

/// How a bounded number of places is shared. The last quarter of them is kept for those that have few.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Places.
    pub places_max: usize,
    /// Most that one has while there are many.
    pub of_one_max: usize,
    /// Most that one has while only the last quarter is left.
    pub few_max: usize,
}

/// The part of the places that is kept: one of so many.
const KEPT: usize = 4;

impl Share {
    /// Whether one that has `own` of the `taken` places may have another.
    #[must_use]
    pub const fn admits(&self, taken: usize, own: usize) -> bool {
        let are_few_left = taken >= self.places_max - self.places_max / KEPT;
        let is_within = own < self.of_one_max && (own < self.few_max || !are_few_left);
        taken < self.places_max && is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_told_from_all_else() {
        assert_eq!(Source::of_tenant(7).tenant(), Some(7));
        for other in [0, 7, u64::from(u32::MAX), 1 << 32 | 7, 1 << 33, 1 << 34, u64::MAX].map(Source) {
            assert_eq!(other.tenant(), None, "{other:?}");
        }
    }

    #[test]
    fn none_has_more_than_its_share_and_the_last_quarter_is_for_those_with_few() {
        let share = Share { places_max: 16, of_one_max: 6, few_max: 2 };
        assert!(share.admits(5, 5) && !share.admits(6, 6));
        assert!(share.admits(11, 5) && !share.admits(12, 5));
        assert!(share.admits(12, 1) && share.admits(15, 0) && !share.admits(13, 2));
        assert!(!share.admits(16, 0));
        let single = Share { places_max: 1, of_one_max: 1, few_max: 1 };
        assert!(single.admits(0, 0) && !single.admits(1, 0));
    }
}
