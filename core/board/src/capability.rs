//! [`Capabilities`]: proofs of the right to an address space, which a node checks without remembering whom it gave
//! them.
//!
//! A capability has 128 bits: in the upper half what it claims ([`Claims`]), below it the SipHash-2-4 of that and of
//! the address space, under a key that only the node has. Guessing one takes 2^63 requests on average; a keyed checksum
//! that is not a pseudo-random function would give the key away to whoever asks for enough capabilities.
//!
//! One of its claims is the life of the address space ([`crate::lives`]). Whether that is the present one is for the
//! caller to look up before it does anything: what was executed in an earlier life is still answered as it was.

use std::fmt;
use std::hash::Hasher;
use std::ops::Deref;
use std::sync::Arc;

use siphasher::sip::SipHasher24;
use yonder_units::Narrow;
use yonder_wire::{ErrorCode, Header, Kind, Rights};

use crate::address::{PID_OF_CONTROLLER_MIN, Pid};
use crate::extend_path::{Path, path_of};
use crate::lives::{LIFE_MAX, Life};
use crate::recent::NodeTime;

/// Rounds after which numbers look drawn to whoever has not the key.
const FEISTEL_ROUNDS: u64 = 4;
/// Nanoseconds of the unit in which capabilities say when they are void.
const NANOS_PER_MINUTE: NodeTime = 60_000_000_000;
/// Last minute of the node's clock that a capability can name: in four years.
const EXPIRY_MAX: u32 = (1 << 21) - 1;
/// Largest number of a tenant.
const TENANT_MAX: u16 = (1 << 10) - 1;

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

/// What a capability claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claims {
    pub(crate) rights: Rights,
    /// Life of the address space.
    pub(crate) life: Life,
    /// The tenant that has made it, and alone may use it; 0 if anyone may who has the capability.
    pub(crate) tenant: u16,
    /// Minute of the node's clock from which on it is void; `None` if it is not before the life ends.
    pub(crate) expiry: Option<u32>,
}

impl Claims {
    /// These rights for the whole life.
    pub(crate) const fn of(rights: Rights, life: Life, tenant: u16) -> Self {
        Self { rights, life, tenant, expiry: None }
    }

    /// The same until at least `minutes` from now, or for the whole life if that is 0.
    ///
    /// # Errors
    /// `BadLength` if no capability can say that.
    pub(crate) fn for_minutes(self, minutes: u64, now: NodeTime) -> Result<Self, ErrorCode> {
        if minutes == 0 {
            return Ok(self);
        }
        let end = (now / NANOS_PER_MINUTE + 1).checked_add(minutes);
        let end = end.and_then(|end| u32::try_from(end).ok()).filter(|end| *end <= EXPIRY_MAX);
        Ok(Self { expiry: Some(end.ok_or(ErrorCode::BadLength)?), ..self })
    }

    /// The same, but void at `expiry` at the latest.
    pub(crate) fn no_longer_than(self, expiry: Option<u32>) -> Self {
        Self { expiry: [self.expiry, expiry].into_iter().flatten().min(), ..self }
    }

    /// When a capability that was checked is void.
    pub(crate) fn expiry_in(capability: u128) -> Option<u32> {
        Self::from_bits(halves(capability).0).and_then(|claims| claims.expiry)
    }

    /// The tenant that a capability that was checked is for; 0 if it is anyone's who has it.
    #[inline]
    pub(crate) fn tenant_in(capability: u128) -> u16 {
        Self::tenant_of(halves(capability).0)
    }

    #[inline]
    fn tenant_of(bits: u64) -> u16 {
        (bits >> 2 & u64::from(TENANT_MAX)).narrow_u16()
    }

    /// Rights in bits 0 and 1, then 10 bits for the tenant, 21 for the minute, 31 for the life.
    fn bits(self) -> u64 {
        debug_assert!(self.life <= LIFE_MAX && self.tenant <= TENANT_MAX);
        self.rights as u64
            | u64::from(self.tenant & TENANT_MAX) << 2
            | u64::from(self.expiry.unwrap_or(0)) << 12
            | u64::from(self.life) << 33
    }

    #[inline]
    fn from_bits(bits: u64) -> Option<Self> {
        let rights = Rights::from_number((bits & 3).narrow_u32())?;
        let expiry = Some((bits >> 12 & u64::from(EXPIRY_MAX)).narrow_u32()).filter(|minute| *minute != 0);
        Some(Self { rights, life: (bits >> 33).narrow_u32(), tenant: Self::tenant_of(bits), expiry })
    }
}

/// A random number that only its node knows, where the node's shell keeps it: out of swap, for example.
#[derive(Clone)]
pub struct NodeKey(Arc<dyn Deref<Target = [u8; 16]> + Send + Sync>);

impl NodeKey {
    /// A key that is kept like this, until the last who has it is gone.
    #[must_use]
    pub fn kept(key: impl Deref<Target = [u8; 16]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(key))
    }
}

impl From<[u8; 16]> for NodeKey {
    /// In memory like any other: for a node that has nothing to hide.
    fn from(key: [u8; 16]) -> Self {
        Self::kept(Box::new(key))
    }
}

impl fmt::Debug for NodeKey {
    /// Without the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NodeKey")
    }
}

/// What a capability claims, and its hash.
#[inline]
fn halves(capability: u128) -> (u64, u64) {
    let bytes = capability.to_be_bytes();
    let half = |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    (half(0), half(size_of::<u64>()))
}

