//! Tests of the arena against a model of who owns which slot.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::arena::{Arena, Supply};
use super::item::Link;
use super::shape::{ClassIndex, class_for, classes, item_bytes_max};
use super::slots::{Slab, SlotTable};

const VALUE_BYTES_MAX: usize = 128 << 10;
const UNITS: u32 = 12;

/// Linked and owned slots: offset to size.
struct Model {
    arena: Arena,
    table: Arc<SlotTable>,
    linked: BTreeMap<u64, usize>,
}

impl Model {
    fn new() -> Self {
        let table = Arc::new(SlotTable::new(UNITS, false));
        let arena = Arena::new(classes(item_bytes_max(VALUE_BYTES_MAX), UNITS as usize), Arc::clone(&table));
        Self { arena, table, linked: BTreeMap::new() }
    }

    fn class(item_bytes: usize) -> ClassIndex {
        class_for(&classes(item_bytes_max(VALUE_BYTES_MAX), UNITS as usize), item_bytes).expect("the size is in range")
    }

    /// Does what the store does: asks, evicts, drains, until there is a slot.
    fn store(&mut self, item_bytes: usize) -> u64 {
        let class = Self::class(item_bytes);
        for _ in 0..8 {
            match self.arena.supply(class, 0) {
                Supply::Free(offset) => return self.link(offset, item_bytes),
                Supply::Evict(offset) => {
                    self.unlink(offset);
                    self.arena.count_eviction(offset);
                    return self.link(offset, item_bytes);
                }
                Supply::Drain(slabs) => slabs.iter().for_each(|slab| self.drain(slab)),
                Supply::Nothing => panic!("nothing is owned, so something can be freed"),
            }
        }
        panic!("no slot after several drains");
    }

    fn drain(&mut self, slab: &Slab) {
        for slot in (0..slab.shape.slots).filter(|slot| slab.state(*slot).is_linked()) {
            self.remove(slab.offset_of(slot));
        }
        self.arena.end_drain(slab);
    }

    fn link(&mut self, offset: u64, item_bytes: usize) -> u64 {
        let before = self.linked.range(..=offset).next_back().map(|(offset, bytes)| offset + *bytes as u64);
        assert!(before.is_none_or(|end| end <= offset), "slot {offset} overlaps");
        let behind = self.linked.range(offset..).next();
        assert!(behind.is_none_or(|(behind, _)| offset + item_bytes as u64 <= *behind), "slot {offset} overlaps");
        self.table.with(offset, |state| state.link(0, Link::NONE));
        self.linked.insert(offset, item_bytes);
        offset
    }

    fn unlink(&mut self, offset: u64) {
        assert!(self.linked.remove(&offset).is_some(), "{offset} is a victim, but not linked");
        self.table.with(offset, |state| state.unlink());
    }

    fn remove(&mut self, offset: u64) {
        self.unlink(offset);
        self.arena.release(offset);
    }

    fn check(&self) {
        let used: usize =
            self.arena.classes().map(|class| class.slabs * usize::from(class.shape.slots) - class.free_slots).sum();
        assert_eq!(used, self.linked.len());
        let slab_units: u32 = self.arena.classes().map(|class| class.slabs as u32 * class.shape.slab_units).sum();
        assert_eq!(slab_units + self.arena.free_units(), UNITS);
    }
}

#[test]
fn a_changed_size_mix_gets_the_memory() {
    let mut model = Model::new();
    for _ in 0..20_000 {
        model.store(100);
    }
    let slabs =
        |model: &Model, bytes| model.arena.classes().nth(Model::class(bytes).index()).map_or(0, |class| class.slabs);
    assert_eq!(slabs(&model, 100), UNITS as usize);
    for _ in 0..20_000 {
        model.store(1000);
    }
    model.check();
    assert!(slabs(&model, 1000) > UNITS as usize / 2, "{} slabs moved", slabs(&model, 1000));
}

#[test]
fn a_slab_with_an_owned_slot_returns_to_its_class() {
    let mut model = Model::new();
    let Supply::Free(owned) = model.arena.supply(Model::class(100), 0) else { panic!("memory is empty") };
    for _ in 0..UNITS * 2 {
        model.store(60_000);
    }
    let slab = model.table.slab(0).expect("the first slab holds the owned slot");
    assert_eq!(slab.offset_of(slab.slot_at(owned)), owned);
    for _ in 0..20 {
        match model.arena.supply(Model::class(VALUE_BYTES_MAX), 0) {
            Supply::Drain(slabs) => slabs.iter().for_each(|slab| model.drain(slab)),
            Supply::Free(offset) => drop(model.link(offset, VALUE_BYTES_MAX)),
            Supply::Evict(_) | Supply::Nothing => {}
        }
    }
    assert!(model.table.slab(0).is_some_and(|still| Arc::ptr_eq(&still, &slab)));
    model.arena.release(owned);
    model.check();
    model.store(100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn slots_never_overlap_and_are_all_accounted_for(
        steps in prop::collection::vec((33usize..VALUE_BYTES_MAX, 0u32..6, any::<prop::sample::Index>()), 1..300),
    ) {
        let mut model = Model::new();
        for (bytes, kind, pick) in steps {
            match kind {
                0 if !model.linked.is_empty() => {
                    let at = pick.index(model.linked.len());
                    let offset = *model.linked.keys().nth(at).expect("in range");
                    model.remove(offset);
                }
                // Sizes of every magnitude.
                _ => drop(model.store((bytes >> (2 * kind)).max(33))),
            }
            model.check();
        }
    }
}
