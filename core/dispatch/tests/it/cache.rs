//! A cache of pages, in the order of their use or of their coming.

use std::collections::{BTreeMap, HashMap};

/// What leaves a cache first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Leaves {
    /// What was used longest ago.
    LeastRecent,
    /// What came first, used or not: as a hand that sweeps sealed pages.
    First,
}

/// Pages of local memory.
pub(crate) struct Cache {
    limit: usize,
    leaves: Leaves,
    turn: u64,
    turn_of: HashMap<u32, u64>,
    by_turn: BTreeMap<u64, u32>,
}

impl Cache {
    pub(crate) fn new(limit: usize, leaves: Leaves) -> Self {
        Self { limit, leaves, turn: 0, turn_of: HashMap::new(), by_turn: BTreeMap::new() }
    }

    pub(crate) fn has(&self, page: u32) -> bool {
        self.turn_of.contains_key(&page)
    }

    /// Touches a page. Returns whether that was a fault.
    pub(crate) fn touch(&mut self, page: u32) -> bool {
        self.turn += 1;
        let is_fault = !self.has(page);
        if is_fault || self.leaves == Leaves::LeastRecent {
            if let Some(before) = self.turn_of.insert(page, self.turn) {
                self.by_turn.remove(&before);
            }
            self.by_turn.insert(self.turn, page);
        }
        if self.turn_of.len() > self.limit {
            let (_, page) = self.by_turn.pop_first().expect("a full cache has pages");
            self.turn_of.remove(&page);
        }
        is_fault
    }
}
