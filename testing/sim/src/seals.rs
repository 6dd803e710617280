//! [`Seals`]: every message that was sealed in a run, and what became of it.
//!
//! What both ends take for proven is judged here by what was really sealed: by whom, for whom, under which key and
//! counter. Invariants: no secret is told twice; no two contents share a key and a counter; a node lets in what one of
//! its lanes has sealed, once, from the lane's address and while the session lasts; a lane takes what the node has
//! sealed for it, about something that it has asked.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_64;
use yonder_session::{Frame, SessionNumber, SessionSecret};
use yonder_wire::Direction;

use crate::guard::Address;
use crate::history::Life;

/// What is known of everything that was sealed.
#[derive(Default, Debug)]
pub(crate) struct Seals {
    secrets: HashMap<(Life, SessionNumber), SessionSecret>,
    told: HashSet<[u8; 32]>,
    sealed: HashMap<(Key, u64), Sealed>,
    /// Names of requests, by the lane that has sealed them.
    asked: HashSet<(usize, u64)>,
}

/// A key: of which life of a node, of which lane of a session, and for which direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    life: Life,
    number: SessionNumber,
    is_answer: bool,
}

#[derive(Debug)]
struct Sealed {
    content: u64,
    bytes: u64,
    lane: usize,
    from: Address,
    /// The name of the request that it is, or answers.
    request_id: u64,
    was_let_in: bool,
}

/// A message that is sealed now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealing<'a> {
    /// The node that it is for, or from.
    pub(crate) life: Life,
    /// Whether it asks or answers.
    pub(crate) direction: Direction,
    /// The lane that sends it, or that it answers.
    pub(crate) lane: usize,
    /// The lane's address.
    pub(crate) address: Address,
    /// The name of the request.
    pub(crate) request_id: u64,
    /// What was sealed.
    pub(crate) plain: &'a [u8],
    /// What that has become.
    pub(crate) bytes: &'a [u8],
}

impl Seals {
    /// A node has told a process a secret.
    pub(crate) fn told(&mut self, life: Life, number: SessionNumber, secret: &SessionSecret) -> Result<(), String> {
        self.secrets.insert((life, number), secret.clone());
        match self.told.insert(*secret.as_bytes()) {
            true => Ok(()),
            false => Err(format!("two sessions have one secret: {life:?}, {number:?}")),
        }
    }

    /// The secret of a lane's session.
    pub(crate) fn secret(&self, life: Life, number: SessionNumber) -> Option<&SessionSecret> {
        self.secrets.get(&(life, number.session()))
    }

    /// A message is sealed.
    pub(crate) fn sealed(&mut self, sealing: Sealing<'_>) -> Result<(), String> {
        let Sealing { life, direction, lane, address: from, request_id, plain, bytes } = sealing;
        let frame = Frame::parse(bytes).ok_or("what was sealed is no protected message")?;
        let is_answer = direction == Direction::Answer;
        let key = Key { life, number: frame.number, is_answer };
        if !is_answer {
            self.asked.insert((lane, request_id));
        }
        let (content, bytes) = (xxh3_64(plain), xxh3_64(bytes));
        let sealed = Sealed { content, bytes, lane, from, request_id, was_let_in: false };
        match self.sealed.get(&(key, frame.counter)) {
            Some(before) if before.content != content => {
                Err(format!("two messages share a key and the counter {:#x}: {key:?}", frame.counter))
            }
            Some(_) => Ok(()),
            None => {
                self.sealed.insert((key, frame.counter), sealed);
                Ok(())
            }
        }
    }

    /// A node has let `bytes` in, from an address and for a session that is over or not.
    pub(crate) fn let_in(&mut self, life: Life, bytes: &[u8], from: Address, is_over: bool) -> Result<(), String> {
        let frame = Frame::parse(bytes).ok_or("a plain message was let in")?;
        let key = Key { life, number: frame.number, is_answer: false };
        let sealed = self.sealed.get_mut(&(key, frame.counter)).filter(|sealed| sealed.bytes == xxh3_64(bytes));
        let sealed = sealed.ok_or_else(|| format!("{life:?} has let in what no lane has sealed: {frame:?}"))?;
        if std::mem::replace(&mut sealed.was_let_in, true) {
            return Err(format!("{life:?} has let in twice: {frame:?}"));
        }
        if !sealed.from.has_host_of(from) {
            return Err(format!("{life:?} has let in from another address: {frame:?}"));
        }
        if is_over {
            return Err(format!("{life:?} has let in after the end of its session: {frame:?}"));
        }
        Ok(())
    }

    /// A lane has taken `bytes` for an answer of the node.
    pub(crate) fn taken(&self, life: Life, lane: usize, bytes: &[u8]) -> Result<(), String> {
        let frame = Frame::parse(bytes).ok_or("a lane has taken a plain message")?;
        let key = Key { life, number: frame.number, is_answer: true };
        let sealed = self.sealed.get(&(key, frame.counter)).filter(|sealed| sealed.bytes == xxh3_64(bytes));
        let sealed = sealed.ok_or_else(|| format!("lane {lane} has taken what its node has not sealed: {frame:?}"))?;
        if sealed.lane != lane || !self.asked.contains(&(lane, sealed.request_id)) {
            return Err(format!("lane {lane} has taken what it has not asked for: {frame:?}"));
        }
        Ok(())
    }
}

/// Whether an answer to one that was not let in says no more than why.
pub(crate) fn says_nothing(request: &[u8], answer: &[u8]) -> Result<(), String> {
    let told = yonder_wire::split(answer).ok().flatten().ok_or("a refusal is no message")?;
    if told.header.is_refusal() && told.payload.is_empty() && answer.len() <= request.len() {
        Ok(())
    } else {
        Err(format!("one that was not let in was answered: {:?}", told.header))
    }
}
