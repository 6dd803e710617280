//! The extend path of a memory node: computation beside the data, so that one round trip does what took many (Clio,
//! section 4.6).
//!
//! An [`Offload`] has an address space of its own and uses it through [`OffloadMemory`], the same calls that
//! applications have; it also reaches the space of whoever calls it, for data that is the caller's. Shipped: [`chase`]
//! follows pointers, [`kv`] is a key-value store, [`mv`] keeps versions of objects, [`frame`] selects and aggregates
//! columns. Each module has the numbers, requests and answers that clients need, with their layout; [`shipped`] makes
//! them all.
//!
//! Neighbours: the node gives memory, and runs calls one after another; `core/wire` carries arguments and answers.
//! Nothing here does I/O, and nothing is random: what must not be guessed is a seed from the node.
//!
//! Invariants: no arguments panic, loop without bound or reach what belongs to another caller. A call that is refused
//! has changed nothing, or may be made again with the same outcome. What is kept for a caller goes when its space ends.

#![forbid(unsafe_code)]

mod arena;
pub mod chase;
mod comparison;
#[cfg(test)]
mod fake_memory;
pub mod frame;
pub mod kv;
mod memory;
pub mod mv;
mod number;

pub use comparison::Comparison;
pub use memory::{OffloadMemory, Space};

use yonder_wire::ErrorCode;

/// Most bytes in the answer of a call with [`Effect::Once`]: the node keeps it for copies of the request.
pub const ONCE_ANSWER_BYTES_MAX: usize = 64;

/// A call of an offload.
pub struct Call<'a> {
    /// The caller's address space. State is kept by it, so that one address space never sees what another one stored.
    pub pid: u32,
    /// What is asked.
    pub arguments: &'a [u8],
    /// The memory of the offload and of the caller.
    pub memory: &'a mut dyn OffloadMemory,
    /// Takes the answer; empty before.
    pub answer: &'a mut Vec<u8>,
}

/// What becomes of a call that arrives twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It changes nothing, so it may be executed again.
    Repeatable,
    /// It must be executed once, and copies get the answer, which has at most [`ONCE_ANSWER_BYTES_MAX`] bytes.
    Once,
}

/// A computation at the node.
pub trait Offload: Send {
    /// What calls name it by.
    fn number(&self) -> u64;

    /// What people name it by.
    fn name(&self) -> &'static str;

    /// What a call with these arguments does. Arguments that [`Offload::call`] refuses are repeatable.
    fn effect(&self, arguments: &[u8]) -> Effect;

    /// Does what the arguments ask. The answer has at most [`yonder_wire::PAYLOAD_BYTES_MAX`] bytes. Fails with what
    /// the memory refuses, with [`ErrorCode::OffloadFailed`] if the arguments cannot be read, and with
    /// [`ErrorCode::BadLength`] if they ask for more than a call may do; the answer is void then.
    fn call(&mut self, call: Call<'_>) -> Result<(), ErrorCode>;

    /// Forgets all that it keeps for a space that has ended, before its PID is given to another. Nothing is to be done
    /// where nothing is kept.
    fn space_ended(&mut self, _pid: u32, _memory: &mut dyn OffloadMemory) {}
}

/// Bytes that are not a request or an answer of this release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("these are not bytes that an offload of this release sends or takes: use the same release on both sides")]
pub struct Malformed;

impl From<Malformed> for ErrorCode {
    fn from(_: Malformed) -> Self {
        Self::OffloadFailed
    }
}

/// All shipped offloads. `seed` is random, so that nobody can choose keys that collide.
#[must_use]
pub fn shipped(seed: u64) -> Vec<Box<dyn Offload>> {
    vec![
        Box::new(chase::PointerChase),
        Box::new(kv::KeyValueStore::new(seed, kv::CALLER_BYTES_MAX)),
        Box::new(mv::VersionStore::new(mv::CALLER_BYTES_MAX)),
        Box::new(frame::Select::default()),
        Box::new(frame::Aggregate::default()),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::fake_memory::FakeMemory;

    #[test]
    fn numbers_and_names_differ() {
        let offloads = shipped(1);
        assert_eq!(offloads.iter().map(|offload| offload.number()).collect::<BTreeSet<_>>().len(), offloads.len());
        assert_eq!(offloads.iter().map(|offload| offload.name()).collect::<BTreeSet<_>>().len(), offloads.len());
    }

    /// Arguments that get past the first checks: small numbers in little-endian words, and some noise.
    fn hostile_arguments() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            4 => 0u32..8,
            1 => Just(u32::MAX),
            1 => any::<u32>(),
            1 => (0u32..64).prop_map(|page| page << 12),
        ];
        (prop::collection::vec(word, 0..48), prop::collection::vec(any::<u8>(), 0..9)).prop_map(|(words, tail)| {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend(tail);
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]
        #[test]
        fn hostile_arguments_are_survived(calls in prop::collection::vec(hostile_arguments(), 1..20)) {
            let mut memory = FakeMemory::default();
            memory.caller_allocates(1, 0x1000, 0x4000);
            for mut offload in shipped(7) {
                for arguments in &calls {
                    // What is refused is refused well.
                    let _ = memory.call(&mut *offload, 1, arguments);
                }
                offload.space_ended(1, &mut memory);
            }
        }
    }
}
