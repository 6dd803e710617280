//! Items that are lost: what a page takes with it that cannot be had again (LightSwap, section 4.4).
//!
//! A cache may forget, so the client of an item that is lost gets a miss. [`Store::mending`] does a command again after
//! its bucket has been rid of what is lost there ([`Bucket::drop_lost`]). If the link behind a lost item was lost with
//! it, the chain ends before it: items behind it cannot be found any more either. They are *stranded*: linked by their
//! slots' states, and in no chain. Whoever evicts one finds out and takes its slot. A slot in which nothing can be
//! written is retired, and comes back when its whole slab is emptied and renewed: for another class, or because there
//! is no item left in it. A renewal that fails may be executed late, so it retires the whole slab until the next.
//!
//! Invariants: an item that was dropped or stranded is never found again, so no client sees an old value; a slot is
//! given out again only when no chain can lead to it.

use super::bucket::{Bucket, Hash};
use super::item::{HEADER_BYTES, Link};
use super::slots::Slab;
use super::space::{Owned, give_way};
use super::stats::Stat;
use super::{Failure, Store};
use crate::memory::ItemMemory;
use crate::protocol::KeyValue;

/// How often a command is done again because pages of its bucket were lost meanwhile.
const MENDS_MAX: usize = 8;
/// Slots that are retired for one item before the command fails.
const RETIRED_MAX: usize = 256;
/// Far memory is lost by pages.
const PAGE_BYTES: u64 = 4096;

impl<M: ItemMemory> Store<M> {
    /// Does `work` on the bucket of `hash`, again without what is lost in it if need be.
    pub(super) fn mending<T>(
        &self,
        hash: Hash,
        mut work: impl FnMut() -> Result<T, Failure<M::Error>>,
    ) -> Result<T, Failure<M::Error>> {
        for _ in 0..MENDS_MAX {
            match work() {
                Err(Failure::Far(error)) if M::is_lost(&error) => self.mend(hash.bucket_part())?,
                done => return done,
            }
        }
        work()
    }

    /// A slot with the key and the value of `item` in it. The caller holds no bucket.
    pub(super) fn fill_slot(&self, item: &KeyValue, now_s: u32) -> Result<Owned<'_>, Failure<M::Error>> {
        for _ in 0..RETIRED_MAX {
            let slot = self.allocate(HEADER_BYTES + item.bytes().len(), now_s)?;
            match self.memory.write(slot.offset() + HEADER_BYTES as u64, item.bytes()) {
                Ok(()) => return Ok(slot),
                Err(error) if M::is_lost(&error) => self.retire(slot),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::OutOfMemory)
    }

    /// Never gives a slot out again, because nothing can be written to it.
    pub(super) fn retire(&self, slot: Owned<'_>) {
        self.arena().retire(slot.offset());
        slot.keep();
        self.counters.add(Stat::RetiredSlots, 1);
    }

    /// Makes the best of a slot whose item could not be evicted because something of its chain is lost.
    pub(super) fn lose(&self, offset: u64) -> Result<(), M::Error> {
        match self.read_header(offset) {
            Ok(header) => self.mend(header.hash),
            Err(error) if M::is_lost(&error) => {
                // Only its chain leads to it, so whoever walks that will drop it; until then it is no victim.
                if let Some(state) = self.slots.slab_at(offset).as_ref().and_then(|slab| slab.state_at(offset)) {
                    state.lose();
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Unlinks the items of `slab` of which nobody knows any more which they are: each is in some chain, or stranded.
    /// Far memory is touched only where one item is in front of another.
    pub(super) fn find_lost(&self, slab: &Slab) -> Result<(), M::Error> {
        // Before the walk: a request that owned a slot may still link an item, in a chain that was walked, and lose it.
        let lost: Vec<u16> = (0..slab.shape.slots).filter(|slot| slab.state(*slot).is_lost()).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let is_lost = |offset| Ok(self.slots.with(offset, |state| state.is_lost()));
        let mut is_complete = true;
        for bucket in 0..self.table.buckets() {
            give_way(bucket);
            is_complete &= unless_lost::<_, M>(self.lock(bucket as u32).drop_lost(is_lost))?.is_some();
        }
        // What is in no chain now has been in none since it was lost, or was stranded: nothing can lead to it.
        let stranded = |slot: &u16| is_complete && slab.state(*slot).is_lost();
        for slot in lost.into_iter().filter(stranded) {
            drop(self.forget_lost(slab.offset_of(slot)));
        }
        Ok(())
    }

    /// The slot of an item of which something is lost, and which is in no chain any more.
    fn forget_lost(&self, offset: u64) -> Owned<'_> {
        self.slots.with(offset, |state| state.unlink());
        self.counters.item_lost();
        self.counters.add(Stat::LostItems, 1);
        self.own(offset)
    }

    fn mend(&self, bucket_part: u32) -> Result<(), M::Error> {
        match self.lock(bucket_part).drop_lost(|offset| Ok(!self.is_whole(offset)?)) {
            // More of it was lost in between; the next attempt sees to it.
            Err(error) if M::is_lost(&error) => Ok(()),
            done => done,
        }
    }

    /// Whether every byte of the item at `offset` can be read.
    fn is_whole(&self, offset: u64) -> Result<bool, M::Error> {
        let touch = || -> Result<(), M::Error> {
            let end = offset + self.read_header(offset)?.item_bytes() as u64;
            let mut at = offset;
            while at < end {
                self.memory.read(at, &mut [0])?;
                at = (at / PAGE_BYTES + 1) * PAGE_BYTES;
            }
            Ok(())
        };
        unless_lost::<_, M>(touch()).map(|whole| whole.is_some())
    }
}

impl<'a, M: ItemMemory> Bucket<'a, M> {
    /// Unlinks every item that `is_lost` says is, and every one whose link is.
    fn drop_lost(&self, is_lost: impl Fn(u64) -> Result<bool, M::Error>) -> Result<(), M::Error> {
        let (mut before, mut link) = self.first();
        while !link.is_none() {
            let offset = link.offset();
            let next = unless_lost::<_, M>(self.next_of(offset))?;
            if next.is_some() && !is_lost(offset)? {
                before = self.behind(offset);
            } else {
                self.set_link(before, next.unwrap_or(Link::NONE))?;
                drop(self.store().forget_lost(offset));
            }
            link = next.unwrap_or(Link::NONE);
        }
        Ok(())
    }

    /// Takes the slot of an item that says it is of this bucket, `hash`, and is not in its chain; `None` if it is no
    /// item, or one of another bucket by now.
    ///
    /// The offset may be older than the slab that is there: what lies at it is a header only where a slot starts, and
    /// only if the slot is still linked after the header was read. Else the slab may be renewed, or gone, by then.
    pub(super) fn take_stranded(&self, offset: u64, hash: u32) -> Result<Option<Owned<'a>>, M::Error> {
        let slots = &self.store().slots;
        // In this order: what was linked when it was looked at, and has this bucket's hash later, was this bucket's all
        // along, because nothing else can have become so while the bucket is locked.
        let Some(slab) = slots.slab_at(offset) else { return Ok(None) };
        let Some(state) = slab.state_at(offset).filter(|state| state.is_linked()) else { return Ok(None) };
        let header = self.store().read_header(offset)?;
        Ok((state.is_linked() && header.hash == hash).then(|| self.disown(offset, &header)))
    }
}

/// What was had, or `None` if it is lost.
fn unless_lost<T, M: ItemMemory>(result: Result<T, M::Error>) -> Result<Option<T>, M::Error> {
    match result {
        Ok(had) => Ok(Some(had)),
        Err(error) if M::is_lost(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
