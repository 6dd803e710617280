//! Local metadata of slots: four bytes each, so that eviction and expiry sweeps touch no far page, and reads leave no
//! trace in one.
//!
//! [`SlotState`] is one word: whether the slot holds a linked item, whether another item follows in its chain, the
//! second-chance counter, whether the item was fetched, and the expiry in steps of [`EXPIRY_STEP_S`]. A slot with
//! chances and no linked item is *lost*: its item is in a chain, and nobody can read which. [`Slab`] is the fixed part
//! of a slab; [`SlotTable`] finds the slab of an offset.
//!
//! When items were accessed takes four bytes more, so it is known only where that is wanted.
//!
//! Who may write: the holder of the bucket lock of the slot's item, except the second-chance counter, which the victim
//! sweep lowers at any time. A slab leaves the table only when none of its slots is linked, so the slab of an item
//! stays as long as the bucket lock is held.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::item::Link;
use super::shape::{Class, ClassIndex, UNIT_BYTES};

/// Resolution of the expiry that slots know, in seconds.
const EXPIRY_STEP_S: u32 = 32;

const LINKED: u32 = 1 << 31;
const HAS_NEXT: u32 = 1 << 30;
const CHANCE_SHIFT: u32 = 28;
const CHANCE_MASK: u32 = 3 << CHANCE_SHIFT;
const CHANCE_ONE: u32 = 1 << CHANCE_SHIFT;
const FETCHED: u32 = 1 << 27;
const EXPIRY_MASK: u32 = FETCHED - 1;

const _: () = assert!(u32::MAX / EXPIRY_STEP_S <= EXPIRY_MASK);

/// What is known locally about one slot.
#[derive(Default)]
pub(super) struct SlotState(AtomicU32);

/// What a sweep finds in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Swept {
    /// No linked item: free, or being written.
    Empty,
    /// An item that has expired or has used up its chances.
    Victim,
    /// An item that stays, with this many chances left.
    Kept {
        /// 0 to 2.
        chances: u32,
    },
}

impl SlotState {
    /// The slot's item was linked: it starts with one chance.
    pub(super) fn link(&self, deadline_s: u32, next: Link) {
        // Whoever sees it linked without the bucket's lock sees the header that was written before.
        self.0.store(LINKED | CHANCE_ONE | expiry_bits(deadline_s) | next_bit(next), Release);
    }

    /// The slot's item was unlinked.
    pub(super) fn unlink(&self) {
        self.0.store(0, Relaxed);
    }

    /// The item behind this one in the chain has changed.
    pub(super) fn set_next(&self, next: Link) {
        self.replace(HAS_NEXT, next_bit(next));
    }

    /// Nobody can read any more which item this is: no sweep shall find it, until its chain is mended.
    pub(super) fn lose(&self) {
        let lost = |state| (state & LINKED != 0).then_some(state & HAS_NEXT | CHANCE_ONE);
        // A slot that was unlinked meanwhile has no item to lose.
        let _ = self.0.fetch_update(Relaxed, Relaxed, lost);
    }

    /// Whether nobody can read which item this is.
    pub(super) fn is_lost(&self) -> bool {
        let state = self.0.load(Relaxed);
        state & LINKED == 0 && state & CHANCE_MASK != 0
    }

    pub(super) fn has_next(&self) -> bool {
        self.0.load(Relaxed) & HAS_NEXT != 0
    }

    pub(super) fn set_deadline(&self, deadline_s: u32) {
        self.replace(EXPIRY_MASK, expiry_bits(deadline_s));
    }

    /// The item was read: it earns a chance, up to three. Reading a hot item writes nothing.
    pub(super) fn used(&self) {
        let earned = |state: u32| {
            let chance = if state & CHANCE_MASK == CHANCE_MASK { 0 } else { CHANCE_ONE };
            Some((state + chance) | FETCHED).filter(|earned| *earned != state)
        };
        // One that has earned all there is stays as it is.
        let _ = self.0.fetch_update(Relaxed, Relaxed, earned);
    }

    /// The item takes the place of one that was fetched, and counts as the same.
    pub(super) fn inherit_fetched(&self) {
        self.0.fetch_or(FETCHED, Relaxed);
    }

    /// Whether the item was read since it was stored.
    pub(super) fn is_fetched(&self) -> bool {
        self.0.load(Relaxed) & FETCHED != 0
    }

    /// Takes a chance from the item, or finds it to be a victim.
    pub(super) fn sweep(&self, now_s: u32) -> Swept {
        let state = self.0.load(Relaxed);
        if state & LINKED == 0 {
            return Swept::Empty;
        }
        if state & CHANCE_MASK == 0 || expired(state, now_s) {
            return Swept::Victim;
        }
        let lowered = state - CHANCE_ONE;
        let _ = self.0.compare_exchange(state, lowered, Relaxed, Relaxed);
        Swept::Kept { chances: (lowered & CHANCE_MASK) >> CHANCE_SHIFT }
    }

    pub(super) fn is_linked(&self) -> bool {
        self.0.load(Acquire) & LINKED != 0
    }

