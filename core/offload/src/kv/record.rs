//! How a table lies in memory: [`Slot`], [`Entry`] and [`RecordHead`].
//!
//! ```text
//! slot, 64 bytes:  7 entries | address of the next slot, or 0
//! entry, 8 bytes:  record / 16, 50 bits | fingerprint, 14 bits; or 0
//! record:          hash u64 | key bytes u32 | value bytes u32 | key | value
//! ```

use yonder_units::Narrow;
use yonder_wire::ErrorCode;

use crate::arena::{ADDRESS_END, BLOCK_ALIGN, Own};

/// Entries in a slot.
pub(super) const SLOT_ENTRIES: usize = 7;
/// Bytes in a slot.
pub(super) const SLOT_BYTES: u64 = 64;
/// Offset in a slot of the address of the next.
pub(super) const NEXT_OFFSET: u64 = 8 * SLOT_ENTRIES as u64;
/// Bytes of a record before the key.
pub(super) const RECORD_HEAD_BYTES: usize = 16;
const FINGERPRINT_BITS: u32 = 14;

const _: () = assert!(NEXT_OFFSET + 8 == SLOT_BYTES);
const _: () = assert!((ADDRESS_END / BLOCK_ALIGN).ilog2() + FINGERPRINT_BITS == u64::BITS, "an entry is one word");

/// One link of a bucket's chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) entries: [Entry; SLOT_ENTRIES],
    /// Address of the next slot, or 0.
    pub(super) next: u64,
}

impl Slot {
    /// A slot with at most [`SLOT_ENTRIES`] entries.
    pub(super) fn new(entries: &[Entry], next: u64) -> Self {
        let mut slot = Self { entries: [Entry::VACANT; SLOT_ENTRIES], next };
        slot.entries[..entries.len()].copy_from_slice(entries);
        slot
    }

    pub(super) fn read(address: u64, own: &mut Own<'_>) -> Result<Self, ErrorCode> {
        let mut words = [0u64; SLOT_ENTRIES + 1];
        own.read(address, zerocopy::IntoBytes::as_mut_bytes(&mut words))?;
        let [entries @ .., next] = words.map(u64::from_le);
        Ok(Self { entries: entries.map(Entry), next })
    }

    pub(super) fn write(&self, address: u64, own: &mut Own<'_>) -> Result<(), ErrorCode> {
        let mut words = [0u64; SLOT_ENTRIES + 1];
        let from = self.entries.iter().map(|entry| entry.0).chain([self.next]);
        words.iter_mut().zip(from).for_each(|(word, value)| *word = value.to_le());
        own.write(address, zerocopy::IntoBytes::as_bytes(&words))
    }

    /// Its entries that are not vacant.
    pub(super) fn taken(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().copied().filter(|entry| !entry.is_vacant())
    }
}

/// Where a record is, and a few bits of its key's hash, which spare most looks at records with other keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry(pub(super) u64);

impl Entry {
    pub(super) const VACANT: Self = Self(0);

    pub(super) const fn new(record: u64, hash: u64) -> Self {
        assert!(record.is_multiple_of(BLOCK_ALIGN) && record < ADDRESS_END);
        Self((record / BLOCK_ALIGN) << FINGERPRINT_BITS | fingerprint(hash))
    }

    pub(super) fn is_vacant(self) -> bool {
        self == Self::VACANT
    }

    pub(super) const fn record(self) -> u64 {
        (self.0 >> FINGERPRINT_BITS) * BLOCK_ALIGN
    }

    /// Whether its key may have this hash.
    pub(super) const fn may_be(self, hash: u64) -> bool {
        self.0 % (1 << FINGERPRINT_BITS) == fingerprint(hash)
    }
}

/// The highest bits of a hash. The lowest choose the bucket, so those say nothing within one.
const fn fingerprint(hash: u64) -> u64 {
    hash >> (u64::BITS - FINGERPRINT_BITS)
}

/// The start of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordHead {
    pub(super) hash: u64,
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
}

impl RecordHead {
    pub(super) fn read(record: u64, own: &mut Own<'_>) -> Result<Self, ErrorCode> {
        let mut bytes = [0; RECORD_HEAD_BYTES];
        own.read(record, &mut bytes)?;
        let word = u128::from_le_bytes(bytes);
        Ok(Self {
            hash: (word & u128::from(u64::MAX)).narrow_u64(),
            key_bytes: (word >> 64 & 0xffff_ffff) as u32,
            value_bytes: (word >> 96) as u32,
        })
    }

    pub(super) fn to_bytes(self) -> [u8; RECORD_HEAD_BYTES] {
        let sizes = u64::from(self.key_bytes) | u64::from(self.value_bytes) << 32;
        (u128::from(self.hash) | u128::from(sizes) << 64).to_le_bytes()
    }

    pub(super) fn pair_bytes(self) -> u64 {
        u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }

    /// Whether the record that this heads has exactly this key.
    pub(super) fn has_key(self, record: u64, hash: u64, key: &[u8], own: &mut Own<'_>) -> Result<bool, ErrorCode> {
        if self.hash != hash || self.key_bytes as usize != key.len() {
            return Ok(false);
        }
        let mut stored = vec![0; key.len()];
        own.read(record + RECORD_HEAD_BYTES as u64, &mut stored)?;
        Ok(stored == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, Pool};
    use crate::fake_memory::FakeMemory;

    #[test]
    fn a_key_with_the_same_hash_is_another_key() {
        let (mut memory, mut pool, mut arena) = (FakeMemory::default(), Pool::default(), Arena::new(u64::MAX));
        let mut own = Own { pool: &mut pool, memory: &mut memory };
        let head = RecordHead { hash: 99, key_bytes: 3, value_bytes: 0 };
        let record = arena.allocate(100, &mut own).unwrap();
        own.write(record, &[&head.to_bytes()[..], b"one"].concat()).unwrap();
        let stored = RecordHead::read(record, &mut own).unwrap();
        let mut has = |hash, key: &[u8]| stored.has_key(record, hash, key, &mut own).unwrap();
        assert_eq!([has(99, b"one"), has(99, b"two"), has(99, b"on"), has(98, b"one")], [true, false, false, false]);
    }

    #[test]
    fn an_entry_has_the_whole_address_and_part_of_the_hash() {
        for (record, hash) in [(16, 0), (ADDRESS_END - 16, u64::MAX), (0x1234_5670, 0x8765_4321_1234_5678)] {
            let entry = Entry::new(record, hash);
            assert_eq!((entry.record(), entry.is_vacant()), (record, false));
            assert!(entry.may_be(hash) && !entry.may_be(!hash));
        }
    }
}
