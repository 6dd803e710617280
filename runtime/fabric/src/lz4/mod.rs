//! `lz4+URL`: the pages of any fabric compressed, for less on the wire or on the disk.
//!
//! A page keeps its place below and is a short vector there: what is stored of it lies at its beginning. How much that
//! is, of which bytes of the page, and its checksum stand in a table here ([`table`]), 12 bytes a page where pages are
//! used. A page that does not become shorter goes as it is ([`codec`]). Every read takes all that is stored of a page,
//! compares the checksum, and hands out the part that was asked for, so that damage is an error and never a page.
//!
//! Neighbours: any other fabric below; `core/pager` above, or a tiered store.

mod codec;
mod queue;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use yonder_mapping::Mapping;
use yonder_units::{Narrow, PAGE_BYTES};

use crate::areas::{Area, Areas, View};
use crate::{Counter, Credentials, Fabric, FabricError, Module, QueuePair, RemoteAddress};
use queue::Lz4QueuePair;
use table::Table;

/// What stands before the URL of the fabric below.
pub(crate) const PREFIX: &str = "lz4+";

/// A fabric whose pages are compressed.
pub struct Lz4Fabric {
    url: String,
    below: Arc<dyn Fabric>,
    shared: Arc<Shared>,
}

/// What queue pairs share.
struct Shared {
    areas: Arc<Areas<Table>>,
    /// Makes checksums unpredictable to whoever chooses the content.
    seed: u64,
    packed_bytes: AtomicU64,
    stored_bytes: AtomicU64,
}

impl Lz4Fabric {
    /// Compresses the pages of `below`.
    pub fn over(below: Arc<dyn Fabric>) -> Result<Self, FabricError> {
        let url = format!("{PREFIX}{}", below.url());
        let seed = OsRng.try_next_u64();
        let seed = seed.map_err(|error| FabricError::System { url: url.clone(), cause: error.to_string() })?;
        let [packed_bytes, stored_bytes] = [const { AtomicU64::new(0) }; 2];
        let shared = Shared { areas: Arc::new(Areas::new()), seed, packed_bytes, stored_bytes };
        Ok(Self { url, below, shared: Arc::new(shared) })
    }
}

impl Fabric for Lz4Fabric {
    fn url(&self) -> &str {
        &self.url
    }

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        Ok(Box::new(Lz4QueuePair::new(&self.url, &*self.below, module, &self.shared, frames)?))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let start = self.below.allocate(bytes)?;
        let area = Area::new(start, bytes, Table::new((bytes / PAGE_BYTES as u64).narrow_usize()));
        self.shared.areas.add(area);
        Ok(start)
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        self.shared.areas.remove(start);
        self.below.release(start)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        if let Some((area, pages)) = View::new(&self.shared.areas).range(start, bytes) {
            pages.for_each(|page| area.table.forget(page));
        }
        self.below.discard(start, bytes)
    }

    fn space(&self) -> Option<Credentials> {
        self.below.space()
    }

    fn loses_operations(&self) -> bool {
        self.below.loses_operations()
    }

    fn counters(&self) -> Vec<Counter> {
        let count = |name, value: &AtomicU64| Counter { name, value: value.load(Ordering::Relaxed) };
        let mut counters = self.below.counters();
        counters.push(count("lz4_packed_bytes", &self.shared.packed_bytes));
        counters.push(count("lz4_stored_bytes", &self.shared.stored_bytes));
        counters
    }
}

#[cfg(test)]
mod tests;
