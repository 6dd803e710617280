//! Who owns which slot: [`Arena`] hands out free slots, chooses victims, and moves slabs between classes.
//!
//! The arena is plain data behind an ordinary mutex; it never touches far memory and nobody holds the mutex across a
//! far access. What must be done with far memory it returns as a [`Supply`], and the caller reports back. Life of a
//! slot: free -> owned (by one request, which writes it) -> linked (its item can be found; the arena sees it as owned)
//! -> owned (by the request that unlinked it) -> free. A slab that is being drained hands out nothing.
//!
//! Neighbours: `shape` says how slabs are cut, `slots` holds the state that sweeps read, `rebalance` decides which
//! class gives memory up, `space` performs what the arena asks for.

use std::sync::{Arc, RwLock};

use yonder::units::FreeRanges;

use super::rebalance::{Load, Rebalance};
use super::shape::{Class, ClassIndex, UNIT_BYTES};
use super::slots::{Slab, SlotState, SlotTable, Swept};

/// Slots looked at for one victim. The one with the fewest chances is taken when none has run out.
const SWEEP_SLOTS_MAX: usize = 512;
const NO_SLAB: u32 = u32::MAX;
/// What one unit takes in the arena and in the slot table, slots apart.
const LOCAL_BYTES_PER_UNIT: usize =
    size_of::<Option<Box<SlabSlots>>>() + size_of::<u32>() + size_of::<RwLock<Option<Arc<Slab>>>>();

/// Where the slot for a new item comes from.
pub(super) enum Supply {
    /// This slot was free; the caller owns it.
    Free(u64),
    /// Nothing is free: unlink the item in this slot, after which the caller owns the slot.
    Evict(u64),
    /// Unlink every item of these slabs, release their slots, end each drain, and ask again.
    Drain(Vec<Arc<Slab>>),
    /// Everything is owned by requests under way.
    Nothing,
}

/// What the hand of a class finds.
enum Victim {
    /// The slot of an item.
    Item(u64),
    /// The first unit of a slab to be renewed.
    Spent(u32),
}

/// What one class holds, for statistics.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassUse {
    pub(super) shape: Class,
    pub(super) slabs: usize,
    pub(super) free_slots: usize,
}

/// All memory: free units, and slabs by class.
pub(super) struct Arena {
    table: Arc<SlotTable>,
    shapes: Vec<Class>,
    classes: Vec<ClassSlabs>,
    /// By first unit.
    slabs: Vec<Option<Box<SlabSlots>>>,
    /// First unit of the slab that covers a unit.
    slab_of_unit: Vec<u32>,
    runs: FreeRanges,
    rebalance: Rebalance,
    slabs_moved: u64,
}

#[derive(Default)]
struct ClassSlabs {
    slabs: Vec<u32>,
    /// Slabs that may have free slots; entries may be out of date.
    candidates: Vec<u32>,
    /// Free slots in slabs that are not being drained.
    free_slots: usize,
    hand_slab: usize,
    hand_slot: u16,
}

struct SlabSlots {
    slab: Arc<Slab>,
    /// Freed slots below `fresh`; from `fresh` on, slots have never been used.
    free: Vec<u16>,
    fresh: u16,
    /// Slots that were owned last when nothing could be written to them.
    retired: u16,
    /// Index in the class's list.
    place: usize,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Hands out slots, and is among the candidates.
    Offered,
    /// Hands out slots once one comes back.
    Full,
    /// Is being emptied.
    Draining,
}

impl SlabSlots {
    fn owned(&self) -> usize {
        usize::from(self.fresh) - self.free.len()
    }

    fn free_slots(&self) -> usize {
        usize::from(self.slab.shape.slots) - self.owned()
    }

    /// Whether there is no item in it to be evicted, and slots that only a drain makes usable again.
    fn is_spent(&self) -> bool {
        let mut states = (0..self.slab.shape.slots).map(|slot| self.slab.state(slot));
        !states.clone().any(SlotState::is_linked) && (self.retired > 0 || states.any(SlotState::is_lost))
    }

