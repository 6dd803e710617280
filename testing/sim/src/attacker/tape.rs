//! [`Tape`]: what an attacker makes of messages that are protected. It hears all of them, withholds some, sends from
//! any address, and knows what is inside, with the capabilities; it has no key.
//!
//! It sends noise; what it has heard, again, later, elsewhere and the wrong way round; parts of two messages as one;
//! other prefixes in front of a body; damaged and cut ones; what it has withheld, when the session is over perhaps; and
//! plain messages with rights that are good.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use yonder_session::{HEADER_BYTES, PREFIX_BYTES};
use yonder_wire::{Direction, Kind, split};

use crate::guard::Address;
use crate::network::corrupt;

/// Messages of a kind that are remembered. Those that come later take the place of any.
const TAPED_MAX: usize = 24;

/// A message that was heard.
#[derive(Clone, Debug)]
pub(crate) struct Taped {
    /// As it was sent.
    pub(crate) bytes: Vec<u8>,
    /// What is inside.
    pub(crate) plain: Vec<u8>,
    /// The lane that has sent it, or gets it.
    pub(crate) lane: usize,
    /// Its node.
    pub(crate) node: usize,
    /// The address of the lane.
    pub(crate) address: Address,
    /// The data thread that gets what comes from there.
    pub(crate) thread: usize,
}

/// What was heard.
#[derive(Default, Debug)]
pub(crate) struct Tape {
    requests: Vec<Taped>,
    answers: Vec<Taped>,
    withheld: Vec<Taped>,
    /// What was withheld last: nothing has come of it yet.
    last_withheld: Option<Taped>,
}

/// What is sent with bad intentions.
#[derive(Clone, Debug)]
pub(crate) enum Hostile {
    /// To a node, from an address, which may be that of a lane.
    ToNode {
        /// Which.
        node: usize,
        /// What.
        bytes: Vec<u8>,
        /// From where.
        address: Address,
        /// The lane that has the address, and the data thread that gets what comes from there.
        lane: Option<(usize, usize)>,
    },
    /// To a lane, as if its node had sent it.
    ToLane {
        /// Which.
        lane: usize,
        /// What.
        bytes: Vec<u8>,
    },
}

impl Tape {
    /// A request passes.
    pub(crate) fn request(&mut self, rng: &mut SmallRng, taped: Taped) {
        put(rng, &mut self.requests, taped);
    }

    /// An answer passes.
    pub(crate) fn answer(&mut self, rng: &mut SmallRng, taped: Taped) {
        put(rng, &mut self.answers, taped);
    }

    /// A request does not pass.
    pub(crate) fn withhold(&mut self, rng: &mut SmallRng, taped: Taped) {
        self.last_withheld = Some(taped.clone());
        put(rng, &mut self.withheld, taped);
    }

    /// The next thing that is done with bad intentions, if enough was heard for it; there are so many lanes.
    pub(crate) fn hostile(&self, rng: &mut SmallRng, lanes: usize) -> Option<Hostile> {
        let (request, answer) = (self.requests.choose(rng)?, self.answers.choose(rng)?);
        let (any, other) = if rng.random_bool(0.6) { (request, answer) } else { (answer, request) };
        let any_lane = rng.random_range(0..lanes);
        Some(match rng.random_range(0..15) {
            0 => {
                let noise = (0..rng.random_range(0..200)).map(|_| rng.random()).collect();
                to_node(rng, request, noise)
            }
            1 => either(rng, any, framed_noise),
            2 | 3 => {
                let forgery = plain_forgery(rng, request);
                to_node(rng, request, forgery)
            }
            4 => to_node(rng, request, request.bytes.clone()),
            5 => to_node(rng, answer, answer.bytes.clone()),
            6 => Hostile::ToLane { lane: answer.lane, bytes: answer.bytes.clone() },
            7 => Hostile::ToLane { lane: request.lane, bytes: request.bytes.clone() },
            8 => Hostile::ToLane { lane: any_lane, bytes: any.bytes.clone() },
            9 => Hostile::ToLane { lane: answer.lane, bytes: answer.plain.clone() },
            10 | 11 => {
                let last = self.last_withheld.as_ref().filter(|_| rng.random_bool(0.5));
                let withheld = last.or_else(|| self.withheld.choose(rng))?;
                to_node(rng, withheld, withheld.bytes.clone())
            }
            12 => either(rng, any, |rng, any| spliced(rng, any, other)),
            13 => either(rng, any, with_another_prefix),
            _ => either(rng, any, damaged),
        })
    }
}

