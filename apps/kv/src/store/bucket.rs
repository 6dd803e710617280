//! The hash table: bucket heads in local memory, chains of items in far memory, striped locks.
//!
//! [`Table`] holds the heads and the locks. [`Bucket`] is one locked bucket; finding, linking and unlinking items goes
//! through it. A lookup touches only items whose 16-bit tag matches, and items in front of others in a longer chain.
//!
//! Locks: a request holds at most one bucket at a time, and may hold it across far accesses, because the lock yields
//! while it waits. Under it, the arena's mutex and the slot table may be taken for a moment; neither is ever held
//! across a far access, and nobody takes a bucket while holding one of them. So there is no cycle, also not when an
//! item of another bucket is evicted: the evictor holds no bucket of its own then.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder::sync::Mutex;

use super::Store;
use super::item::{HEADER_BYTES, Header, Link};
use super::space::Owned;
use crate::memory::ItemMemory;

/// Buckets that share a lock, unless that makes too many locks.
const BUCKETS_PER_STRIPE: usize = 8;
const STRIPES_MAX: usize = 1 << 16;
const BUCKETS_MIN: usize = 1 << 4;
const BUCKETS_MAX: usize = 1 << 32;

/// A key's hash: the low half names the bucket, the top 16 bits are the tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hash(u64);

impl Hash {
    pub(super) fn bucket_part(self) -> u32 {
        self.0 as u32
    }

    /// All of it.
    pub(super) fn number(self) -> u64 {
        self.0
    }

    fn tag(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// How often items of a stripe were given a cas unique that the store did not draw. Between two looks at an item that
/// has the same one, it may have changed if this has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CasChoices(u64);

/// Bucket heads and their locks.
pub(super) struct Table {
    heads: Box<[AtomicU64]>,
    stripes: Box<[Mutex<CasChoices>]>,
    seed: u64,
}

impl Table {
    /// A table for about `items` items. The seed keeps clients from choosing keys that collide.
    pub(super) fn new(items: u64, seed: u64) -> Self {
        let buckets = (items as usize).clamp(BUCKETS_MIN, BUCKETS_MAX).next_power_of_two();
        let stripes = (buckets / BUCKETS_PER_STRIPE).min(STRIPES_MAX);
        Self {
            heads: (0..buckets).map(|_| AtomicU64::new(Link::NONE.0)).collect(),
            stripes: (0..stripes).map(|_| Mutex::new(CasChoices(0))).collect(),
            seed,
        }
    }

    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        Hash(xxh3_64_with_seed(key, self.seed))
    }

    pub(super) fn buckets(&self) -> usize {
        self.heads.len()
    }

    /// Local memory that the table takes, in bytes.
    pub(super) fn local_bytes(&self) -> usize {
        size_of_val(&*self.heads) + size_of_val(&*self.stripes)
    }
}

/// One bucket, locked.
pub(super) struct Bucket<'a, M: ItemMemory> {
    store: &'a Store<M>,
    head: &'a AtomicU64,
    choices: MutexGuard<'a, CasChoices>,
}

/// An item that was found, and what points to it. Valid as long as its bucket is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) offset: u64,
    pub(super) header: Header,
    before: Before,
}

/// What points to an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    Head,
    Item(u64),
}

impl<M: ItemMemory> Store<M> {
    /// Locks the bucket of a hash, given by the half that an item keeps. The caller holds no other lock.
    pub(super) fn lock(&self, bucket_part: u32) -> Bucket<'_, M> {
        let table = &self.table;
        let bucket = bucket_part as usize & (table.heads.len() - 1);
        let stripe = table.stripes[bucket & (table.stripes.len() - 1)].lock();
        Bucket { store: self, head: &table.heads[bucket], choices: stripe }
    }
}

impl<'a, M: ItemMemory> Bucket<'a, M> {
    pub(super) fn cas_choices(&self) -> CasChoices {
        *self.choices
    }

    /// An item is about to get a cas unique that the store does not draw.
    pub(super) fn choose_cas(&mut self) {
        self.choices.0 += 1;
    }