    fn take(&mut self) -> Option<u16> {
        self.free.pop().or_else(|| {
            let slot = self.fresh;
            (slot < self.slab.shape.slots).then(|| self.fresh += 1).map(|()| slot)
        })
    }
}

impl Arena {
    /// All units of `table` are free.
    pub(super) fn new(shapes: Vec<Class>, table: Arc<SlotTable>) -> Self {
        let units = table.units();
        Self {
            classes: shapes.iter().map(|_| ClassSlabs::default()).collect(),
            slabs: (0..units).map(|_| None).collect(),
            slab_of_unit: vec![NO_SLAB; units as usize],
            runs: FreeRanges::new(u64::from(units)),
            rebalance: Rebalance::new(shapes.len()),
            slabs_moved: 0,
            shapes,
            table,
        }
    }

    /// Finds a slot of `class`. A slot to be evicted is chosen by second chance.
    pub(super) fn supply(&mut self, class: ClassIndex, now_s: u32) -> Supply {
        if let Some(offset) = self.take_free(class) {
            return Supply::Free(offset);
        }
        let donor = self.rebalance.donor_for(class).and_then(|donor| self.slab_at_hand(donor));
        if let Some(slabs) = donor.and_then(|slab| self.begin_drain(slab, class)) {
            return Supply::Drain(slabs);
        }
        match self.victim(class, now_s) {
            Some(Victim::Item(offset)) => return Supply::Evict(offset),
            Some(Victim::Spent(slab)) => return self.begin_drain(slab, class).map_or(Supply::Nothing, Supply::Drain),
            None => {}
        }
        let donor = self.class_indices().filter(|other| *other != class).max_by_key(|other| self.units_of(*other));
        let slab = donor.and_then(|donor| self.slab_at_hand(donor));
        slab.and_then(|slab| self.begin_drain(slab, class)).map_or(Supply::Nothing, Supply::Drain)
    }

    /// The item in an owned slot was evicted to make room.
    pub(super) fn count_eviction(&mut self, offset: u64) {
        let class = self.slab_at(offset).slab.class;
        let (classes, shapes) = (&self.classes, &self.shapes);
        let load = |class: ClassIndex| Load {
            slabs: classes[class.index()].slabs.len(),
            slab_bytes: shapes[class.index()].slab_bytes(),
        };
        self.rebalance.evicted(class, shapes[class.index()].slot_bytes, load);
    }

    /// Takes back an owned slot.
    pub(super) fn release(&mut self, offset: u64) {
        let slab = self.slab_at(offset);
        let slot = slab.slab.slot_at(offset);
        debug_assert!(slot < slab.fresh && !slab.free.contains(&slot), "slot {slot} is released once");
        slab.free.push(slot);
        let (first, class, slots, idle) =
            (slab.slab.first_unit, slab.slab.class, usize::from(slab.slab.shape.slots), slab.owned() == 0);
        match slab.phase {
            Phase::Draining => return,
            Phase::Offered => {}
            Phase::Full => {
                slab.phase = Phase::Offered;
                self.classes[class.index()].candidates.push(first);
            }
        }
        self.classes[class.index()].free_slots += 1;
        // An idle slab goes back to all classes, unless it is the only reserve of its own.
        if idle && self.classes[class.index()].free_slots > 2 * slots {
            self.classes[class.index()].free_slots -= slots;
            self.remove(first);
        }
    }

    /// Keeps an owned slot from being given out again, until its slab is renewed.
    pub(super) fn retire(&mut self, offset: u64) {
        self.slab_at(offset).retired += 1;
    }

    /// The caller has unlinked what it found in `slab`. If that leaves nothing but retired slots, the memory of the
    /// slab has to be renewed before the drain ends.
    pub(super) fn wants_renewal(&self, slab: &Slab) -> bool {
        let slots = self.slabs[slab.first_unit as usize].as_ref().expect("a slab stays while it is drained");
        slots.retired > 0 && slots.owned() == usize::from(slots.retired)
    }

