//! What somebody sends who sees plain requests pass, and has no right to anything: noise, requests of others with
//! another address space or capability, copies cut short, and requests of every kind with rights that nobody gave. What
//! is made of protected ones is `tape`'s.
//!
//! None of it may change anything: the oracle knows every right that was given. Names are drawn anew, because whoever
//! knows the names of requests under way also knows the capabilities beside them.

mod tape;

use std::collections::VecDeque;

use rand::Rng;
use rand::rngs::SmallRng;
use yonder_wire::{Direction, Header, Kind, Message, split};

use crate::network::corrupt;
pub(crate) use tape::{Hostile, Tape, Taped};

/// Requests that are remembered.
const SAMPLES_MAX: usize = 8;
/// What is asked for without right. Not [`Kind::CreateSpace`], which needs none.
const KINDS: [Kind; 14] = [
    Kind::Hello,
    Kind::Ping,
    Kind::Read,
    Kind::Write,
    Kind::Atomic,
    Kind::Abort,
    Kind::DestroySpace,
    Kind::Allocate,
    Kind::Free,
    Kind::Discard,
    Kind::Grant,
    Kind::Revoke,
    Kind::Call,
    Kind::Status,
];

/// Somebody with bad intentions.
#[derive(Default, Debug)]
pub(crate) struct Attacker {
    samples: VecDeque<Vec<u8>>,
}

impl Attacker {
    /// A request passes. One that the network has damaged is of no use: to damage it once more may mend it, and then it
    /// is what was sent, with its capability.
    pub(crate) fn overhear(&mut self, bytes: &[u8]) {
        let is_whole = |message: Message<'_>| message.bytes() == bytes.len() && message.verify().is_ok();
        if !split(bytes).ok().flatten().is_some_and(is_whole) {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(bytes.to_vec());
    }

    /// The next hostile datagram.
    pub(crate) fn datagram(&self, rng: &mut SmallRng) -> Vec<u8> {
        let noise = |rng: &mut SmallRng| (0..rng.random_range(0..200)).map(|_| rng.random()).collect();
        if self.samples.is_empty() || rng.random_bool(0.1) {
            return noise(rng);
        }
        let mut bytes = self.samples[rng.random_range(0..self.samples.len())].clone();
        if rng.random_bool(0.2) {
            // What is sent again as it was, from elsewhere, comes from somebody who has seen its capability.
            let before = bytes.clone();
            corrupt(rng, &mut bytes);
            return if bytes == before { noise(rng) } else { bytes };
        }
        let Ok(Some(message)) = split(&bytes) else { return bytes };
        let mut header = message.header;
        header.request_id = rng.random_range(1..=u64::MAX);
        header.first_id = header.request_id;
        header.capability = rng.random();
        if rng.random_bool(0.5) {
            header.kind = KINDS[rng.random_range(0..KINDS.len())];
        } else if header.kind == Kind::CreateSpace {
            header.kind = Kind::Status;
        }
        match rng.random_range(0..6) {
            0 => header.pid = rng.random(),
            1 => header.address = rng.random(),
            2 => header.time = rng.random(),
            3 => header.direction = Direction::Answer,
            4 => header.fragment_offset = rng.random_range(0..3),
            _ => {}
        }
        sealed(rng, header)
    }
}

/// The header with a payload of its own length, or of one that fits a datagram.
fn sealed(rng: &mut SmallRng, mut header: Header) -> Vec<u8> {
    if header.kind.carries_payload(header.direction) {
        header.length = rng.random_range(0..200);
    } else if rng.random_bool(0.2) {
        header.length = rng.random();
    }
    let payload: Vec<u8> = (0..header.payload_bytes()).map(|_| rng.random()).collect();
    [&header.seal(&payload)[..], &payload].concat()
}
