//! [`Capabilities`]: proofs of the right to an address space, which a node checks without remembering whom it gave
//! them.
//!
//! A capability is the number of its [`Rights`] in the two top bits, and below it 62 bits of SipHash-2-4 of address
//! space and rights, under a key that only the node has. Guessing one takes 2^61 requests on average; a keyed checksum
//! that is not a pseudo-random function would give the key away to whoever asks for enough capabilities.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use yonder_wire::{ErrorCode, Header, Kind, Rights};

use crate::address::{PID_OF_CONTROLLER_MIN, Pid};
use crate::extend_path::{Path, path_of};

/// Rounds after which numbers look drawn to whoever has not the key.
const FEISTEL_ROUNDS: u64 = 4;
/// Bits of a capability that are hash.
const HASH_BITS: u32 = 62;

/// Whether a request is nothing without a capability. A stranger may greet, ask for the time, have an address space
/// made, and give that up: only the request that makes one names none.
#[inline]
#[must_use]
pub fn needs_capability(header: &Header) -> bool {
    match header.kind {
        Kind::Hello | Kind::CreateSpace => false,
        Kind::Ping => header.pid != 0,
        Kind::Abort => header.pid != 0 || path_of(header) != Path::Slow,
        _ => true,
    }
}

/// Makes and checks capabilities, and draws numbers of address spaces, under one key.
pub(crate) struct Capabilities {
    keyed: SipHasher24,
}

impl Capabilities {
    /// Under a random key, which nobody else may know.
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        Self { keyed: SipHasher24::new_with_key(key) }
    }

    /// The capability for `rights` to an address space.
    #[inline]
    pub(crate) fn of(&self, pid: Pid, rights: Rights) -> u64 {
        let mut hasher = self.keyed;
        hasher.write_u64((u64::from(pid.get()) << 8) | rights as u64);
        ((rights as u64) << HASH_BITS) | (hasher.finish() & ((1 << HASH_BITS) - 1))
    }

    /// The address space with number `pid`, if `capability` is one for it that includes `needed`.
    ///
    /// # Errors
    /// `BadCapability` if it is not one for this address space, `NotAllowed` if it is one with fewer rights.
    #[inline]
    pub(crate) fn check(&self, pid: u32, capability: u64, needed: Rights) -> Result<Pid, ErrorCode> {
        let pid = Pid::new(pid).ok_or(ErrorCode::BadCapability)?;
        let rights = Rights::from_number((capability >> HASH_BITS) as u32).ok_or(ErrorCode::BadCapability)?;
        if self.of(pid, rights) != capability {
            return Err(ErrorCode::BadCapability);
        }
        if rights < needed { Err(ErrorCode::NotAllowed) } else { Ok(pid) }
    }

    /// The number of an address space that no controller names, for each `turn` from 1 on another one; `None` once all
    /// have been drawn. No number comes twice: a capability of an address space that has ended would open the next one.
    ///
    /// A permutation of all numbers under the key, a Feistel network of four rounds, is applied until it leads to a
    /// number that may be drawn.
    pub(crate) fn draw(&self, turn: u64) -> Option<Pid> {
        let mut number = u32::try_from(turn).ok().filter(|turn| (1..PID_OF_CONTROLLER_MIN).contains(turn))?;
        loop {
            number = (0..FEISTEL_ROUNDS).fold(number, |number, round| self.feistel(number, round));
            if (1..PID_OF_CONTROLLER_MIN).contains(&number) {
                return Pid::new(number);
            }
        }
    }

    fn feistel(&self, number: u32, round: u64) -> u32 {
        let (left, right) = (number >> 16, number & 0xffff);
        let mut hasher = self.keyed;
        // Twice as long as what capabilities are made of, so that neither says anything about the other.
        hasher.write_u64(round);
        hasher.write_u64(u64::from(right));
        right << 16 | (left ^ (hasher.finish() & 0xffff) as u32)
    }
}

impl std::fmt::Debug for Capabilities {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Capabilities")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ALL: [Rights; 3] = [Rights::Read, Rights::ReadWrite, Rights::Owner];

    #[test]
    fn a_capability_proves_its_rights_and_no_others() {
        let capabilities = Capabilities::new(b"sixteen bytes...");
        let pid = Pid::new(7).unwrap();
        for rights in ALL {
            let capability = capabilities.of(pid, rights);
            for needed in ALL {
                let expected = if needed <= rights { Ok(pid) } else { Err(ErrorCode::NotAllowed) };
                assert_eq!(capabilities.check(7, capability, needed), expected);
            }
            let foreign = [(8, capability), (0, capability), (7, capability ^ 1), (7, 0), (7, u64::MAX)];
            for (pid, capability) in foreign {
                assert_eq!(capabilities.check(pid, capability, Rights::Read), Err(ErrorCode::BadCapability));
            }
            let raised = capability | (3 << HASH_BITS);
            if raised != capability {
                assert_eq!(capabilities.check(7, raised, Rights::Read), Err(ErrorCode::BadCapability));
            }
            let elsewhere = Capabilities::new(b"another node....");
            assert_eq!(elsewhere.check(7, capability, Rights::Read), Err(ErrorCode::BadCapability));
        }
    }

    #[test]
    fn numbers_differ() {
        let capabilities = Capabilities::new(&[3; 16]);
        const TURNS: u64 = 200_000;
        let drawn: HashSet<_> = (1..=TURNS).map(|turn| capabilities.draw(turn)).collect();
        assert_eq!(drawn.len() as u64, TURNS, "a number comes twice");
        assert!(
            [0, u64::from(PID_OF_CONTROLLER_MIN), u64::MAX]
                .map(|turn| capabilities.draw(turn))
                .iter()
                .all(Option::is_none)
        );
        assert!(drawn.iter().flatten().all(|pid| !pid.is_of_controller()));
    }
}
