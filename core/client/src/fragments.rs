//! [`Fragments`]: the requests that are under way, by their names (T1, T4).
//!
//! A request id is `first_request_id + (serial << slot_bits | slot)`: an answer finds its slot in one step. A slot's
//! serial grows with each attempt and never falls, so an answer to an attempt for an earlier use of the slot is known
//! by its serial, and the attempts of one use differ by little, as the header wants it.
//!
//! ```text
//!   free -> Flight --no answer, or a corrupted request--> Again -> Flight ...      any of them -> free
//!              \----the node is busy--> Paused --later--> Again
//! ```
//!
//! A request that claims a time far ahead of the node's clock is given up at the node and then sent as another one,
//! with a name and a time of its own ([`Fragments::renew`]). No request ever claims two times.
//!
//! Invariant: a fragment is in the one list that its `place` names.

use yonder_units::{Nanos, Narrow};

use crate::list::List;

/// Where a fragment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Nowhere: the slot is free.
    Free,
    /// Sent and unanswered.
    Flight,
    /// To be sent again now.
    Again,
    /// To be sent again at its `due` time.
    Paused,
}

/// Whose fragment it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The lane's own question for the node's clock.
    Ping,
    /// The operation with this index.
    Operation(u32),
}

/// One slot.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) owner: Owner,
    place: Place,
    /// Serials of the first and the last attempt of this use of the slot, of which the last may be about to be sent.
    first_serial: u64,
    last_serial: u64,
    /// Serial of the first attempt that is an abort.
    abort_serial: Option<u64>,
    /// The abort is there to ask for the same under another name.
    renews: bool,
    /// Offset of its bytes in the operation's.
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) length: u32,
    /// Bytes of the answer that it takes from the incast window.
    pub(crate) expects: u64,
    /// On the node's clock, not later than when the first attempt was sent.
    pub(crate) time: u64,
    pub(crate) sent: Nanos,
    /// When an answer is asked for again, or a pause ends.
    due: Nanos,
    /// Attempts that went unanswered.
    pub(crate) failed: u32,
    /// Attempts that were refused for a reason that may pass.
    pub(crate) refusals: u32,
}

impl Fragment {
    /// The serial of the next attempt. After so many that the header cannot tell the distance to the first, the last
    /// one is used again: the node treats both alike, and only the round trip can no longer be told from the answer.
    fn next_serial(&self, slot_bits: u32) -> u64 {
        (self.last_serial + 1).min(self.first_serial + u64::from(u32::MAX >> slot_bits))
    }
}

/// What a request is called, and what its answer must look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attempt {
    pub(crate) request_id: u64,
    pub(crate) first_id: u64,
    pub(crate) purpose: Purpose,
}

/// What an attempt asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The operation.
    Operate,
    /// That it be given up.
    Abort,
}

/// The attempt that an answer belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Match {
    pub(crate) slot: u32,
    pub(crate) purpose: Purpose,
    /// Whether the answer is to the last attempt, and that is still waited for.
    pub(crate) is_latest: bool,
}

/// The slots of a lane: one for each fragment under way, and one for the lane's ping.
#[derive(Debug)]
pub(crate) struct Fragments {
    slots: Vec<Fragment>,
    free: Vec<u32>,
    flight: List,
    again: List,
    paused: List,
    ping_slot: u32,
    first_request_id: u64,
    slot_bits: u32,
    /// Expected bytes of all fragments under way.
    expected: u64,
}

impl Fragments {
    pub(crate) fn new(fragments_max: usize, first_request_id: u64) -> Self {
        let ping_slot = u32::try_from(fragments_max).expect("at most 2^32 fragments");
        let vacant = Fragment {
            owner: Owner::Ping,
            place: Place::Free,
            first_serial: 0,
            last_serial: 0,
            abort_serial: None,
            renews: false,
            offset: 0,
            address: 0,
            length: 0,
            expects: 0,
            time: 0,
            sent: 0,
            due: Nanos::MAX,
            failed: 0,
            refusals: 0,
        };
        Self {
            slots: vec![vacant; fragments_max + 1],
            free: (0..ping_slot).rev().collect(),
            flight: List::new(fragments_max + 1),
            again: List::new(fragments_max + 1),
            paused: List::new(fragments_max + 1),
            ping_slot,
            first_request_id,
            slot_bits: ping_slot.ilog2() + 1,
            expected: 0,
        }
    }

