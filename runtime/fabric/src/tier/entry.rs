//! [`Entries`]: where the current copy of each page of an area is, and who is changing that.
//!
//! A page's word has its place (nowhere, near in a slot, or far), the number of the last change of place, and marks:
//!
//! - `USED`: read or written since the clock's hand came by;
//! - `MOVING`: the mover copies the page to the other tier, so no queue pair writes it *far* meanwhile;
//! - `WRITING`: a queue pair has a write of it under way;
//! - `FAR_OPEN`: a queue pair's write of it to the far tier is under way, or was given up and may still come, so the
//!   mover leaves the page alone;
//! - `CHANGING`: its shape is being changed.
//!
//! Who touches what: whoever has a queue pair, and the mover, by compare-and-swap. Invariants: the place changes only
//! when the copy there is complete; two never write the far copy of a page at a time; what was read counts only if the
//! place and its number are still what they were when the read was posted.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use zerocopy::FromZeros as _;

use super::near::Slot;
use crate::Vector;

const SLOT_MASK: u64 = u32::MAX as u64;
const PLACE_SHIFT: u32 = 32;
const PLACE_MASK: u64 = 3 << PLACE_SHIFT;
const NEAR: u64 = 1 << PLACE_SHIFT;
const FAR: u64 = 2 << PLACE_SHIFT;
const USED: u64 = 1 << 34;
const MOVING: u64 = 1 << 35;
const WRITING: u64 = 1 << 36;
const FAR_OPEN: u64 = 1 << 37;
const CHANGING: u64 = 1 << 38;
const VERSION: u64 = 1 << 40;
/// Slot, place and number of the last change.
const LOCATION_MASK: u64 = SLOT_MASK | PLACE_MASK | !(VERSION - 1);

/// Where the current copy of a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Location {
    /// It was never written: it is zeros.
    Nowhere,
    /// On the memory node.
    Near(Slot),
    /// In the other fabric, at the page's own address.
    Far,
}

/// The tier that a write goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tier {
    Near,
    Far,
}

/// A look at a page's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry(u64);

/// The page is being moved: it cannot be written far now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moving;

/// The pages of an area.
pub(super) struct Entries {
    words: Box<[AtomicU64]>,
    /// Which bytes of a page its copy has. Backed only where paging is guided: the word of a whole page is zero.
    shapes: Box<[AtomicU64]>,
}

impl Entry {
    pub(super) fn location(self) -> Location {
        match self.0 & PLACE_MASK {
            0 => Location::Nowhere,
            NEAR => Location::Near(Slot((self.0 & SLOT_MASK) as u32)),
            _ => Location::Far,
        }
    }

    /// Whether the page was used since the hand came by.
    pub(super) fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    /// Whether a queue pair has a write of the page under way.
    pub(super) fn is_being_written(self) -> bool {
        self.0 & WRITING != 0
    }

    fn is_moving(self) -> bool {
        self.0 & MOVING != 0
    }

    fn has(self, marks: u64) -> bool {
        self.0 & marks != 0
    }

    /// The word of the next place.
    fn moved(self, to: Location) -> u64 {
        let place = match to {
            Location::Nowhere => 0,
            Location::Near(slot) => NEAR | u64::from(slot.0),
            Location::Far => FAR,
        };
        (self.0 & !(SLOT_MASK | PLACE_MASK)).wrapping_add(VERSION) | place
    }
}

impl Entries {
    /// Of pages that are zeros, backed where they are used.
    pub(super) fn new(pages: usize) -> Self {
        let words = || <[AtomicU64]>::new_box_zeroed_with_elems(pages).expect("a word a page is 1/512 of its area");
        Self { words: words(), shapes: words() }
    }

    pub(super) fn look(&self, page: usize) -> Entry {
        Entry(self.words[page].load(Ordering::Acquire))
    }

    /// A look for a reader, who is a use; `None` if the shape changes just now.
    pub(super) fn look_to_read(&self, page: usize) -> Option<(Entry, Vector)> {
        let entry = self.look(page);
        if !entry.is_used() && entry.location() != Location::Nowhere {
            self.words[page].fetch_or(USED, Ordering::Relaxed);
        }
        let shape = self.shape(page);
        (!entry.has(CHANGING)).then_some((entry, shape))
    }

    /// Which bytes of the page its copy has.
    pub(super) fn shape(&self, page: usize) -> Vector {
        Vector::from_word(self.shapes[page].load(Ordering::Acquire))
    }

