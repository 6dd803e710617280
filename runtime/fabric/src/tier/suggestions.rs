//! [`Suggestions`]: pages that are read far again and again, for the mover.
//!
//! Pushing is two atomic operations, because the fault path does it. A suggestion may be lost: the next read makes it
//! again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::RemoteAddress;

/// Pages that wait. Others push them out.
const SUGGESTIONS_MAX: usize = 64;

/// What is remembered.
pub(super) struct Suggestions {
    /// The address of a page, plus one; 0 is none.
    places: [AtomicU64; SUGGESTIONS_MAX],
    next: AtomicUsize,
}

impl Suggestions {
    pub(super) fn new() -> Self {
        Self { places: [const { AtomicU64::new(0) }; SUGGESTIONS_MAX], next: AtomicUsize::new(0) }
    }

    pub(super) fn push(&self, page: RemoteAddress) {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % SUGGESTIONS_MAX;
        self.places[place].store(page.0 + 1, Ordering::Release);
    }

    pub(super) fn pop(&self) -> Option<RemoteAddress> {
        let taken = self.places.iter().map(|place| place.swap(0, Ordering::AcqRel)).find(|word| *word != 0)?;
        Some(RemoteAddress(taken - 1))
    }
}
