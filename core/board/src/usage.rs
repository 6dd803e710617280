//! What the node can say about regions: which have allocations ([`RegionUse`]), how much memory these have, and how
//! much they are used. A controller decides by it which region moves.

use yonder_units::Narrow;

use crate::address::{Pid, VirtualPage};
use crate::node_core::NodeCore;
use crate::range::Allocated;
use crate::slow_path::SlowPath;

/// A region that has allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionUse {
    /// Its number: its first address divided by the bytes of a region.
    pub region: u32,
    /// Bytes of the allocations in it, with memory or without.
    pub allocated_bytes: u64,
}

impl NodeCore {
    /// About how many accesses a region had of late. What [`NodeCore::cool`] has halved counts half.
    #[must_use]
    pub fn heat(&self, pid: Pid, region: u32) -> u64 {
        self.heat.of(pid, region)
    }

    /// Lets accesses of before weigh half from now on.
    pub fn cool(&self) {
        self.heat.cool();
    }
}

impl SlowPath {
    /// The address spaces of this node.
    #[must_use]
    pub fn spaces(&self) -> Vec<Pid> {
        self.spaces.each().collect()
    }

    /// The regions in which an address space has allocations, in order.
    #[must_use]
    pub fn regions(&self, pid: Pid) -> Vec<RegionUse> {
        let region_pages = self.region_pages();
        let page_bytes = self.board.config.page_size.bytes();
        let mut found: Vec<RegionUse> = Vec::new();
        for Allocated { first, pages, .. } in self.allocator.among(pid, 0, u32::MAX) {
            let (mut page, end) = (u64::from(first), u64::from(first) + u64::from(pages));
            while page < end {
                let region = page / region_pages;
                let behind = end.min((region + 1) * region_pages);
                let allocated_bytes = (behind - page) * page_bytes;
                match found.last_mut().filter(|last| u64::from(last.region) == region) {
                    Some(last) => last.allocated_bytes += allocated_bytes,
                    None => found.push(RegionUse { region: region.narrow_u32(), allocated_bytes }),
                }
                page = behind;
            }
        }
        found
    }

    /// Bytes of memory that a region of an address space has. Takes about 50 ns for each page that is allocated there.
    #[must_use]
    pub fn resident_bytes(&self, pid: Pid, region: u32) -> u64 {
        let from = u64::from(region) * self.region_pages();
        let number = |page: u64| u32::try_from(page).unwrap_or(u32::MAX);
        let (from, to) = (number(from), number(from + self.region_pages()));
        let ranges = self.allocator.among(pid, from, to);
        let pages = ranges.iter().flat_map(|range| range.first.max(from)..(range.first + range.pages).min(to));
        let resident = pages.filter(|page| self.board.table.memory_of(pid, VirtualPage(*page)).is_some()).count();
        resident as u64 * self.board.config.page_size.bytes()
    }

    fn region_pages(&self) -> u64 {
        self.board.region_bytes / self.board.config.page_size.bytes()
    }
}
