//! [`Backlog`]: datagrams that a data thread has received and not executed, when more come than it executes.
//!
//! The kernel keeps what comes in one line for all, and when that is full it drops whatever comes next: a sender with
//! few requests loses them to one with many. So a thread to which several send more than a few at once takes them in
//! here faster than it executes them, drops from those that have most, and executes in [`Rounds`] of the senders.
//!
//! Invariant: it is bounded in bytes, which count for each message too, from however many senders they come.

use std::collections::VecDeque;

use yonder_board::{AccountNumber, Source};
use yonder_datagram::Address;
use yonder_wire::{ErrorCode, Header};

use crate::gate::Wrap;
use crate::owned_message::OwnedMessage;
use crate::rounds::{Rounds, Waiting};

/// Bytes of all that waits, with what each item takes beside its message.
const BYTES_MAX: usize = 8 << 20;
/// Senders that are told from each other; the others are one party.
const PARTIES_MAX: usize = 64;
/// What an item costs beside its bytes, and takes: about as much as so many of these.
pub(crate) const COST_OF_ITEM: usize = 512;
/// What it costs to take a message in, beside a part of its bytes.
const COST_OF_OPENING: usize = 128;
const OPENED_DIVISOR: usize = 4;
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
    Execute(OwnedMessage, Wrap),
    /// To tell its sender why one was not.
    Refuse(Box<Header>, ErrorCode),
}

impl What {
    fn bytes(&self) -> usize {
        match self {
            Self::Execute(message, _) => message.bytes(),
            Self::Refuse(..) => size_of::<Header>(),
        }
    }
}

/// What one party has here, in order.
#[derive(Default, Debug)]
struct Line {
    items: VecDeque<Stored>,
    bytes: usize,
}

impl Line {
    fn push(&mut self, stored: Stored) {
        self.bytes += stored.bytes();
        self.items.push_back(stored);
    }

    /// Takes the last one away.
    fn drop_last(&mut self) -> Option<Stored> {
        let last = self.items.pop_back()?;
        self.bytes -= last.bytes();
        Some(last)
    }
}

impl Waiting for Line {
    type Item = Stored;

    fn pop(&mut self) -> Option<Stored> {
        let next = self.items.pop_front()?;
        self.bytes -= next.bytes();
        Some(next)
    }

    fn len(&self) -> usize {
        self.items.len()
    }

    fn weight(&self) -> usize {
        self.bytes
    }
}

impl Stored {
    fn bytes(&self) -> usize {
        COST_OF_ITEM + self.what.bytes()
    }
}

/// The datagrams of one thread.
#[derive(Debug)]
pub(crate) struct Backlog {
    rounds: Rounds<Source, Line>,
    bytes: usize,
}

impl Backlog {
    pub(crate) fn new() -> Self {
        Self { rounds: Rounds::new(QUANTUM, 2 * PARTIES_MAX), bytes: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rounds.len() == 0
    }

    /// How many have something here.
    pub(crate) fn parties(&self) -> usize {
        self.rounds.waiting_parties()
    }

    /// Forgives debts if there is nothing: the next backlog may begin much later.
    pub(crate) fn forgive(&mut self) {
        if self.is_empty() {
            self.rounds.forgive();
        }
    }

    /// Puts something of `source` behind what it has here. While there is no room, what came last goes of the party
    /// that takes most: `lost` is told whose accounts those are.
    pub(crate) fn put(&mut self, source: Source, stored: Stored, mut lost: impl FnMut(AccountNumber)) {
        let known = self.rounds.len_of(source) > 0 || self.rounds.waiting_parties() < PARTIES_MAX;
        let source = if known { source } else { OTHERS };
        while self.bytes + stored.bytes() > BYTES_MAX {
            let heaviest = self.rounds.heaviest().expect("what is full has something");
            if self.rounds.weight_of(source) >= self.rounds.weight_of(heaviest) {
                return lost(stored.account);
            }
            let last = self.rounds.change(heaviest, Line::drop_last).expect("the heaviest has something");
            self.bytes -= last.bytes();
            lost(last.account);
        }
        self.bytes += stored.bytes();
        let opened = COST_OF_OPENING + stored.what.bytes() / OPENED_DIVISOR;
        self.rounds.change(source, |line| line.push(stored));
        self.rounds.charge(source, opened as u64);
    }

    /// The next one, and whose it is.
    pub(crate) fn next(&mut self) -> Option<(Source, Stored)> {
        let (source, stored) = self.rounds.next()?;
        self.bytes -= stored.bytes();
        Some((source, stored))
    }

    /// What was taken out has cost as much as so many bytes that come and go.
    pub(crate) fn charge(&mut self, source: Source, bytes: usize) {
        self.rounds.charge(source, (COST_OF_ITEM + bytes) as u64);
    }
}

#[cfg(test)]
mod tests {
    use yonder_units::Narrow;
    use yonder_wire::{HEADER_BYTES, Kind, split};

    use super::*;

    /// An item whose message has so many bytes.
    fn stored(bytes: usize) -> Stored {
        let payload = vec![0; bytes - HEADER_BYTES];
        let header = Header::request(Kind::Write, 1, 0, payload.len().narrow_u32()).seal(&payload);
        let whole = [&header[..], &payload].concat();
        let what = What::Execute(OwnedMessage::new(&split(&whole).unwrap().unwrap()), Wrap::Plain);
        Stored { from: Address::NONE, account: AccountNumber::SHARED, what }
    }

    /// How many were lost by putting so many.
    fn put(backlog: &mut Backlog, source: u64, bytes: usize, count: usize) -> usize {
        let mut lost = 0;
        (0..count).for_each(|_| backlog.put(Source(source), stored(bytes), |_| lost += 1));
        assert!(backlog.bytes <= BYTES_MAX);
        lost
    }

    #[test]
    fn a_flood_drops_its_own_and_leaves_room() {
        let mut backlog = Backlog::new();
        let most = BYTES_MAX / (100 + COST_OF_ITEM);
        assert_eq!(put(&mut backlog, 1, 100, 3 * most), 2 * most);
        assert_eq!(put(&mut backlog, 2, 100, 100), 100, "one of the flood goes for each");
        let mut of_victim = 0;
        for _ in 0..250 {
            let (source, _) = backlog.next().unwrap();
            backlog.charge(source, 100);
            of_victim += usize::from(source == Source(2));
        }
        assert_eq!(of_victim, 100, "it waits for the flood");
    }

    /// Few long messages take more than many short ones.
    #[test]
    fn who_takes_most_loses_and_bytes_are_bounded() {
        let mut backlog = Backlog::new();
        assert_eq!(put(&mut backlog, 1, 80, 400), 0);
        assert!(put(&mut backlog, 2, 64 << 10, 2000) > 1000);
        assert_eq!(backlog.rounds.len_of(Source(1)), 400, "long messages push short ones out");
        for source in 3..1000 {
            put(&mut backlog, source, 64 << 10, 1);
            assert!(backlog.rounds.waiting_parties() <= PARTIES_MAX + 1);
        }
        while backlog.next().is_some() {}
        assert_eq!(backlog.bytes, 0);
        assert!(backlog.is_empty());
    }
}
