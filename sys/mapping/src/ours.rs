//! Where the mappings of this type are, for who asks what else a process has.
//!
//! A table without a lock: it is written to where a fork may copy it at any moment.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Mappings that there is room for; what is more is not told of.
const MAPPINGS_MAX: usize = 64;

/// One mapping, or none.
struct Place {
    start: AtomicUsize,
    bytes: AtomicUsize,
}

static PLACES: [Place; MAPPINGS_MAX] =
    [const { Place { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0) } }; MAPPINGS_MAX];

pub(crate) fn add(start: usize, bytes: usize) {
    let take = |place: &&Place| place.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if let Some(place) = PLACES.iter().find(take) {
        place.bytes.store(bytes, Ordering::Release);
    }
}

pub(crate) fn remove(start: usize) {
    if let Some(place) = PLACES.iter().find(|place| place.start.load(Ordering::Acquire) == start) {
        place.bytes.store(0, Ordering::Relaxed);
        place.start.store(0, Ordering::Release);
    }
}

/// The addresses of mappings that are there now.
pub fn ranges() -> impl Iterator<Item = Range<usize>> {
    let range = |place: &Place| {
        let start = place.start.load(Ordering::Acquire);
        start..start + place.bytes.load(Ordering::Acquire)
    };
    PLACES.iter().map(range).filter(|range| !range.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mapping;
    use yonder_units::PAGE_BYTES;

    #[test]
    fn a_mapping_is_told_of_while_it_is_there() {
        let mapping = Mapping::anonymous(4 * PAGE_BYTES).unwrap();
        let range = mapping.address()..mapping.address() + mapping.len();
        assert!(ranges().any(|known| known == range));
        drop(mapping);
        assert!(!ranges().any(|known| known == range));
    }
}
