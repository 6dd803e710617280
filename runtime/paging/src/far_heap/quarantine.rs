//! [`Quarantine`]: pages that were freed, and whose discard has no known end at the node.
//!
//! They are given out again only when the node has agreed to forget them, or it might do so later, over what their next
//! owner has written. The region asks the node again in the background; the heap looks at what has become of it before
//! it gives out or takes back large memory.
//!
//! Invariant: nothing is allocated, because a heap can stand behind `malloc`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Region;
use yonder_heap::Retired;
use yonder_units::PAGE_BYTES;

/// Ranges that wait at most. Those beyond are lost to the heap.
const RANGES_MAX: usize = 1024;

pub(crate) type Ranges = Box<[Option<Retired>; RANGES_MAX]>;

/// The ranges that wait.
pub(crate) struct Quarantine {
    ranges: Mutex<Ranges>,
    count: AtomicUsize,
    lost_bytes: AtomicU64,
}

impl Quarantine {
    pub(crate) fn new() -> Self {
        let ranges = Mutex::new(Box::new([const { None }; RANGES_MAX]));
        Self { ranges, count: AtomicUsize::new(0), lost_bytes: AtomicU64::new(0) }
    }

    /// For who keeps handlers of signals away. The heap's lock comes after it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps pages from being given out; for ever if there is no room.
    pub(crate) fn keep(&self, retired: Retired) {
        let mut ranges = self.lock();
        match ranges.iter_mut().find(|range| range.is_none()) {
            Some(place) => {
                *place = Some(retired);
                self.count.fetch_add(1, Ordering::AcqRel);
            }
            None => _ = self.lost_bytes.fetch_add(bytes_of(&retired), Ordering::Relaxed),
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Hands ranges whose discard the node has confirmed to `release`.
    pub(crate) fn release_confirmed(&self, region: &Region, mut release: impl FnMut(Retired)) {
        let mut ranges = self.lock();
        let is_confirmed = |range: &mut Retired| region.is_discard_confirmed(range.first().offset(), bytes_of(range));
        for confirmed in ranges.iter_mut().filter_map(|range| range.take_if(is_confirmed)) {
            self.count.fetch_sub(1, Ordering::AcqRel);
            release(confirmed);
        }
    }

    /// Bytes of the pages that are given to nobody.
    pub(crate) fn bytes(&self) -> u64 {
        let ranges = self.lock();
        self.lost_bytes.load(Ordering::Relaxed) + ranges.iter().flatten().map(bytes_of).sum::<u64>()
    }
}

fn bytes_of(range: &Retired) -> u64 {
    u64::from(range.pages()) * PAGE_BYTES as u64
}
