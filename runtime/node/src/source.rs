//! Numbers of [`Source`]s: who shares what is bounded, at a node.
//!
//! A host is its IPv4 address, or the first half of its IPv6 address, because it may have all of the other half. A user
//! of this machine is his number, and a tenant that is known by name is the number that the node has given it. They do
//! not meet: no network in use has an address as small as a user's or tenant's number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// What a source without a name is called: an address, the first half of one, or a user.
pub(crate) fn called(Source(number): Source) -> String {
    let upper = number >> u32::BITS;
    match (u32::try_from(number), u32::try_from(number - (upper << u32::BITS))) {
        (Ok(address), _) => Ipv4Addr::from_bits(address).to_string(),
        (_, Ok(user)) if upper == 1 => format!("user-{user}"),
        _ => format!("{}/64", Ipv6Addr::from_bits(u128::from(number) << u64::BITS)),
    }
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
        let names = [of("10.0.0.1"), of("2001:db8:1:2::9"), of_user(1000)].map(called);
        assert_eq!(names, ["10.0.0.1", "2001:db8:1:2::/64", "user-1000"]);
        assert!([of("0.0.0.0"), of("255.255.255.255"), of("fe80::1")].iter().all(|host| !users.contains(host)));
    }
}
