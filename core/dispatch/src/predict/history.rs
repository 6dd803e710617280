//! [`History`]: what is remembered of each key, in a flat table of fixed size.
//!
//! A key's hash names a set of [`WAYS`] entries, one cache line, and the rest of it is the fingerprint that tells the
//! keys of a set apart. A new key takes the place of the one that was served longest ago. Two keys with the same
//! fingerprint in one set (once in 16,384 lookups of a full set) are taken for one, which costs a wrong prediction and
//! nothing else.

use yonder_units::{Narrow, PageId, PageIndex};

/// Keys that are remembered, at most: 64 MiB of history, for 2 GiB of local memory and more.
pub const KEYS_MAX: usize = 1 << 22;
/// Keys that are remembered at least.
const KEYS_MIN: usize = 1 << 12;
/// Keys of a set.
pub const WAYS: usize = 4;
/// Most surprises that are counted.
const SURPRISES_MAX: u8 = 3;
/// What a surprise counts; a request that is none takes one away.
const SURPRISE: u8 = 2;

/// The region of an entry without a place.
const NOWHERE: PageId = PageId { region: u32::MAX, page: PageIndex(0) };

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    page_id: PageId,
    /// The clock when the key was served last.
    pub(crate) seen_at: u32,
    fingerprint: u16,
    /// How much it has faulted against predictions of late.
    pub(crate) surprises: u8,
    is_used: bool,
}

const _: () = assert!(size_of::<Known>() * WAYS == 64, "a set is a cache line");

impl Known {
    const EMPTY: Self = Self { page_id: NOWHERE, seen_at: 0, fingerprint: 0, surprises: 0, is_used: false };

    /// Where the key's data was missing last.
    pub(crate) fn page_id(&self) -> Option<PageId> {
        (self.page_id.region != NOWHERE.region).then_some(self.page_id)
    }

    pub(crate) fn set_page_id(&mut self, page_id: PageId) {
        self.page_id = page_id;
    }

    pub(crate) fn forget_page_id(&mut self) {
        self.page_id = NOWHERE;
    }

    pub(crate) fn note_surprise(&mut self, is_surprise: bool) {
        self.surprises =
            if is_surprise { (self.surprises + SURPRISE).min(SURPRISES_MAX) } else { self.surprises.saturating_sub(1) };
    }
}

/// A set, aligned to the cache line that it fills.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set([Known; WAYS]);

/// What is remembered of keys.
#[derive(Debug)]
pub(crate) struct History {
    sets: Box<[Set]>,
}

impl History {
    /// A history of `keys` keys, rounded up to a power of two and into the bounds.
    pub(crate) fn new(keys: u64) -> Self {
        let keys = keys.clamp(KEYS_MIN as u64, KEYS_MAX as u64).next_power_of_two().narrow_usize();
        Self { sets: vec![Set([Known::EMPTY; WAYS]); keys / WAYS].into_boxed_slice() }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    pub(crate) fn find(&self, key: u64) -> Option<&Known> {
        let (set, fingerprint) = self.address(key);
        self.sets[set].0.iter().find(|known| known.is_used && known.fingerprint == fingerprint)
    }

    /// The entry of `key`, new if it has none, when it is `clock`.
    pub(crate) fn find_or_insert(&mut self, key: u64, clock: u32) -> &mut Known {
        let (set, fingerprint) = self.address(key);
        let ways = &mut self.sets[set].0;
        let found = ways.iter().position(|known| known.is_used && known.fingerprint == fingerprint);
        let way = found.unwrap_or_else(|| {
            let age =
                |known: &Known| if known.is_used { u64::from(clock.wrapping_sub(known.seen_at)) } else { u64::MAX };
            let oldest = (0..WAYS).max_by_key(|way| age(&ways[*way])).expect("a set has ways");
            ways[oldest] = Known { fingerprint, is_used: true, ..Known::EMPTY };
            oldest
        });
        &mut ways[way]
    }

    /// The set and the fingerprint of `key`.
    fn address(&self, key: u64) -> (usize, u16) {
        let hash = mix(key);
        ((hash >> 16) as usize & (self.sets.len() - 1), (hash & 0xffff).narrow_u16())
    }
}

/// Spreads a number over all bits, so that callers may count their keys (the finaliser of SplitMix64).
fn mix(key: u64) -> u64 {
    let mixed = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page_id(page: u32) -> PageId {
        PageId { region: 0, page: PageIndex(page) }
    }

    #[test]
    fn sizes_stay_within_their_bounds() {
        assert_eq!(History::new(0).bytes(), KEYS_MIN * 16);
        assert_eq!(History::new(5000).bytes(), 8192 * 16);
        assert_eq!(History::new(u64::MAX).bytes(), KEYS_MAX * 16);
    }

    #[test]
    fn a_key_that_is_served_often_outlives_any_number_of_others() {
        let mut history = History::new(0);
        for turn in 0..100 * KEYS_MIN as u64 {
            history.find_or_insert(1_000_000 + turn, turn as u32).seen_at = turn as u32;
            let known = history.find_or_insert(7, turn as u32);
            known.seen_at = turn as u32;
            known.set_page_id(page_id(9));
        }
        assert_eq!(history.find(7).and_then(Known::page_id), Some(page_id(9)));
    }

    #[test]
    fn surprises_are_forgotten_by_and_by() {
        let mut known = Known::EMPTY;
        let counts = [true, true, false, false, false, false].map(|is_surprise| {
            known.note_surprise(is_surprise);
            known.surprises
        });
        assert_eq!(counts, [2, 3, 2, 1, 0, 0]);
    }

    proptest! {
        /// Against a map: what is found is what was put in last, and the newest keys of each set are found.
        #[test]
        fn what_is_found_is_what_was_remembered(keys in prop::collection::vec(0u64..20_000, 1..3000)) {
            let mut history = History::new(0);
            let mut model = std::collections::HashMap::new();
            for (turn, key) in keys.iter().enumerate() {
                // Keys with one set and one fingerprint are one key.
                let address = history.address(*key);
                let known = history.find_or_insert(*key, turn as u32);
                prop_assert!(known.page_id().is_none_or(|page| model.get(&address) == Some(&page)));
                known.seen_at = turn as u32;
                known.set_page_id(page_id(turn as u32));
                model.insert(address, page_id(turn as u32));
                prop_assert_eq!(history.find(*key).and_then(Known::page_id), model.get(&address).copied());
            }
            let mut newest: Vec<_> = keys.iter().rev().map(|key| (history.address(*key), *key)).collect();
            let mut in_set = std::collections::HashMap::<usize, Vec<u16>>::new();
            newest.retain(|((set, fingerprint), _)| {
                let newer = in_set.entry(*set).or_default();
                if !newer.contains(fingerprint) {
                    newer.push(*fingerprint);
                }
                newer.iter().position(|known| known == fingerprint).is_some_and(|rank| rank < WAYS)
            });
            for (_, key) in newest {
                prop_assert!(history.find(key).is_some(), "one of the newest keys of a set was replaced");
            }
        }
    }
}
