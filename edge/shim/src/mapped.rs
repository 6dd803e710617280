//! [`Maps`]: which ranges of far memory are mapped, and which of them are protected.
//!
//! Each mapping is one entry; unmapping or moving a part of one splits it, and its run of the far heap with it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use yonder_far_heap::Misuse;
use yonder_run::WINDOW;

use crate::far::Far;

static MAPS: Mutex<Maps> = Mutex::new(Maps { runs: BTreeMap::new(), protected: BTreeMap::new() });

/// The far mappings of this process, by their addresses.
pub(crate) struct Maps {
    /// Bytes of each, whole pages.
    pub(crate) runs: BTreeMap<usize, usize>,
    /// Ends of the ranges that are not as they were made, by their starts.
    pub(crate) protected: BTreeMap<usize, usize>,
}

/// Keeps mappings from changing.
pub(crate) struct Held {
    _maps: MutexGuard<'static, Maps>,
}

/// Keeps mappings from changing until this is dropped.
pub(crate) fn hold() -> Held {
    Held { _maps: maps() }
}

pub(crate) fn maps() -> MutexGuard<'static, Maps> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Maps {
    /// Whether all of a range is mapped.
    pub(crate) fn cover(&self, range: Range<usize>) -> bool {
        let mut covered = range.start;
        let before = self.runs.range(..range.start).next_back();
        for (start, bytes) in before.into_iter().chain(self.runs.range(range.clone())) {
            if *start <= covered {
                covered = covered.max(start + bytes);
            }
        }
        covered >= range.end
    }

    /// Makes `address` a border between two mappings, if it lies within one.
    pub(crate) fn split_at(&mut self, far: &Far, address: usize) {
        let Some((start, bytes)) = self.runs.range(..address).next_back().map(|(start, bytes)| (*start, *bytes)) else {
            return;
        };
        if start + bytes <= address {
            return;
        }
        let head = address - start;
        let split = far.heap.lock().split((start - WINDOW.start) as u64, head as u64);
        split.unwrap_or_else(|_| crate::malloc::die_of(Misuse { address: start }));
        self.runs.insert(start, head);
        self.runs.insert(address, bytes - head);
    }

    /// Forgets that parts of `range` are protected, and tells which.
    pub(crate) fn forget_protection(&mut self, range: Range<usize>) -> Vec<Range<usize>> {
        let before = self.protected.range(..range.end).filter(|(_, end)| **end > range.start);
        let overlapping: Vec<usize> = before.map(|(start, _)| *start).collect();
        let clip = |start: usize| {
            let end = self.protected.remove(&start).expect("just found");
            // What is left of it stays as it is.
            for rest in [start..range.start.min(end), range.end.max(start)..end] {
                if !rest.is_empty() {
                    self.protected.insert(rest.start, rest.end);
                }
            }
            start.max(range.start)..end.min(range.end)
        };
        overlapping.into_iter().map(clip).collect()
    }
}
