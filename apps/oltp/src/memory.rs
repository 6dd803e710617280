//! [`Memory`]: the region of a database and what is known of it locally.

use std::sync::Arc;

use yonder::sched::yield_now;
use yonder::units::PAGE_BYTES;
use yonder::{Hold, PagingError, Region};

use crate::latches::Latches;
use crate::node::Node;
use crate::space::{Slab, Space};

/// What all tables of a database share.
pub(crate) struct Memory {
    pub(crate) region: Arc<Region>,
    pub(crate) latches: Latches,
    pub(crate) space: Space,
    /// Pages for the nodes of all indexes.
    pub(crate) nodes: Slab,
}

impl Memory {
    pub(crate) fn new(region: Arc<Region>, stripes_log2: u32) -> Self {
        let bytes = region.bytes();
        let (latches, space) = (Latches::new(bytes, stripes_log2), Space::new(bytes));
        Self { region, latches, space, nodes: Slab::new(PAGE_BYTES) }
    }

    pub(crate) fn read_node(&self, at: u64, node: &mut Node) -> Result<(), PagingError> {
        self.region.read(at, node.page())
    }

    pub(crate) fn write_node(&self, at: u64, node: &Node) -> Result<(), PagingError> {
        self.region.write(at, node.used())
    }

    /// Brings the pages of these places and keeps them: accesses to them neither wait nor fail until the holds are
    /// dropped.
    ///
    /// Nothing is held while a page is on its way, so that many who wait here never keep the reclaimer from making room
    /// for one of them. If one has left while others came, or is being swept, all are let go and brought again: a sweep
    /// ends by itself, and local memory has room for far more pages than a transaction writes.
    pub(crate) fn hold(&self, mut places: Vec<u64>) -> Result<Vec<Hold<'_>>, PagingError> {
        places.iter_mut().for_each(|place| *place -= *place % PAGE_BYTES as u64);
        places.sort_unstable();
        places.dedup();
        loop {
            places.iter().try_for_each(|page| self.region.probe(*page))?;
            let held = places.iter().map(|page| self.region.try_hold(*page, PAGE_BYTES)).collect();
            if let Some(held) = held {
                return Ok(held);
            }
            yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use yonder::{Config, FarMemory};

    use super::*;

    const LOCAL: u64 = 16 << 20;
    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn pages_that_are_held_stay_whatever_else_comes() {
        if let Err(why) = yonder::abilities().userfaultfd {
            println!("SKIP: no userfaultfd: {why}");
            return;
        }
        let far = FarMemory::open("emu://?latency=2us&gbps=100", Config::with_local(LOCAL)).unwrap();
        let memory = Memory::new(Arc::new(far.region(4 * LOCAL).unwrap()), 4);
        // What is held keeps its blocks, which are small beside what is local.
        let come = || {
            let others = LOCAL / 2 / PAGE..memory.region.bytes() / PAGE;
            others.for_each(|page| memory.region.write_u64(page * PAGE, page).unwrap());
        };
        // Places in the same page, in two of one block, and in another block.
        let places = vec![8 + PAGE, 4 * PAGE, 16 + PAGE, LOCAL / 4];
        let held = memory.hold(places.clone()).unwrap();
        assert_eq!(held.len(), 3);
        come();
        assert!(places.iter().all(|place| memory.region.is_resident(*place)));
        drop(held);
        while places.iter().any(|place| memory.region.is_resident(*place)) {
            come();
        }
    }
}
