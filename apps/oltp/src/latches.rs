//! [`Latches`]: the lock and the version of every node and record, in local memory.
//!
//! Each is one word. A node of an index has a word of its own; records share a table of words by the hash of where they
//! lie. Who changes something far locks its word before and gives it a new version after; who reads notes the version
//! before and looks at it again after. Nobody parks while it has locked a word, so a locked word is free again soon,
//! and its holder is never a request that waits for the same worker.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use yonder::units::PAGE_BYTES;

/// Records lie at multiples of this, in bytes.
pub(crate) const RECORD_ALIGN: u64 = 8;

const LOCKED: u64 = 1;
/// From one version to the next.
const STEP: u64 = 2;
/// Place of the epoch in a version.
const EPOCH_SHIFT: u32 = 32;
/// An odd number that spreads what is multiplied by it over the upper bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number of a committed change: its epoch, and a sequence in it. A transaction's is greater than those of all it
/// has read or replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tid(u64);

impl Tid {
    /// The epoch in which it was committed.
    #[must_use]
    pub fn epoch(self) -> u64 {
        self.0 >> EPOCH_SHIFT
    }

    /// The first that is greater and of `epoch` or a later one.
    pub(crate) fn next_in(self, epoch: u64) -> Self {
        Self((self.0 + STEP).max(epoch << EPOCH_SHIFT))
    }
}

/// Which word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Latch(u32);

/// What was seen of a node or a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) latch: Latch,
    pub(crate) tid: Tid,
}

/// A latch that is wanted: at this version, or at any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Wanted {
    pub(crate) latch: Latch,
    pub(crate) only: Option<Tid>,
}

/// Every word: those of pages first, those of records behind them.
pub(crate) struct Latches {
    words: Box<[AtomicU64]>,
    pages: u64,
    /// What is left of a hash is the number of a record's word.
    hash_shift: u32,
}

impl Latches {
    /// Of nodes in a region of `bytes`, and 2^`stripes_log2` words for records.
    pub(crate) fn new(bytes: u64, stripes_log2: u32) -> Self {
        let pages = bytes / PAGE_BYTES as u64;
        let words = pages + (1 << stripes_log2);
        assert!(words <= u64::from(u32::MAX) && stripes_log2 > 0, "2^{stripes_log2} words and {pages} pages");
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), pages, hash_shift: u64::BITS - stripes_log2 }
    }

    #[inline]
    pub(crate) fn of_node(&self, node: u64) -> Latch {
        Latch((node / PAGE_BYTES as u64) as u32)
    }

    #[inline]
    pub(crate) fn of_record(&self, record: u64) -> Latch {
        let hash = (record / RECORD_ALIGN).wrapping_mul(SPREAD) >> self.hash_shift;
        Latch((self.pages + hash) as u32)
    }

    /// The version before a read, unless it is being changed.
    #[inline]
    pub(crate) fn look(&self, latch: Latch) -> Option<Seen> {
        let word = self.word(latch).load(Ordering::Acquire);
        (word & LOCKED == 0).then_some(Seen { latch, tid: Tid(word) })
    }

    /// Whether nothing has changed since: what was read in between is consistent.
    #[inline]
    pub(crate) fn still(&self, seen: Seen) -> bool {
        // The reads in between are not overtaken by this one.
        fence(Ordering::Acquire);
        self.word(seen.latch).load(Ordering::Relaxed) == seen.tid.0
    }

    /// Locks all, in the order of latches, if none is locked and each has the version that is wanted. Waits for
    /// nothing.
    pub(crate) fn try_lock(&self, wanted: &mut Vec<Wanted>) -> Option<Locked<'_>> {
        // Of several wishes for one latch the one with a version comes last, and stays.
        wanted.sort_unstable();
        wanted.dedup_by(|later, kept| {
            let is_same = later.latch == kept.latch;
            if is_same {
                kept.only = later.only.or(kept.only);
            }
            is_same
        });
        let mut locked = Locked { latches: self, held: Vec::with_capacity(wanted.len()) };
        for want in wanted {
            let word = self.word(want.latch);
            let before = want.only.map_or_else(|| word.load(Ordering::Relaxed) & !LOCKED, |tid| tid.0);
            // In one order with the loads of `Locked::still`: of two transactions that each read what the other writes,
            // one sees the other's lock.
            word.compare_exchange(before, before | LOCKED, Ordering::SeqCst, Ordering::Relaxed).ok()?;
            locked.held.push(Seen { latch: want.latch, tid: Tid(before) });
        }
        Some(locked)
    }

    #[inline]
    fn word(&self, latch: Latch) -> &AtomicU64 {
        &self.words[latch.0 as usize]
    }
}

