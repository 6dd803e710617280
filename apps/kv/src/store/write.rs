//! The commands that change values: `set` and its kin, `delete`, `incr`, `decr`.
//!
//! A value is never changed in place. The new item is written into a slot of its own with no lock held, and then takes
//! the old one's place in the chain with a single store, under the bucket's lock and after the condition was checked
//! (again). So a far access that fails half way leaves the old item whole, and no request allocates, and thereby
//! evicts, while it holds a bucket.

use std::sync::atomic::Ordering;

use super::bucket::Found;
use super::item::{Header, Link};
use super::stats::Stat;
use super::{Failure, Room, Store};
use crate::memory::ItemMemory;
use crate::protocol::{Direction, Exptime, KeyValue, WriteMode, WriteRefusal, parse_u64, reply};

/// Longest value that `incr` and `decr` take for a number; it may be padded with blanks.
const NUMBER_BYTES_MAX: u32 = 1024;

/// The answer of a write whose condition does not hold, and what to count.
struct Refused(&'static [u8], Option<Stat>);

/// A stored value to be replaced, and the change it was read at.
struct Seen {
    cas: u64,
    /// With what goes around it. None if it is longer than the edit can take.
    item: Option<KeyValue>,
}

/// How a stored value is read to be replaced.
#[derive(Clone, Copy)]
struct Reading<'a> {
    /// Longest value that the edit can take.
    value_bytes_max: u32,
    /// What goes around it: it is read into its place.
    before: &'a [u8],
    after: &'a [u8],
}

/// How an edit of a stored value ended.
enum Edited<R> {
    /// There is no such item.
    Absent,
    /// The edit cannot be applied to this value.
    Refused(R),
    /// The new value is stored.
    Stored,
}

impl<M: ItemMemory> Store<M> {
    pub(super) fn write(
        &self,
        mode: WriteMode,
        item: &KeyValue,
        flags: u32,
        exptime: Exptime,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Result<&'static [u8], Failure<M::Error>> {
        self.counters.add(Stat::CmdSet, 1);
        self.mending(self.table.hash(item.key()), || match mode {
            WriteMode::Append => self.extend(item.key(), now_s, [&[], item.value()], room),
            WriteMode::Prepend => self.extend(item.key(), now_s, [item.value(), &[]], room),
            WriteMode::Set | WriteMode::Add | WriteMode::Replace | WriteMode::Cas(_) => {
                self.put(mode, item, flags, exptime.deadline_s(now_s), now_s)
            }
        })
    }

