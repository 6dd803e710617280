//! Memory of an offload's own space, in pieces: a [`Pool`] of spans for all callers, and an [`Arena`] of blocks for
//! each.
//!
//! A node allocates whole pages, which are large, so the pool takes chunks of [`CHUNK_BYTES`] from it and gives spans
//! of [`SPAN_BYTES`] to arenas; an arena cuts each span into blocks of one size class. A span without blocks goes back
//! to the pool, a chunk without spans to the node, and a caller's whole arena goes without looking at its blocks. What
//! is free is known here and not in the memory itself, at about one bit a block, so that freeing cannot be refused.
//!
//! Neighbours: [`kv`](crate::kv) and [`mv`](crate::mv). Invariants: a span is in one arena or free in its chunk; an
//! arena has at most its limit of spans; [`Arena::room`] has exactly the spans with a free block.

use std::collections::{BTreeMap, BTreeSet};

use yonder_wire::ErrorCode;

use crate::memory::{OffloadMemory, Space};

/// Bytes in a span, and in the largest block.
pub(crate) const SPAN_BYTES: u64 = 64 << 10;
/// Spans in a chunk: one bit each.
const CHUNK_SPANS: u32 = u64::BITS;
/// Bytes that are allocated from the node at once.
const CHUNK_BYTES: u64 = CHUNK_SPANS as u64 * SPAN_BYTES;
/// Every block begins at a multiple of this ...
pub(crate) const BLOCK_ALIGN: u64 = 16;
/// ... and a chunk at a multiple of this, so that a block of a power of two lies in one page of the node.
const CHUNK_ALIGN: u64 = 4096;
/// Addresses end here, so that a word has room for one and for more.
pub(crate) const ADDRESS_END: u64 = 1 << 54;

/// Bytes in the blocks of each class.
const CLASSES: [u32; 23] = [
    32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    49152, 65536,
];

const _: () = assert!(CLASSES[CLASSES.len() - 1] as u64 == SPAN_BYTES);

/// The offload's own space during a call.
pub(crate) struct Own<'a> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) memory: &'a mut dyn OffloadMemory,
}

impl Own<'_> {
    pub(crate) fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), ErrorCode> {
        self.memory.read(Space::Own, address, into)
    }

    pub(crate) fn write(&mut self, address: u64, from: &[u8]) -> Result<(), ErrorCode> {
        self.memory.write(Space::Own, address, from)
    }

    pub(crate) fn read_word(&mut self, address: u64) -> Result<u64, ErrorCode> {
        self.memory.read_word(Space::Own, address)
    }

    pub(crate) fn write_word(&mut self, address: u64, word: u64) -> Result<(), ErrorCode> {
        self.memory.write(Space::Own, address, &word.to_le_bytes())
    }
}

/// Spans for all arenas of an offload.
#[derive(Default, Debug)]
pub(crate) struct Pool {
    /// Free spans of each chunk, by its address.
    chunks: BTreeMap<u64, u64>,
    /// Chunks with a free span.
    room: BTreeSet<u64>,
    /// One chunk that is wholly free, kept so that a store that fills and empties does not allocate each time.
    reserve: Option<u64>,
}

impl Pool {
    fn take(&mut self, memory: &mut dyn OffloadMemory) -> Result<u64, ErrorCode> {
        let reserve = self.reserve;
        let begun = self.room.iter().copied().find(|chunk| Some(*chunk) != reserve);
        let chunk = match begun.or(reserve) {
            Some(chunk) => chunk,
            None => self.grow(memory)?,
        };
        if reserve == Some(chunk) {
            self.reserve = None;
        }
        let free = self.chunks.get_mut(&chunk).expect("a chunk with room is a chunk");
        let span = free.trailing_zeros();
        *free &= *free - 1;
        if *free == 0 {
            self.room.remove(&chunk);
        }
        Ok(chunk + u64::from(span) * SPAN_BYTES)
    }

    fn grow(&mut self, memory: &mut dyn OffloadMemory) -> Result<u64, ErrorCode> {
        let chunk = memory.allocate(CHUNK_BYTES)?;
        let fits = chunk.checked_add(CHUNK_BYTES).is_some_and(|end| end <= ADDRESS_END);
        if !fits || chunk == 0 || !chunk.is_multiple_of(CHUNK_ALIGN) {
            // A refusal to take it back changes nothing: such addresses cannot be used here.
            let _ = memory.free(chunk);
            return Err(ErrorCode::OutOfMemory);
        }
        self.chunks.insert(chunk, u64::MAX);
        self.room.insert(chunk);
        Ok(chunk)
    }

