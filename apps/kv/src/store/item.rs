//! How an item lies in its slot, and how items point to each other.
//!
//! A slot holds a [`Header`], the key and the value, in this order. [`Link`] is what a bucket head and a header's
//! `next` hold: where the next item lies, and 16 bits of its key's hash, so that a lookup passes by items that cannot
//! match without touching them.
//!
//! What reads leave behind (that an item was fetched, and when) is not in the header but in local memory (`slots`): a
//! read never makes a far page dirty.

/// Bytes in front of an item's key.
pub(super) const HEADER_BYTES: usize = 36;
/// Where the cas unique lies in the header.
pub(super) const CAS_AT: u64 = 8;
/// Where the deadline lies in the header.
pub(super) const DEADLINE_AT: u64 = 16;
/// Where the hash lies in the header.
pub(super) const HASH_AT: u64 = 24;
/// Where marks and epoch lie in the header.
pub(super) const MARKS_AT: u64 = 32;
/// Largest value that a header can describe, in bytes.
pub(crate) const VALUE_BYTES_LIMIT: usize = (1 << 24) - 1;

/// Slots start at multiples of this, so that links need fewer bits and words are aligned.
pub(super) const SLOT_ALIGN: u64 = 8;

const TAG_SHIFT: u32 = 48;
const PLACE_MASK: u64 = (1 << TAG_SHIFT) - 1;

/// Where an item lies and 16 bits of its hash, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link(pub(super) u64);

impl Link {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(offset: u64, tag: u16) -> Self {
        let place = offset / SLOT_ALIGN + 1;
        assert!(place <= PLACE_MASK && offset.is_multiple_of(SLOT_ALIGN), "offset {offset:#x} fits no link");
        Self(u64::from(tag) << TAG_SHIFT | place)
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Byte offset of the item. Only for links that are not [`Link::NONE`].
    pub(super) fn offset(self) -> u64 {
        ((self.0 & PLACE_MASK) - 1) * SLOT_ALIGN
    }

    pub(super) fn tag(self) -> u16 {
        (self.0 >> TAG_SHIFT) as u16
    }
}

/// What meta commands have left on an item.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Marks {
    /// It was invalidated, and is to be recached.
    pub(super) stale: bool,
    /// A client was told to recache it.
    pub(super) win_sent: bool,
    /// Its key came in base64, and is shown so.
    pub(super) base64_key: bool,
}

impl Marks {
    const BITS: u32 = 3;

    /// Those that say how the key is written, and nothing of the item.
    pub(super) fn of_key(self) -> Self {
        Self { base64_key: self.base64_key, ..Self::default() }
    }

    fn encode(self) -> u32 {
        u32::from(self.stale) | u32::from(self.win_sent) << 1 | u32::from(self.base64_key) << 2
    }

    fn decode(bits: u32) -> Self {
        Self { stale: bits & 1 != 0, win_sent: bits & 2 != 0, base64_key: bits & 4 != 0 }
    }
}

/// How many flushes there had been when an item was stored. It comes round after 2^29 flushes: an item that is not
/// looked at during all of them may be taken for a live one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct FlushEpoch(u32);

impl FlushEpoch {
    pub(super) fn new(flushes: u32) -> Self {
        Self(flushes & (u32::MAX >> Marks::BITS))
    }
}

/// What is known about an item besides its key and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The next item of the bucket.
    pub(super) next: Link,
    /// The cas unique: grows with every change of any item, unless a client has chosen it.
    pub(super) cas: u64,
    /// When the item expires, in seconds since 1970; 0 is never.
    pub(super) deadline_s: u32,
    /// The client's flags.
    pub(super) flags: u32,
    /// The part of the key's hash that names the bucket.
    pub(super) hash: u32,
    pub(super) key_bytes: u8,
    pub(super) value_bytes: u32,
    pub(super) marks: Marks,
    pub(super) epoch: FlushEpoch,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.next.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.cas.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.deadline_s.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.flags.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.hash.to_le_bytes());
        let lengths = self.value_bytes << 8 | u32::from(self.key_bytes);
        bytes[28..32].copy_from_slice(&lengths.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.marks_word());
        bytes
    }

    /// What lies at [`MARKS_AT`].
    pub(super) fn marks_word(&self) -> [u8; 4] {
        (self.epoch.0 << Marks::BITS | self.marks.encode()).to_le_bytes()
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let lengths = word(28);
        Self {
            next: Link(long(0)),
            cas: long(8),
            deadline_s: word(16),
            flags: word(20),
            hash: word(24),
            key_bytes: lengths as u8,
            value_bytes: lengths >> 8,
            marks: Marks::decode(word(32)),
            epoch: FlushEpoch(word(32) >> Marks::BITS),
        }
    }

    /// Bytes that the item occupies, header included.
    pub(super) fn item_bytes(&self) -> usize {
        HEADER_BYTES + usize::from(self.key_bytes) + self.value_bytes as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_encoding() {
        let header = Header {
            next: Link::new(1 << 40, 0xbeef),
            cas: u64::MAX - 1,
            deadline_s: 0x0102_0304,
            flags: 0xf0e0_d0c0,
            hash: 0x1234_5678,
            key_bytes: 250,
            value_bytes: VALUE_BYTES_LIMIT as u32,
            marks: Marks::default(),
            epoch: FlushEpoch::new(u32::MAX),
        };
        for bits in 0..1 << Marks::BITS {
            let header = Header { marks: Marks::decode(bits), ..header };
            assert_eq!(Header::decode(&header.encode()), header);
        }
    }

    #[test]
    fn links_hold_offsets_and_tags() {
        for offset in [0, 8, 4096, (PLACE_MASK - 1) * SLOT_ALIGN] {
            let link = Link::new(offset, 0xffff);
            assert!(!link.is_none());
            assert_eq!((link.offset(), link.tag()), (offset, 0xffff));
        }
        assert!(Link::NONE.is_none());
    }
}
