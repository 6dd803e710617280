//! [`Entry`]: a group of an allocation, as the table of its area; [`Address`]: what a group knows its places by.
//!
//! `core/protect` knows which place has which page. Here is what is asked of the controller: the regions, and whether
//! a place is doubted. A queue pair that hears from a node that it has a region no more, or nothing at all, doubts the
//! place; the follower asks then.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use yonder_protect::{Evacuation, Group, Place, Protection, SLOTS_MAX, Slot, SlotSet};
use yonder_units::{Nanos, Narrow, PAGE_BYTES};

use super::backup;
use super::nodes::{NODES_MAX, NodeIndex};
use crate::RemoteAddress;

/// Where the first page of a place is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) node: NodeIndex,
    /// In the address space.
    pub(super) start: u64,
}

/// Where a slot's place was when it was asked, and how often it had changed by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) node: NodeIndex,
    pub(super) era: u32,
}

/// A place, as the controller knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    pub(super) place: Place,
    /// None of a place in the file of `backup`.
    pub(super) region: Option<u32>,
    pub(super) address: Address,
}

/// A group of an allocation.
pub(super) struct Entry {
    pub(super) group: Group,
    /// Bytes of a page at a place: of its share.
    share_bytes: u64,
    /// What the controller calls it.
    name: u32,
    /// Slots whose place is doubted.
    doubted: AtomicU8,
    /// How often each slot's place has changed, or was said to be elsewhere.
    eras: [AtomicU32; SLOTS_MAX],
    /// The last of these in which it has answered who asked since then, and at which node: of [`answered`].
    answered: [AtomicU64; SLOTS_MAX],
    /// Pages on their way to the file of `backup`.
    late: AtomicU64,
    kept: Mutex<Places>,
    /// Calls that nodes may still execute, though nobody waits for them.
    given_up: Mutex<Vec<(Slot, Asked)>>,
    /// Of the keeper.
    evacuation: Mutex<Evacuation>,
}

/// The places of a group, by their slots.
#[derive(Default)]
struct Places {
    slots: [Option<Kept>; SLOTS_MAX],
    /// The memory was given back: there are no further ones.
    is_released: bool,
}

/// Bytes of a place with shares of so many pages.
pub(super) fn place_bytes(pages: usize, share_bytes: u64) -> u64 {
    (pages as u64 * share_bytes).next_multiple_of(PAGE_BYTES as u64)
}

/// An era and a node as a word: of a later era it is larger, and none is 0.
fn answered(asked: Asked) -> u64 {
    (u64::from(asked.era) + 1) << u16::BITS | u64::from(asked.node.0)
}

impl Address {
    /// Bits of a page's number: the number of a node has the others.
    const PAGE_BITS: u32 = NODES_MAX.leading_zeros() + u64::BITS - u16::BITS;

    pub(super) fn to_bits(self) -> u64 {
        let page = self.start / PAGE_BYTES as u64;
        assert!(page >> Self::PAGE_BITS == 0, "address spaces are smaller");
        u64::from(self.node.0) << Self::PAGE_BITS | page
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        let page = bits & ((1 << Self::PAGE_BITS) - 1);
        Self { node: NodeIndex((bits >> Self::PAGE_BITS).narrow_u16()), start: page * PAGE_BYTES as u64 }
    }
}

impl Entry {
    /// One of so many pages, of which a place has shares of so many bytes.
    pub(super) fn new(pages: usize, share_bytes: u64, protection: Protection, name: u32) -> Self {
        Self {
            group: Group::new(pages, protection),
            share_bytes,
            name,
            doubted: AtomicU8::new(0),
            eras: Default::default(),
            answered: Default::default(),
            late: AtomicU64::new(0),
            kept: Mutex::default(),
            given_up: Mutex::default(),
            evacuation: Mutex::default(),
        }
    }

    /// One whose pages go to a file too.
    pub(super) fn with_file(self) -> Self {
        Self { group: self.group.written_behind(backup::SLOT.into()), ..self }
    }