    fn give(&mut self, span: u64, memory: &mut dyn OffloadMemory) {
        let (&chunk, free) = self.chunks.range_mut(..=span).next_back().expect("a span lies in a chunk");
        let bit = 1 << ((span - chunk) / SPAN_BYTES);
        assert_eq!(*free & bit, 0, "span {span:#x} was given back twice");
        *free |= bit;
        let wholly_free = *free == u64::MAX;
        self.room.insert(chunk);
        if !wholly_free {
            return;
        }
        // A chunk that the node refuses to take back is used again.
        if self.reserve.is_none() {
            self.reserve = Some(chunk);
        } else if memory.free(chunk).is_ok() {
            self.chunks.remove(&chunk);
            self.room.remove(&chunk);
        }
    }

    /// Spans that are in an arena.
    #[cfg(test)]
    pub(crate) fn spans_in_use(&self) -> u32 {
        self.chunks.values().map(|free| free.count_zeros()).sum()
    }
}

/// Blocks for one caller.
#[derive(Debug)]
pub(crate) struct Arena {
    spans: BTreeMap<u64, Span>,
    /// Spans with a free block, by class.
    room: [BTreeSet<u64>; CLASSES.len()],
    spans_max: usize,
}

#[derive(Debug)]
struct Span {
    class: usize,
    /// A bit for each block that is free.
    free: Box<[u64]>,
    used: u32,
}