    /// A `set` that cannot be done must not leave the old value behind, which the client believes to be replaced.
    pub(super) fn refuse_write(
        &self,
        mode: WriteMode,
        key: &[u8],
        refusal: WriteRefusal,
        now_s: u32,
    ) -> Result<&'static [u8], Failure<M::Error>> {
        if mode == WriteMode::Set {
            self.mending(self.table.hash(key), || Ok(self.remove(key, now_s)?))?;
        }
        Err(match refusal {
            WriteRefusal::TooLarge => Failure::TooLarge,
            WriteRefusal::NoRoom => Failure::OutOfMemory,
        })
    }

    pub(super) fn delete(&self, key: &[u8], now_s: u32) -> Result<&'static [u8], Failure<M::Error>> {
        let existed = self.mending(self.table.hash(key), || Ok(self.remove(key, now_s)?))?;
        self.counters.add(if existed { Stat::DeleteHits } else { Stat::DeleteMisses }, 1);
        Ok(if existed { reply::DELETED } else { reply::NOT_FOUND })
    }

    pub(super) fn arithmetic(
        &self,
        key: &[u8],
        direction: Direction,
        delta: u64,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Result<Vec<u8>, Failure<M::Error>> {
        let (hits, misses) = match direction {
            Direction::Up => (Stat::IncrHits, Stat::IncrMisses),
            Direction::Down => (Stat::DecrHits, Stat::DecrMisses),
        };
        let mut digits = String::new();
        let mut number = |old: Option<KeyValue>| {
            let old = old.ok_or(())?;
            let old_value = parse_u64(old.value()).ok_or(())?;
            let new_value = match direction {
                Direction::Up => old_value.wrapping_add(delta),
                Direction::Down => old_value.saturating_sub(delta),
            };
            digits = new_value.to_string();
            // A number that has become shorter is padded, as memcached does.
            let mut value = digits.clone().into_bytes();
            value.resize(value.len().max(old.value().len()), b' ');
            Ok(KeyValue::new(key, &value))
        };
        let reading = Reading { value_bytes_max: NUMBER_BYTES_MAX, before: &[], after: &[] };
        let edited = self.mending(self.table.hash(key), || self.edit(key, now_s, reading, room, &mut number))?;
        self.counters.add(if matches!(edited, Edited::Absent) { misses } else { hits }, 1);
        Ok(match edited {
            Edited::Absent => reply::NOT_FOUND.to_vec(),
            Edited::Refused(()) => reply::NON_NUMERIC.to_vec(),
            Edited::Stored => (digits + "\r\n").into_bytes(),
        })
    }

    fn put(
        &self,
        mode: WriteMode,
        item: &KeyValue,
        flags: u32,
        deadline_s: u32,
        now_s: u32,
    ) -> Result<&'static [u8], Failure<M::Error>> {
        let hash = self.table.hash(item.key());
        if mode != WriteMode::Set {
            // Nothing is evicted for a write that is going to be refused.
            let bucket = self.lock(hash.bucket_part());
            let found = bucket.find(hash, item.key())?;
            if let Err(refused) = self.condition(mode, found.as_ref(), now_s) {
                return Ok(self.refuse(refused));
            }
        }
        let slot = self.fill_slot(item, now_s)?;
        let bucket = self.lock(hash.bucket_part());
        let found = bucket.find(hash, item.key())?;
        if let Err(refused) = self.condition(mode, found.as_ref(), now_s) {
            return Ok(self.refuse(refused));
        }
        let header = self.new_header(hash.bucket_part(), item, flags, deadline_s);
        bucket.link(slot, hash, header, found.as_ref())?;
        if matches!(mode, WriteMode::Cas(_)) {
            self.counters.add(Stat::CasHits, 1);
        }
        Ok(reply::STORED)
    }

    fn extend(
        &self,
        key: &[u8],
        now_s: u32,
        [before, after]: [&[u8]; 2],
        room: &mut dyn Room,
    ) -> Result<&'static [u8], Failure<M::Error>> {
        let value_bytes_max = self.config.value_bytes_max.saturating_sub(before.len() + after.len());
        let value_bytes_max = u32::try_from(value_bytes_max).unwrap_or(u32::MAX);
        let reading = Reading { value_bytes_max, before, after };
        let edited = self.edit(key, now_s, reading, room, |joined| joined.ok_or(()))?;
        Ok(if matches!(edited, Edited::Stored) { reply::STORED } else { reply::NOT_STORED })
    }

    /// Replaces the value of a live item by what `edit` makes of it; flags and expiry stay. `edit` gets None for a
    /// value that is too long, and is called again when the item has changed meanwhile: each time, another request has
    /// made progress.
    fn edit<R>(
        &self,
        key: &[u8],
        now_s: u32,
        reading: Reading<'_>,
        room: &mut dyn Room,
        mut edit: impl FnMut(Option<KeyValue>) -> Result<KeyValue, R>,
    ) -> Result<Edited<R>, Failure<M::Error>> {
        let hash = self.table.hash(key);
        loop {
            let Some(seen) = self.see(key, now_s, reading, room)? else {
                return Ok(Edited::Absent);
            };
            let item = match edit(seen.item) {
                Ok(item) => item,
                Err(refused) => return Ok(Edited::Refused(refused)),
            };
            let slot = self.fill_slot(&item, now_s)?;
            let bucket = self.lock(hash.bucket_part());
            let Some(found) = bucket.find(hash, key)?.filter(|found| self.death(&found.header, now_s).is_none()) else {
                return Ok(Edited::Absent);
            };
            if found.header.cas == seen.cas {
                let header = self.new_header(hash.bucket_part(), &item, found.header.flags, found.header.deadline_s);
                bucket.link(slot, hash, header, Some(&found))?;
                return Ok(Edited::Stored);
            }
        }
    }

    /// Reads the value of a live item.
    fn see(
        &self,
        key: &[u8],
        now_s: u32,
        Reading { value_bytes_max, before, after }: Reading<'_>,
        room: &mut dyn Room,
    ) -> Result<Option<Seen>, Failure<M::Error>> {
        let hash = self.table.hash(key);
        let bucket = self.lock(hash.bucket_part());
        let Some(found) = bucket.find(hash, key)?.filter(|found| self.death(&found.header, now_s).is_none()) else {
            return Ok(None);
        };
        let (cas, value_bytes) = (found.header.cas, found.header.value_bytes);
        if value_bytes > value_bytes_max {
            return Ok(Some(Seen { cas, item: None }));
        }
        let bytes = key.len() + before.len() + value_bytes as usize + after.len();
        if !room.grow_to(bytes) {
            return Err(Failure::OutOfMemory);
        }
        let mut item = Vec::with_capacity(bytes);
        item.extend_from_slice(key);
        item.extend_from_slice(before);
        self.append_value(&found, &mut item)?;
        item.extend_from_slice(after);
        Ok(Some(Seen { cas, item: Some(KeyValue::whole(item, key.len())) }))
    }

    /// Unlinks the item of a key. Returns whether there was a live one.
    fn remove(&self, key: &[u8], now_s: u32) -> Result<bool, M::Error> {
        let hash = self.table.hash(key);
        let bucket = self.lock(hash.bucket_part());
        let Some(found) = bucket.find(hash, key)? else {
            return Ok(false);
        };
        drop(bucket.unlink(&found)?);
        Ok(self.death(&found.header, now_s).is_none())
    }

    fn condition(&self, mode: WriteMode, found: Option<&Found>, now_s: u32) -> Result<(), Refused> {
        let live = found.filter(|found| self.death(&found.header, now_s).is_none());
        match (mode, live) {
            (WriteMode::Add, Some(_)) | (WriteMode::Replace, None) => Err(Refused(reply::NOT_STORED, None)),
            (WriteMode::Cas(_), None) => Err(Refused(reply::NOT_FOUND, Some(Stat::CasMisses))),
            (WriteMode::Cas(cas), Some(found)) if found.header.cas != cas => {
                Err(Refused(reply::EXISTS, Some(Stat::CasBadval)))
            }
            _ => Ok(()),
        }
    }

    fn refuse(&self, Refused(text, stat): Refused) -> &'static [u8] {
        if let Some(stat) = stat {
            self.counters.add(stat, 1);
        }
        text
    }

    /// The header of an item that is about to be linked: its bucket is locked, so cas uniques of a key grow in the
    /// order of its changes.
    fn new_header(&self, hash: u32, item: &KeyValue, flags: u32, deadline_s: u32) -> Header {
        Header {
            next: Link::NONE,
            cas: self.cas_last.fetch_add(1, Ordering::Relaxed) + 1,
            deadline_s,
            flags,
            hash,
            key_bytes: item.key().len() as u8,
            value_bytes: item.value().len() as u32,
        }
    }
}