    /// The memory of a slab that is being drained is as good as new, or may become so at any time until another
    /// attempt has succeeded: then all its slots are retired.
    pub(super) fn renewed(&mut self, slab: &Slab, has_succeeded: bool) {
        let slots = self.slabs[slab.first_unit as usize].as_mut().expect("a slab stays while it is drained");
        assert!(
            slots.phase == Phase::Draining && slots.owned() == usize::from(slots.retired),
            "nobody owns a slot of it"
        );
        let retired = if has_succeeded { 0 } else { slab.shape.slots };
        (slots.fresh, slots.retired) = (retired, retired);
        slots.free.clear();
    }

    /// The caller has unlinked what it found in `slab`. If requests under way still own slots of it, or some are
    /// retired, the slab returns to its class; else its units are free.
    pub(super) fn end_drain(&mut self, slab: &Slab) {
        let first = slab.first_unit;
        let slots = self.slabs[first as usize].as_mut().expect("a slab stays while it is drained");
        assert!(slots.phase == Phase::Draining, "a drain ends once");
        if slots.owned() == 0 {
            self.slabs_moved += 1;
            self.remove(first);
        } else {
            slots.phase = Phase::Offered;
            let class = &mut self.classes[slab.class.index()];
            class.free_slots += slots.free_slots();
            class.candidates.push(first);
        }
    }

    /// Slabs that were emptied, so that another class could have their memory or it could be renewed.
    pub(super) fn slabs_moved(&self) -> u64 {
        self.slabs_moved
    }

    /// Units that belong to no class.
    pub(super) fn free_units(&self) -> u32 {
        self.runs.total() as u32
    }

    /// Local memory that slots and units take, in bytes.
    pub(super) fn local_bytes(&self) -> usize {
        let slots: usize = self.classes().map(|class| class.slabs * usize::from(class.shape.slots)).sum();
        slots * self.table.slot_bytes() + self.slabs.len() * LOCAL_BYTES_PER_UNIT
    }

    /// What each class holds, smallest slots first.
    pub(super) fn classes(&self) -> impl Iterator<Item = ClassUse> {
        self.shapes.iter().zip(&self.classes).map(|(shape, class)| ClassUse {
            shape: *shape,
            slabs: class.slabs.len(),
            free_slots: class.free_slots,
        })
    }

    fn take_free(&mut self, class: ClassIndex) -> Option<u64> {
        loop {
            let Some(first) = self.classes[class.index()].candidates.last().copied() else {
                self.add_slab(class)?;
                continue;
            };
            let slab = self.slabs[first as usize]
                .as_mut()
                .filter(|slab| slab.slab.class == class && slab.phase == Phase::Offered);
            if let Some(slab) = slab {
                if let Some(slot) = slab.take() {
                    self.classes[class.index()].free_slots -= 1;
                    return Some(slab.slab.offset_of(slot));
                }
                slab.phase = Phase::Full;
            }
            self.classes[class.index()].candidates.pop();
        }
    }

    fn add_slab(&mut self, class: ClassIndex) -> Option<()> {
        let shape = self.shapes[class.index()];
        let first = self.runs.take(u64::from(shape.slab_units))? as u32;
        let slab = Arc::new(Slab::new(first, class, shape));
        self.table.install(&slab);
        self.slab_of_unit[first as usize..(first + shape.slab_units) as usize].fill(first);
        let home = &mut self.classes[class.index()];
        let place = home.slabs.len();
        self.slabs[first as usize] =
            Some(Box::new(SlabSlots { slab, free: Vec::new(), fresh: 0, retired: 0, place, phase: Phase::Offered }));
        home.slabs.push(first);
        home.candidates.push(first);
        home.free_slots += usize::from(shape.slots);
        Some(())
    }

    /// Takes a slab without owned slots out of its class.
    fn remove(&mut self, first: u32) {
        let slab = self.slabs[first as usize].take().expect("the slab exists");
        assert!(slab.owned() == 0, "a slab with owned slots stays");
        let home = &mut self.classes[slab.slab.class.index()];
        home.slabs.swap_remove(slab.place);
        if let Some(moved) = home.slabs.get(slab.place) {
            self.slabs[*moved as usize].as_mut().expect("a listed slab exists").place = slab.place;
        }
        let units = slab.slab.shape.slab_units;
        self.slab_of_unit[first as usize..(first + units) as usize].fill(NO_SLAB);
        self.table.remove(&slab.slab);
        self.runs.give(u64::from(first), u64::from(units));
    }

