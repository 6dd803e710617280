//! Values that can be verified: a header that names the key and the version, then a stream of words that both seed.
//!
//! A value therefore proves by itself that it belongs to its key and is whole; whether its *version* may be the one
//! that is stored is for the ledger to say. Pure.

/// Bytes of a value's header: key and version, eight bytes each, little-endian.
pub(crate) const HEADER_BYTES: usize = 16;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Why the bytes of a value cannot be what was stored under its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum WrongValue {
    #[error("it has {found} bytes instead of {expected}")]
    Length { found: usize, expected: usize },
    #[error("it is the value of key {found}")]
    OfKey { found: u64 },
    #[error("its bytes from {offset} on are damaged")]
    Damaged { offset: usize },
    #[error("it is of version {found}, but version {least} had been stored before it was asked for")]
    Stale { found: u32, least: u32 },
    #[error("it was stored by another load, though version {least} had been stored before it was asked for")]
    OfAnotherLoad { least: u32 },
    #[error("it is of version {found}, which nobody has stored")]
    NeverStored { found: u32 },
}

/// Appends the value of `bytes` bytes that belongs to `key` and `version`.
pub(crate) fn append_value(out: &mut Vec<u8>, key: u64, version: u64, bytes: usize) {
    debug_assert!(bytes >= HEADER_BYTES);
    out.extend_from_slice(&key.to_le_bytes());
    out.extend_from_slice(&version.to_le_bytes());
    let body = bytes - HEADER_BYTES;
    let seed = stream_seed(key, version);
    let words = body / 8;
    out.extend((0..words as u64).flat_map(|index| stream_word(seed, index).to_le_bytes()));
    out.extend_from_slice(&stream_word(seed, words as u64).to_le_bytes()[..body % 8]);
}

/// Verifies that `value` is whole, `bytes` long and of `key`, and returns its version.
pub(crate) fn verify_value(value: &[u8], key: u64, bytes: usize) -> Result<u64, WrongValue> {
    if value.len() != bytes {
        return Err(WrongValue::Length { found: value.len(), expected: bytes });
    }
    let (header, body) = value.split_at(HEADER_BYTES);
    let [found, version] =
        [&header[..8], &header[8..]].map(|half| u64::from_le_bytes(half.try_into().expect("8 bytes")));
    if found != key {
        return Err(WrongValue::OfKey { found });
    }
    let seed = stream_seed(key, version);
    for (index, chunk) in body.chunks(8).enumerate() {
        if stream_word(seed, index as u64).to_le_bytes()[..chunk.len()] != *chunk {
            return Err(WrongValue::Damaged { offset: HEADER_BYTES + index * 8 });
        }
    }
    Ok(version)
}

fn stream_seed(key: u64, version: u64) -> u64 {
    mixed(key ^ mixed(version ^ GOLDEN))
}

/// Word `index` of the stream: counted instead of chained, so that the words of a value are computed side by side.
fn stream_word(seed: u64, index: u64) -> u64 {
    mixed(seed.wrapping_add(index.wrapping_mul(GOLDEN)))
}

/// The xorshift-multiply finalizer of SplitMix64.
fn mixed(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(key: u64, version: u64, bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        append_value(&mut out, key, version, bytes);
        assert_eq!(out.len(), bytes);
        out
    }

    #[test]
    fn wrong_values_are_told_apart() {
        let good = value(7, 3, 100);
        assert_eq!(verify_value(&good, 7, 100), Ok(3));
        assert_eq!(verify_value(&good[..99], 7, 100), Err(WrongValue::Length { found: 99, expected: 100 }));
        assert_eq!(verify_value(&good, 8, 100), Err(WrongValue::OfKey { found: 7 }));
        let mut torn = value(7, 4, 100);
        torn[..16].copy_from_slice(&good[..16]);
        assert_eq!(verify_value(&torn, 7, 100), Err(WrongValue::Damaged { offset: 16 }));
        assert_eq!(verify_value(&[0; 100], 0, 100), Err(WrongValue::Damaged { offset: 16 }));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_seen(key: u64, version: u64, bytes in 24usize..300, bit: prop::sample::Index) {
            let mut bytes_of_value = value(key, version, bytes);
            prop_assert_eq!(verify_value(&bytes_of_value, key, bytes), Ok(version));
            let bit = bit.index(bytes * 8);
            bytes_of_value[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(verify_value(&bytes_of_value, key, bytes).is_err());
        }
    }
}
