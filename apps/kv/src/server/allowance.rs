//! [`Allowances`]: how much is sent to sources that have not proven their address.
//!
//! The source of a datagram can be forged, so an answer may go to a machine that never asked. A source is sent as many
//! bytes as came from it, and [`REFILL_BYTES_PER_S`] beyond that: a forger gains nothing by asking here.
//!
//! Sources share a fixed number of credits, by a keyed hash: memory does not grow with sources, and which of them share
//! one cannot be known from outside. Sharing gives to none: what comes from all sources of a credit, and one refill, is
//! sent to all of them together.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use yonder_units::Nanos;

/// Credits that all sources share.
const CREDITS: usize = 4096;
/// What each credit gains, received or not: about one datagram. It is not saved up for longer than a second.
const REFILL_BYTES_PER_S: u64 = 1400;
/// Most that is kept of what was received: a large datagram.
const CREDIT_BYTES_MAX: u64 = 64 << 10;
/// The part of an IPv6 address that names a network, all of whose addresses are one machine's as a rule.
const NETWORK_MASK: u128 = !0 << 64;

/// Bytes that may be sent.
#[derive(Clone, Copy)]
struct Credit {
    bytes: u64,
    refilled_at: Nanos,
}

impl Credit {
    fn refill(&mut self, now: Nanos) {
        let earned = now.saturating_sub(self.refilled_at).saturating_mul(REFILL_BYTES_PER_S) / 1_000_000_000;
        if self.bytes >= REFILL_BYTES_PER_S {
            self.refilled_at = now;
        } else if earned > 0 {
            self.bytes = (self.bytes + earned).min(REFILL_BYTES_PER_S);
            self.refilled_at = now;
        }
    }
}

/// The credits of all sources.
pub(super) struct Allowances {
    hash: RandomState,
    credits: Box<[Credit]>,
}

impl Allowances {
    pub(super) fn new() -> Self {
        let full = Credit { bytes: REFILL_BYTES_PER_S, refilled_at: 0 };
        Self { hash: RandomState::new(), credits: vec![full; CREDITS].into_boxed_slice() }
    }

    /// Bytes have come from this address.
    pub(super) fn received(&mut self, source: IpAddr, bytes: usize, now: Nanos) {
        let credit = self.credit(source, now);
        credit.bytes = (credit.bytes + bytes as u64).min(CREDIT_BYTES_MAX);
    }

    /// Whether this many bytes may be sent to this address; if so, they are taken as sent.
    #[must_use]
    pub(super) fn spend(&mut self, source: IpAddr, bytes: usize, now: Nanos) -> bool {
        let credit = self.credit(source, now);
        let left = credit.bytes.checked_sub(bytes as u64);
        credit.bytes = left.unwrap_or(credit.bytes);
        left.is_some()
    }

    fn credit(&mut self, source: IpAddr, now: Nanos) -> &mut Credit {
        let network = match source.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK_MASK)),
        };
        let credit = &mut self.credits[self.hash.hash_one(network) as usize % CREDITS];
        credit.refill(now);
        credit
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn v4(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    #[test]
    fn a_source_gets_what_it_sent_and_a_datagram_a_second() {
        let mut allowances = Allowances::new();
        let start = 100 * SECOND;
        assert!(allowances.spend(v4(1), 1400, start) && !allowances.spend(v4(1), 1, start));
        allowances.received(v4(1), 50, start);
        assert!(!allowances.spend(v4(1), 51, start) && allowances.spend(v4(1), 50, start));
        assert!(!allowances.spend(v4(1), 701, start + SECOND / 2) && allowances.spend(v4(1), 700, start + SECOND / 2));
        // Silence saves up one second, not an hour.
        assert!(!allowances.spend(v4(1), 1401, start + 3600 * SECOND));
        allowances.received(v4(1), 10 << 20, start + 3600 * SECOND);
        assert!(!allowances.spend(v4(1), (64 << 10) + 1, start + 3600 * SECOND));
        assert!(allowances.spend(v4(1), 64 << 10, start + 3600 * SECOND));
    }

    #[test]
    fn addresses_of_one_network_are_one_source() {
        let mut allowances = Allowances::new();
        assert!(allowances.spend("2001:db8::1".parse().expect("an address"), 1400, 0));
        assert!(!allowances.spend("2001:db8::2".parse().expect("an address"), 1400, 0));
        assert!(allowances.spend(v4(1), 1400, 0));
        assert!(!allowances.spend("::ffff:192.0.2.1".parse().expect("an address"), 1400, 0));
    }

    proptest! {
        /// Whatever comes from whom: no more is sent than was received and refilled, to all together and, when it is
        /// the only one, to one source.
        #[test]
        fn no_more_is_sent_than_was_received_and_refilled(
            sources in 1..20_u8,
            steps in prop::collection::vec((any::<u8>(), 0..3000_usize, any::<bool>(), 0..SECOND / 4), 1..300),
        ) {
            let mut allowances = Allowances::new();
            let (mut now, mut received, mut sent) = (0, 0, 0);
            for (source, bytes, arrives, pause) in steps {
                now += pause;
                let source = v4(source % sources);
                if arrives {
                    allowances.received(source, bytes, now);
                    received += bytes as u64;
                } else if allowances.spend(source, bytes, now) {
                    sent += bytes as u64;
                }
                let refilled = REFILL_BYTES_PER_S + now.div_ceil(SECOND) * REFILL_BYTES_PER_S;
                prop_assert!(sent <= received + u64::from(sources) * refilled, "{} of {}", sent, received);
            }
        }
    }
}