    pub(crate) fn slot(&self, slot: u32) -> &Fragment {
        &self.slots[slot as usize]
    }

    pub(crate) fn slot_mut(&mut self, slot: u32) -> &mut Fragment {
        &mut self.slots[slot as usize]
    }

    pub(crate) fn place(&self, slot: u32) -> Place {
        self.slot(slot).place
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flight.len()
    }

    pub(crate) fn again(&self) -> &List {
        &self.again
    }

    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Whether nothing waits for a time.
    pub(crate) fn is_quiet(&self) -> bool {
        self.flight.is_empty() && self.paused.is_empty()
    }

    /// Whether the lane's ping is under way.
    pub(crate) fn is_pinging(&self) -> bool {
        self.place(self.ping_slot) != Place::Free
    }

    /// A slot for a fragment that is about to be sent first; `None` if all are in use.
    #[inline]
    pub(crate) fn claim(&mut self, operation: u32, expects: u64) -> Option<u32> {
        let slot = self.free.pop()?;
        self.begin(slot, Owner::Operation(operation), expects);
        Some(slot)
    }

    /// The slot of the lane's ping, which is not under way. The node's clock is thought to be past `time`.
    pub(crate) fn claim_ping(&mut self, time: u64) -> u32 {
        self.begin(self.ping_slot, Owner::Ping, 0);
        self.slot_mut(self.ping_slot).time = time;
        self.ping_slot
    }

    #[inline]
    fn begin(&mut self, slot: u32, owner: Owner, expects: u64) {
        self.again.push_back(slot);
        self.expected += expects;
        let fragment = self.slot_mut(slot);
        debug_assert_eq!(fragment.place, Place::Free);
        (fragment.owner, fragment.place, fragment.expects) = (owner, Place::Again, expects);
        fragment.first_serial = fragment.last_serial + 1;
        (fragment.abort_serial, fragment.renews) = (None, false);
        (fragment.failed, fragment.refusals) = (0, 0);
    }

    /// Names the next attempt, which is in flight from now on and whose answer is due at `due`.
    #[inline]
    pub(crate) fn launch(&mut self, slot: u32, now: Nanos, due: Nanos) -> Attempt {
        self.again.remove(slot);
        self.flight.push_back(slot);
        let first_request_id = self.first_request_id;
        let slot_bits = self.slot_bits;
        let fragment = self.slot_mut(slot);
        fragment.last_serial = fragment.next_serial(slot_bits);
        (fragment.place, fragment.sent, fragment.due) = (Place::Flight, now, due);
        let name = |serial: u64| first_request_id + (serial << slot_bits | u64::from(slot));
        let purpose = if fragment.abort_serial.is_some() { Purpose::Abort } else { Purpose::Operate };
        Attempt { request_id: name(fragment.last_serial), first_id: name(fragment.first_serial), purpose }
    }

    /// The fragment under way that `request_id` is an attempt of.
    #[inline]
    pub(crate) fn find(&self, request_id: u64) -> Option<Match> {
        let name = request_id.checked_sub(self.first_request_id)?;
        let (slot, serial) = ((name & ((1 << self.slot_bits) - 1)).narrow_u32(), name >> self.slot_bits);
        let fragment = self.slots.get(slot as usize).filter(|fragment| fragment.place != Place::Free)?;
        if serial < fragment.first_serial || serial > fragment.last_serial {
            return None;
        }
        let is_abort = fragment.abort_serial.is_some_and(|abort| serial >= abort);
        let purpose = if is_abort { Purpose::Abort } else { Purpose::Operate };
        let is_latest = serial == fragment.last_serial && fragment.place == Place::Flight;
        Some(Match { slot, purpose, is_latest })
    }

    /// Takes a fragment out of the list it is in.
    #[inline]
    fn unlink(&mut self, slot: u32) {
        match self.place(slot) {
            Place::Flight => self.flight.remove(slot),
            Place::Again => self.again.remove(slot),
            Place::Paused => self.paused.remove(slot),
            Place::Free => unreachable!("the slot is not in use"),
        }
    }

    /// Frees a slot: answers to its attempts are late from now on.
    #[inline]
    pub(crate) fn release(&mut self, slot: u32) {
        self.unlink(slot);
        self.expected -= self.slot(slot).expects;
        self.slot_mut(slot).place = Place::Free;
        if slot != self.ping_slot {
            self.free.push(slot);
        }
    }