    /// Bytes of a place.
    pub(super) fn bytes(&self) -> u64 {
        place_bytes(self.group.pages(), self.share_bytes)
    }

    /// Bytes of a page at a place.
    pub(super) fn share_bytes(&self) -> u64 {
        self.share_bytes
    }

    /// Where a page is at a place that begins at `address`.
    #[inline]
    pub(super) fn page_at(&self, address: Address, page: usize) -> RemoteAddress {
        RemoteAddress(address.start + page as u64 * self.share_bytes)
    }

    /// The bytes of a place that nothing but these pages has.
    pub(super) fn bytes_of(&self, pages: Range<usize>) -> Range<u64> {
        let page = PAGE_BYTES as u64;
        let end = (pages.end as u64 * self.share_bytes).min(self.bytes());
        let end = if pages.end == self.group.pages() { self.bytes() } else { end / page * page };
        (pages.start as u64 * self.share_bytes).next_multiple_of(page).min(end)..end
    }

    /// The bytes of a place in whole pages that have something of these pages.
    pub(super) fn bytes_around(&self, pages: Range<usize>) -> Range<u64> {
        let (page, [start, end]) = (PAGE_BYTES as u64, [pages.start, pages.end].map(|at| at as u64 * self.share_bytes));
        start / page * page..end.next_multiple_of(page)
    }

    pub(super) fn name(&self) -> u32 {
        self.name
    }

    /// Pages that are at fewer places than was asked for: all that there are, if it is not known yet which ones a place
    /// had that was given up. Pages that are on their way to a file are not among them.
    pub(super) fn pages_below(&self) -> u64 {
        let is_known = self.group.view().leaving().iter().all(|slot| self.group.pages_current(slot) == 0);
        if is_known { self.pages_to_mend() } else { self.group.pages_written() }
    }

    /// Pages that the mender has something to do for, about.
    pub(super) fn pages_to_mend(&self) -> u64 {
        self.group.pages_degraded().saturating_sub(self.late())
    }

    /// Pages at places that are evacuated.
    pub(super) fn pages_to_evacuate(&self) -> u64 {
        self.group.pages_to_evacuate()
    }

    /// As [`Evacuation::look`].
    pub(super) fn evacuate(&self, usable: SlotSet, slow: SlotSet, wanted: u8, now: Nanos) -> SlotSet {
        let mut evacuation = self.evacuation.lock().unwrap_or_else(PoisonError::into_inner);
        evacuation.look(&self.group, usable, slow, wanted, now)
    }

    /// Pages on their way to the file of `backup`.
    pub(super) fn late(&self) -> u64 {
        self.late.load(Ordering::Acquire)
    }

    /// So many more are.
    pub(super) fn count_late(&self, more: i64) {
        self.late.fetch_add(more.cast_unsigned(), Ordering::AcqRel);
    }

    /// Places that it has fewer than was asked for.
    pub(super) fn places_missing(&self) -> u64 {
        self.group.protection().wanted().saturating_sub(self.group.view().live().count()).into()
    }

    /// Puts a place into a slot that is free. False if the memory was given back.
    #[must_use]
    pub(super) fn adopt(&self, slot: Slot, region: Option<u32>, address: Address) -> bool {
        let mut kept = self.lock();
        if !kept.is_released {
            self.eras[slot.index()].fetch_add(1, Ordering::AcqRel);
            let place = self.group.adopt(slot, address.to_bits());
            kept.slots[slot.index()] = Some(Kept { place, region, address });
        }
        !kept.is_released
    }

    /// The memory is given back: no places are adopted from now on.
    pub(super) fn release(&self) {
        self.lock().is_released = true;
    }