    /// Whether the current copy is where it was at `seen`, so that what was read meanwhile is it.
    pub(super) fn is_still(&self, page: usize, seen: Entry) -> bool {
        fence(Ordering::Acquire);
        let now = self.look(page);
        // The far copy is overwritten, so it may be half of each.
        let is_mixed = now.location() == Location::Far && now.is_being_written();
        (now.0 ^ seen.0) & (LOCATION_MASK | CHANGING) == 0 && !is_mixed
    }

    /// A write of the page to `tier` is about to be posted.
    pub(super) fn begin_write(&self, page: usize, tier: Tier) -> Result<(), Moving> {
        let marks = if tier == Tier::Far { WRITING | FAR_OPEN } else { WRITING };
        self.update(page, |entry| {
            assert!(!entry.has(WRITING), "two writes of one page are under way");
            (tier == Tier::Near || !entry.is_moving()).then_some(entry.0 | marks)
        })
        .map(drop)
        .ok_or(Moving)
    }

    /// The write that was begun was not posted: nobody has seen it. `before` is the look before it was begun.
    pub(super) fn take_back_write(&self, page: usize, before: Entry) {
        let open = before.0 & FAR_OPEN;
        let _ = self.update(page, |entry| Some(entry.0 & !(WRITING | FAR_OPEN) | open));
    }

    /// The write is done: the current copy is at `to`, and has the bytes of `shape`. Returns where the older one is.
    pub(super) fn end_write(&self, page: usize, to: Location, shape: Vector) -> Location {
        let is_changing = self.shapes[page].load(Ordering::Relaxed) != shape.to_word();
        if is_changing {
            self.words[page].fetch_or(CHANGING, Ordering::AcqRel);
            self.shapes[page].store(shape.to_word(), Ordering::Release);
        }
        // On the node the hand passes by first. A page that was written far is in use when it is read.
        let (open, used) = if to == Location::Far { (FAR_OPEN | USED, 0) } else { (0, USED) };
        let before = self.update(page, |entry| Some(entry.moved(to) & !(WRITING | CHANGING | open) | used));
        before.expect("nothing refuses it").location()
    }

    /// The write has failed or was given up: the current copy is where it was. A write to the far tier may still come.
    pub(super) fn give_write_up(&self, page: usize) {
        self.words[page].fetch_and(!WRITING, Ordering::AcqRel);
    }

    /// Takes the mark of use off.
    pub(super) fn pass(&self, page: usize) {
        self.words[page].fetch_and(!USED, Ordering::Relaxed);
    }

    /// The mover begins to copy the page, if it is where it was at `seen` and nobody writes it. Returns what it has to
    /// show at the end.
    pub(super) fn begin_move(&self, page: usize, seen: Entry) -> Option<Entry> {
        let marked = self.update(page, |entry| {
            let is_same = (entry.0 ^ seen.0) & LOCATION_MASK == 0;
            (is_same && !entry.has(MOVING | WRITING | FAR_OPEN | CHANGING)).then_some(entry.0 | MOVING)
        })?;
        Some(Entry(marked.0 | MOVING))
    }

    /// Whether nothing has happened to the page since its move began.
    pub(super) fn is_move_good(&self, page: usize, begun: Entry) -> bool {
        fence(Ordering::Acquire);
        (self.look(page).0 ^ begun.0) & !USED == 0
    }

    /// The copy at `to` is complete: it is the current one from now on, if nothing has happened to the page since the
    /// move began. Whether it is.
    pub(super) fn end_move(&self, page: usize, begun: Entry, to: Location) -> bool {
        let moved = self.update(page, |entry| {
            let is_good = (entry.0 ^ begun.0) & !USED == 0;
            is_good.then(|| entry.moved(to) & !MOVING)
        });
        if moved.is_none() {
            self.give_move_up(page);
        }
        moved.is_some()
    }

    /// The mover does not go on: the far tier has nothing of it under way.
    pub(super) fn give_move_up(&self, page: usize) {
        self.words[page].fetch_and(!MOVING, Ordering::AcqRel);
    }

    /// The page is zeros again. Returns where its copy was.
    pub(super) fn forget(&self, page: usize) -> Location {
        if self.look(page).location() == Location::Nowhere {
            return Location::Nowhere;
        }
        let before = self.update(page, |entry| Some(entry.moved(Location::Nowhere) & !USED));
        before.expect("nothing refuses it").location()
    }

