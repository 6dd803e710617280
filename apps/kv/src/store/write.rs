//! The commands that change values: `set` and its kin, `delete`, `incr`, `decr`.
//!
//! A value is never changed in place. The new item is written into a slot of its own with no lock held, and then takes
//! the old one's place in the chain with a single store, under the bucket's lock and after the condition was checked
//! (again). So a far access that fails half way leaves the old item whole, and no request allocates, and thereby
//! evicts, while it holds a bucket.

use std::sync::atomic::Ordering;

use super::bucket::{Bucket, CasChoices, Found};
use super::item::{Header, Link, Marks};
use super::stats::Stat;
use super::{Failure, Room, Store};
use crate::memory::ItemMemory;
use crate::protocol::{Direction, Exptime, KeyValue, WriteMode, WriteRefusal, parse_u64, reply};

/// Longest value that `incr` and `decr` take for a number; it may be padded with blanks.
const NUMBER_BYTES_MAX: u32 = 1024;

/// What an item is to be besides its key and value.
#[derive(Clone, Copy)]
pub(super) struct Traits {
    pub(super) flags: u32,
    pub(super) deadline_s: u32,
    pub(super) marks: Marks,
    /// The cas unique that a client has chosen, if one has.
    pub(super) cas: Option<u64>,
}

/// A value to be stored, and under which condition: none of those that change a value.
pub(super) struct Put<'a> {
    pub(super) mode: WriteMode,
    pub(super) item: &'a KeyValue,
    pub(super) traits: Traits,
    pub(super) older: OlderCas,
}

/// What becomes of a write with a cas unique that is older than the item's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OlderCas {
    /// It is refused.
    Refused,
    /// It is stored, and the item is stale.
    Stale,
}

/// How a write ended.
pub(super) enum Written {
    /// The item is stored, with this header.
    Stored(Header),
    /// The mode wants an item, or none.
    NotStored,
    /// The item has another cas unique.
    Exists,
    /// There is no item with a cas unique.
    NotFound,
}

/// Why a write is refused, and what to count.
struct Refused(Written, Option<Stat>);

/// A stored item to be replaced, as it was found.
pub(super) struct Seen {
    pub(super) header: Header,
    offset: u64,
    choices: CasChoices,
    /// With what goes around its value. None if it is longer than the edit can take.
    pub(super) item: Option<KeyValue>,
}

/// What takes the place of a stored item.
pub(super) struct Revision {
    pub(super) item: KeyValue,
    pub(super) traits: Traits,
    pub(super) history: History,
}

/// Whether a revision counts as the item that it replaces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    /// It was fetched if that was.
    Kept,
    /// It is new.
    Dropped,
}

/// How a stored value is read to be replaced.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    /// Longest value that the edit can take.
    pub(super) value_bytes_max: u32,
    /// What goes around it: it is read into its place.
    pub(super) before: &'a [u8],
    pub(super) after: &'a [u8],
}

/// How an edit of a stored value ended.
pub(super) enum Edited<R> {
    /// There is no such item.
    Absent,
    /// The edit cannot be applied to this value.
    Refused(R),
    /// The new value is stored, with this header.
    Stored(Header),
}

impl Edited<Written> {
    /// How the write ended, if there was an item.
    pub(super) fn written(self) -> Option<Written> {
        match self {
            Self::Absent => None,
            Self::Refused(written) => Some(written),
            Self::Stored(header) => Some(Written::Stored(header)),
        }
    }
}

/// What `incr`, `decr` and `ma` do to a number.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    pub(super) direction: Direction,
    pub(super) delta: u64,
    /// The cas unique that the item is to have; 0 is any.
    pub(super) cas: u64,
    /// The one that it is to get, if a client has chosen.
    pub(super) new_cas: Option<u64>,
    /// When it is to expire, if that changes.
    pub(super) deadline_s: Option<u32>,
}

/// How arithmetic ended.
pub(super) enum Summed {
    Absent,
    /// The item has another cas unique.
    Exists,
    NonNumeric,
    /// The number is stored.
    Stored {
        digits: String,
        header: Header,
        /// When the item would have expired.
        old_deadline_s: u32,
    },
}

