//! [`Memory`]: the region of a database and what is known of it locally.

use std::sync::Arc;

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

    /// Brings the pages of these places and keeps them: accesses to them neither wait nor fail until the holds are dropped. `None`
    /// if one has left while others came, or is about to. Nothing is held while a page is on its way, so that many who wait here
    /// never keep the reclaimer from making room for one of them.
    pub(crate) fn hold(&self, mut places: Vec<u64>) -> Result<Option<Vec<Hold<'_>>>, PagingError> {
        places.iter_mut().for_each(|place| *place -= *place % PAGE_BYTES as u64);
        places.sort_unstable();
        places.dedup();
        places.iter().try_for_each(|page| self.region.probe(*page))?;
        Ok(places.iter().map(|page| self.region.try_hold(*page, PAGE_BYTES)).collect())
    }
}