/// Whether `tenant`, a number of one who has shown who it is, may use a capability: its own, or one that is anyone's
/// who has it. That it is one at all is for the board to see.
#[inline]
#[must_use]
pub fn is_for_tenant(capability: u128, tenant: u16) -> bool {
    Claims::from_bits(halves(capability).0).is_none_or(|claims| claims.tenant == 0 || claims.tenant == tenant)
}

/// Makes and checks capabilities, and draws numbers of address spaces, under one key.
#[derive(Debug)]
pub(crate) struct Capabilities {
    key: NodeKey,
}

impl Capabilities {
    pub(crate) fn new(key: NodeKey) -> Self {
        Self { key }
    }

    /// The capability that claims this of an address space.
    #[inline]
    pub(crate) fn of(&self, pid: Pid, claims: Claims) -> u128 {
        let bits = claims.bits();
        u128::from(bits) << u64::BITS | u128::from(self.hash(pid, bits))
    }

    /// The address space with number `pid`, and its life, if `capability` is one for it that includes `needed`.
    ///
    /// # Errors
    /// `BadCapability` if it is not one for this address space, or is void by now; `NotAllowed` if it is one with fewer
    /// rights.
    #[inline]
    pub(crate) fn check(&self, header: &Header, needed: Rights, now: NodeTime) -> Result<(Pid, Life), ErrorCode> {
        let pid = Pid::new(header.pid).ok_or(ErrorCode::BadCapability)?;
        let (bits, hash) = halves(header.capability);
        if self.hash(pid, bits) != hash {
            return Err(ErrorCode::BadCapability);
        }
        let claims = Claims::from_bits(bits).ok_or(ErrorCode::BadCapability)?;
        if claims.expiry.is_some_and(|minute| now >= NodeTime::from(minute) * NANOS_PER_MINUTE) {
            return Err(ErrorCode::BadCapability);
        }
        if claims.rights < needed { Err(ErrorCode::NotAllowed) } else { Ok((pid, claims.life)) }
    }

    /// From the key each time: what a hash begins with is as secret as the key is.
    #[inline]
    fn keyed(&self) -> SipHasher24 {
        SipHasher24::new_with_key(&self.key.0)
    }

    #[inline]
    fn hash(&self, pid: Pid, claims: u64) -> u64 {
        let mut hasher = self.keyed();
        hasher.write_u64(claims);
        hasher.write_u64(u64::from(pid.get()));
        hasher.finish()
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
        let mut hasher = self.keyed();
        // Not as long as what capabilities are made of, so that neither says anything about the other.
        hasher.write_u64(round << u32::BITS | u64::from(right));
        right << 16 | (left ^ (hasher.finish() & 0xffff) as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ALL: [Rights; 3] = [Rights::Read, Rights::ReadWrite, Rights::Owner];

    fn check(capabilities: &Capabilities, pid: u32, capability: u128, needed: Rights) -> Result<u32, ErrorCode> {
        let header = Header { pid, capability, ..Header::request(Kind::Read, 1, 0, 0) };
        capabilities.check(&header, needed, 0).map(|(pid, _)| pid.get())
    }

    #[test]
    fn a_capability_proves_its_claims_and_no_others() {
        let capabilities = Capabilities::new((*b"sixteen bytes...").into());
        let pid = Pid::new(7).unwrap();
        for rights in ALL {
            let capability = capabilities.of(pid, Claims::of(rights, 3, 0));
            for needed in ALL {
                let expected = if needed <= rights { Ok(7) } else { Err(ErrorCode::NotAllowed) };
                assert_eq!(check(&capabilities, 7, capability, needed), expected);
            }
            let foreign = [(8, capability), (0, capability), (7, 0), (7, u128::MAX)];
            let flipped = (0..u128::BITS).map(|bit| (7, capability ^ 1 << bit));
            for (pid, capability) in foreign.into_iter().chain(flipped) {
                assert_eq!(check(&capabilities, pid, capability, Rights::Read), Err(ErrorCode::BadCapability));
            }
            let elsewhere = Capabilities::new((*b"another node....").into());
            assert_eq!(check(&elsewhere, 7, capability, Rights::Read), Err(ErrorCode::BadCapability));
        }
    }

    #[test]
    fn claims_come_back_and_end_when_they_say() {
        let capabilities = Capabilities::new([3; 16].into());
        let pid = Pid::new(7).unwrap();
        let now = 1000 * NANOS_PER_MINUTE + 5;
        for (rights, life, minutes) in [(Rights::Read, 0, 0), (Rights::Owner, LIFE_MAX, 1), (Rights::ReadWrite, 9, 700)]
        {
            let claims = Claims::of(rights, life, (life & 1023) as u16).for_minutes(minutes, now).unwrap();
            assert_eq!(Claims::from_bits(claims.bits()), Some(claims));
            let header =
                Header { pid: 7, capability: capabilities.of(pid, claims), ..Header::request(Kind::Read, 1, 0, 0) };
            let at = |time| capabilities.check(&header, Rights::Read, time);
            assert_eq!(at(now + minutes * NANOS_PER_MINUTE), Ok((pid, life)), "it ends no earlier");
            let later = at(now + (minutes + 1) * NANOS_PER_MINUTE);
            assert_eq!(later.is_ok(), minutes == 0, "{minutes} minutes");
        }
        let forever = Claims::of(Rights::Read, 1, 0).for_minutes(u64::MAX, now);
        assert_eq!(forever, Err(ErrorCode::BadLength));
    }

    #[test]
    fn numbers_differ() {
        let capabilities = Capabilities::new([3; 16].into());
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
