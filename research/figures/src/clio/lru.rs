//! [`Lru`]: which of many things a small memory holds, when the one that was not used for longest makes room.
//!
//! It is Clio's TLB (section 4.2) and what an RDMA NIC caches of its host's memory.

use std::collections::BTreeMap;

/// A cache of keys.
#[derive(Debug)]
pub(super) struct Lru<K> {
    entries_max: usize,
    /// When each key was used last, in uses.
    used: BTreeMap<K, u64>,
    /// The keys by that.
    order: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Ord + Copy> Lru<K> {
    /// An empty cache for `entries_max` keys, at least one.
    pub(super) fn new(entries_max: usize) -> Self {
        assert!(entries_max > 0, "a cache for nothing");
        Self { entries_max, used: BTreeMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// Uses `key`, which is cached from now on. Returns whether it was before.
    pub(super) fn touch(&mut self, key: K) -> bool {
        self.uses += 1;
        let before = self.used.insert(key, self.uses);
        if let Some(before) = before {
            self.order.remove(&before);
        } else if self.used.len() > self.entries_max {
            let (_, oldest) = self.order.pop_first().expect("it is full");
            self.used.remove(&oldest);
        }
        self.order.insert(self.uses, key);
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list, the last used first.
        #[test]
        fn it_keeps_what_was_used_last(entries_max in 1usize..6, keys in prop::collection::vec(0u8..9, 0..80)) {
            let (mut cache, mut model) = (Lru::new(entries_max), Vec::new());
            for key in keys {
                let expected = model.contains(&key);
                model.retain(|other| *other != key);
                model.insert(0, key);
                model.truncate(entries_max);
                prop_assert_eq!(cache.touch(key), expected);
            }
        }
    }
}