    /// Finds the item of a key.
    pub(super) fn find(&self, hash: Hash, key: &[u8]) -> Result<Option<Found>, M::Error> {
        let (mut before, mut link) = (Before::Head, self.head());
        while !link.is_none() {
            let offset = link.offset();
            let next = if link.tag() == hash.tag() {
                let header = self.store.read_header(offset)?;
                if usize::from(header.key_bytes) == key.len()
                    && self.store.memory.matches(offset + HEADER_BYTES as u64, key)?
                {
                    return Ok(Some(Found { offset, header, before }));
                }
                header.next
            } else {
                self.next_of(offset)?
            };
            (before, link) = (Before::Item(offset), next);
        }
        Ok(None)
    }

    /// Finds the item that lies at `wanted`, if it is in this bucket.
    pub(super) fn find_at(&self, wanted: u64) -> Result<Option<Found>, M::Error> {
        let (mut before, mut link) = (Before::Head, self.head());
        while !link.is_none() {
            let offset = link.offset();
            if offset == wanted {
                return Ok(Some(Found { offset, header: self.store.read_header(offset)?, before }));
            }
            (before, link) = (Before::Item(offset), self.next_of(offset)?);
        }
        Ok(None)
    }

    /// Links a new item, whose key and value are in the slot already, in place of `old` or as the first of the bucket.
    /// Returns the slot of `old`. After an error the chain is as before.
    pub(super) fn link(
        &self,
        slot: Owned<'a>,
        hash: Hash,
        header: Header,
        old: Option<&Found>,
        now_s: u32,
    ) -> Result<Option<Owned<'a>>, M::Error> {
        let next = old.map_or(self.head(), |old| old.header.next);
        let header = Header { next, ..header };
        if let Err(error) = self.store.memory.write(slot.offset(), &header.encode()) {
            if M::is_lost(&error) {
                self.store.retire(slot);
            }
            return Err(error);
        }
        self.set_link(old.map_or(Before::Head, |old| old.before), Link::new(slot.offset(), hash.tag()))?;
        self.store.slots.linked(slot.offset(), header.deadline_s, next, now_s);
        self.store.counters.item_added(header.item_bytes());
        slot.keep();
        Ok(old.map(|old| self.disown(old.offset, &old.header)))
    }

    /// Takes an item out of the chain and returns its slot. After an error the chain is as before.
    pub(super) fn unlink(&self, found: &Found) -> Result<Owned<'a>, M::Error> {
        self.set_link(found.before, found.header.next)?;
        Ok(self.disown(found.offset, &found.header))
    }

    /// The slot of an item that is in no chain any more.
    pub(super) fn disown(&self, offset: u64, header: &Header) -> Owned<'a> {
        self.store.slots.with(offset, |state| state.unlink());
        self.store.counters.item_removed(header.item_bytes());
        self.store.own(offset)
    }

    pub(super) fn store(&self) -> &'a Store<M> {
        self.store
    }

    /// The first link of the chain, and what it is in.
    pub(super) fn first(&self) -> (Before, Link) {
        (Before::Head, self.head())
    }

    /// What points to the item behind the one at `offset`.
    pub(super) fn behind(&self, offset: u64) -> Before {
        Before::Item(offset)
    }

    fn head(&self) -> Link {
        Link(self.head.load(Relaxed))
    }

    /// Reads the link behind an item, from far memory only if there is one.
    pub(super) fn next_of(&self, offset: u64) -> Result<Link, M::Error> {
        if self.store.slots.with(offset, |state| state.has_next()) {
            Ok(Link(self.store.memory.read_u64(offset)?))
        } else {
            Ok(Link::NONE)
        }
    }

    pub(super) fn set_link(&self, before: Before, link: Link) -> Result<(), M::Error> {
        match before {
            Before::Head => self.head.store(link.0, Relaxed),
            Before::Item(offset) => {
                self.store.memory.write_u64(offset, link.0)?;
                self.store.slots.with(offset, |state| state.set_next(link));
            }
        }
        Ok(())
    }
}