    /// Changes a word, unless `change` refuses. Returns the word before.
    fn update(&self, page: usize, change: impl Fn(Entry) -> Option<u64>) -> Option<Entry> {
        let changed = |word| change(Entry(word));
        self.words[page].fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).ok().map(Entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(slot: u32) -> Location {
        Location::Near(Slot(slot))
    }

    fn written(to: Location) -> Entries {
        let entries = Entries::new(2);
        let tier = if to == Location::Far { Tier::Far } else { Tier::Near };
        entries.begin_write(1, tier).unwrap();
        entries.end_write(1, to, Vector::WHOLE);
        entries
    }

    #[test]
    fn a_write_changes_the_place_when_it_is_done() {
        let entries = Entries::new(2);
        let (seen, _) = entries.look_to_read(1).unwrap();
        entries.begin_write(1, Tier::Near).unwrap();
        assert!(entries.is_still(1, seen));
        assert_eq!(entries.end_write(1, near(7), Vector::WHOLE), Location::Nowhere);
        assert!(!entries.is_still(1, seen));
        assert_eq!(entries.look(1).location(), near(7));
        entries.begin_write(1, Tier::Far).unwrap();
        entries.give_write_up(1);
        assert_eq!(entries.look(1).location(), near(7));
        assert_eq!(entries.forget(1), near(7));
        assert_eq!((entries.look(1).location(), entries.look(0)), (Location::Nowhere, Entry(0)));
    }

    #[test]
    fn the_same_slot_again_is_another_place() {
        let entries = written(near(7));
        let (seen, _) = entries.look_to_read(1).unwrap();
        for location in [Location::Far, near(7)] {
            entries.begin_write(1, Tier::Near).unwrap();
            entries.end_write(1, location, Vector::WHOLE);
        }
        assert!(!entries.is_still(1, seen));
    }

    #[test]
    fn a_page_that_moves_is_not_written_far() {
        let entries = written(near(7));
        let begun = entries.begin_move(1, entries.look(1)).unwrap();
        assert_eq!(entries.begin_move(1, entries.look(1)), None);
        assert_eq!(entries.begin_write(1, Tier::Far), Err(Moving));
        entries.begin_write(1, Tier::Near).unwrap();
        assert!(!entries.is_move_good(1, begun));
        entries.end_write(1, near(8), Vector::WHOLE);
        assert!(!entries.end_move(1, begun, Location::Far));
        assert_eq!(entries.look(1).location(), near(8));
        entries.begin_write(1, Tier::Far).unwrap();
    }

    #[test]
    fn a_page_that_is_written_far_or_was_in_vain_does_not_move() {
        let entries = written(near(7));
        entries.begin_write(1, Tier::Far).unwrap();
        assert_eq!(entries.begin_move(1, entries.look(1)), None);
        entries.give_write_up(1);
        assert_eq!(entries.begin_move(1, entries.look(1)), None, "the write may still come");
        entries.begin_write(1, Tier::Near).unwrap();
        entries.end_write(1, near(8), Vector::WHOLE);
        assert_eq!(entries.begin_move(1, entries.look(1)), None, "the write may still come");
        entries.begin_write(1, Tier::Far).unwrap();
        entries.end_write(1, Location::Far, Vector::WHOLE);
        assert!(entries.begin_move(1, entries.look(1)).is_some());
    }

    #[test]
    fn a_move_counts_although_the_page_was_used() {
        let entries = written(near(7));
        entries.pass(1);
        let begun = entries.begin_move(1, entries.look(1)).unwrap();
        assert!(entries.look_to_read(1).is_some());
        assert!(entries.is_move_good(1, begun) && entries.end_move(1, begun, Location::Far));
        assert_eq!(entries.look(1).location(), Location::Far);
        assert!(entries.look(1).is_used());
    }

    #[test]
    fn a_page_that_is_forgotten_while_it_moves_stays_forgotten() {
        let entries = written(near(7));
        let begun = entries.begin_move(1, entries.look(1)).unwrap();
        entries.forget(1);
        assert_eq!(entries.begin_write(1, Tier::Far), Err(Moving));
        assert!(!entries.end_move(1, begun, Location::Far));
        assert_eq!(entries.look(1).location(), Location::Nowhere);
        entries.begin_write(1, Tier::Far).unwrap();
    }

    #[test]
    #[should_panic(expected = "two writes of one page")]
    fn two_writes_at_a_time_are_a_bug() {
        let entries = written(near(7));
        entries.begin_write(1, Tier::Near).unwrap();
        assert!(entries.look(1).is_being_written());
        let _ = entries.begin_write(1, Tier::Near);
    }
}
