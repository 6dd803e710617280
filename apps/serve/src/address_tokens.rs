//! [`AddressTokens`]: a client shows that it receives at the address that it sends from, and the server remembers none.
//!
//! A token is SipHash-2-4 of a client's address and of the number of an epoch, under a key that only the server has. It
//! goes to the address that it is of, so only a client that receives there can send it back: QUIC validates addresses
//! likewise (RFC 9000, section 8.1). Its lowest bit is that of its epoch, so that one hash is enough to check it.
//!
//! Neighbours: `frontend` checks each request; `wire` says where the token stands.
//!
//! Invariant: a token is accepted in its epoch and in the next one, from its address alone.

use std::hash::Hasher as _;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;
use yonder_units::Nanos;

/// How long an epoch is: a token is good for as long at least, and for less than twice as long.
const EPOCH_NS: Nanos = 64_000_000_000;

/// Makes and checks tokens, under one key.
pub(crate) struct AddressTokens {
    keyed: SipHasher24,
}

impl AddressTokens {
    /// Under a random key, which only this server may know.
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        Self { keyed: SipHasher24::new_with_key(key) }
    }

    /// Whether `token` is one of `peer` that is good at `now`.
    ///
    /// # Errors
    /// If it is none: the one that is.
    pub(crate) fn check(&self, peer: SocketAddr, token: u64, now: Nanos) -> Result<(), u64> {
        let epoch = now / EPOCH_NS;
        // This one, or the one before.
        let made_in = epoch.wrapping_sub((epoch ^ token) & 1);
        if self.of(peer, made_in) == token { Ok(()) } else { Err(self.of(peer, epoch)) }
    }

    fn of(&self, peer: SocketAddr, epoch: u64) -> u64 {
        let mut hasher = self.keyed;
        let ip = match peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        hasher.write(&ip.octets());
        hasher.write_u64(epoch);
        hasher.write_u16(peer.port());
        hasher.finish() & !1 | epoch & 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8; 16] = b"sixteen bytes...";
    /// In the middle of an epoch.
    const NOW: Nanos = 1000 * EPOCH_NS + EPOCH_NS / 2;

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn token(peer: SocketAddr, now: Nanos) -> u64 {
        AddressTokens::new(KEY).check(peer, 0, now).unwrap_err()
    }

    #[test]
    fn a_token_proves_its_address_and_no_other() {
        let tokens = AddressTokens::new(KEY);
        let peers = ["10.0.0.1:7", "10.0.0.1:8", "10.0.0.2:7", "[fd00::1]:7", "[fd00::1]:8", "[fd00::2]:7"].map(peer);
        for its in peers {
            let token = token(its, NOW);
            for peer in peers {
                assert_eq!(tokens.check(peer, token, NOW).is_ok(), peer == its, "{its}'s token from {peer}");
            }
            for other in [0, u64::MAX, token ^ 1, token ^ 2, token ^ 1 << 63] {
                assert_eq!(tokens.check(its, other, NOW), Err(token));
            }
            assert!(AddressTokens::new(b"another server..").check(its, token, NOW).is_err());
        }
    }

    #[test]
    fn a_token_is_good_for_its_epoch_and_the_next() {
        let (tokens, its) = (AddressTokens::new(KEY), peer("10.0.0.1:7"));
        for made in [0, EPOCH_NS - 1, EPOCH_NS, NOW, NOW + EPOCH_NS] {
            let token = token(its, made);
            let (first, end) = (made / EPOCH_NS * EPOCH_NS, (made / EPOCH_NS + 2) * EPOCH_NS);
            for now in [first, made, made + EPOCH_NS, end - 1] {
                assert_eq!(tokens.check(its, token, now), Ok(()), "of {made}, at {now}");
            }
            for now in [end, end + EPOCH_NS, end + 2 * EPOCH_NS, end + 3 * EPOCH_NS] {
                let new = tokens.check(its, token, now).unwrap_err();
                assert_eq!(tokens.check(its, new, now), Ok(()));
            }
            if let Some(before) = first.checked_sub(1) {
                assert!(tokens.check(its, token, before).is_err(), "of {made}, in the epoch before");
            }
        }
    }
}
