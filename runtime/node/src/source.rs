//! Numbers of [`Source`]s: who shares what is bounded, at a node.
//!
//! A host is its IPv4 address, or the first half of its IPv6 address, because it may have all of the other half. A user
//! of this machine is his number, and a tenant that is known by name is the number that the node has given it. They do
//! not meet: no network in use has an address as small as a user's or tenant's number.

use std::net::IpAddr;

use yonder_board::Source;
use yonder_identity::Host;

/// Numbers of users are behind those of IPv4 addresses.
const USERS: u64 = 1 << 32;

/// The source of what comes from an address.
pub(crate) fn of_address(address: IpAddr) -> Source {
    match Host::of(address).address() {
        IpAddr::V4(address) => Source(u64::from(address.to_bits())),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments().map(u64::from);
            Source(a << 48 | b << 32 | c << 16 | d)
        }
    }
}

/// The source of what comes from a user of this machine.
pub(crate) fn of_user(uid: u32) -> Source {
    Source(USERS | u64::from(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Source {
        of_address(text.parse().unwrap())
    }

    #[test]
    fn a_host_is_one_source_whatever_addresses_it_takes() {
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        let users = [0, 1000, u32::MAX].map(of_user);
        let users = users.into_iter().chain([1, u16::MAX].map(Source::of_tenant)).collect::<Vec<_>>();
        assert!(users.iter().enumerate().all(|(at, one)| !users[..at].contains(one)));
        assert!([of("0.0.0.0"), of("255.255.255.255"), of("fe80::1")].iter().all(|host| !users.contains(host)));
    }
}
