//! Another process of the same node: it gets far memory that was given back, writes something of its own there, on a
//! lane of its own, and looks whether that stays.

use yonder_units::{Nanos, PAGE_BYTES};

use super::Far;

/// What it writes.
const MARK: u8 = 0x4E;

/// A range of the neighbour's, in pages, and when it gives that back.
pub(super) struct Taken {
    first: u64,
    pages: u64,
    until: Nanos,
}

impl Far {
    /// The neighbour has a range, which is nobody's, until `until`.
    pub(crate) fn lend(&mut self, until: Nanos) {
        let Some((first, pages)) = self.free.pop() else { return };
        for page in first..first + pages {
            self.memory.fill(page * PAGE_BYTES as u64, Box::new([MARK; PAGE_BYTES]));
        }
        self.taken.push(Taken { first, pages, until });
    }

    /// The neighbour looks at what it has, and gives back what it needs no more. A page of it that somebody else has
    /// written, if there is one.
    pub(crate) fn look_as_neighbour(&mut self, now: Nanos) -> Option<u64> {
        let is_changed = |page: &u64| *self.memory.content(page * PAGE_BYTES as u64) != [MARK; PAGE_BYTES];
        let changed = self.taken.iter().find_map(|taken| (taken.first..taken.first + taken.pages).find(is_changed));
        while let Some(at) = self.taken.iter().position(|taken| taken.until <= now) {
            let Taken { first, pages, .. } = self.taken.swap_remove(at);
            self.empty(first..first + pages);
            self.free.push((first, pages));
        }
        changed
    }

    /// The node loses its memory: what the neighbour had is nobody's.
    pub(super) fn forget_neighbour(&mut self) {
        self.free.extend(self.taken.drain(..).map(|taken| (taken.first, taken.pages)));
    }
}
