//! [`Pool`]: the node's memory that no page has, and what was freed and may still be in use by requests under way.
//!
//! What is freed waits here until someone needs it, or until there is nothing else to do: then one wait for the data
//! threads serves all of it. Memory is zeroed then and not when it is freed, so a free of any size takes no longer than
//! its entries.
//!
//! One owner, the slow path. Invariant: memory is handed out only after a wait that began after it was freed, and
//! zeroed.

use yonder_units::Narrow;

use crate::address::{PageSize, PhysicalPage};
use crate::allocator::{Allocator, Freed};
use crate::node_core::Upkeep;
use crate::quarantine::Quarantine;

/// Most pages, and bytes unless one page has more, that are zeroed at a time while there may be other work.
const CLEANED_MAX: usize = 16;
const CLEANED_BYTES_MAX: u64 = 1 << 20;
/// Pages of freed ranges that are made usable at a time, but for the last range.
const RECLAIMED_PAGES_MAX: u64 = 4096;

/// Memory without a page.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Reads as zeros.
    clean: Vec<PhysicalPage>,
    /// Has old bytes, and nobody uses it.
    dirty: Vec<PhysicalPage>,
    /// Ranges that were freed, and may still be used.
    freed: Vec<Freed>,
    /// Memory of pages that were discarded, and may still be used.
    unmapped: Vec<PhysicalPage>,
    /// What clients have mapped whose address spaces have ended.
    pub(crate) quarantine: Quarantine,
    /// Virtual pages of `freed`.
    waiting_pages: u64,
    /// Pages that are zeroed at a time.
    cleaned_max: usize,
}

impl Pool {
    /// All the memory of a node, which reads as zeros.
    pub(crate) fn new(pages: u32, size: PageSize) -> Self {
        let clean = (0..pages).rev().map(PhysicalPage).collect();
        let quarantine = Quarantine::new(pages);
        let cleaned_max = (CLEANED_BYTES_MAX / size.bytes()).clamp(1, CLEANED_MAX as u64).narrow_usize();
        let (dirty, freed, unmapped) = (Vec::new(), Vec::new(), Vec::new());
        Self { clean, dirty, freed, unmapped, quarantine, waiting_pages: 0, cleaned_max }
    }

    /// Takes a range that was just freed.
    pub(crate) fn retire(&mut self, freed: Freed) {
        self.waiting_pages += freed.pages();
        self.freed.push(freed);
    }

    /// Takes memory that a page has just lost.
    pub(crate) fn retire_memory(&mut self, page: PhysicalPage) {
        self.unmapped.push(page);
    }

    /// Takes memory back that was handed out and not used.
    pub(crate) fn give_back(&mut self, page: PhysicalPage) {
        self.clean.push(page);
    }

    /// Virtual pages that are freed, and whose slots and addresses are not.
    pub(crate) fn waiting_pages(&self) -> u64 {
        self.waiting_pages
    }

    /// Makes some of what was freed usable, and says whether there was anything.
    pub(crate) fn reclaim_freed(&mut self, allocator: &mut Allocator, upkeep: &mut impl Upkeep) -> bool {
        if self.freed.is_empty() && self.unmapped.is_empty() {
            return false;
        }
        upkeep.wait_until_quiet();
        self.dirty.append(&mut self.unmapped);
        let mut reclaimed = 0;
        while reclaimed < RECLAIMED_PAGES_MAX
            && let Some(freed) = self.freed.pop()
        {
            reclaimed += freed.pages();
            self.waiting_pages -= freed.pages();
            let pid = freed.pid();
            let memory = allocator.release(freed);
            self.dirty.extend(self.quarantine.keep(pid, memory, &mut self.clean));
        }
        true
    }

    /// Zeroes some of what was freed, and says whether there is more.
    pub(crate) fn clean(&mut self, allocator: &mut Allocator, upkeep: &mut impl Upkeep) -> bool {
        self.reclaim_freed(allocator, upkeep);
        for page in self.dirty.drain(self.dirty.len().saturating_sub(self.cleaned_max)..) {
            upkeep.zero(page);
            self.clean.push(page);
        }
        let is_more_held = self.quarantine.clean(self.cleaned_max, &mut self.clean, upkeep);
        is_more_held || !self.dirty.is_empty() || !self.freed.is_empty()
    }

    /// Pages that are zeroed at a time while there may be other work.
    pub(crate) fn cleaned_max(&self) -> usize {
        self.cleaned_max
    }

    /// Whether the next page would have to be zeroed first, or waited for.
    pub(crate) fn would_zero(&self) -> bool {
        let has_old = !(self.dirty.is_empty() && self.freed.is_empty() && self.unmapped.is_empty());
        self.clean.is_empty() && has_old
    }

    /// Memory that reads as zeros, if some does already.
    pub(crate) fn take_clean(&mut self) -> Option<PhysicalPage> {
        self.clean.pop()
    }

    /// Memory that reads as zeros, if there is any.
    pub(crate) fn take(&mut self, allocator: &mut Allocator, upkeep: &mut impl Upkeep) -> Option<PhysicalPage> {
        while self.clean.is_empty() && self.dirty.is_empty() && self.reclaim_freed(allocator, upkeep) {}
        self.clean.pop().or_else(|| {
            let page = self.dirty.pop()?;
            upkeep.zero(page);
            Some(page)
        })
    }
}