/// Latches that are locked. Dropping this gives them back as they were.
pub(crate) struct Locked<'a> {
    latches: &'a Latches,
    /// In the order of latches.
    held: Vec<Seen>,
}

impl Locked<'_> {
    /// Whether nothing has changed since, and nobody else is about to change it.
    pub(crate) fn still(&self, seen: Seen) -> bool {
        let word = self.latches.word(seen.latch).load(Ordering::SeqCst);
        word == seen.tid.0 || (word == seen.tid.0 | LOCKED && self.has(seen.latch))
    }

    /// The greatest version among them.
    pub(crate) fn newest(&self) -> Tid {
        self.held.iter().map(|held| held.tid).max().unwrap_or(Tid(0))
    }

    /// Gives all of them back with a new version.
    pub(crate) fn release(mut self, tid: Tid) {
        self.held.iter_mut().for_each(|held| held.tid = tid);
    }

    fn has(&self, latch: Latch) -> bool {
        self.held.binary_search_by_key(&latch, |held| held.latch).is_ok()
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        for held in &self.held {
            self.latches.word(held.latch).store(held.tid.0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(latch: Latch) -> Wanted {
        Wanted { latch, only: None }
    }

    #[test]
    fn what_is_locked_or_changed_is_seen() {
        let latches = Latches::new(8 * PAGE_BYTES as u64, 4);
        let node = latches.of_node(3 * PAGE_BYTES as u64);
        let seen = latches.look(node).unwrap();
        let locked = latches.try_lock(&mut vec![any(node)]).unwrap();
        assert!(locked.still(seen) && !latches.still(seen));
        assert!(latches.look(node).is_none() && latches.try_lock(&mut vec![any(node)]).is_none());
        drop(locked);
        assert!(latches.still(seen), "nothing was changed");
        let locked = latches.try_lock(&mut vec![any(node)]).unwrap();
        let tid = locked.newest().next_in(7);
        locked.release(tid);
        assert!(!latches.still(seen) && tid.epoch() == 7 && tid > seen.tid);
        assert_eq!(latches.look(node).unwrap().tid, tid);
    }

    #[test]
    fn what_another_has_locked_is_not_still() {
        let latches = Latches::new(8 * PAGE_BYTES as u64, 4);
        let (mine, other) = (latches.of_node(0), latches.of_node(PAGE_BYTES as u64));
        let seen = latches.look(other).unwrap();
        let locked = latches.try_lock(&mut vec![any(mine)]).unwrap();
        let others = latches.try_lock(&mut vec![any(other)]).unwrap();
        assert!(!locked.still(seen));
        drop(others);
        assert!(locked.still(seen));
    }

    #[test]
    fn all_or_none_are_locked_and_a_latch_only_once() {
        let latches = Latches::new(8 * PAGE_BYTES as u64, 1);
        let (record, node) = (latches.of_record(64), latches.of_node(0));
        let old = latches.look(node).unwrap();
        let twice = latches.try_lock(&mut vec![any(record), any(node), any(record)]).unwrap();
        let tid = twice.newest().next_in(0);
        twice.release(tid);
        let outdated = Wanted { latch: node, only: Some(old.tid) };
        assert!(latches.try_lock(&mut vec![any(record), outdated]).is_none());
        assert!(latches.try_lock(&mut vec![any(node), outdated]).is_none(), "the wish with a version counts");
        assert!(latches.look(record).is_some() && latches.look(node).is_some(), "nothing stays locked");
    }
}