fn put(rng: &mut SmallRng, kept: &mut Vec<Taped>, taped: Taped) {
    if kept.len() < TAPED_MAX {
        kept.push(taped);
    } else {
        let place = rng.random_range(0..TAPED_MAX);
        kept[place] = taped;
    }
}

/// To the node of `like`, from the address of its lane or from elsewhere.
fn to_node(rng: &mut SmallRng, like: &Taped, bytes: Vec<u8>) -> Hostile {
    let is_spoofed = rng.random_bool(0.6);
    let address = if is_spoofed { like.address } else { Address::of_stranger(rng.random()) };
    Hostile::ToNode { node: like.node, bytes, address, lane: is_spoofed.then_some((like.lane, like.thread)) }
}

/// To a node or to a lane: what is made of a message.
fn either(rng: &mut SmallRng, like: &Taped, make: impl FnOnce(&mut SmallRng, &Taped) -> Vec<u8>) -> Hostile {
    let bytes = make(rng, like);
    if rng.random_bool(0.6) { to_node(rng, like, bytes) } else { Hostile::ToLane { lane: like.lane, bytes } }
}

/// Noise behind a prefix that is right.
fn framed_noise(rng: &mut SmallRng, like: &Taped) -> Vec<u8> {
    let mut bytes = like.bytes.clone();
    bytes[PREFIX_BYTES..].iter_mut().for_each(|byte| *byte = rng.random());
    bytes
}

/// What was asked, or something worse, in plain and under another name.
fn plain_forgery(rng: &mut SmallRng, like: &Taped) -> Vec<u8> {
    let Ok(Some(message)) = split(&like.plain) else { return like.plain.clone() };
    let mut header = message.header;
    if rng.random_bool(0.2) {
        return like.plain.clone();
    }
    header.request_id = rng.random_range(1..=u64::MAX);
    header.first_id = header.request_id;
    if header.pid != 0 && rng.random_bool(0.3) {
        header.kind = *[Kind::DestroySpace, Kind::Revoke, Kind::Free, Kind::Read, Kind::Status]
            .choose(rng)
            .unwrap_or(&Kind::Status);
    }
    let payload = if header.kind.carries_payload(Direction::Request) { message.payload } else { &[] };
    if header.kind.carries_payload(Direction::Request) {
        header.length = payload.len() as u32;
    }
    [&header.seal(payload)[..], payload].concat()
}

/// A part of one message, and the rest of another.
fn spliced(rng: &mut SmallRng, one: &Taped, other: &Taped) -> Vec<u8> {
    let at = if rng.random_bool(0.7) { PREFIX_BYTES } else { HEADER_BYTES };
    let mut bytes = [&one.bytes[..at], &other.bytes[at..]].concat();
    if rng.random_bool(0.8) {
        // With the length that it has.
        let length = (bytes.len() - HEADER_BYTES - yonder_session::TAG_BYTES) as u32;
        let thread = bytes[3] & 0xfe;
        bytes[1..4].copy_from_slice(&length.to_le_bytes()[..3]);
        bytes[3] |= thread;
    }
    bytes
}

/// The same under another counter, of another lane or session, or protected otherwise.
fn with_another_prefix(rng: &mut SmallRng, like: &Taped) -> Vec<u8> {
    let mut bytes = like.bytes.clone();
    match rng.random_range(0..6) {
        0 => bytes[0] ^= 0x40,
        4 => bytes[0] ^= 0x06,
        5 => bytes[3] ^= rng.random_range(1..128) << 1,
        1 => bytes[12] = bytes[12].wrapping_add(rng.random_range(1..4)),
        2 => bytes[4] = rng.random_range(1..8),
        _ => {
            let at = rng.random_range(4..PREFIX_BYTES);
            bytes[at] = rng.random();
        }
    }
    bytes
}

fn damaged(rng: &mut SmallRng, like: &Taped) -> Vec<u8> {
    let mut bytes = like.bytes.clone();
    corrupt(rng, &mut bytes);
    bytes
}
