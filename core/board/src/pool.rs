//! [`Pool`]: the node's memory that no page has, and what was freed and may still be in use by requests under way.
//!
//! What is freed waits here until someone needs it, or until there is nothing else to do: then one wait for the data threads
//! serves all of it. Memory is zeroed then and not when it is freed, so a free of any size takes no longer than its entries.
//!
//! One owner, the slow path. Invariant: memory is handed out only after a wait that began after it was freed, and zeroed.

use crate::address::PhysicalPage;
use crate::allocator::{Allocator, Freed};
use crate::board::Upkeep;

/// Most pages that are zeroed at a time while there may be other work.
const CLEANED_MAX: usize = 16;

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
}

impl Pool {
    /// All the memory of a node, which reads as zeros.
    pub(crate) fn new(pages: u32) -> Self {
        let clean = (0..pages).rev().map(PhysicalPage).collect();
        Self { clean, dirty: Vec::new(), freed: Vec::new(), unmapped: Vec::new() }
    }

    /// Takes a range that was just freed.
    pub(crate) fn retire(&mut self, freed: Freed) {
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
        self.freed.iter().map(Freed::pages).sum()
    }

    /// Makes all that was freed usable, and says whether there was anything.
    pub(crate) fn settle(&mut self, allocator: &mut Allocator, upkeep: &mut impl Upkeep) -> bool {
        if self.freed.is_empty() && self.unmapped.is_empty() {
            return false;
        }
        upkeep.wait_until_quiet();
        self.dirty.append(&mut self.unmapped);
        for freed in self.freed.drain(..) {
            self.dirty.extend(allocator.release(freed));
        }
        true
    }

    /// Zeroes some of what was freed, and says whether there is more.
    pub(crate) fn clean(&mut self, allocator: &mut Allocator, upkeep: &mut impl Upkeep) -> bool {
        self.settle(allocator, upkeep);
        for page in self.dirty.drain(self.dirty.len().saturating_sub(CLEANED_MAX)..) {
            upkeep.zero(page);
            self.clean.push(page);
        }
        !self.dirty.is_empty()
    }

    /// Memory that reads as zeros, if there is any.
    pub(crate) fn take(&mut self, allocator: &mut Allocator, upkeep: &mut impl Upkeep) -> Option<PhysicalPage> {
        if self.clean.is_empty() && self.dirty.is_empty() {
            self.settle(allocator, upkeep);
        }
        self.clean.pop().or_else(|| {
            let page = self.dirty.pop()?;
            upkeep.zero(page);
            Some(page)
        })
    }
}