impl Span {
    fn new(class: usize) -> Self {
        let blocks = Self::blocks(class);
        let words = blocks.div_ceil(u64::BITS);
        let last = blocks % u64::BITS;
        let mut free = vec![u64::MAX; words as usize].into_boxed_slice();
        if let (Some(word), 1..) = (free.last_mut(), last) {
            *word = (1 << last) - 1;
        }
        Self { class, free, used: 0 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a span is smaller than 4 GiB")]
    const fn blocks(class: usize) -> u32 {
        SPAN_BYTES as u32 / CLASSES[class]
    }

    /// Offset of a block that was free.
    fn take(&mut self) -> u64 {
        let word = self.free.iter().position(|word| *word != 0).expect("a span with room has a free block");
        let bit = self.free[word].trailing_zeros();
        self.free[word] &= self.free[word] - 1;
        self.used += 1;
        (word as u64 * u64::from(u64::BITS) + u64::from(bit)) * u64::from(CLASSES[self.class])
    }

    fn give(&mut self, offset: u64) {
        let block = offset / u64::from(CLASSES[self.class]);
        let (word, bit) = ((block / 64) as usize, 1u64 << (block % 64));
        assert_eq!(self.free[word] & bit, 0, "a block was freed twice");
        self.free[word] |= bit;
        self.used -= 1;
    }

    fn is_full(&self) -> bool {
        self.used == Self::blocks(self.class)
    }
}

impl Arena {
    /// An arena of at most `bytes_max`, in whole spans and at least one.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let spans_max = usize::try_from(bytes_max / SPAN_BYTES).unwrap_or(usize::MAX).max(1);
        Self { spans: BTreeMap::new(), room: Default::default(), spans_max }
    }

    /// The address of `bytes` that hold anything.
    pub(crate) fn allocate(&mut self, bytes: usize, own: &mut Own<'_>) -> Result<u64, ErrorCode> {
        let class = CLASSES.partition_point(|block| (*block as usize) < bytes);
        if class == CLASSES.len() {
            return Err(ErrorCode::BadLength);
        }
        let address = match self.room[class].first() {
            Some(address) => *address,
            None if self.spans.len() >= self.spans_max => return Err(ErrorCode::OutOfMemory),
            None => {
                let address = own.pool.take(own.memory)?;
                self.spans.insert(address, Span::new(class));
                self.room[class].insert(address);
                address
            }
        };
        let span = self.spans.get_mut(&address).expect("a span with room is a span");
        let offset = span.take();
        if span.is_full() {
            self.room[class].remove(&address);
        }
        Ok(address + offset)
    }

    /// Takes a block back.
    pub(crate) fn free(&mut self, block: u64, own: &mut Own<'_>) {
        let (&address, span) = self.spans.range_mut(..=block).next_back().expect("a block lies in a span");
        span.give(block - address);
        let class = span.class;
        if span.used > 0 {
            self.room[class].insert(address);
            return;
        }
        self.spans.remove(&address);
        self.room[class].remove(&address);
        own.pool.give(address, own.memory);
    }

    /// Takes all blocks back.
    pub(crate) fn clear(&mut self, own: &mut Own<'_>) {
        for address in std::mem::take(&mut self.spans).into_keys() {
            own.pool.give(address, own.memory);
        }
        self.room.iter_mut().for_each(BTreeSet::clear);
    }

    /// Blocks that were allocated and not freed.
    #[cfg(test)]
    pub(crate) fn blocks_in_use(&self) -> u64 {
        self.spans.values().map(|span| u64::from(span.used)).sum()
    }

    /// Bytes of its spans.
    pub(crate) fn bytes(&self) -> u64 {
        self.spans.len() as u64 * SPAN_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake_memory::FakeMemory;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]
        #[test]
        fn blocks_never_overlap_and_all_memory_goes_back(
            steps in prop::collection::vec((any::<bool>(), 1usize..=65536, 1u32..14, any::<prop::sample::Index>()), 1..300),
        ) {
            let (mut memory, mut pool, mut arena) = (FakeMemory::default(), Pool::default(), Arena::new(u64::MAX));
            let mut own = Own { pool: &mut pool, memory: &mut memory };
            let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
            for (frees, bytes, shift, index) in steps {
                if frees && !blocks.is_empty() {
                    let address = *blocks.keys().nth(index.index(blocks.len())).unwrap();
                    blocks.remove(&address);
                    arena.free(address, &mut own);
                    continue;
                }
                let bytes = (bytes >> shift).max(1);
                let address = arena.allocate(bytes, &mut own).unwrap();
                prop_assert!(address.is_multiple_of(BLOCK_ALIGN));
                let end = address + bytes as u64;
                prop_assert!(blocks.range(..end).next_back().is_none_or(|(start, length)| start + length <= address));
                own.write(address, &vec![1; bytes]).unwrap();
                blocks.insert(address, bytes as u64);
            }
            blocks.keys().for_each(|address| arena.free(*address, &mut own));
            prop_assert_eq!((arena.bytes(), pool.spans_in_use()), (0, 0));
            prop_assert!(memory.own.allocations.len() <= 1, "all chunks but the reserve are the node's again");
        }
    }

    #[test]
    fn every_class_fills_its_spans() {
        let (mut memory, mut pool) = (FakeMemory::default(), Pool::default());
        let mut own = Own { pool: &mut pool, memory: &mut memory };
        for (class, bytes) in CLASSES.iter().enumerate() {
            let mut arena = Arena::new(SPAN_BYTES);
            for _ in 0..Span::blocks(class) {
                arena.allocate(*bytes as usize, &mut own).unwrap();
            }
            assert_eq!(arena.allocate(*bytes as usize, &mut own), Err(ErrorCode::OutOfMemory), "blocks of {bytes}");
            arena.clear(&mut own);
        }
        assert_eq!(pool.spans_in_use(), 0);
        assert_eq!(Arena::new(0).spans_max, 1);
    }

    #[test]
    fn an_emptied_store_keeps_one_chunk_and_no_more() {
        let (mut memory, mut pool, mut arena) = (FakeMemory::default(), Pool::default(), Arena::new(u64::MAX));
        let mut own = Own { pool: &mut pool, memory: &mut memory };
        for _ in 0..3 * CHUNK_SPANS {
            arena.allocate(SPAN_BYTES as usize, &mut own).unwrap();
        }
        assert_eq!(arena.bytes(), 3 * CHUNK_BYTES);
        arena.clear(&mut own);
        assert_eq!(memory.own.allocations.len(), 1);
        let mut own = Own { pool: &mut pool, memory: &mut memory };
        arena.allocate(1, &mut own).unwrap();
        assert_eq!(memory.own.allocations.len(), 1, "the chunk in reserve was used");
    }
}
