//! `lz4+URL`: the bytes of a page that count, packed and compressed, and the way back.
//!
//! What is stored of a page is the segments of a vector one behind the other, as an LZ4 block if that is shorter by a
//! granule at least; a page that does not become shorter goes as it is. A block has no checksum, and almost any bytes
//! are one: the proof is a checksum, compared before anything is unpacked, and still damage is an error here, never a
//! panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder_mapping::Mapping;
use yonder_units::PAGE_BYTES;

use super::table::Stored;
use super::{Codec, Damaged, Form, StoredFabric};
use crate::vector::MoveBytes as _;
use crate::{Counter, GRANULE_BYTES, RemoteAddress, Vector};

/// Most bytes that a page can be compressed to.
const BLOCK_BYTES_MAX: usize = get_maximum_output_size(PAGE_BYTES);

/// A fabric whose pages are compressed.
pub type Lz4Fabric = StoredFabric<Lz4>;

/// Pages as LZ4 blocks.
pub struct Lz4 {
    /// Makes checksums unpredictable to whoever chooses the content.
    seed: u64,
    packed_bytes: AtomicU64,
    stored_bytes: AtomicU64,
}

impl Form for Lz4 {
    const PREFIX: &'static str = "lz4+";

    type Codec = Lz4Codec;

    fn new() -> Result<Self, String> {
        let seed = OsRng.try_next_u64().map_err(|error| error.to_string())?;
        Ok(Self { seed, packed_bytes: AtomicU64::new(0), stored_bytes: AtomicU64::new(0) })
    }

    fn codec(self: &Arc<Self>) -> Lz4Codec {
        Lz4Codec::new(self.seed)
    }

    fn posted(&self, vector: Vector, stored_bytes: usize) {
        self.packed_bytes.fetch_add(vector.bytes() as u64, Ordering::Relaxed);
        self.stored_bytes.fetch_add(stored_bytes as u64, Ordering::Relaxed);
    }

    fn counters(&self) -> Vec<Counter> {
        let count = |name, value: &AtomicU64| Counter { name, value: value.load(Ordering::Relaxed) };
        vec![count("lz4_packed_bytes", &self.packed_bytes), count("lz4_stored_bytes", &self.stored_bytes)]
    }
}

/// Buffers, made once.
pub struct Lz4Codec {
    seed: u64,
    table: CompressTable,
    packed: Box<[u8; PAGE_BYTES]>,
    block: Box<[u8; BLOCK_BYTES_MAX]>,
}

impl Lz4Codec {
    fn new(seed: u64) -> Self {
        let (packed, block) = (Box::new([0; PAGE_BYTES]), Box::new([0; BLOCK_BYTES_MAX]));
        Self { seed, table: CompressTable::small(), packed, block }
    }
}

/// The checksum of what is stored of a page: another one at another address, so that no page passes for a different
/// one.
fn sum(bytes: &[u8], address: RemoteAddress, seed: u64) -> [u64; 1] {
    [xxh3_64_with_seed(bytes, seed ^ address.0)]
}

impl Codec for Lz4Codec {
    type Proof = [u64; 1];

    fn pack(&mut self, to: RemoteAddress, vector: Vector, frames: &Mapping, offset: u64) -> (Stored, &[u8], [u64; 1]) {
        let bytes = vector.gather(frames, offset, &mut self.packed[..]);
        let packed = &self.packed[..bytes];
        let (stored, kept) = match compress_into_with_table(packed, &mut self.block[..], &mut self.table) {
            Ok(length) if length.next_multiple_of(GRANULE_BYTES) < bytes => {
                (Stored { bytes: length, is_compressed: true }, &self.block[..length])
            }
            _ => (Stored { bytes, is_compressed: false }, packed),
        };
        (stored, kept, sum(kept, to, self.seed))
    }

