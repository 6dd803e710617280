//! The hash against its formula, its bound, and the contents that make XXH3 collide.

use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::*;

/// Key of a test: reproducible, and different for each number.
fn hasher(number: u64) -> PageHasher {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut key = [0; HASH_KEY_BYTES];
    for word in key.as_chunks_mut::<8>().0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *word = state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes();
    }
    PageHasher::new(&key)
}

fn content() -> [u8; PAGE_BYTES] {
    std::array::from_fn(|byte| (byte * 3 + (byte >> 8) * 11 + ((byte * byte) >> 7)) as u8)
}

/// Computed from the formula by a program of another language, with integers of any length.
#[test]
fn the_hash_is_nh_less_that_of_zeros() {
    let key = std::array::from_fn(|byte| (byte * byte * 31 + byte * 7 + (byte >> 8) * 13 + 5) as u8);
    let hasher = PageHasher::new(&key);
    assert_eq!(hasher.page(&content()).0, 0xA24C_AE8A_AF06_9F0F_59AF_0FAA_C167_0380);
    assert_eq!(hasher.part(3 * 16..40 * 16, &content()).0, 0xFBA4_0403_9BA1_5756_14E1_BEA3_55BB_86B6);
}

proptest! {
    #[test]
    fn parts_add_up_to_the_page(number in any::<u64>(), cuts in prop::collection::vec(0..=GRANULES, 0..6)) {
        let hasher = hasher(number);
        let mut bounds = cuts;
        bounds.extend([0, GRANULES]);
        bounds.sort_unstable();
        let parts = bounds.windows(2).map(|pair| hasher.part(pair[0] * 16..pair[1] * 16, &content()));
        prop_assert_eq!(parts.fold(PageHash::ZEROS, PageHash::with), hasher.page(&content()));
    }

    #[test]
    fn zeros_count_for_nothing(number in any::<u64>(), first in 0..GRANULES, granules in 0..GRANULES) {
        let (hasher, range) = (hasher(number), first * 16..(first + granules).min(GRANULES) * 16);
        let mut beside = [0; PAGE_BYTES];
        beside[range.clone()].copy_from_slice(&content()[range.clone()]);
        prop_assert_eq!(hasher.part(range.clone(), &content()), hasher.page(&beside));
        prop_assert_eq!(hasher.part(range, &[0; PAGE_BYTES]), PageHash::ZEROS);
        prop_assert_eq!(PageHash::from_words(hasher.page(&beside).to_words()), hasher.page(&beside));
    }

    #[test]
    fn every_flipped_bit_is_another_hash(number in any::<u64>(), bits in prop::collection::btree_set(0..8 * PAGE_BYTES, 1..4)) {
        let (hasher, mut other) = (hasher(number), content());
        bits.iter().for_each(|bit| other[bit / 8] ^= 1 << (bit % 8));
        prop_assert_ne!(hasher.page(&other), hasher.page(&content()));
    }
}

/// The theorem, in words of four bits, where every case can be tried: of the 256 keys of a granule, at most 16 give two
/// contents of it any one difference. So 1 in 2^4 there, and 1 in 2^64 in words of 64 bits.
#[test]
fn no_difference_of_two_sums_is_likelier_than_one_value_of_a_word_in_four_bits() {
    let sum = |content: u8, key: u8| {
        let [m0, m1, k0, k1] = [content >> 4, content & 15, key >> 4, key & 15];
        ((m0 + k0) & 15).wrapping_mul((m1 + k1) & 15)
    };
    for one in 0..u8::MAX {
        for two in one + 1..=u8::MAX {
            let mut keys_with = [0u8; 256];
            for key in 0..=u8::MAX {
                let count = &mut keys_with[usize::from(sum(one, key).wrapping_sub(sum(two, key)))];
                *count += 1;
                assert!(*count <= 16, "{one:02x} and {two:02x}");
            }
        }
    }
}

