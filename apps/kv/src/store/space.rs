//! Room for items: [`Store::allocate`] finds a slot, evicting when memory is full; [`Store::crawl`] removes what has
//! expired.
//!
//! The arena decides under its own mutex; the far accesses that its decisions need (reading the victim's header,
//! unlinking it) happen here, with no lock held but the victim's bucket. A victim may vanish between the decision and
//! the deed; then the arena is asked again. [`Owned`] is a slot that belongs to the request: dropping it gives the slot
//! back, on every path, also when a panic unwinds.

use std::sync::{Arc, Mutex, PoisonError};

use super::arena::{Arena, Supply};
use super::item::HASH_AT;
use super::shape::class_for;
use super::slots::Slab;
use super::stats::Stat;
use super::{Failure, Store};
use crate::memory::ItemMemory;

/// How often the arena is asked before an allocation fails. A round fails when other requests take away what it freed,
/// or own all that there is.
const ALLOCATE_ROUNDS_MAX: usize = 64;

/// Items removed in a row before other requests of the worker get their turn.
const EVICTIONS_PER_TURN: usize = 16;

/// A slot that belongs to one request: it is in no chain and not free.
pub(super) struct Owned<'a> {
    arena: &'a Mutex<Arena>,
    offset: u64,
    end: OwnedEnd,
}

#[derive(PartialEq, Eq)]
enum OwnedEnd {
    Release,
    Keep,
}

impl<'a> Owned<'a> {
    fn new(arena: &'a Mutex<Arena>, offset: u64) -> Self {
        Self { arena, offset, end: OwnedEnd::Release }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The slot now belongs to a chain.
    pub(super) fn keep(mut self) {
        self.end = OwnedEnd::Keep;
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        if self.end == OwnedEnd::Release {
            self.arena.lock().unwrap_or_else(PoisonError::into_inner).release(self.offset);
        }
    }
}

/// Which items an eviction may remove.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Removable {
    Any,
    Dead,
}

/// Where the crawler goes on.
#[derive(Default)]
pub(super) struct CrawlCursor {
    unit: u32,
    slot: u16,
}