/// Whose value is longer, and by what.
#[derive(Clone, Copy)]
pub(super) struct Extension<'a> {
    pub(super) before: &'a [u8],
    pub(super) after: &'a [u8],
    /// As of [`Sum`].
    pub(super) cas: u64,
    pub(super) new_cas: Option<u64>,
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
        let mut extend = |before: &[u8], after: &[u8]| -> Result<Written, Failure<M::Error>> {
            let extension = Extension { before, after, cas: 0, new_cas: None };
            Ok(self.extend(item.key(), extension, now_s, room)?.written().unwrap_or(Written::NotStored))
        };
        let written = self.mending(self.table.hash(item.key()), || match mode {
            WriteMode::Append => extend(&[], item.value()),
            WriteMode::Prepend => extend(item.value(), &[]),
            WriteMode::Set | WriteMode::Add | WriteMode::Replace | WriteMode::Cas(_) => {
                let deadline_s = exptime.deadline_s(now_s);
                let traits = Traits { flags, deadline_s, marks: Marks::default(), cas: None };
                self.put(&Put { mode, item, traits, older: OlderCas::Refused }, now_s)
            }
        })?;
        Ok(match written {
            Written::Stored(_) => reply::STORED,
            Written::NotStored => reply::NOT_STORED,
            Written::Exists => reply::EXISTS,
            Written::NotFound => reply::NOT_FOUND,
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
        let sum = Sum { direction, delta, cas: 0, new_cas: None, deadline_s: None };
        Ok(match self.sum(key, sum, now_s, room)? {
            Summed::Absent => reply::NOT_FOUND.to_vec(),
            Summed::Exists => reply::EXISTS.to_vec(),
            Summed::NonNumeric => reply::NON_NUMERIC.to_vec(),
            Summed::Stored { digits, .. } => (digits + "\r\n").into_bytes(),
        })
    }

    /// Adds to the number that an item holds, or subtracts from it.
    pub(super) fn sum(
        &self,
        key: &[u8],
        sum: Sum,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Result<Summed, Failure<M::Error>> {
        let (hits, misses) = match sum.direction {
            Direction::Up => (Stat::IncrHits, Stat::IncrMisses),
            Direction::Down => (Stat::DecrHits, Stat::DecrMisses),
        };
        let (mut digits, mut old_deadline_s) = (String::new(), 0);
        let mut number = |Seen { header, item, .. }: Seen| -> Result<Revision, Summed> {
            if header.value_bytes == 0 {
                return Err(Summed::NonNumeric);
            }
            if sum.cas != 0 && sum.cas != header.cas {
                return Err(Summed::Exists);
            }
            let old = item.ok_or(Summed::NonNumeric)?;
            let old_value = parse_u64(old.value()).ok_or(Summed::NonNumeric)?;
            digits = match sum.direction {
                Direction::Up => old_value.wrapping_add(sum.delta),
                Direction::Down => old_value.saturating_sub(sum.delta),
            }
            .to_string();
            // A number that has become shorter is padded, as memcached does; one that has become longer is a new item.
            let mut value = digits.clone().into_bytes();
            value.resize(value.len().max(old.value().len()), b' ');
            let history = if value.len() > old.value().len() { History::Dropped } else { History::Kept };
            let marks = if history == History::Kept { header.marks } else { header.marks.of_key() };
            old_deadline_s = header.deadline_s;
            let deadline_s = sum.deadline_s.unwrap_or(old_deadline_s);
            let traits = Traits { flags: header.flags, deadline_s, marks, cas: sum.new_cas };
            Ok(Revision { item: KeyValue::new(key, &value), traits, history })
        };
        let reading = Reading { value_bytes_max: NUMBER_BYTES_MAX, before: &[], after: &[] };
        let edited = self.mending(self.table.hash(key), || self.edit(key, now_s, reading, room, &mut number))?;
        self.counters.add(if matches!(edited, Edited::Absent) { misses } else { hits }, 1);
        Ok(match edited {
            Edited::Absent => Summed::Absent,
            Edited::Refused(refused) => refused,
            Edited::Stored(header) => Summed::Stored { digits, header, old_deadline_s },
        })
    }

    pub(super) fn put(&self, put: &Put<'_>, now_s: u32) -> Result<Written, Failure<M::Error>> {
        let hash = self.table.hash(put.item.key());
        if put.mode != WriteMode::Set {
            // Nothing is evicted for a write that is going to be refused.
            let bucket = self.lock(hash.bucket_part());
            let found = bucket.find(hash, put.item.key())?;
            if let Err(refused) = self.condition(put, found.as_ref(), now_s) {
                return Ok(self.refuse(refused));
            }
        }
        let slot = self.fill_slot(put.item, now_s)?;
        let mut bucket = self.lock(hash.bucket_part());
        let found = bucket.find(hash, put.item.key())?;
        let traits = match self.condition(put, found.as_ref(), now_s) {
            Ok(traits) => traits,
            Err(refused) => return Ok(self.refuse(refused)),
        };
        let header = self.new_header(&mut bucket, hash.bucket_part(), put.item, traits);
        bucket.link(slot, hash, header, found.as_ref(), now_s)?;
        if matches!(put.mode, WriteMode::Cas(_)) {
            self.counters.add(Stat::CasHits, 1);
        }
        Ok(Written::Stored(header))
    }

    /// Makes a stored value longer; flags and expiry stay.
    pub(super) fn extend(
        &self,
        key: &[u8],
        extension: Extension<'_>,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Result<Edited<Written>, Failure<M::Error>> {
        let Extension { before, after, cas, new_cas } = extension;
        let value_bytes_max = self.config.value_bytes_max.saturating_sub(before.len() + after.len());
        let value_bytes_max = u32::try_from(value_bytes_max).unwrap_or(u32::MAX);
        let reading = Reading { value_bytes_max, before, after };
        self.edit(key, now_s, reading, room, |Seen { header, item, .. }| {
            if cas != 0 && cas != header.cas {
                return Err(Written::Exists);
            }
            let item = item.ok_or(Written::NotStored)?;
            let Header { flags, deadline_s, marks, .. } = header;
            let traits = Traits { flags, deadline_s, marks: marks.of_key(), cas: new_cas };
            Ok(Revision { item, traits, history: History::Dropped })
        })
    }

    /// Replaces a live item by what `edit` makes of it. `edit` is called again when the item has changed meanwhile:
    /// each time, another request has made progress.
    pub(super) fn edit<R>(
        &self,
        key: &[u8],
        now_s: u32,
        reading: Reading<'_>,
        room: &mut dyn Room,
        mut edit: impl FnMut(Seen) -> Result<Revision, R>,
    ) -> Result<Edited<R>, Failure<M::Error>> {
        let hash = self.table.hash(key);
        loop {
            let Some(seen) = self.see(key, now_s, reading, room)? else {
                return Ok(Edited::Absent);
            };
            let (header, offset, choices) = (seen.header, seen.offset, seen.choices);
            let Revision { item, traits, history } = match edit(seen) {
                Ok(revision) => revision,
                Err(refused) => return Ok(Edited::Refused(refused)),
            };
            let slot = self.fill_slot(&item, now_s)?;
            let mut bucket = self.lock(hash.bucket_part());
            let Some(found) = bucket.find(hash, key)?.filter(|found| self.death(&found.header, now_s).is_none()) else {
                return Ok(Edited::Absent);
            };
            if (found.header, found.offset, bucket.cas_choices()) == (header, offset, choices) {
                let was_fetched = self.slots.with(offset, |state| state.is_fetched());
                let header = self.new_header(&mut bucket, hash.bucket_part(), &item, traits);
                let place = slot.offset();
                bucket.link(slot, hash, header, Some(&found), now_s)?;
                if history == History::Kept && was_fetched {
                    self.slots.with(place, |state| state.inherit_fetched());
                }
                return Ok(Edited::Stored(header));
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
        let Found { header, offset, .. } = found;
        let choices = bucket.cas_choices();
        if header.value_bytes > value_bytes_max {
            return Ok(Some(Seen { header, offset, choices, item: None }));
        }
        let bytes = key.len() + before.len() + header.value_bytes as usize + after.len();
        if !room.grow_to(bytes) {
            return Err(Failure::OutOfMemory);
        }
        let mut item = Vec::with_capacity(bytes);
        item.extend_from_slice(key);
        item.extend_from_slice(before);
        self.append_value(&found, &mut item)?;
        item.extend_from_slice(after);
        Ok(Some(Seen { header, offset, choices, item: Some(KeyValue::whole(item, key.len())) }))
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

    /// Whether an item may be stored, and what it is besides its key and value.
    fn condition(&self, put: &Put<'_>, found: Option<&Found>, now_s: u32) -> Result<Traits, Refused> {
        let live = found.filter(|found| self.death(&found.header, now_s).is_none());
        match (put.mode, live) {
            (WriteMode::Add, Some(_)) | (WriteMode::Replace, None) => Err(Refused(Written::NotStored, None)),
            (WriteMode::Cas(_), None) => Err(Refused(Written::NotFound, Some(Stat::CasMisses))),
            (WriteMode::Cas(cas), Some(found)) if cas == 0 || found.header.cas != cas => {
                let old = &found.header;
                if put.older == OlderCas::Refused || cas == 0 || cas > old.cas {
                    return Err(Refused(Written::Exists, Some(Stat::CasBadval)));
                }
                let marks = Marks { stale: true, win_sent: old.marks.win_sent, ..put.traits.marks };
                Ok(Traits { deadline_s: old.deadline_s, marks, ..put.traits })
            }
            _ => Ok(put.traits),
        }
    }

    fn refuse(&self, Refused(written, stat): Refused) -> Written {
        if let Some(stat) = stat {
            self.counters.add(stat, 1);
        }
        written
    }

    /// The header of an item that is about to be linked: its bucket is locked, so cas uniques of a key grow in the
    /// order of its changes.
    pub(super) fn new_header(&self, bucket: &mut Bucket<'_, M>, hash: u32, item: &KeyValue, traits: Traits) -> Header {
        if traits.cas.is_some() {
            bucket.choose_cas();
        }
        Header {
            next: Link::NONE,
            cas: traits.cas.unwrap_or_else(|| self.next_cas()),
            deadline_s: traits.deadline_s,
            flags: traits.flags,
            hash,
            key_bytes: item.key().len() as u8,
            value_bytes: item.value().len() as u32,
            marks: traits.marks,
            epoch: self.flush.epoch(),
        }
    }

    /// A cas unique that no item has, unless a client has chosen it.
    pub(super) fn next_cas(&self) -> u64 {
        self.cas_last.fetch_add(1, Ordering::Relaxed) + 1
    }
}
