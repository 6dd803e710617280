//! What an answer does: [`Client::receive`].
//!
//! Any answer to any attempt of what is under way counts, also a late one to an attempt that was given up for another:
//! the node executes the first that arrives and answers all alike. An answer to anything else is dropped.
//!
//! An answer that was made at an earlier time than its request claims shows that this side took the node's clock for
//! later than it is (`clock`). A request that was refused for that keeps its claim, for copies of it that make the
//! claim may still arrive and would not be recognised beside one that makes another. It waits for its time if that is
//! near; else it is given up, and once the node has said that no copy of it will ever be executed, the same is asked
//! for under a new name.

use yonder_units::Nanos;
use yonder_wire::{Direction, ErrorCode, Header, Kind, Message};

use crate::client::Client;
use crate::fragments::{Match, Owner, Purpose};
use crate::operation::Outcome;
use crate::operations::Phase;

/// How often a request that arrives corrupted is sent again at once. After that it is sent again as if the node were
/// busy.
const CORRUPT_REPEATS_MAX: u32 = 8;
/// A request whose time is ahead of the node's clock by at most so many round trips waits for it: it takes as many to
/// give the request up and to ask again.
const AHEAD_WAIT_ROUND_TRIPS: Nanos = 2;
/// It waits for at least, and at most, so long. The round trip may have been measured across a pause of the node.
const AHEAD_WAIT: (Nanos, Nanos) = (1_000_000, 20_000_000);

/// What the owner is to do with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// The payload is data of a read: copy it to this offset of the operation's buffer, before the next call.
    Data {
        /// The owner's name for the operation.
        token: u64,
        /// Of the first byte of the payload in the operation's data.
        offset: u64,
    },
    /// The message answers an operation that is neither read, write nor atomic: keep what is needed of header and
    /// payload. Its completion follows.
    Answer {
        /// The owner's name for the operation.
        token: u64,
    },
    /// Nothing.
    Nothing,
}

impl Client {
    /// Takes a message from the node whose checksum has been verified.
    #[inline]
    pub fn receive(&mut self, message: &Message<'_>, now: Nanos) -> Received {
        let header = &message.header;
        self.stats.received_bytes += message.bytes() as u64;
        let Some(found) = self.fragments.find(header.request_id) else {
            self.stats.late += 1;
            return Received::Nothing;
        };
        if !self.fits(found, message) {
            self.stats.unfit += 1;
            return Received::Nothing;
        }
        self.heard += 1;
        self.cookie = header.cookie;
        self.clock.hear(header.time, now);
        if header.time < self.fragments.slot(found.slot).time {
            self.clock.fall_back(now);
        }
        if found.is_latest && header.kind.is_fast() {
            self.measure(found.slot, now);
        }
        match header.code {
            ErrorCode::Corrupt | ErrorCode::Busy | ErrorCode::Unproven => {
                self.put_off(found, header, now);
                Received::Nothing
            }
            _ if found.purpose == Purpose::Abort && !header.is_refusal() && self.is_wanted_still(found.slot) => {
                self.ask_anew(found.slot, header, now);
                Received::Nothing
            }
            _ => self.finish_fragment(found, header),
        }
    }

    /// Whether the message answers what was asked.
    #[inline]
    fn fits(&self, found: Match, message: &Message<'_>) -> bool {
        let header = &message.header;
        let fragment = self.fragments.slot(found.slot);
        let asked = match (fragment.owner, found.purpose) {
            (Owner::Ping, _) => Some(Kind::Ping),
            (_, Purpose::Abort) => Some(Kind::Abort),
            (Owner::Operation(index), Purpose::Operate) => self.operations.entry(index).kind,
        };
        let is_whole =
            header.kind != Kind::Read || header.is_refusal() || message.payload.len() == fragment.length as usize;
        header.direction == Direction::Answer && asked == Some(header.kind) && is_whole
    }

    /// Learns from the time that the last attempt took.
    #[inline]
    fn measure(&mut self, slot: u32, now: Nanos) {
        let rtt = now.saturating_sub(self.fragments.slot(slot).sent);
        self.round_trip.sample(rtt);
        self.window.on_answer(rtt, self.fragments.in_flight(), self.round_trip.expected(), now);
    }

