//! [`Nic`]: the NIC of an RDMA memory node, which keeps connections, regions and page table entries in its host's
//! memory.
//!
//! It caches what it used last. What it does not have it reads over PCIe, one after the other, since each says where
//! the next is (Clio, sections 2.2 and 7.1). Requests come one at a time, so nothing waits.

use yonder_units::Nanos;

use super::lru::Lru;
use crate::costs::Cost;
use crate::costs::clio::{RDMA_ACCESS, RNIC_CLOUD, RNIC_LOCAL, RNIC_MISS};

/// The NICs of the paper, each with the name that it has in tables, and with the size of its caches.
pub(super) const NICS: [(&str, Cost); 2] = [("connectx3", RNIC_LOCAL), ("connectx5", RNIC_CLOUD)];

/// What one access needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// The queue pair that it comes over.
    pub(super) queue_pair: u64,
    /// The region that it names.
    pub(super) region: u64,
    /// The page that it is to.
    pub(super) page: u64,
}

/// A NIC and its caches.
#[derive(Debug)]
pub(super) struct Nic {
    queue_pairs: Lru<u64>,
    regions: Lru<u64>,
    pages: Lru<u64>,
}

impl Nic {
    /// A NIC that has used nothing yet, with room for `entries` of each kind.
    pub(super) fn new(entries: Cost) -> Self {
        let cache = || Lru::new(entries.value as usize);
        Self { queue_pairs: cache(), regions: cache(), pages: cache() }
    }

    /// How long an access takes.
    pub(super) fn access(&mut self, access: Access) -> Nanos {
        let hits = [
            self.queue_pairs.touch(access.queue_pair),
            self.regions.touch(access.region),
            self.pages.touch(access.page),
        ];
        let misses = hits.iter().filter(|is_hit| !**is_hit).count();
        RDMA_ACCESS.ns() + misses as Nanos * RNIC_MISS.ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_cached_is_read_from_the_host() {
        let mut nic = Nic::new(RNIC_LOCAL);
        let access = |number| Access { queue_pair: number, region: 0, page: number };
        assert_eq!(nic.access(access(1)), RDMA_ACCESS.ns() + 3 * RNIC_MISS.ns());
        assert_eq!(nic.access(access(1)), RDMA_ACCESS.ns());
        assert_eq!(nic.access(access(2)), RDMA_ACCESS.ns() + 2 * RNIC_MISS.ns());
    }
}