    /// Moves the hand of the class over its slots until it finds a victim.
    fn victim(&mut self, class: ClassIndex, now_s: u32) -> Option<Victim> {
        let home = &mut self.classes[class.index()];
        let slots = self.shapes[class.index()].slots;
        let mut least: Option<(u32, u64)> = None;
        // Once around to lower the counters, and again to find the lowered ones.
        for _ in 0..(2 * home.slabs.len() * usize::from(slots)).min(SWEEP_SLOTS_MAX) {
            if home.hand_slot >= slots {
                home.hand_slot = 0;
                home.hand_slab += 1;
            }
            if home.hand_slab >= home.slabs.len() {
                home.hand_slab = 0;
            }
            let slab = self.slabs[home.slabs[home.hand_slab] as usize].as_ref().expect("a listed slab exists");
            let slot = home.hand_slot;
            home.hand_slot += 1;
            if slab.phase == Phase::Draining {
                home.hand_slot = slots;
                continue;
            }
            if slot == 0 && slab.is_spent() {
                home.hand_slot = slots;
                return Some(Victim::Spent(slab.slab.first_unit));
            }
            match slab.slab.state(slot).sweep(now_s) {
                Swept::Empty => {}
                Swept::Victim => return Some(Victim::Item(slab.slab.offset_of(slot))),
                Swept::Kept { chances } if least.is_none_or(|(fewest, _)| chances < fewest) => {
                    least = Some((chances, slab.slab.offset_of(slot)));
                }
                Swept::Kept { .. } => {}
            }
        }
        least.map(|(_, offset)| Victim::Item(offset))
    }

    /// The first unit of the slab that `donor` gives up.
    fn slab_at_hand(&self, donor: ClassIndex) -> Option<u32> {
        let home = &self.classes[donor.index()];
        home.slabs.get(home.hand_slab).or(home.slabs.first()).copied()
    }

    /// Starts to drain the slab at `first`, and its neighbours if `receiver` needs longer slabs. None if one of them is
    /// being drained already.
    fn begin_drain(&mut self, first: u32, receiver: ClassIndex) -> Option<Vec<Arc<Slab>>> {
        let wanted = self.shapes[receiver.index()].slab_units;
        let units = self.table.units();
        let window = first.min(units.checked_sub(wanted)?);
        let mut firsts: Vec<u32> = self.slab_of_unit[window as usize..(window + wanted) as usize].to_vec();
        firsts.retain(|first| *first != NO_SLAB);
        firsts.dedup();
        let busy = |first: &u32| self.slabs[*first as usize].as_ref().is_none_or(|slab| slab.phase == Phase::Draining);
        if firsts.iter().any(busy) {
            return None;
        }
        let mut drained = Vec::with_capacity(firsts.len());
        for first in firsts {
            let slab = self.slabs[first as usize].as_mut().expect("checked above");
            slab.phase = Phase::Draining;
            let home = &mut self.classes[slab.slab.class.index()];
            home.free_slots -= slab.free_slots();
            // The end of a drain that fails lists it anew.
            home.candidates.retain(|candidate| *candidate != first);
            drained.push(Arc::clone(&slab.slab));
        }
        Some(drained)
    }

    fn units_of(&self, class: ClassIndex) -> usize {
        self.classes[class.index()].slabs.len() * self.shapes[class.index()].slab_units as usize
    }

    fn class_indices(&self) -> impl Iterator<Item = ClassIndex> + use<> {
        (0..self.shapes.len()).map(|index| ClassIndex(index as u8))
    }

    fn slab_at(&mut self, offset: u64) -> &mut SlabSlots {
        let first = self.slab_of_unit[(offset / UNIT_BYTES as u64) as usize];
        self.slabs[first as usize].as_mut().expect("an owned slot's slab exists")
    }
}