    /// Nothing was done, for a reason that may pass.
    fn put_off(&mut self, found: Match, header: &Header, now: Nanos) {
        let is_busy = header.code == ErrorCode::Busy;
        self.stats.busy += u64::from(is_busy);
        self.stats.nacks += u64::from(!is_busy);
        if !found.is_latest {
            // The attempt that followed decides.
            return;
        }
        let fragment = self.fragments.slot_mut(found.slot);
        fragment.refusals = fragment.refusals.saturating_add(1);
        let refusals = fragment.refusals;
        let ahead = fragment.time.saturating_sub(header.time);
        if is_busy && ahead > 0 && found.purpose == Purpose::Operate && header.kind.is_exactly_once() {
            return self.put_off_early(found.slot, ahead, now);
        }
        if !is_busy && refusals <= CORRUPT_REPEATS_MAX {
            self.fragments.repeat(found.slot);
            return;
        }
        let due = now.saturating_add(self.round_trip.back_off(refusals));
        self.fragments.pause(found.slot, due);
        self.fragment_due = self.fragment_due.min(due);
    }

    /// The request claims a time that is `ahead` of the node's clock.
    fn put_off_early(&mut self, slot: u32, ahead: Nanos, now: Nanos) {
        let wait_max = AHEAD_WAIT_ROUND_TRIPS.saturating_mul(self.round_trip.expected());
        if ahead > wait_max.clamp(AHEAD_WAIT.0, AHEAD_WAIT.1) {
            self.stats.renewed += 1;
            return self.fragments.abort_to_renew(slot);
        }
        let due = now.saturating_add(ahead);
        self.fragments.pause(slot, due);
        self.fragment_due = self.fragment_due.min(due);
    }

    /// Whether the fragment was given up to be asked for under another name, and its operation is still to be done.
    fn is_wanted_still(&self, slot: u32) -> bool {
        let Owner::Operation(index) = self.fragments.slot(slot).owner else { return false };
        let entry = self.operations.entry(index);
        self.fragments.renews(slot) && entry.is_awaited() && !matches!(entry.result, Outcome::Refused(_))
    }

    /// The node has answered the abort of a request that is wanted.
    fn ask_anew(&mut self, slot: u32, header: &Header, now: Nanos) {
        let was_executed = header.length != 0;
        match self.clock.bound(now) {
            Some(time) if !was_executed => self.fragments.renew(slot, time),
            _ => self.fragments.resume(slot),
        }
    }

    /// The fragment is over.
    #[inline]
    fn finish_fragment(&mut self, found: Match, header: &Header) -> Received {
        let fragment = self.fragments.slot(found.slot);
        let (owner, offset) = (fragment.owner, fragment.offset);
        self.fragments.release(found.slot);
        let Owner::Operation(index) = owner else { return Received::Nothing };
        let entry = self.operations.entry_mut(index);
        entry.fragments -= 1;
        let token = entry.token;
        let mut received = Received::Nothing;
        if entry.phase == Phase::GivingUp {
            // Executed, refused or aborted: it will not be executed any more.
        } else if header.is_refusal() {
            self.refuse(index, header.code);
        } else {
            match header.kind {
                // It was to be asked for under another name, and another part was refused since: nothing came of it.
                Kind::Abort => {}
                Kind::Read => received = Received::Data { token, offset },
                Kind::Atomic => entry.result = Outcome::Old(header.address),
                Kind::Write => {}
                _ => received = Received::Answer { token },
            }
        }
        self.end_if_answered(index);
        received
    }

    /// A fragment was refused for good: nothing more of the operation is sent, and what is under way of a write is
    /// waited for, so that its outcome is certain when it completes.
    fn refuse(&mut self, index: u32, code: ErrorCode) {
        self.operations.stop_cutting(index, Phase::Sent);
        let entry = self.operations.entry_mut(index);
        entry.result = Outcome::Refused(code);
        if !entry.is_exactly_once() {
            self.forget_fragments(index);
        }
    }

    /// Ends the operation if all of it has been cut and nothing of it is under way.
    #[inline]
    pub(crate) fn end_if_answered(&mut self, index: u32) {
        let entry = self.operations.entry(index);
        if entry.fragments == 0 && matches!(entry.phase, Phase::Sent | Phase::GivingUp) {
            self.operations.end(index);
        }
    }
}