    fn unpack(
        &mut self,
        address: RemoteAddress,
        (stored, proof): (Stored, [u64; 1]),
        bytes: usize,
        from: &Mapping,
        offset: u64,
    ) -> Result<&[u8], Damaged> {
        let found = &mut self.block[..stored.bytes];
        from.read(offset, found);
        if sum(found, address, self.seed) != proof {
            return Err(Damaged);
        }
        let length = if stored.is_compressed {
            decompress_into(found, &mut self.packed[..bytes]).map_err(|_| Damaged)?
        } else {
            self.packed[..stored.bytes.min(bytes)].copy_from_slice(&found[..stored.bytes.min(bytes)]);
            stored.bytes
        };
        if length == bytes { Ok(&self.packed[..bytes]) } else { Err(Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{Rng as _, RngCore as _, SeedableRng as _};

    use super::*;

    const AT: RemoteAddress = RemoteAddress(0x1000);

    fn mapping(bytes: &[u8]) -> Mapping {
        let mapping = Mapping::anonymous(2 * PAGE_BYTES).unwrap();
        mapping.write(0, bytes);
        mapping
    }

    /// Zeros, text, words of few values, and noise.
    fn contents() -> Vec<[u8; PAGE_BYTES]> {
        let mut random = SmallRng::seed_from_u64(7);
        let text = b"It was the best of times, it was the worst of times, it was the age of wisdom, ";
        let mut contents = vec![[0; PAGE_BYTES], [0xff; PAGE_BYTES]];
        contents.push(std::array::from_fn(|byte| text[byte % text.len()]));
        contents.push(std::array::from_fn(|byte| if byte % 8 == 0 { random.random_range(0..4) } else { 0 }));
        let mut noise = [0; PAGE_BYTES];
        random.fill_bytes(&mut noise);
        contents.push(noise);
        contents.push(std::array::from_fn(|byte| if byte < PAGE_BYTES / 2 { noise[byte] } else { 1 }));
        contents
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let mut codec = Lz4Codec::new(7);
        let vectors =
            [Vector::WHOLE, Vector::new([16..32, 112..2000, 4000..4096]), Vector::new(std::iter::once(48..64))];
        for content in contents() {
            for vector in vectors {
                let (stored, bytes, proof) = codec.pack(AT, vector, &mapping(&content), 0);
                assert!(stored.bytes == bytes.len() && stored.bytes <= vector.bytes());
                assert!(!stored.is_compressed || stored.bytes < vector.bytes());
                let there = mapping(bytes);
                let expected: Vec<u8> = vector.segments().flat_map(|segment| content[segment].to_vec()).collect();
                let unpacked = codec.unpack(AT, (stored, proof), vector.bytes(), &there, 0);
                assert_eq!(unpacked, Ok(&expected[..]));
            }
        }
    }

    #[test]
    fn noise_goes_as_it_is_and_zeros_are_next_to_nothing() {
        let mut codec = Lz4Codec::new(7);
        let stored: Vec<Stored> =
            contents().iter().map(|content| codec.pack(AT, Vector::WHOLE, &mapping(content), 0).0).collect();
        assert!(stored[0].is_compressed && stored[0].bytes < 64, "{stored:?}");
        assert!(stored[2].is_compressed && stored[2].bytes < 256, "{stored:?}");
        assert_eq!(stored[4], Stored { bytes: PAGE_BYTES, is_compressed: false });
        assert!(stored[5].is_compressed && stored[5].bytes < PAGE_BYTES * 5 / 8, "{stored:?}");
    }

    proptest! {
        /// Whatever lies there, and however much of it is said to be a block of how many bytes: an answer, and no
        /// panic.
        #[test]
        fn damage_is_no_panic(
            noise in prop::collection::vec(any::<u8>(), 0..=64),
            place in 0..PAGE_BYTES,
            which in 0..6usize,
            cut in 0..=PAGE_BYTES,
            granules in 1..=PAGE_BYTES / GRANULE_BYTES,
        ) {
            let mut codec = Lz4Codec::new(7);
            let (stored, bytes, _) = codec.pack(AT, Vector::WHOLE, &mapping(&contents()[which]), 0);
            let mut there = [0; PAGE_BYTES];
            there[..bytes.len()].copy_from_slice(bytes);
            let end = PAGE_BYTES.min(place + noise.len());
            there[place..end].copy_from_slice(&noise[..end - place]);
            let there = mapping(&there);
            for is_compressed in [stored.is_compressed, true, false] {
                for bytes in [PAGE_BYTES, granules * GRANULE_BYTES] {
                    let stored = Stored { bytes: stored.bytes.min(cut), is_compressed };
                    // As if the checksum were right.
                    let mut found = vec![0; stored.bytes];
                    there.read(0, &mut found);
                    let proof = sum(&found, AT, 7);
                    if let Ok(unpacked) = codec.unpack(AT, (stored, proof), bytes, &there, 0) {
                        prop_assert_eq!(unpacked.len(), bytes);
                    }
                    prop_assert_eq!(codec.unpack(AT, (stored, [!proof[0]]), bytes, &there, 0), Err(Damaged));
                }
            }
        }
    }
}