    /// The fragment is to be sent again at once.
    pub(crate) fn repeat(&mut self, slot: u32) {
        self.unlink(slot);
        self.slot_mut(slot).place = Place::Again;
        self.again.push_back(slot);
    }

    /// The fragment is to be sent again at `due`.
    pub(crate) fn pause(&mut self, slot: u32, due: Nanos) {
        self.unlink(slot);
        self.paused.push_back(slot);
        let fragment = self.slot_mut(slot);
        (fragment.place, fragment.due) = (Place::Paused, due);
    }

    /// From now on the node is asked to give the request up.
    pub(crate) fn abort(&mut self, slot: u32) {
        self.expected -= self.slot(slot).expects;
        let fragment = self.slot_mut(slot);
        (fragment.expects, fragment.renews) = (0, false);
        if fragment.abort_serial.is_none() {
            self.begin_abort(slot);
        }
    }

    /// The node is asked to give the request up, so that [`Fragments::renew`] can ask for the same under another name.
    pub(crate) fn abort_to_renew(&mut self, slot: u32) {
        self.begin_abort(slot);
        self.slot_mut(slot).renews = true;
    }

    fn begin_abort(&mut self, slot: u32) {
        self.repeat(slot);
        let slot_bits = self.slot_bits;
        let fragment = self.slot_mut(slot);
        fragment.abort_serial = Some(fragment.next_serial(slot_bits));
        (fragment.failed, fragment.refusals) = (0, 0);
    }

    /// Whether the fragment's abort is there to ask for the same under another name.
    pub(crate) fn renews(&self, slot: u32) -> bool {
        self.slot(slot).renews
    }

    /// The node has given the request up: the same is asked for by a request with a new name, which claims `time`.
    ///
    /// # Panics
    /// If it was not given up for that: the node could execute both.
    pub(crate) fn renew(&mut self, slot: u32, time: u64) {
        self.repeat(slot);
        let fragment = self.slot_mut(slot);
        assert!(fragment.renews && fragment.abort_serial.is_some(), "a request is asked for again that is not over");
        fragment.first_serial = fragment.last_serial + 1;
        (fragment.abort_serial, fragment.renews, fragment.time) = (None, false, time);
        (fragment.failed, fragment.refusals) = (0, 0);
    }

    /// The request was executed before it was given up: it is asked for again by its name, for the answer.
    pub(crate) fn resume(&mut self, slot: u32) {
        self.repeat(slot);
        let fragment = self.slot_mut(slot);
        (fragment.abort_serial, fragment.renews) = (None, false);
    }

    /// Everything in flight is to be sent again, in the order in which it was sent.
    pub(crate) fn repeat_all(&mut self) {
        while let Some(slot) = self.flight.first() {
            self.repeat(slot);
        }
    }

    pub(crate) fn release_all(&mut self) {
        let first = |table: &Self| table.flight.first().or(table.again.first()).or(table.paused.first());
        while let Some(slot) = first(self) {
            self.release(slot);
        }
    }

    /// Calls `each` for the `count` slots of the operation.
    pub(crate) fn for_each_of(&mut self, operation: u32, count: u32, mut each: impl FnMut(&mut Self, u32)) {
        let (mut rest, mut slot) = (count, 0);
        while rest > 0 {
            let fragment = self.slot(slot);
            if fragment.place != Place::Free && fragment.owner == Owner::Operation(operation) {
                each(self, slot);
                rest -= 1;
            }
            slot += 1;
        }
    }

    /// Calls `each` for every fragment in flight whose answer is overdue, and returns when the next one will be.
    pub(crate) fn for_each_overdue(&mut self, now: Nanos, each: impl FnMut(&mut Self, u32)) -> Nanos {
        self.for_each_due(|table| &table.flight, now, each)
    }

    /// Calls `each` for every fragment whose pause has ended, and returns when the next one will.
    pub(crate) fn for_each_rested(&mut self, now: Nanos, each: impl FnMut(&mut Self, u32)) -> Nanos {
        self.for_each_due(|table| &table.paused, now, each)
    }

    /// `each` takes the fragment out of the list, and no other.
    fn for_each_due(&mut self, list: fn(&Self) -> &List, now: Nanos, mut each: impl FnMut(&mut Self, u32)) -> Nanos {
        let mut earliest = Nanos::MAX;
        let mut next = list(self).first();
        while let Some(slot) = next {
            next = list(self).after(slot);
            match self.slot(slot).due {
                due if due <= now => each(self, slot),
                due => earliest = earliest.min(due),
            }
        }
        earliest
    }
}
