//! [`List`]: a doubly linked list of the indices of a table, in memory reserved once.
//!
//! Invariant: an index is in the list at most once. The links form a ring through a sentinel behind the last index, so
//! that no operation has to treat an end apart.

/// Not in the list.
const UNLINKED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

/// A list of some of the indices below its capacity.
#[derive(Debug)]
pub(crate) struct List {
    links: Vec<Link>,
    sentinel: u32,
    length: usize,
}

impl List {
    /// An empty list of indices below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        let sentinel = u32::try_from(capacity).expect("a table of at most 2^32 entries");
        let mut links = vec![Link { before: UNLINKED, after: UNLINKED }; capacity + 1];
        links[capacity] = Link { before: sentinel, after: sentinel };
        Self { links, sentinel, length: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn first(&self) -> Option<u32> {
        self.after(self.sentinel)
    }

    pub(crate) fn last(&self) -> Option<u32> {
        self.before(self.sentinel)
    }

    /// The index after `index`, which is in the list.
    pub(crate) fn after(&self, index: u32) -> Option<u32> {
        let after = self.links[index as usize].after;
        debug_assert_ne!(after, UNLINKED);
        (after != self.sentinel).then_some(after)
    }

    /// The index before `index`, which is in the list.
    pub(crate) fn before(&self, index: u32) -> Option<u32> {
        let before = self.links[index as usize].before;
        debug_assert_ne!(before, UNLINKED);
        (before != self.sentinel).then_some(before)
    }

    pub(crate) fn push_back(&mut self, index: u32) {
        self.insert_after(self.links[self.sentinel as usize].before, index);
    }

    /// Inserts `index` after `place`, or as the first if that is `None`.
    pub(crate) fn insert(&mut self, place: Option<u32>, index: u32) {
        self.insert_after(place.unwrap_or(self.sentinel), index);
    }

    pub(crate) fn remove(&mut self, index: u32) {
        let Link { before, after } = self.links[index as usize];
        debug_assert_ne!(after, UNLINKED, "{index} is not in the list");
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        self.links[index as usize] = Link { before: UNLINKED, after: UNLINKED };
        self.length -= 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<u32> {
        let first = self.first()?;
        self.remove(first);
        Some(first)
    }

    fn insert_after(&mut self, before: u32, index: u32) {
        debug_assert_eq!(self.links[index as usize].after, UNLINKED, "{index} is in the list already");
        let after = self.links[before as usize].after;
        self.links[index as usize] = Link { before, after };
        self.links[before as usize].after = index;
        self.links[after as usize].before = index;
        self.length += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(list: &List) -> Vec<u32> {
        std::iter::successors(list.first(), |index| list.after(*index)).collect()
    }

    proptest! {
        /// The list against a vector.
        #[test]
        fn a_list_is_a_sequence(steps in prop::collection::vec((0u32..16, 0u8..4), 0..100)) {
            let (mut list, mut model) = (List::new(16), Vec::<u32>::new());
            for (index, step) in steps {
                match (model.iter().position(|have| *have == index), step) {
                    (Some(at), _) => {
                        list.remove(index);
                        model.remove(at);
                    }
                    (None, 0) => {
                        list.insert(model.first().copied(), index);
                        model.insert(model.len().min(1), index);
                    }
                    (None, 1) => {
                        list.insert(None, index);
                        model.insert(0, index);
                    }
                    (None, 2) if !model.is_empty() => prop_assert_eq!(list.pop_front(), Some(model.remove(0))),
                    _ => {
                        list.push_back(index);
                        model.push(index);
                    }
                }
                prop_assert_eq!(contents(&list), &model[..]);
                prop_assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(list.last(), model.last().copied());
            }
        }
    }
}
