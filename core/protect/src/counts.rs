//! [`Counts`]: how well the pages of a group are protected, without looking at each.
//!
//! Every change of a word says here what it makes of the page. A page that is written again, at as many places as
//! before, changes nothing, so that no line of memory is shared on the way of such a write.
//!
//! Who touches what: all who change words. A count may be off for a moment by the changes that are being made, with one
//! exception: a page is counted among those that a place has alone *before* its word says so, and until after.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::slots::{SLOTS_MAX, Slot};
use crate::word::Word;

/// See the head of this file.
pub(crate) struct Counts {
    needed: u8,
    wanted: u8,
    /// Pages with content.
    written: AtomicU64,
    /// Pages that are current at each slot.
    current: [AtomicU64; SLOTS_MAX],
    /// Pages that would be lost with each slot.
    sole: [AtomicU64; SLOTS_MAX],
    /// Pages with content at so many places, fewer than wanted.
    below: [AtomicU64; SLOTS_MAX],
}

impl Counts {
    pub(crate) fn new(needed: u8, wanted: u8) -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { needed, wanted, written: AtomicU64::new(0), current: zeros(), sole: zeros(), below: zeros() }
    }

    pub(crate) fn written(&self) -> u64 {
        read(&self.written)
    }

    pub(crate) fn current(&self, slot: Slot) -> u64 {
        read(&self.current[slot.index()])
    }

    pub(crate) fn sole(&self, slot: Slot) -> u64 {
        read(&self.sole[slot.index()])
    }

    /// Pages with content at exactly so many places, if that are fewer than wanted.
    pub(crate) fn below(&self, copies: u8) -> u64 {
        if copies < self.wanted { read(&self.below[usize::from(copies)]) } else { 0 }
    }

    /// A word is about to change. Whether anything was counted, so that who asks looks at the slots again.
    pub(crate) fn announce(&self, before: Word, after: Word) -> bool {
        let more = after.sole(self.needed) - before.sole(self.needed);
        if more.is_empty() {
            return false;
        }
        more.iter().for_each(|slot| add(&self.sole[slot.index()], 1));
        // A silent place is given up by a change of the slots, and a look at the count after it: either sees the other.
        fence(Ordering::SeqCst);
        true
    }

    /// The word was not changed after all.
    pub(crate) fn take_back(&self, before: Word, after: Word) {
        let more = after.sole(self.needed) - before.sole(self.needed);
        more.iter().for_each(|slot| subtract(&self.sole[slot.index()]));
    }

    /// The word has changed.
    pub(crate) fn changed(&self, before: Word, after: Word) {
        let fewer = before.sole(self.needed) - after.sole(self.needed);
        fewer.iter().for_each(|slot| subtract(&self.sole[slot.index()]));
        let (was, is) = (before.current(), after.current());
        (is - was).iter().for_each(|slot| add(&self.current[slot.index()], 1));
        (was - is).iter().for_each(|slot| subtract(&self.current[slot.index()]));
        match (before.is_written(), after.is_written()) {
            (false, true) => add(&self.written, 1),
            (true, false) => subtract(&self.written),
            _ => {}
        }
        if before.copies() != after.copies() {
            let counted = |word: Word| word.copies().filter(|copies| *copies < self.wanted);
            if let Some(copies) = counted(before) {
                subtract(&self.below[usize::from(copies)]);
            }
            if let Some(copies) = counted(after) {
                add(&self.below[usize::from(copies)], 1);
            }
        }
    }
}

fn read(count: &AtomicU64) -> u64 {
    // A count may be taken down before it is put up.
    let count = count.load(Ordering::Acquire);
    if count > u64::MAX / 2 { 0 } else { count }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::AcqRel);
}

fn subtract(count: &AtomicU64) {
    count.fetch_sub(1, Ordering::AcqRel);
}
