//! [`Node`]: one node of an index, as a local copy of its page.
//!
//! ```text
//!   byte 0: level (0: a leaf)    byte 2: number of entries    byte 16: entries
//!   entry: key, 16 bytes | value, 8 bytes                     all little-endian, in the order of keys
//! ```
//! A leaf's values are what the index finds. An inner node's are its children: a child has the keys from its entry's
//! on, up to the next entry's, and the first child those below too.

use std::fmt;

use yonder::units::PAGE_BYTES;

/// A key of an index, in the order of numbers.
pub type Key = u128;

const KEY_BYTES: usize = size_of::<Key>();
const ENTRY_BYTES: usize = KEY_BYTES + size_of::<u64>();
const HEADER_BYTES: usize = 16;
const LEVEL_AT: usize = 0;
const COUNT_AT: usize = 2;

/// Entries of a node, at most.
pub(crate) const ENTRIES_MAX: usize = (PAGE_BYTES - HEADER_BYTES) / ENTRY_BYTES;

/// A node's page. It may have been read while it was changed: nothing here panics then, and what is found counts for
/// nothing.
#[derive(Clone)]
pub(crate) struct Node {
    bytes: [u8; PAGE_BYTES],
}

impl Node {
    /// A node without entries.
    pub(crate) fn new(level: u16) -> Self {
        let mut node = Self { bytes: [0; PAGE_BYTES] };
        node.bytes[LEVEL_AT..][..2].copy_from_slice(&level.to_le_bytes());
        node
    }

    /// The bytes to read a page into.
    pub(crate) fn page(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The bytes that count.
    pub(crate) fn used(&self) -> &[u8] {
        &self.bytes[..HEADER_BYTES + self.len() * ENTRY_BYTES]
    }

    pub(crate) fn level(&self) -> u16 {
        self.half_word(LEVEL_AT)
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.half_word(COUNT_AT)).min(ENTRIES_MAX)
    }

    pub(crate) fn key(&self, place: usize) -> Key {
        let at = HEADER_BYTES + place * ENTRY_BYTES;
        Key::from_le_bytes(self.bytes[at..][..KEY_BYTES].try_into().expect("a key has 16 bytes"))
    }

    pub(crate) fn value(&self, place: usize) -> u64 {
        let at = HEADER_BYTES + place * ENTRY_BYTES + KEY_BYTES;
        u64::from_le_bytes(self.bytes[at..][..8].try_into().expect("a word has 8 bytes"))
    }

    /// The place of a key, or the one where it would be.
    pub(crate) fn search(&self, key: Key) -> Result<usize, usize> {
        let place = self.first_from(key);
        if place < self.len() && self.key(place) == key { Ok(place) } else { Err(place) }
    }

    /// The place of the first key that is not less.
    pub(crate) fn first_from(&self, key: Key) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The place of the first key that is greater.
    pub(crate) fn first_after(&self, key: Key) -> usize {
        key.checked_add(1).map_or(self.len(), |next| self.first_from(next))
    }

    /// The place of the child that has a key.
    pub(crate) fn child(&self, key: Key) -> usize {
        self.search(key).unwrap_or_else(|place| place.saturating_sub(1))
    }

    /// Puts an entry at its place.
    pub(crate) fn insert(&mut self, place: usize, key: Key, value: u64) {
        let count = self.len();
        assert!(place <= count && count < ENTRIES_MAX, "entry {place} of {count}");
        let at = HEADER_BYTES + place * ENTRY_BYTES;
        self.bytes.copy_within(at..HEADER_BYTES + count * ENTRY_BYTES, at + ENTRY_BYTES);
        self.bytes[at..][..KEY_BYTES].copy_from_slice(&key.to_le_bytes());
        self.bytes[at + KEY_BYTES..][..8].copy_from_slice(&value.to_le_bytes());
        self.set_len(count + 1);
    }

    /// Takes an entry away.
    pub(crate) fn remove(&mut self, place: usize) {
        let count = self.len();
        assert!(place < count, "entry {place} of {count}");
        let at = HEADER_BYTES + place * ENTRY_BYTES;
        self.bytes.copy_within(at + ENTRY_BYTES..HEADER_BYTES + count * ENTRY_BYTES, at);
        self.set_len(count - 1);
    }

    /// Moves the entries from a place on to a new node of the same level.
    pub(crate) fn split_off(&mut self, place: usize) -> Self {
        let mut right = Self::new(self.level());
        let entries = HEADER_BYTES + place * ENTRY_BYTES..HEADER_BYTES + self.len() * ENTRY_BYTES;
        right.bytes[HEADER_BYTES..][..entries.len()].copy_from_slice(&self.bytes[entries]);
        right.set_len(self.len() - place);
        self.set_len(place);
        right
    }

    fn set_len(&mut self, count: usize) {
        self.bytes[COUNT_AT..][..2].copy_from_slice(&(count as u16).to_le_bytes());
    }

    fn half_word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = (0..self.len()).map(|place| (self.key(place), self.value(place)));
        f.debug_map().entries(entries).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entries(node: &Node) -> Vec<(Key, u64)> {
        (0..node.len()).map(|place| (node.key(place), node.value(place))).collect()
    }

    proptest! {
        #[test]
        fn a_node_is_an_ordered_map(changes in proptest::collection::vec((0..200_u128, any::<u64>()), 0..600), cut in 0..100_usize) {
            let (mut node, mut model) = (Node::new(0), BTreeMap::new());
            for (key, value) in changes {
                match node.search(key) {
                    Ok(place) => {
                        prop_assert_eq!(model.remove(&key), Some(node.value(place)));
                        node.remove(place);
                    }
                    Err(place) if node.len() < ENTRIES_MAX => {
                        prop_assert!(model.insert(key, value).is_none());
                        node.insert(place, key, value);
                    }
                    Err(_) => prop_assert!(!model.contains_key(&key)),
                }
            }
            let expected: Vec<(Key, u64)> = model.into_iter().collect();
            prop_assert_eq!(entries(&node), expected.clone());
            let cut = cut.min(expected.len());
            let right = node.split_off(cut);
            prop_assert_eq!((entries(&node), entries(&right)), (expected[..cut].to_vec(), expected[cut..].to_vec()));
        }
    }

    #[test]
    fn the_first_child_has_all_below_the_second() {
        let mut node = Node::new(1);
        [10, 20, 30].iter().enumerate().for_each(|(place, key)| node.insert(place, *key, 0));
        let children = [0, 10, 19, 20, 29, 30, Key::MAX].map(|key| node.child(key));
        assert_eq!(children, [0, 0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn garbage_is_no_danger() {
        let mut node = Node::new(0);
        node.page().fill(0xFF);
        assert_eq!((node.len(), node.search(5)), (ENTRIES_MAX, Err(0)));
    }
}
