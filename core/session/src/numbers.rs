//! [`Numbers`]: which numbers of sessions and tenants a node has given, and to whom.
//!
//! Invariant: no serial is given twice, so no two sessions of a node's life have one number.

use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::number::SessionNumber;

/// Sessions of one source in an hour: of a tenant, or of a host of those without names. Lanes of more would push the
/// windows of others out.
const SESSIONS_PER_HOUR: u32 = 1024;

/// One that wants a session, known by its certificate or key.
#[derive(Clone, Copy, Debug)]
pub struct Visitor<'a> {
    /// Its name as a tenant, if it has one.
    pub tenant: Option<&'a str>,
    /// Its address.
    pub ip: IpAddr,
    /// The number of its host, whatever addresses that takes.
    pub host: u64,
}

/// The numbers that a node has given since it began.
#[derive(Default, Debug)]
pub struct Numbers {
    serial: u32,
    /// Numbers of tenants, by name.
    tenants: BTreeMap<String, u16>,
    /// Sessions that sources have made in the present hour.
    made: BTreeMap<Maker, u32>,
    hour: u32,
}

/// Whose sessions are counted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Maker {
    Host(u64),
    Tenant(u16),
}

impl Numbers {
    /// The number of a session that begins in hour `now_hours` and lasts until `hours` later. `None` if there are no
    /// numbers left, or none for this visitor in this hour.
    pub(crate) fn next(&mut self, visitor: Visitor<'_>, now_hours: u32, hours: u32) -> Option<SessionNumber> {
        let tenant = visitor.tenant.map_or(Some(0), |name| self.tenant(name))?;
        let maker = if tenant == 0 { Maker::Host(visitor.host) } else { Maker::Tenant(tenant) };
        let end = now_hours.checked_add(hours).filter(|end| *end <= SessionNumber::EXPIRY_MAX)?;
        if !self.may_make(maker, now_hours) || self.serial == SessionNumber::SERIAL_MAX {
            return None;
        }
        self.serial += 1;
        Some(SessionNumber::new(self.serial, end, tenant))
    }

    fn may_make(&mut self, maker: Maker, hour: u32) -> bool {
        if hour != self.hour {
            self.made.clear();
            self.hour = hour;
        }
        let count = self.made.entry(maker).or_insert(0);
        let may = *count < SESSIONS_PER_HOUR;
        // What is refused is not counted: one that asks too often is not kept out for longer by that.
        *count += u32::from(may);
        may
    }

    /// The last serial that was given; 0 before the first.
    #[must_use]
    pub const fn last_serial(&self) -> u32 {
        self.serial
    }

    /// The names of tenants that have numbers.
    pub fn tenants(&self) -> impl Iterator<Item = (u16, &str)> {
        self.tenants.iter().map(|(name, number)| (*number, name.as_str()))
    }

    /// The number of the tenant with a name, always the same; `None` if there are none left.
    pub fn tenant(&mut self, name: &str) -> Option<u16> {
        if let Some(number) = self.tenants.get(name) {
            return Some(*number);
        }
        let number =
            u16::try_from(self.tenants.len() + 1).ok().filter(|number| *number <= SessionNumber::TENANT_MAX)?;
        self.tenants.insert(name.to_owned(), number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn visitor(tenant: Option<&str>, host: u64) -> Visitor<'_> {
        Visitor { tenant, ip: Ipv4Addr::LOCALHOST.into(), host }
    }

    #[test]
    fn no_number_is_given_twice_and_tenants_keep_theirs() {
        let mut numbers = Numbers::default();
        let mut next = |tenant, hour| numbers.next(visitor(tenant, 1), hour, 2).unwrap();
        let given = [next(None, 0), next(Some("one"), 0), next(Some("two"), 0), next(Some("one"), 5)];
        assert_eq!(given.map(SessionNumber::serial), [1, 2, 3, 4]);
        assert_eq!(given.map(SessionNumber::tenant), [0, 1, 2, 1]);
        assert_eq!(given.map(SessionNumber::expiry_hours), [2, 2, 2, 7]);
    }

    #[test]
    fn a_source_makes_so_many_in_an_hour() {
        let mut numbers = Numbers::default();
        let mut makes = |tenant, host, hour| numbers.next(visitor(tenant, host), hour, 2).is_some();
        assert!((0..SESSIONS_PER_HOUR).all(|_| makes(None, 7, 3)));
        assert!(!makes(None, 7, 3));
        assert!(makes(None, 8, 3) && makes(Some("one"), 7, 3), "others are not bound by it");
        assert!(makes(None, 7, 4), "another hour");
    }

    #[test]
    fn the_last_hours_and_serials_have_no_session() {
        let mut numbers = Numbers::default();
        assert!(numbers.next(visitor(None, 1), SessionNumber::EXPIRY_MAX - 2, 2).is_some());
        assert!(numbers.next(visitor(None, 1), SessionNumber::EXPIRY_MAX - 1, 2).is_none());
        numbers.serial = SessionNumber::SERIAL_MAX;
        assert!(numbers.next(visitor(None, 1), 0, 2).is_none());
    }
}