/// Two words of a page, at bytes 0 and 768, whose low halves differ by one of these: XXH3 mixes them with keys of one
/// parity, which differ by constants whatever the seed is, so that for 1 seed in 64 to 128 the top bits of both can be
/// flipped together.
const DIFFERENCES: [u32; 8] =
    [0x0A0A_0410, 0x060A_0410, 0x0A0E_0410, 0x1A0A_0410, 0x060A_0C10, 0x0A0A_0C10, 0x060E_0410, 0x0A0A_0430];
const PLACES: [usize; 2] = [0, 768];

type Pair = [[u8; PAGE_BYTES]; 2];
/// A hash under some key.
type HashOf<H> = Box<dyn Fn(&[u8; PAGE_BYTES]) -> H>;

/// Two contents for each of the differences.
fn pairs() -> Vec<Pair> {
    let pair = |difference: &u32| {
        let mut one = content();
        let first = u64::from_le_bytes(*one[PLACES[0]..].first_chunk().expect("eight bytes"));
        // The keys' top bits differ, so those of the words must not.
        let second = (first & (1 << 63 | 0xFFFF_FFFF)) ^ u64::from(*difference) | 0x1234_5678 << 32;
        one[PLACES[1]..PLACES[1] + 8].copy_from_slice(&second.to_le_bytes());
        let mut two = one;
        PLACES.iter().for_each(|place| two[place + 7] ^= 0x80);
        [one, two]
    };
    DIFFERENCES.iter().map(pair).collect()
}

/// Changes that leave a sum of the words, a sum of the products of some, or the set of granules as it is.
fn rearranged() -> Vec<Pair> {
    let changes: [fn(&mut [u8; PAGE_BYTES]); 6] = [
        |page| [7, 15].into_iter().for_each(|byte| page[byte] ^= 0x80),
        |page| [7, 23].into_iter().for_each(|byte| page[byte] ^= 0x80),
        |page| page.swap(0, 8),
        |page| page.rotate_left(8),
        |page| page.rotate_left(HASH_GRANULE_BYTES),
        |page| (page[0], page[8]) = (page[0].wrapping_add(1), page[8].wrapping_sub(1)),
    ];
    let zeros = |change: fn(&mut [u8; PAGE_BYTES])| {
        let mut one = [0; PAGE_BYTES];
        one[..32].copy_from_slice(&content()[100..132]);
        [one, changed(one, change)]
    };
    changes.into_iter().map(|change| [content(), changed(content(), change)]).chain(changes.map(zeros)).collect()
}

fn changed(mut page: [u8; PAGE_BYTES], change: fn(&mut [u8; PAGE_BYTES])) -> [u8; PAGE_BYTES] {
    change(&mut page);
    page
}

/// How often one of the pairs has one hash, under `keys` keys that the pairs do not know.
fn collisions<H: PartialEq>(pairs: &[Pair], keys: u64, hash: impl Fn(u64) -> HashOf<H>) -> usize {
    let of_key = |key| {
        let hash = hash(key);
        pairs.iter().filter(|[one, two]| hash(one) == hash(two)).count()
    };
    (0..keys).map(of_key).sum()
}

/// XXH3 with a seed, which stood here before, does not pass what follows.
#[test]
fn the_pairs_are_found_alike_by_a_hash_that_mixes_words_with_related_keys() {
    let of_seed = |key: u64| -> HashOf<u64> {
        let seed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Box::new(move |content| xxh3_64_with_seed(content, seed))
    };
    let found = collisions(&pairs(), 1000, of_seed);
    assert!(found > 20, "only {found} collisions under 1000 seeds: the pairs are not those that they should be");
}

#[test]
fn no_pair_has_one_hash_under_any_of_many_keys() {
    let of_key = |key: u64| -> HashOf<PageHash> {
        let hasher = hasher(key);
        Box::new(move |content| hasher.page(content))
    };
    assert_eq!(collisions(&pairs(), 4000, of_key), 0);
    assert_eq!(collisions(&rearranged(), 4000, of_key), 0);
}