impl<M: ItemMemory> Store<M> {
    /// The slot at `offset`, which is in no chain and belongs to the caller from now on.
    pub(super) fn own(&self, offset: u64) -> Owned<'_> {
        Owned::new(&self.arena, offset)
    }

    /// A slot for an item of `item_bytes`. The caller holds no bucket.
    pub(super) fn allocate(&self, item_bytes: usize, now_s: u32) -> Result<Owned<'_>, Failure<M::Error>> {
        let class = class_for(&self.classes, item_bytes).ok_or(Failure::TooLarge)?;
        let mut failed = None;
        for _ in 0..ALLOCATE_ROUNDS_MAX {
            let supply = self.arena().supply(class, now_s);
            match supply {
                Supply::Free(offset) => return Ok(self.own(offset)),
                Supply::Evict(offset) => match self.evict(offset, now_s, Removable::Any) {
                    // If the slab was recut before the item was read, another item was evicted, of a smaller slot.
                    Ok(Some(slot)) if self.slots.slab_at(offset).is_some_and(|slab| slab.class == class) => {
                        return Ok(slot);
                    }
                    Ok(_) => {}
                    Err(error) => failed = Some(error),
                },
                Supply::Drain(slabs) => {
                    let _alone = self.draining.lock();
                    let drains: Vec<Drain<'_>> =
                        slabs.into_iter().map(|slab| Drain { arena: &self.arena, slab }).collect();
                    for drain in drains {
                        failed = self.empty(&drain, now_s).err().or(failed);
                    }
                }
                // What could be freed is being freed by another request: wait for it.
                Supply::Nothing => drop(self.draining.lock()),
            }
        }
        Err(failed.map_or(Failure::OutOfMemory, Failure::Far))
    }

    /// Looks at up to `slots_max` slots where the last call stopped, and removes items that have expired. Slots without
    /// expired items cost no far access. Returns how many items were removed.
    pub fn crawl(&self, now_s: u32, slots_max: usize) -> u64 {
        let mut removed = 0;
        for (turn, offset) in self.expired(now_s, slots_max).into_iter().enumerate() {
            give_way(turn);
            match self.evict(offset, now_s, Removable::Dead) {
                Ok(Some(_)) => removed += 1,
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "the crawler stops early");
                    break;
                }
            }
        }
        self.counters.add(Stat::CrawlerReclaimed, removed);
        removed
    }

    /// Unlinks every item of a slab that the arena drains.
    fn empty(&self, Drain { slab, .. }: &Drain<'_>, now_s: u32) -> Result<(), M::Error> {
        for (turn, slot) in (0..slab.shape.slots).filter(|slot| slab.state(*slot).is_linked()).enumerate() {
            // Dropping the slot releases it into the slab.
            drop(self.evict(slab.offset_of(slot), now_s, Removable::Any)?);
            give_way(turn);
        }
        self.find_lost(slab)?;
        // Nobody else gives out or takes back slots of a slab that is being drained and has none with an owner.
        if self.arena().wants_renewal(slab) {
            let renewed = self.memory.renew(slab.start(), slab.shape.slab_bytes() as u64);
            self.arena().renewed(slab, renewed.is_ok());
            renewed?;
        }
        Ok(())
    }

    /// Unlinks the item at `offset`, if there still is one, and returns its slot. What is lost is nobody's slot for
    /// now.
    fn evict(&self, offset: u64, now_s: u32, removable: Removable) -> Result<Option<Owned<'_>>, M::Error> {
        match self.try_evict(offset, now_s, removable) {
            Err(error) if M::is_lost(&error) => self.lose(offset).map(|()| None),
            done => done,
        }
    }

    fn try_evict(&self, offset: u64, now_s: u32, removable: Removable) -> Result<Option<Owned<'_>>, M::Error> {
        // Without the bucket's lock this may be anything by now. It only says where to look; the chain decides.
        let mut hash = [0; 4];
        self.memory.read(offset + HASH_AT, &mut hash)?;
        let hash = u32::from_le_bytes(hash);
        let bucket = self.lock(hash);
        let Some(found) = bucket.find_at(offset)? else {
            return bucket.take_stranded(offset, hash);
        };
        let dead = self.death(&found.header, now_s).is_some();
        if removable == Removable::Dead && !dead {
            return Ok(None);
        }
        let slot = bucket.unlink(&found)?;
        if removable == Removable::Any {
            self.counters.add(if dead { Stat::Reclaimed } else { Stat::Evictions }, 1);
            self.arena().count_eviction(offset);
        }
        Ok(Some(slot))
    }

    /// Offsets of items that have certainly expired, among the next slots of the crawl.
    fn expired(&self, now_s: u32, slots_max: usize) -> Vec<u64> {
        let mut cursor = self.crawl_cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let mut expired = Vec::new();
        let mut budget = slots_max;
        for _ in 0..self.slots.units() {
            let slab = self.slots.slab(cursor.unit);
            let slots = slab.as_ref().map_or(0, |slab| slab.shape.slots);
            while let Some(slab) = slab.as_ref().filter(|_| cursor.slot < slots && budget > 0) {
                if slab.state(cursor.slot).is_expired(now_s) {
                    expired.push(slab.offset_of(cursor.slot));
                }
                cursor.slot += 1;
                budget -= 1;
            }
            if budget == 0 {
                break;
            }
            let behind = slab.map_or(cursor.unit + 1, |slab| slab.first_unit + slab.shape.slab_units);
            *cursor = CrawlCursor { unit: if behind < self.slots.units() { behind } else { 0 }, slot: 0 };
        }
        expired
    }
}

/// Lets the worker's other requests run now and then, in a loop over many items. The caller holds no bucket.
pub(super) fn give_way(turn: usize) {
    if turn % EVICTIONS_PER_TURN == EVICTIONS_PER_TURN - 1 {
        yonder::sched::yield_now();
    }
}

/// A slab that is being drained. Dropping this ends the drain, on every path, also of slabs whose turn never came.
struct Drain<'a> {
    arena: &'a Mutex<Arena>,
    slab: Arc<Slab>,
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner).end_drain(&self.slab);
    }
}
