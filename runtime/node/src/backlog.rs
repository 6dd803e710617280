//! [`Backlog`]: datagrams that a data thread has received and not executed, when more come than it executes.
//!
//! The kernel keeps what comes in one line for all, and when that is full it drops whatever comes next: a sender with
//! few requests loses them to one with many. So a thread that has full batches from several senders takes them in here
//! faster than it executes them, drops from those that have most, and executes in [`Rounds`] of the senders.
//!
//! Invariant: it is bounded in messages and in bytes, whoever sends them.

use std::collections::VecDeque;

use yonder_board::{AccountNumber, Source};
use yonder_datagram::Address;
use yonder_wire::{ErrorCode, Header, Message, WireError, split, split_proven};

use crate::gate::Wrap;
use crate::rounds::Rounds;

/// Messages that wait, and their bytes.
const MESSAGES_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;
/// Senders that are told from each other; the others are one party.
const PARTIES_MAX: usize = 64;
/// What an item costs beside its bytes: about as much as so many of these.
pub(crate) const COST_OF_ITEM: usize = 512;
/// Cost that a party gets in each round.
const QUANTUM: u32 = 16 << 10;

/// Those who are not told from each other. No network has such an address.
const OTHERS: Source = Source(u64::MAX);

/// Something that waits.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) from: Address,
    pub(crate) account: AccountNumber,
    pub(crate) what: What,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum What {
    /// To execute a message that was let in.
    Execute { bytes: Box<[u8]>, wrap: Wrap },
    /// To tell its sender why one was not.
    Refuse(Box<Header>, ErrorCode),
}

impl What {
    /// A copy of a message that was let in.
    pub(crate) fn execute(message: &Message<'_>, wrap: Wrap) -> Self {
        Self::Execute { bytes: message.as_bytes().into(), wrap }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Execute { bytes, .. } => bytes.len(),
            Self::Refuse(..) => size_of::<Header>(),
        }
    }
}

/// The message in the bytes that [`What::execute`] has kept.
pub(crate) fn message_in(bytes: &[u8], wrap: Wrap) -> Message<'_> {
    let split: fn(&[u8]) -> Result<Option<Message<'_>>, WireError> = match wrap {
        Wrap::Plain => split,
        Wrap::Protected { .. } => split_proven,
    };
    split(bytes).ok().flatten().expect("a whole message was put here")
}

/// The datagrams of one thread.
#[derive(Debug)]
pub(crate) struct Backlog {
    rounds: Rounds<Source, VecDeque<Stored>>,
    bytes: usize,
}

impl Backlog {
    pub(crate) fn new() -> Self {
        Self { rounds: Rounds::new(QUANTUM, 2 * PARTIES_MAX), bytes: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rounds.len() == 0
    }

    /// Puts something of `source` behind what it has here. If there is no room, what came last goes of the party that
    /// has most: whose account that is.
    pub(crate) fn put(&mut self, source: Source, stored: Stored) -> Option<AccountNumber> {
        let known = self.rounds.len_of(source) > 0 || self.rounds.parties() < PARTIES_MAX;
        let source = if known { source } else { OTHERS };
        let mut dropped = None;
        if self.rounds.len() >= MESSAGES_MAX || self.bytes + stored.what.bytes() > BYTES_MAX {
            let longest = self.rounds.longest()?;
            if self.rounds.len_of(source) >= self.rounds.len_of(longest) {
                return Some(stored.account);
            }
            let last = self.rounds.change(longest, VecDeque::pop_back)?;
            self.bytes -= last.what.bytes();
            dropped = Some(last.account);
        }
        self.bytes += stored.what.bytes();
        self.rounds.change(source, |waiting| waiting.push_back(stored));
        dropped
    }

    /// The next one, and whose it is.
    pub(crate) fn next(&mut self) -> Option<(Source, Stored)> {
        let (source, stored) = self.rounds.next()?;
        self.bytes -= stored.what.bytes();
        Some((source, stored))
    }

    /// What was taken out has cost as much as so many bytes that come and go.
    pub(crate) fn charge(&mut self, source: Source, bytes: usize) {
        self.rounds.charge(source, (COST_OF_ITEM + bytes) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(bytes: usize) -> Stored {
        let what = What::Execute { bytes: vec![0; bytes].into(), wrap: Wrap::Plain };
        Stored { from: Address::NONE, account: AccountNumber::SHARED, what }
    }

    #[test]
    fn a_flood_drops_its_own_and_leaves_room() {
        let mut backlog = Backlog::new();
        let dropped = (0..3 * MESSAGES_MAX).filter(|_| backlog.put(Source(1), stored(100)).is_some()).count();
        assert_eq!(dropped, 2 * MESSAGES_MAX);
        for _ in 0..100 {
            assert!(backlog.put(Source(2), stored(100)).is_some(), "one of the flood goes for it");
        }
        let mut of_victim = 0;
        for _ in 0..250 {
            let (source, _) = backlog.next().unwrap();
            backlog.charge(source, 100);
            of_victim += usize::from(source == Source(2));
        }
        assert_eq!(of_victim, 100, "it waits for the flood");
    }

    #[test]
    fn bytes_are_bounded_and_all_come_out() {
        let mut backlog = Backlog::new();
        for source in 0..1000 {
            backlog.put(Source(source % 200), stored(64 << 10));
            assert!(backlog.bytes <= BYTES_MAX && backlog.rounds.parties() <= PARTIES_MAX + 1);
        }
        let taken = std::iter::from_fn(|| backlog.next()).count();
        assert_eq!((taken, backlog.bytes), (BYTES_MAX >> 16, 0));
        assert!(backlog.is_empty());
    }
}
