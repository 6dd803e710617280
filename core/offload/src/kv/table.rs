//! [`Table`]: one caller's keys, in a chained hash table in the offload's own space (Clio, section 6).
//!
//! A bucket is a head slot and the slots chained to it. Head slots lie in segments of [`SEGMENT_SLOTS`], whose
//! addresses are all that is kept outside of that space. Buckets are added and removed one at a time (`resize`), each
//! by the put or delete that makes it necessary, so no call rehashes the table.
//!
//! Invariants: every change becomes visible by one write of a word or of a slot, which lies in one page; what a refusal
//! interrupts before that is freed again. A chain has at most [`CHAIN_SLOTS_MAX`] slots. A key is in its bucket, once.

use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder_units::Narrow;
use yonder_wire::ErrorCode;

use super::protocol::{ANSWER_HEAD_BYTES, Answer, PutMode, PutOutcome, Stats, value_head};
use super::record::{Entry, NEXT_OFFSET, RECORD_HEAD_BYTES, RecordHead, SLOT_BYTES, Slot};
use crate::arena::{Arena, Own, SPAN_BYTES};

/// Slots in a chain. With a hash that nobody can foresee, chains come nowhere near it.
pub(super) const CHAIN_SLOTS_MAX: usize = 64;
/// Head slots in a segment.
pub(super) const SEGMENT_SLOTS: u64 = SPAN_BYTES / SLOT_BYTES;

/// One caller's keys.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) arena: Arena,
    pub(super) segments: Vec<u64>,
    pub(super) buckets: u64,
    pub(super) keys: u64,
    pub(super) chained_slots: u64,
    pair_bytes: u64,
    seed: u64,
}

/// What is known of a key after a walk along its chain.
enum Place {
    /// It is there.
    Taken(Found),
    /// It is not, and may go to this vacant entry.
    Vacant { entry: u64 },
    /// It is not, and its chain of `slots` slots, which ends with `last`, is full.
    Full { last: u64, slots: usize },
}

struct Found {
    /// Address of the entry.
    entry: u64,
    record: u64,
    head: RecordHead,
    /// The slot with the entry, and the address of the one before it.
    slot: Slot,
    slot_address: u64,
    previous: Option<u64>,
}