    /// The content of a place is at another address now. False if more is known by now.
    pub(super) fn relocate(&self, moved: Kept, address: Address) -> bool {
        let mut kept = self.lock();
        // What another thread has heard since is not undone.
        let is_it = |known: &&mut Kept| known.place == moved.place && known.address == moved.address;
        let known = kept.slots[moved.place.slot.index()].as_mut().filter(is_it);
        let is_known = known.is_some();
        if let Some(known) = known {
            // Before and after: who has asked at the old address has an older era than who asks at the new one,
            // whatever it has seen of this.
            let era = &self.eras[moved.place.slot.index()];
            era.fetch_add(1, Ordering::AcqRel);
            self.group.relocate(moved.place, address.to_bits());
            known.address = address;
            era.fetch_add(1, Ordering::AcqRel);
        }
        is_known
    }

    /// Forgets a place that was given up, once its slot is free.
    pub(super) fn forget(&self, slot: Slot) -> Option<Kept> {
        self.lock().slots[slot.index()].take()
    }

    /// The places that there are, those included that were given up and not forgotten.
    pub(super) fn kept(&self) -> impl Iterator<Item = Kept> + use<> {
        let kept = self.lock().slots;
        kept.into_iter().flatten()
    }

    /// A place that is at a node, if there is one, for who is about to ask there.
    pub(super) fn asked_at(&self, node: NodeIndex) -> Option<(Slot, Address, Asked)> {
        let mut there = self.kept().filter(|kept| kept.address.node == node);
        there.find_map(|kept| {
            let (address, asked) = self.ask(kept.place)?;
            (asked.node == node).then_some((kept.place.slot, address, asked))
        })
    }

    /// Where a place is; `None` if it was given up.
    #[inline]
    pub(super) fn address(&self, place: Place) -> Option<Address> {
        self.group.address(place).map(Address::from_bits)
    }

    /// Where a slot's place is, for who is about to ask there; `None` if it was given up.
    #[inline]
    pub(super) fn ask(&self, place: Place) -> Option<(Address, Asked)> {
        let eras = &self.eras[place.slot.index()];
        let mut era = eras.load(Ordering::Acquire);
        loop {
            let address = self.address(place)?;
            // An address of one era is not taken for one of another: the place may have gone and come back meanwhile.
            match eras.load(Ordering::Acquire) {
                same if same == era => return Some((address, Asked { node: address.node, era })),
                later => era = later,
            }
        }
    }

    /// A slot's place has done what it was asked for.
    #[inline]
    pub(super) fn has_answered(&self, slot: Slot, asked: Asked) {
        let (answered, word) = (&self.answered[slot.index()], answered(asked));
        if answered.load(Ordering::Relaxed) < word {
            answered.fetch_max(word, Ordering::AcqRel);
        }
    }

    /// Whether a slot's place has answered at another node than this one since it was asked there: it has left it then,
    /// whether or not it has come back.
    pub(super) fn has_left(&self, slot: Slot, asked: Asked) -> bool {
        let last = self.answered[slot.index()].load(Ordering::Acquire);
        let (era, node) = (last >> u16::BITS, last & u64::from(u16::MAX));
        era > answered(asked) >> u16::BITS && node != u64::from(asked.node.0)
    }