    /// Whether the slot holds an item that has certainly expired.
    pub(super) fn is_expired(&self, now_s: u32) -> bool {
        let state = self.0.load(Relaxed);
        state & LINKED != 0 && expired(state, now_s)
    }

    fn replace(&self, mask: u32, bits: u32) {
        let changed = self.0.fetch_update(Relaxed, Relaxed, |state| Some(state & !mask | bits));
        debug_assert!(changed.is_ok());
    }
}

fn next_bit(next: Link) -> u32 {
    if next.is_none() { 0 } else { HAS_NEXT }
}

/// Rounded up, so that an item never looks expired too early.
fn expiry_bits(deadline_s: u32) -> u32 {
    deadline_s.div_ceil(EXPIRY_STEP_S).min(EXPIRY_MASK)
}

fn expired(state: u32, now_s: u32) -> bool {
    let expiry = state & EXPIRY_MASK;
    expiry != 0 && now_s / EXPIRY_STEP_S >= expiry
}

/// A run of units with slots of one class.
pub(super) struct Slab {
    /// Its first unit, which also names it.
    pub(super) first_unit: u32,
    pub(super) class: ClassIndex,
    pub(super) shape: Class,
    slots: Box<[SlotState]>,
    /// When each item was accessed last, in seconds since 1970, if that is recorded.
    accessed_s: OnceLock<Box<[AtomicU32]>>,
}

impl Slab {
    pub(super) fn new(first_unit: u32, class: ClassIndex, shape: Class) -> Self {
        let slots = (0..shape.slots).map(|_| SlotState::default()).collect();
        Self { first_unit, class, shape, slots, accessed_s: OnceLock::new() }
    }

    /// From now on it is known when items are accessed.
    fn record_accesses(&self) {
        self.accessed_s.get_or_init(|| self.slots.iter().map(|_| AtomicU32::new(0)).collect());
    }

    fn note_access(&self, slot: u16, now_s: u32) {
        if let Some(accessed_s) = self.accessed_s.get() {
            accessed_s[usize::from(slot)].store(now_s, Relaxed);
        }
    }

    pub(super) fn state(&self, slot: u16) -> &SlotState {
        &self.slots[usize::from(slot)]
    }

    /// Byte offset of a slot in the memory.
    pub(super) fn offset_of(&self, slot: u16) -> u64 {
        self.start() + self.shape.offset_of(slot) as u64
    }

    /// The slot that holds the byte at `offset` of the memory.
    pub(super) fn slot_at(&self, offset: u64) -> u16 {
        self.shape.slot_at((offset - self.start()) as usize)
    }

    /// The state of the slot that starts at `offset` of the memory, if one does. An offset that a sweep has found may
    /// be older than the slab.
    pub(super) fn state_at(&self, offset: u64) -> Option<&SlotState> {
        let slot = self.slot_at(offset);
        (slot < self.shape.slots && self.offset_of(slot) == offset).then(|| self.state(slot))
    }

    /// Byte offset of the slab in the memory.
    pub(super) fn start(&self) -> u64 {
        u64::from(self.first_unit) * UNIT_BYTES as u64
    }
}

/// The slab of every unit.
pub(super) struct SlotTable {
    units: Box<[RwLock<Option<Arc<Slab>>>]>,
    records_accesses: bool,
}

impl SlotTable {
    /// None has a slab. It is known when items are accessed, if `records_accesses`.
    pub(super) fn new(units: u32, records_accesses: bool) -> Self {
        Self { units: (0..units).map(|_| RwLock::new(None)).collect(), records_accesses }
    }

    pub(super) fn units(&self) -> u32 {
        self.units.len() as u32
    }

    /// Looks at the state of the slot at `offset`, which holds an item whose bucket is locked by the caller.
    pub(super) fn with<R>(&self, offset: u64, look: impl FnOnce(&SlotState) -> R) -> R {
        self.with_slab(offset, |slab, slot| look(slab.state(slot)))
    }

    /// The slot's item was linked, by the holder of its bucket.
    pub(super) fn linked(&self, offset: u64, deadline_s: u32, next: Link, now_s: u32) {
        self.with_slab(offset, |slab, slot| {
            slab.state(slot).link(deadline_s, next);
            slab.note_access(slot, now_s);
        });
    }

    /// The slot's item was read, by the holder of its bucket.
    pub(super) fn used(&self, offset: u64, now_s: u32) {
        self.with_slab(offset, |slab, slot| {
            slab.state(slot).used();
            slab.note_access(slot, now_s);
        });
    }

    /// When the slot's item was accessed last, as the holder of its bucket asks; None if that is not recorded.
    pub(super) fn accessed_s(&self, offset: u64) -> Option<u32> {
        self.with_slab(offset, |slab, slot| Some(slab.accessed_s.get()?[usize::from(slot)].load(Relaxed)))
    }

    /// Local memory for each slot, in bytes.
    pub(super) fn slot_bytes(&self) -> usize {
        let accessed = if self.records_accesses { size_of::<AtomicU32>() } else { 0 };
        size_of::<SlotState>() + accessed
    }

