//! The buckets of a [`Table`]: which one a key is in, and linear hashing, which splits or merges one bucket at a time.
//!
//! With n buckets, of which the largest power of two is p, a key is in bucket `hash mod 2p`, or in `hash mod p` where
//! that does not exist yet. Bucket n is split from bucket n - p, and merged with it again. A split or merge that memory
//! refuses leaves the table as it was.

use yonder_units::Narrow;
use yonder_wire::ErrorCode;

use super::record::{Entry, SLOT_BYTES, SLOT_ENTRIES, Slot};
use super::table::{CHAIN_SLOTS_MAX, SEGMENT_SLOTS, Table};
use crate::arena::{Own, SPAN_BYTES};

/// A bucket is added when there are more keys than this for each ...
const KEYS_PER_BUCKET_MAX: u64 = 5;
/// ... and one is removed when there are fewer than this.
const KEYS_PER_BUCKET_MIN: u64 = 2;

// After a split the table is far from a merge, and the other way round.
const _: () = assert!(2 * KEYS_PER_BUCKET_MIN < KEYS_PER_BUCKET_MAX);

impl Table {
    pub(super) fn bucket_of(&self, hash: u64) -> u64 {
        let power = power_of(self.buckets);
        let bucket = hash % (2 * power);
        if bucket < self.buckets { bucket } else { hash % power }
    }

    /// How many of the lowest bits of their hashes the keys of a bucket have in common.
    pub(super) fn depth_of(&self, bucket: u64) -> u32 {
        let power = power_of(self.buckets);
        let is_split = bucket >= power || bucket + power < self.buckets;
        power.ilog2() + u32::from(is_split)
    }

    pub(super) fn head_of(&self, bucket: u64) -> u64 {
        self.segments[(bucket / SEGMENT_SLOTS) as usize] + bucket % SEGMENT_SLOTS * SLOT_BYTES
    }

    /// Adds or removes one bucket if there are too few or too many. If that is refused, the table is right all the
    /// same.
    pub(super) fn fit_buckets(&mut self, own: &mut Own<'_>) {
        if self.keys == 0 {
            self.clear(own);
        } else if self.keys > self.buckets * KEYS_PER_BUCKET_MAX {
            let _ = self.split(own);
        } else if self.buckets > 1 && self.keys < self.buckets * KEYS_PER_BUCKET_MIN {
            let _ = self.merge(own);
        }
    }

    /// Adds a bucket with `entries`, and returns its chained slots.
    pub(super) fn add_bucket(&mut self, entries: &[Entry], own: &mut Own<'_>) -> Result<Vec<u64>, ErrorCode> {
        if self.buckets == self.segments.len() as u64 * SEGMENT_SLOTS {
            self.segments.push(self.arena.allocate(SPAN_BYTES.narrow_usize(), own)?);
        }
        self.buckets += 1;
        let added = self.replace(self.buckets - 1, entries, &[], own);
        if added.is_err() {
            self.remove_last_bucket(&[], own);
        }
        added
    }

    fn remove_last_bucket(&mut self, chained: &[u64], own: &mut Own<'_>) {
        self.free_chained(chained, own);
        self.buckets -= 1;
        if self.buckets == (self.segments.len() as u64 - 1) * SEGMENT_SLOTS
            && let Some(segment) = self.segments.pop()
        {
            self.arena.free(segment, own);
        }
    }

    /// Adds a bucket, and moves to it what belongs there.
    fn split(&mut self, own: &mut Own<'_>) -> Result<(), ErrorCode> {
        let added = self.buckets;
        let source = buddy_of(added);
        let (entries, old_chained) = self.read_chain(source, own)?;
        let (mut staying, mut going) = (Vec::new(), Vec::new());
        for entry in entries {
            let hash = own.read_word(entry.record())?;
            if hash & power_of(added) == 0 { staying.push(entry) } else { going.push(entry) }
        }
        let added_chained = self.add_bucket(&going, own)?;
        let replaced = self.replace(source, &staying, &old_chained, own);
        if replaced.is_err() {
            // The source still has them all.
            self.remove_last_bucket(&added_chained, own);
        }
        replaced.map(|_| ())
    }

    /// Moves the entries of the last bucket to the one that it was split from, and removes it.
    fn merge(&mut self, own: &mut Own<'_>) -> Result<(), ErrorCode> {
        let last = self.buckets - 1;
        let target = buddy_of(last);
        let (mut entries, old_chained) = self.read_chain(target, own)?;
        let (moved, last_chained) = self.read_chain(last, own)?;
        entries.extend(moved);
        if entries.len() > CHAIN_SLOTS_MAX * SLOT_ENTRIES {
            return Err(ErrorCode::OutOfMemory);
        }
        self.replace(target, &entries, &old_chained, own)?;
        self.remove_last_bucket(&last_chained, own);
        Ok(())
    }

    /// Entries of a bucket, and its chained slots.
    pub(super) fn read_chain(&self, bucket: u64, own: &mut Own<'_>) -> Result<(Vec<Entry>, Vec<u64>), ErrorCode> {
        let (mut entries, mut chained) = (Vec::new(), Vec::new());
        let mut slot = Slot::read(self.head_of(bucket), own)?;
        loop {
            entries.extend(slot.taken());
            match slot.next {
                0 => return Ok((entries, chained)),
                next if chained.len() < CHAIN_SLOTS_MAX => {
                    chained.push(next);
                    slot = Slot::read(next, own)?;
                }
                // No put makes such a chain: the memory is not what was written.
                _ => return Err(ErrorCode::System),
            }
        }
    }

    /// Makes `entries` all that a bucket has, and returns its chained slots; those that it had are freed. Everything
    /// but the head is written before, to new memory, so that one write changes the bucket.
    fn replace(
        &mut self,
        bucket: u64,
        entries: &[Entry],
        old_chained: &[u64],
        own: &mut Own<'_>,
    ) -> Result<Vec<u64>, ErrorCode> {
        let (first, rest) = entries.split_at(entries.len().min(SLOT_ENTRIES));
        let (mut chained, mut next) = (Vec::new(), 0);
        let mut written = Ok(());
        for part in rest.chunks(SLOT_ENTRIES) {
            match self.write_chained(&Slot::new(part, next), own) {
                Ok(slot) => {
                    self.chained_slots += 1;
                    chained.push(slot);
                    next = slot;
                }
                Err(refused) => {
                    written = Err(refused);
                    break;
                }
            }
        }
        let replaced = written.and_then(|()| Slot::new(first, next).write(self.head_of(bucket), own));
        self.free_chained(if replaced.is_ok() { old_chained } else { &chained }, own);
        replaced.map(|()| chained)
    }

    fn free_chained(&mut self, chained: &[u64], own: &mut Own<'_>) {
        for slot in chained {
            self.arena.free(*slot, own);
        }
        self.chained_slots -= chained.len() as u64;
    }
}

/// The largest power of two that is not greater than a number.
fn power_of(number: u64) -> u64 {
    1 << number.ilog2()
}

/// The bucket that another was split from.
fn buddy_of(bucket: u64) -> u64 {
    bucket - power_of(bucket)
}