impl Table {
    pub(super) fn new(seed: u64, bytes_max: u64) -> Self {
        let (arena, segments) = (Arena::new(bytes_max), Vec::new());
        Self { arena, segments, buckets: 0, keys: 0, chained_slots: 0, pair_bytes: 0, seed }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys == 0
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            keys: self.keys,
            pair_bytes: self.pair_bytes,
            buckets: self.buckets,
            chained_slots: self.chained_slots,
            memory_bytes: self.arena.bytes(),
        }
    }

    /// Puts the value of `key` in `answer`, with its head.
    pub(super) fn get(&self, key: &[u8], own: &mut Own<'_>, answer: &mut Vec<u8>) -> Result<(), ErrorCode> {
        let Place::Taken(found) = self.find(self.hash(key), key, own)? else {
            Answer::Absent.encode(answer);
            return Ok(());
        };
        let bytes = found.head.value_bytes as usize;
        answer.extend(value_head(bytes));
        answer.resize(ANSWER_HEAD_BYTES + bytes, 0);
        let value = found.record + (RECORD_HEAD_BYTES + key.len()) as u64;
        own.read(value, &mut answer[ANSWER_HEAD_BYTES..])
    }

    /// Gives `key` a value. A table that has no key afterwards has no memory either.
    pub(super) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        own: &mut Own<'_>,
    ) -> Result<PutOutcome, ErrorCode> {
        if self.buckets == 0 {
            self.add_bucket(&[], own)?;
        }
        let outcome = self.store(key, value, mode, own);
        self.fit_buckets(own);
        outcome
    }

    fn store(&mut self, key: &[u8], value: &[u8], mode: PutMode, own: &mut Own<'_>) -> Result<PutOutcome, ErrorCode> {
        let hash = self.hash(key);
        let place = self.find(hash, key, own)?;
        match (mode, &place) {
            (PutMode::Create, Place::Taken(_)) | (PutMode::Update, Place::Vacant { .. } | Place::Full { .. }) => {
                return Ok(PutOutcome::Refused);
            }
            _ => {}
        }
        let head = RecordHead { hash, key_bytes: key.len().narrow_u32(), value_bytes: value.len().narrow_u32() };
        let bytes = [&head.to_bytes()[..], key, value].concat();
        let record = self.arena.allocate(bytes.len(), own)?;
        let linked = own.write(record, &bytes).and_then(|()| self.link(Entry::new(record, hash), &place, own));
        if let Err(refused) = linked {
            self.arena.free(record, own);
            return Err(refused);
        }
        self.pair_bytes += head.pair_bytes();
        if let Place::Taken(old) = place {
            self.pair_bytes -= old.head.pair_bytes();
            self.arena.free(old.record, own);
            return Ok(PutOutcome::Replaced);
        }
        self.keys += 1;
        Ok(PutOutcome::Created)
    }

    /// Makes `entry` visible at `place`.
    fn link(&mut self, entry: Entry, place: &Place, own: &mut Own<'_>) -> Result<(), ErrorCode> {
        match place {
            Place::Taken(found) => own.write_word(found.entry, entry.0),
            Place::Vacant { entry: vacant } => own.write_word(*vacant, entry.0),
            Place::Full { slots, .. } if *slots >= CHAIN_SLOTS_MAX => Err(ErrorCode::OutOfMemory),
            Place::Full { last, .. } => {
                let slot = self.write_chained(&Slot::new(&[entry], 0), own)?;
                let linked = own.write_word(last + NEXT_OFFSET, slot);
                match linked {
                    Ok(()) => self.chained_slots += 1,
                    Err(_) => self.arena.free(slot, own),
                }
                linked
            }
        }
    }

    /// Writes a slot to memory of its own, and returns its address.
    pub(super) fn write_chained(&mut self, slot: &Slot, own: &mut Own<'_>) -> Result<u64, ErrorCode> {
        let address = self.arena.allocate(SLOT_BYTES.narrow_usize(), own)?;
        let written = slot.write(address, own);
        if written.is_err() {
            self.arena.free(address, own);
        }
        written.map(|()| address)
    }

    /// Removes `key`; says whether it was there.
    pub(super) fn delete(&mut self, key: &[u8], own: &mut Own<'_>) -> Result<bool, ErrorCode> {
        let Place::Taken(found) = self.find(self.hash(key), key, own)? else { return Ok(false) };
        own.write_word(found.entry, Entry::VACANT.0)?;
        self.arena.free(found.record, own);
        self.keys -= 1;
        self.pair_bytes -= found.head.pair_bytes();
        if let (Some(previous), 1) = (found.previous, found.slot.taken().count()) {
            // A chained slot that cannot be unlinked stays, empty, and the next put uses it.
            if own.write_word(previous + NEXT_OFFSET, found.slot.next).is_ok() {
                self.arena.free(found.slot_address, own);
                self.chained_slots -= 1;
            }
        }
        self.fit_buckets(own);
        Ok(true)
    }

    /// Forgets all keys and gives all memory back.
    pub(super) fn clear(&mut self, own: &mut Own<'_>) {
        self.arena.clear(own);
        self.segments.clear();
        (self.buckets, self.keys, self.pair_bytes, self.chained_slots) = (0, 0, 0, 0);
    }

    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    /// Walks along the chain of a key. The table has a bucket.
    fn find(&self, hash: u64, key: &[u8], own: &mut Own<'_>) -> Result<Place, ErrorCode> {
        let (mut slot_address, mut previous, mut vacancy) = (self.head_of(self.bucket_of(hash)), None, None);
        for slots in 1..=CHAIN_SLOTS_MAX {
            let slot = Slot::read(slot_address, own)?;
            for (index, candidate) in slot.entries.into_iter().enumerate() {
                let entry = slot_address + 8 * index as u64;
                if candidate.is_vacant() {
                    vacancy = vacancy.or(Some(entry));
                } else if candidate.may_be(hash) {
                    let record = candidate.record();
                    let head = RecordHead::read(record, own)?;
                    if head.has_key(record, hash, key, own)? {
                        return Ok(Place::Taken(Found { entry, record, head, slot, slot_address, previous }));
                    }
                }
            }
            match (slot.next, vacancy) {
                (0, Some(entry)) => return Ok(Place::Vacant { entry }),
                (0, None) => return Ok(Place::Full { last: slot_address, slots }),
                (next, _) => (slot_address, previous) = (next, Some(slot_address)),
            }
        }
        // No put makes such a chain: the memory is not what was written.
        Err(ErrorCode::System)
    }
}