    fn with_slab<R>(&self, offset: u64, look: impl FnOnce(&Slab, u16) -> R) -> R {
        let unit = self.units[(offset / UNIT_BYTES as u64) as usize].read().unwrap_or_else(PoisonError::into_inner);
        let slab = unit.as_ref().expect("a linked item's slab is in the table");
        look(slab, slab.slot_at(offset))
    }

    /// The slab that covers a unit, if any.
    pub(super) fn slab(&self, unit: u32) -> Option<Arc<Slab>> {
        self.units[unit as usize].read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The slab that covers the byte at `offset`, if any.
    pub(super) fn slab_at(&self, offset: u64) -> Option<Arc<Slab>> {
        self.slab((offset / UNIT_BYTES as u64) as u32)
    }

    pub(super) fn install(&self, slab: &Arc<Slab>) {
        if self.records_accesses {
            // Whoever links an item in it says when.
            slab.record_accesses();
        }
        self.set(slab, Some(slab));
    }

    pub(super) fn remove(&self, slab: &Arc<Slab>) {
        self.set(slab, None);
    }

    fn set(&self, slab: &Slab, entry: Option<&Arc<Slab>>) {
        let first = slab.first_unit as usize;
        for unit in &self.units[first..first + slab.shape.slab_units as usize] {
            *unit.write().unwrap_or_else(PoisonError::into_inner) = entry.cloned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_earned_and_taken() {
        let state = SlotState::default();
        assert_eq!(state.sweep(0), Swept::Empty);
        state.link(0, Link::NONE);
        state.used();
        assert_eq!(state.sweep(0), Swept::Kept { chances: 1 });
        assert_eq!(state.sweep(0), Swept::Kept { chances: 0 });
        assert_eq!(state.sweep(0), Swept::Victim);
        for _ in 0..10 {
            state.used();
        }
        assert_eq!(state.sweep(0), Swept::Kept { chances: 2 });
        state.unlink();
        assert_eq!(state.sweep(0), Swept::Empty);
    }

    #[test]
    fn a_lost_slot_is_no_victim_and_keeps_its_place_in_the_chain() {
        let state = SlotState::default();
        state.lose();
        assert!(state.sweep(0) == Swept::Empty && !state.has_next());
        state.link(16, Link::new(64, 0));
        assert!(!state.is_lost());
        state.lose();
        assert!(state.is_lost());
        assert!(
            (0..4).all(|_| state.sweep(1 << 20) == Swept::Empty) && !state.is_linked() && !state.is_expired(1 << 20)
        );
        assert!(state.has_next());
    }

    #[test]
    fn expiry_is_never_early_and_at_most_a_step_late() {
        let state = SlotState::default();
        for deadline_s in [1, EXPIRY_STEP_S, EXPIRY_STEP_S + 1, 1_700_000_003, u32::MAX - EXPIRY_STEP_S] {
            state.link(deadline_s, Link::NONE);
            assert!(!state.is_expired(deadline_s - 1), "{deadline_s}");
            assert!(state.is_expired(deadline_s + EXPIRY_STEP_S - 1), "{deadline_s}");
        }
        state.set_deadline(0);
        assert!(!state.is_expired(u32::MAX));
    }

    #[test]
    fn fetched_is_known_until_the_item_is_replaced() {
        let state = SlotState::default();
        state.link(1_700_000_003, Link::NONE);
        assert!(!state.is_fetched());
        state.used();
        for _ in 0..3 {
            state.sweep(0);
        }
        assert!(state.is_fetched() && !state.is_expired(1_700_000_002), "sweeps and expiry are other bits");
        state.set_deadline(u32::MAX);
        assert!(state.is_fetched() && state.is_linked());
        state.link(0, Link::NONE);
        assert!(!state.is_fetched());
        state.inherit_fetched();
        assert!(state.is_fetched());
    }

    #[test]
    fn accesses_are_known_where_they_are_recorded() {
        let shape = Class { slot_bytes: 64, slab_units: 1, slots: 8 };
        let slab = |unit| Arc::new(Slab::new(unit, ClassIndex(0), shape));
        let table = SlotTable::new(1, false);
        table.install(&slab(0));
        table.linked(64, 0, Link::NONE, 10);
        assert_eq!((table.accessed_s(64), table.slot_bytes()), (None, 4));
        let table = SlotTable::new(2, true);
        table.install(&slab(0));
        table.linked(64, 0, Link::NONE, 10);
        assert_eq!((table.accessed_s(64), table.slot_bytes()), (Some(10), 8));
        table.used(64, 40);
        table.install(&slab(1));
        table.linked(UNIT_BYTES as u64, 0, Link::NONE, 50);
        assert_eq!((table.accessed_s(64), table.accessed_s(UNIT_BYTES as u64)), (Some(40), Some(50)));
    }

    #[test]
    fn the_next_bit_follows_the_chain() {
        let state = SlotState::default();
        state.link(0, Link::new(64, 0));
        assert!(state.has_next());
        state.set_next(Link::NONE);
        assert!(!state.has_next() && state.is_linked());
    }
}
