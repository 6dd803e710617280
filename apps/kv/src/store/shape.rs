//! Size classes: which slot sizes there are, how many units a slab of each takes, and where its slots lie.
//!
//! Memory is cut into units of [`UNIT_BYTES`]; a slab is a run of units with slots of one class. Small slots divide a
//! page evenly, so that a small item is one page fault and never two; larger slots grow by a quarter from class to
//! class. Pure arithmetic, fixed at start.

use yonder_units::PAGE_BYTES;

use super::item::{HEADER_BYTES, SLOT_ALIGN};
use crate::protocol::KEY_BYTES_MAX;

/// Smallest piece of memory that moves between classes.
pub(super) const UNIT_BYTES: usize = 64 << 10;

/// Slots a page holds, for the classes whose slots do not cross pages: each class is about a quarter larger than the
/// one before it.
const SLOTS_PER_PAGE: [usize; 15] = [64, 51, 41, 32, 26, 20, 16, 13, 10, 8, 6, 5, 4, 3, 2];
/// A slab is made longer until at most this part of it is lost behind its last slot.
const LOST_PART_MAX: usize = 8;
/// Longest extension of a slab in search of a small loss, in units.
const EXTENSION_UNITS_MAX: usize = 7;
/// An extended slab is at most this part of the memory, so that small memories are shared by many classes.
const EXTENDED_PART_MAX: usize = 32;

const _: () = assert!(UNIT_BYTES.is_multiple_of(PAGE_BYTES));
const _: () = assert!(UNIT_BYTES / (PAGE_BYTES / SLOTS_PER_PAGE[0]) <= u16::MAX as usize);

/// One size class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class {
    /// Bytes in a slot.
    pub(super) slot_bytes: usize,
    /// Units in a slab.
    pub(super) slab_units: u32,
    /// Slots in a slab.
    pub(super) slots: u16,
}

/// Index of a size class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ClassIndex(pub(super) u8);

impl ClassIndex {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Class {
    fn new(slot_bytes: usize, memory_units: usize) -> Self {
        let least = slot_bytes.div_ceil(UNIT_BYTES);
        let most = (least + EXTENSION_UNITS_MAX).min(memory_units / EXTENDED_PART_MAX).max(least);
        let lost = |units: &usize| units * UNIT_BYTES - slots_in(*units, slot_bytes) * slot_bytes;
        let units = (least..=most).find(|units| lost(units) * LOST_PART_MAX <= units * UNIT_BYTES).unwrap_or(least);
        Self { slot_bytes, slab_units: units as u32, slots: slots_in(units, slot_bytes) as u16 }
    }

    /// Bytes in a slab.
    pub(super) fn slab_bytes(&self) -> usize {
        self.slab_units as usize * UNIT_BYTES
    }

    /// Byte offset of a slot from the start of its slab.
    pub(super) fn offset_of(&self, slot: u16) -> usize {
        let slot = usize::from(slot);
        match self.slots_per_page() {
            0 => slot * self.slot_bytes,
            per_page => slot / per_page * PAGE_BYTES + slot % per_page * self.slot_bytes,
        }
    }

    /// The slot that holds the byte at `offset` of its slab.
    pub(super) fn slot_at(&self, offset: usize) -> u16 {
        let slot = match self.slots_per_page() {
            0 => offset / self.slot_bytes,
            per_page => offset / PAGE_BYTES * per_page + offset % PAGE_BYTES / self.slot_bytes,
        };
        slot as u16
    }

    fn slots_per_page(&self) -> usize {
        if page_divides(self.slot_bytes) { PAGE_BYTES / self.slot_bytes } else { 0 }
    }
}

fn page_divides(slot_bytes: usize) -> bool {
    slot_bytes <= PAGE_BYTES / 2
}

fn slots_in(units: usize, slot_bytes: usize) -> usize {
    let bytes = units * UNIT_BYTES;
    if page_divides(slot_bytes) { bytes / PAGE_BYTES * (PAGE_BYTES / slot_bytes) } else { bytes / slot_bytes }
}

/// Bytes of the largest item when values have up to `value_bytes_max` bytes.
pub(super) fn item_bytes_max(value_bytes_max: usize) -> usize {
    HEADER_BYTES + KEY_BYTES_MAX + value_bytes_max
}

/// All classes for a memory of `memory_units`, smallest slots first. The last one holds items of `item_bytes_max`
/// bytes.
pub(super) fn classes(item_bytes_max: usize, memory_units: usize) -> Vec<Class> {
    let align = SLOT_ALIGN as usize;
    let largest = item_bytes_max.next_multiple_of(align);
    let mut sizes: Vec<usize> = SLOTS_PER_PAGE.iter().map(|slots| PAGE_BYTES / slots / align * align).collect();
    while sizes.last().is_some_and(|last| *last < largest) {
        let last = sizes[sizes.len() - 1];
        sizes.push((last + last / 4).next_multiple_of(align).min(largest));
    }
    sizes.into_iter().map(|slot_bytes| Class::new(slot_bytes, memory_units)).collect()
}

/// The smallest class whose slots hold `item_bytes`.
pub(super) fn class_for(classes: &[Class], item_bytes: usize) -> Option<ClassIndex> {
    let index = classes.partition_point(|class| class.slot_bytes < item_bytes);
    if index < classes.len() { Some(ClassIndex(index as u8)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_and_are_found_again() {
        for class in classes(item_bytes_max(1 << 20), 1 << 20) {
            let mut end = 0;
            for slot in 0..class.slots {
                let offset = class.offset_of(slot);
                assert!(offset >= end && offset.is_multiple_of(SLOT_ALIGN as usize), "{class:?} slot {slot}");
                end = offset + class.slot_bytes;
                assert_eq!((class.slot_at(offset), class.slot_at(end - 1)), (slot, slot), "{class:?}");
                assert!(!page_divides(class.slot_bytes) || offset / PAGE_BYTES == (end - 1) / PAGE_BYTES, "{class:?}");
            }
            assert!(end <= class.slab_bytes(), "{class:?}");
            assert!((class.slab_bytes() - end) * 6 <= class.slab_bytes(), "{class:?} loses too much");
        }
    }

    #[test]
    fn every_size_has_the_smallest_class_that_fits() {
        let largest = item_bytes_max(1 << 20);
        let classes = classes(largest, 64);
        assert!(classes.len() < 64);
        for bytes in [33, 64, 65, 2048, 2049, 100_000, largest] {
            let index = class_for(&classes, bytes).expect("fits").index();
            assert!(classes[index].slot_bytes >= bytes);
            assert!(index == 0 || classes[index - 1].slot_bytes < bytes);
        }
        assert_eq!(class_for(&classes, largest + SLOT_ALIGN as usize), None);
    }
}
