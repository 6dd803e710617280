//! [`SessionNumber`]: the name of a session, or of one of its lanes, as every protected message carries it.
//!
//! Invariant: the fields fill 64 bits: serial 29, expiry 17, tenant 10, lane 8, from the top.

use std::fmt;

use yonder_units::Narrow;

/// Longest that a session lasts, in hours. The replay windows depend on it, because the time in a counter is modular.
pub const SESSION_HOURS_MAX: u32 = 24;

/// Bits of each field.
const LANE_BITS: u32 = 8;
const TENANT_BITS: u32 = 10;
const EXPIRY_BITS: u32 = 17;
const SERIAL_BITS: u32 = 29;
/// Where each field begins.
const TENANT_SHIFT: u32 = LANE_BITS;
const EXPIRY_SHIFT: u32 = TENANT_SHIFT + TENANT_BITS;
const SERIAL_SHIFT: u32 = EXPIRY_SHIFT + EXPIRY_BITS;

const _: () = assert!(SERIAL_SHIFT + SERIAL_BITS == u64::BITS);

/// The number of a session, or of a lane of it. Lane 0 stands for the session itself and sends no messages.
///
/// A node that draws no serial twice has never two sessions with one number, so their keys differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub u64);

impl SessionNumber {
    /// The largest serial.
    pub const SERIAL_MAX: u32 = (1 << SERIAL_BITS) - 1;
    /// The latest expiry: 14 years after the start of the node.
    pub const EXPIRY_MAX: u32 = (1 << EXPIRY_BITS) - 1;
    /// The largest tenant.
    pub const TENANT_MAX: u16 = (1 << TENANT_BITS) - 1;
    /// The largest lane.
    pub const LANE_MAX: u8 = u8::MAX >> (u8::BITS - LANE_BITS);

    /// A session of `tenant` that is over `expiry_hours` after the start of the node: at most [`SESSION_HOURS_MAX`]
    /// from now.
    ///
    /// # Panics
    /// If a field has no room for its value.
    #[must_use]
    pub const fn new(serial: u32, expiry_hours: u32, tenant: u16) -> Self {
        assert!(serial <= Self::SERIAL_MAX && expiry_hours <= Self::EXPIRY_MAX && tenant <= Self::TENANT_MAX);
        Self(
            ((serial as u64) << SERIAL_SHIFT)
                | ((expiry_hours as u64) << EXPIRY_SHIFT)
                | (tenant as u64) << TENANT_SHIFT,
        )
    }

    /// Lane `lane` of the same session.
    #[must_use]
    pub const fn with_lane(self, lane: u8) -> Self {
        Self(self.session().0 | lane as u64)
    }

    /// The session itself: lane 0.
    #[must_use]
    pub const fn session(self) -> Self {
        Self(self.0 & !(Self::LANE_MAX as u64))
    }

    /// What tells sessions apart that the same tenant has made in the same hour.
    #[must_use]
    pub fn serial(self) -> u32 {
        (self.0 >> SERIAL_SHIFT).narrow_u32()
    }

    /// Hours between the start of the node and the end of the session.
    #[must_use]
    pub fn expiry_hours(self) -> u32 {
        self.field(EXPIRY_SHIFT, EXPIRY_BITS).narrow_u32()
    }

    /// The tenant that made the session.
    #[must_use]
    pub fn tenant(self) -> u16 {
        self.field(TENANT_SHIFT, TENANT_BITS).narrow_u16()
    }

    /// The lane; 0 for the session itself.
    #[must_use]
    pub fn lane(self) -> u8 {
        self.field(0, LANE_BITS).narrow_u8()
    }

    /// Whether the session is under way `now_hours` after the start of the node. One that would last longer than a
    /// session may is not; the hour more is for threads that look at the clock at different times.
    #[must_use]
    pub fn is_current(self, now_hours: u32) -> bool {
        let left = self.expiry_hours().checked_sub(now_hours);
        left.is_some_and(|left| (1..=SESSION_HOURS_MAX + 1).contains(&left))
    }

    const fn field(self, shift: u32, bits: u32) -> u64 {
        (self.0 >> shift) & ((1 << bits) - 1)
    }
}

impl fmt::Debug for SessionNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (serial, expiry, tenant, lane) = (self.serial(), self.expiry_hours(), self.tenant(), self.lane());
        write!(formatter, "session {serial} of tenant {tenant} until hour {expiry}, lane {lane}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_lie_where_the_wire_has_them() {
        let number = SessionNumber::new(1, 1, 1).with_lane(1);
        assert_eq!(number.0, 1 << 35 | 1 << 18 | 1 << 8 | 1);
        let largest =
            SessionNumber::new(SessionNumber::SERIAL_MAX, SessionNumber::EXPIRY_MAX, SessionNumber::TENANT_MAX);
        assert_eq!(largest.with_lane(SessionNumber::LANE_MAX).0, u64::MAX);
    }

    #[test]
    fn a_session_is_current_until_its_hour() {
        let number = SessionNumber::new(7, 30, 1).with_lane(2);
        let current: Vec<u32> = (0..40).filter(|now| number.is_current(*now)).collect();
        assert_eq!(current, (5..30).collect::<Vec<_>>());
        assert!(!SessionNumber(0).is_current(0));
    }

    #[test]
    #[should_panic]
    fn a_tenant_that_does_not_fit_is_our_bug() {
        let _ = SessionNumber::new(0, 0, SessionNumber::TENANT_MAX + 1);
    }

    proptest! {
        #[test]
        fn every_number_is_made_of_its_fields(bits in any::<u64>(), lane in 0..=SessionNumber::LANE_MAX) {
            let number = SessionNumber(bits);
            let again = SessionNumber::new(number.serial(), number.expiry_hours(), number.tenant());
            prop_assert_eq!(again.with_lane(number.lane()), number);
            prop_assert_eq!(again, number.session());
            prop_assert_eq!(number.with_lane(lane).lane(), lane);
            prop_assert_eq!(number.with_lane(lane).session(), again);
        }
    }
}
