//! [`ReplayWindows`]: what a node remembers of counters, so that no message is accepted twice.
//!
//! The table is bounded and forgets the lanes that were least recently seen. A lane in the table has a *window*: the
//! highest sequence that was accepted, and which of the [`WINDOW_MESSAGES`] up to it were (RFC 6479). A lane that is
//! not in the table must carry a time that is later than every time that its set has forgotten, the *floor* of the set.
//! Either way a time ahead of the node's clock is refused. A refused message is dropped; its client sends it again with
//! a new counter.
//!
//! The invariant is that no pair of lane and counter is accepted twice. Let T be the time in a counter that was
//! accepted. While the lane's window stays, the window refuses the counter. When the window goes, the floor becomes at
//! least T, and it never sinks. A window that the lane gets afterwards remembers the floor as it was then, and refuses
//! every time that is not later, so also the sequences that it has no bits for. Times are compared in whole units and
//! the later one must be greater, so nothing passes within one unit either. This needs neither clients that are honest
//! nor clocks that are right: a client may claim any time, in any order.
//!
//! Times from the future are refused for the sake of the other lanes of the set, those of known lanes too: else one
//! lane could raise the floor to a far time, and its set would accept no new lane until then. So a floor is at most
//! [`AHEAD_UNITS_MAX`] later than the node's clock. A lane that comes back is accepted at once if it claims a later
//! time than the last messages of the lanes that were forgotten, which is so unless they have just been heard.
//!
//! The time in a counter is modular, so the node takes it for the one that is nearest before its own, within
//! [`AGE_UNITS_MAX`]. A message is taken for another time only 78 hours later, when its session has ended.
//!
//! All messages of a lane must be judged by one table. Two tables would each accept a message once, and an attacker
//! that has recorded a greeting chooses the port that it is sent from, and with the port the thread that gets it. Where
//! more than one thread may get messages of a lane, the threads share tables, each behind a lock of its own and chosen
//! by the lane.
//!
//! A table has one owner and allocates nothing after it was made. The set of a lane is chosen by a hash under a key of
//! the node, so a tenant cannot aim its lanes at a set. One with thousands of lanes would have others forgotten all the
//! time, so a node bounds the sessions of a tenant.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use yonder_units::Narrow;

use crate::counter::{TIME_BITS, parts, units};
use crate::number::{SESSION_HOURS_MAX, SessionNumber};
use crate::secret::NodeSecret;

/// Sets of a table, unless another number is asked for.
const SETS_DEFAULT: usize = 1024;
/// Windows of a set.
const WAYS: usize = 4;
/// Words of 64 bits in a window. One of them is being filled.
const WORDS: usize = 8;
/// The highest sequence of a lane, and as many below it, that may arrive in any order.
pub const WINDOW_MESSAGES: u64 = (WORDS as u64 - 1) * 64;
/// How many units of time a counter may be ahead of the node's clock: threads look at it at different times.
const AHEAD_UNITS_MAX: u64 = 1;
/// The oldest time that is understood, in units before now: 39 hours.
const AGE_UNITS_MAX: u64 = 1 << (TIME_BITS - 1);
/// What may lie between the first message of a session and a replay of it; two hours more than it lasts, because
/// expiry is rounded.
const SESSION_UNITS_MAX: u64 = units((SESSION_HOURS_MAX as u64 + 2) * 3_600_000_000_000);

const _: () = assert!(AGE_UNITS_MAX + SESSION_UNITS_MAX + AHEAD_UNITS_MAX < 1 << TIME_BITS);
const _: () = assert!(SESSION_UNITS_MAX < AGE_UNITS_MAX, "what a session sends late is understood until its end");

/// Which counters of which lanes were accepted.
pub struct ReplayWindows {
    sets: Box<[Set]>,
    hash: SipHasher13,
    /// Messages that were looked at, which is the time that lanes are seen at.
    looked: u64,
}

#[derive(Clone, Debug)]
struct Set {
    /// In units: no counter that was forgotten has a later time, nor had one before the table was made.
    floor: u64,
    windows: [Window; WAYS],
}

#[derive(Clone, Debug)]
struct Window {
    /// The lane; [`NOBODY`] for a place that is free.
    lane: SessionNumber,
    /// The floor of the set when the lane came: what the lane has sent before has no later time.
    since: u64,
    /// The latest time that was accepted, in units.
    latest: u64,
    /// When the lane was last accepted, in messages that were looked at.
    seen: u64,
    /// The highest sequence that was accepted.
    highest: u64,
    /// Which of the last were: a ring, in which the word of `highest` is the last one.
    bits: [u64; WORDS],
}