    /// A slot's place was asked for something of its memory, and did not answer.
    pub(super) fn note_given_up(&self, slot: Slot, asked: Asked) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        if !given_up.contains(&(slot, asked)) {
            given_up.push((slot, asked));
        }
    }

    /// The nodes that may still do to a slot's place what it was asked there and did not answer, as far as the place
    /// itself shows: not those that it has left.
    pub(super) fn given_up_at(&self, slot: Slot) -> Vec<NodeIndex> {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.retain(|(of, asked)| !self.has_left(*of, *asked));
        given_up.iter().filter(|(of, _)| *of == slot).map(|(_, asked)| asked.node).collect()
    }

    /// Places are doubted. True if one of them was not before.
    pub(super) fn doubt(&self, slots: SlotSet) -> bool {
        let before = self.doubted.fetch_or(slots.bits(), Ordering::AcqRel);
        slots.bits() & !before != 0
    }

    /// The controller is about to be asked where these are: who doubts them from now on wants it asked again.
    pub(super) fn take_doubted(&self) -> SlotSet {
        if self.doubted.load(Ordering::Relaxed) == 0 {
            return SlotSet::NONE;
        }
        SlotSet::from_bits(self.doubted.swap(0, Ordering::AcqRel))
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_of_a_place_are_of_pages_alone() {
        let entry = Entry::new(10, 1408, Protection::code(3, 1), 0);
        assert_eq!(entry.bytes(), 16384);
        let of = |pages| entry.bytes_of(pages);
        assert_eq!((of(0..10), of(0..3), of(2..6)), (0..16384, 0..4096, 4096..8192));
        assert!(of(1..2).is_empty() && of(3..3).is_empty());
        assert_eq!(of(9..10), 16384..16384);
        assert_eq!([1..2, 3..6, 9..10].map(|pages| entry.bytes_around(pages)), [0..4096, 4096..12288, 12288..16384]);
        let entry = Entry::new(10, 4096, Protection::copies(1), 0);
        assert_eq!(entry.bytes_of(3..5), 12288..20480);
        let address = Address { node: NodeIndex(0), start: 8192 };
        assert_eq!(entry.page_at(address, 3).0, 8192 + 3 * 4096);
    }

    #[test]
    fn a_place_has_left_a_node_once_it_has_answered_elsewhere_who_asked_it_there() {
        let entry = Entry::new(4, 4096, Protection::copies(1), 0);
        let (slot, at) = (Slot::new(0), |node: u16| Address { node: NodeIndex(node), start: 0 });
        assert!(entry.adopt(slot, Some(1), at(1)));
        let kept = || entry.kept().next().unwrap();
        let asked = || entry.ask(kept().place).unwrap().1;
        let first = asked();
        entry.has_answered(slot, first);
        assert!(!entry.has_left(slot, first));
        let before = kept();
        assert!(entry.relocate(before, at(2)));
        assert!(!entry.relocate(before, at(2)), "that was heard before");
        // One that was asked before, at whatever node, says nothing.
        entry.has_answered(slot, first);
        entry.has_answered(slot, Asked { node: NodeIndex(2), ..first });
        assert!(!entry.has_left(slot, first), "nothing has answered there");
        let second = asked();
        entry.relocate(Kept { address: at(1), ..kept() }, at(3));
        assert_eq!(asked(), second, "where it was meanwhile is not where it is");
        entry.relocate(kept(), at(1));
        entry.has_answered(slot, asked());
        assert!(!entry.has_left(slot, first), "it may have been there all the time");
        assert!(entry.has_left(slot, second));
        entry.relocate(kept(), at(2));
        entry.has_answered(slot, asked());
        assert!(entry.has_left(slot, first) && !entry.has_left(slot, asked()));
    }

    #[test]
    fn a_node_may_do_what_it_was_asked_until_the_place_has_answered_elsewhere() {
        let entry = Entry::new(4, 4096, Protection::copies(1), 0);
        let (slot, at) = (Slot::new(0), |node: u16| Address { node: NodeIndex(node), start: 0 });
        assert!(entry.adopt(slot, Some(1), at(1)));
        let kept = || entry.kept().next().unwrap();
        let asked = || entry.ask(kept().place).unwrap().1;
        entry.note_given_up(slot, asked());
        entry.note_given_up(slot, asked());
        assert_eq!((entry.given_up_at(slot), entry.given_up_at(Slot::new(1))), (vec![NodeIndex(1)], vec![]));
        assert!(entry.relocate(kept(), at(2)));
        assert_eq!(entry.given_up_at(slot), [NodeIndex(1)], "a word of the controller's is not enough");
        entry.has_answered(slot, asked());
        assert_eq!(entry.given_up_at(slot), []);
    }

    #[test]
    fn an_address_is_one_word() {
        for (node, start) in [(0, 0), (1023, 4096), (7, (1 << 62) - 4096)] {
            let address = Address { node: NodeIndex(node), start };
            assert_eq!(Address::from_bits(address.to_bits()), address);
        }
    }
}
