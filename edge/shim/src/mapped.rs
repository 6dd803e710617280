//! [`Maps`]: which ranges of far memory are mapped, and which of them are protected.
//!
//! Each mapping is one entry; unmapping or moving a part of one splits it, and its run of the far heap with it.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use yonder_far_heap::Misuse;
use yonder_run::WINDOW;

use crate::far::{Far, far};

static MAPS: Mutex<Maps> = Mutex::new(Maps { runs: BTreeMap::new(), protected: BTreeMap::new() });

/// The far mappings of this process, by their addresses.
pub(crate) struct Maps {
    /// Bytes of each, whole pages.
    pub(crate) runs: BTreeMap<usize, usize>,
    /// Ranges that are not as they were made, with the hold on those that cannot be read.
    pub(crate) protected: BTreeMap<usize, Protected>,
}

/// How a range is protected.
pub(crate) struct Protected {
    pub(crate) end: usize,
    pub(crate) prot: c_int,
    pub(crate) _hold: Option<yonder_paging::Hold<'static>>,
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

    /// Parts of `range` that are protected, and how.
    pub(crate) fn protection_of(&self, range: Range<usize>) -> Vec<(Range<usize>, c_int)> {
        let overlapping = self.protected.range(..range.end).filter(|(_, entry)| entry.end > range.start);
        let clipped =
            |(start, entry): (&usize, &Protected)| ((*start).max(range.start)..entry.end.min(range.end), entry.prot);
        overlapping.map(clipped).collect()
    }

    /// Forgets that parts of `range` are protected, and tells which.
    pub(crate) fn forget_protection(&mut self, range: Range<usize>, mut each: impl FnMut(Range<usize>)) {
        let before = self.protected.range(..range.end).filter(|(_, entry)| entry.end > range.start);
        let overlapping: Vec<usize> = before.map(|(start, _)| *start).collect();
        for start in overlapping {
            let entry = self.protected.remove(&start).expect("just found");
            each(start.max(range.start)..entry.end.min(range.end));
            // What is left of it stays as it is, and held if it was: a block more than needed at most.
            let was_held = entry._hold.is_some();
            for rest in [start..range.start.min(entry.end), range.end.max(start)..entry.end] {
                if !rest.is_empty() {
                    let hold = was_held.then(|| {
                        let far = far().expect("far memory is protected");
                        let offset = far.offset(rest.start).expect("protected memory is far");
                        yonder_trap::hold_back(|| far.region().hold_as_is(offset, rest.len()))
                    });
                    self.protected.insert(rest.start, Protected { end: rest.end, prot: entry.prot, _hold: hold });
                }
            }
        }
    }
}