/// No lane: the number of a session, which sends no messages.
const NOBODY: SessionNumber = SessionNumber(0);

impl ReplayWindows {
    /// A table of a usual size, made at `now_ns` of the node's clock: for 4096 lanes in 420 KiB.
    #[must_use]
    pub fn new(secret: &NodeSecret, now_ns: u64) -> Self {
        Self::with_sets(secret, SETS_DEFAULT, now_ns)
    }

    /// A table of `sets` sets of four lanes each, made at `now_ns` of the node's clock.
    ///
    /// # Panics
    /// If there are no sets.
    #[must_use]
    pub fn with_sets(secret: &NodeSecret, sets: usize, now_ns: u64) -> Self {
        assert!(sets > 0, "a table without sets remembers nothing");
        let set = Set { floor: units(now_ns), windows: [const { Window::new(NOBODY, 0) }; WAYS] };
        Self { sets: vec![set; sets].into_boxed_slice(), hash: secret.table_hash(), looked: 0 }
    }

    /// Whether the message of the lane `number` with `counter` is accepted at `now_ns` of the node's clock. It is not
    /// accepted again.
    ///
    /// The message must have been opened before, and its session be current: a stranger could else fill the table.
    #[must_use]
    #[inline]
    pub fn accept(&mut self, number: SessionNumber, counter: u64, now_ns: u64) -> bool {
        let (time, sequence) = parts(counter);
        let Some(time) = claimed(time, units(now_ns)) else { return false };
        if number.lane() == NOBODY.lane() || sequence == 0 {
            return false;
        }
        self.looked += 1;
        let looked = self.looked;
        let set = self.set_mut(number);
        match set.windows.iter_mut().find(|window| window.lane == number) {
            Some(window) => window.accept(sequence, time, looked),
            None if time > set.floor => set.admit(number).accept(sequence, time, looked),
            None => false,
        }
    }

    fn set_mut(&mut self, number: SessionNumber) -> &mut Set {
        let mut hasher = self.hash;
        hasher.write_u64(number.0);
        let index = hasher.finish() % self.sets.len() as u64;
        &mut self.sets[index.narrow_usize()]
    }
}

impl fmt::Debug for ReplayWindows {
    /// Without the key of the hash.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ReplayWindows").field("sets", &self.sets.len()).finish_non_exhaustive()
    }
}

impl Set {
    /// An empty window for a lane that has none, in a free place or in that of the lane that was seen least recently.
    #[cold]
    fn admit(&mut self, lane: SessionNumber) -> &mut Window {
        let since = self.floor;
        let window = self.windows.iter_mut().min_by_key(|window| window.seen).expect("a set has windows");
        self.floor = self.floor.max(window.latest);
        *window = Window::new(lane, since);
        window
    }
}

impl Window {
    /// Nothing of `lane` was accepted since the floor was `since`.
    const fn new(lane: SessionNumber, since: u64) -> Self {
        Self { lane, since, latest: 0, seen: 0, highest: 0, bits: [0; WORDS] }
    }

    #[inline]
    fn accept(&mut self, sequence: u64, time: u64, looked: u64) -> bool {
        if time <= self.since || sequence + WINDOW_MESSAGES <= self.highest {
            return false;
        }
        if sequence > self.highest {
            let passed = (word_of(sequence) - word_of(self.highest)).min(WORDS as u64);
            for word in 0..passed {
                self.bits[slot(word_of(sequence) - word)] = 0;
            }
            self.highest = sequence;
        }
        let (word, bit) = (&mut self.bits[slot(word_of(sequence))], 1 << (sequence % 64));
        let is_new = *word & bit == 0;
        if is_new {
            *word |= bit;
            self.latest = self.latest.max(time);
            self.seen = looked;
        }
        is_new
    }
}

/// The word of a sequence, of all that there could be.
const fn word_of(sequence: u64) -> u64 {
    sequence / 64
}

/// The place of a word in the ring.
fn slot(word: u64) -> usize {
    (word % WORDS as u64).narrow_usize()
}

/// The time that a counter claims with the low bits `low` at `now`, all in units; `None` if it is in the future, or
/// older than everything that is understood.
#[inline]
fn claimed(low: u64, now: u64) -> Option<u64> {
    let ahead = low.wrapping_sub(now) & ((1 << TIME_BITS) - 1);
    if ahead <= AHEAD_UNITS_MAX {
        return Some(now + ahead);
    }
    let age = (1 << TIME_BITS) - ahead;
    if age <= AGE_UNITS_MAX { now.checked_sub(age) } else { None }
}

#[cfg(test)]
mod tests;
