//! [`Entry`]: a group of an allocation, as the table of its area; [`Address`]: what a group knows its places by.
//!
//! `core/protect` knows which place has which page. Here is what is asked of the controller: the regions, and whether
//! a place is doubted. A queue pair that hears from a node that it has a region no more, or nothing at all, doubts the
//! place; the follower asks then.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use yonder_protect::{Group, Place, Protection, SLOTS_MAX, Slot, SlotSet};
use yonder_units::{Narrow, PAGE_BYTES};

use super::nodes::{NODES_MAX, NodeIndex};
use crate::RemoteAddress;

/// Where the first page of a place is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) node: NodeIndex,
    /// In the address space.
    pub(super) start: u64,
}

/// A place, as the controller knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    pub(super) place: Place,
    pub(super) region: u32,
    pub(super) address: Address,
}

/// A group of an allocation.
pub(super) struct Entry {
    pub(super) group: Group,
    bytes: u64,
    /// What the controller calls it.
    name: u32,
    /// Slots whose place is doubted.
    doubted: AtomicU8,
    kept: Mutex<Places>,
}

/// The places of a group, by their slots.
#[derive(Default)]
struct Places {
    slots: [Option<Kept>; SLOTS_MAX],
    /// The memory was given back: there are no further ones.
    is_released: bool,
}

impl Address {
    const PAGE_BITS: u32 = u64::BITS - NODES_MAX.ilog2();

    pub(super) fn to_bits(self) -> u64 {
        let page = self.start / PAGE_BYTES as u64;
        assert!(page >> Self::PAGE_BITS == 0, "address spaces are smaller");
        u64::from(self.node.0) << Self::PAGE_BITS | page
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        let page = bits & ((1 << Self::PAGE_BITS) - 1);
        Self { node: NodeIndex((bits >> Self::PAGE_BITS).narrow_u16()), start: page * PAGE_BYTES as u64 }
    }

    /// Where a page is.
    pub(super) fn page(self, page: usize) -> RemoteAddress {
        RemoteAddress(self.start + (page * PAGE_BYTES) as u64)
    }
}

impl Entry {
    pub(super) fn new(bytes: u64, protection: Protection, name: u32) -> Self {
        Self {
            group: Group::new((bytes / PAGE_BYTES as u64).narrow_usize(), protection),
            bytes,
            name,
            doubted: AtomicU8::new(0),
            kept: Mutex::default(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn name(&self) -> u32 {
        self.name
    }

    /// Pages that are at fewer places than was asked for: all that there are, if it is not known yet which ones a place
    /// had that was given up.
    pub(super) fn pages_below(&self) -> u64 {
        let is_known = self.group.view().leaving().is_empty();
        if is_known { self.group.pages_degraded() } else { self.group.pages_written() }
    }

    /// Puts a place into a slot that is free. False if the memory was given back.
    #[must_use]
    pub(super) fn adopt(&self, slot: Slot, region: u32, address: Address) -> bool {
        let mut kept = self.lock();
        if !kept.is_released {
            let place = self.group.adopt(slot, address.to_bits());
            kept.slots[slot.index()] = Some(Kept { place, region, address });
        }
        !kept.is_released
    }

    /// The memory is given back: no places are adopted from now on.
    pub(super) fn release(&self) {
        self.lock().is_released = true;
    }

    /// The content of a place is at another address now.
    pub(super) fn relocate(&self, moved: Kept, address: Address) {
        let mut kept = self.lock();
        if let Some(known) = kept.slots[moved.place.slot.index()].as_mut().filter(|known| known.place == moved.place) {
            self.group.relocate(moved.place, address.to_bits());
            known.address = address;
        }
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

    /// Where a place is that is at a node, if there is one.
    pub(super) fn address_at(&self, node: NodeIndex) -> Option<Address> {
        self.kept().filter(|kept| kept.address.node == node).find_map(|kept| self.address(kept.place))
    }

    /// Where a place is; `None` if it was given up.
    #[inline]
    pub(super) fn address(&self, place: Place) -> Option<Address> {
        self.group.address(place).map(Address::from_bits)
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
    fn an_address_is_one_word() {
        for (node, start) in [(0, 0), (1023, 4096), (7, (1 << 62) - 4096)] {
            let address = Address { node: NodeIndex(node), start };
            assert_eq!(Address::from_bits(address.to_bits()), address);
            assert_eq!(address.page(3).0, start + 3 * 4096);
        }
    }
}
