//! Layers that keep pages in another form on the fabric below: `lz4+URL` compressed ([`lz4`]), `seal+URL` encrypted
//! ([`seal`]).
//!
//! A page keeps its place below and is a short vector there: what is stored of it lies at its beginning. How much that
//! is, of which bytes of the page, and what proves that it is that and nothing else stand in a table here ([`table`]),
//! some bytes a page where pages are used. Every read takes all that is stored of a page, has it proved, and hands out
//! the part that was asked for, so that damage is an error and never a page. A page that was never written, or was
//! discarded, is zeros without a look at what is below.
//!
//! Neighbours: any other fabric below; `core/pager` above, or a tiered store, or another layer.

pub(crate) mod lz4;
mod queue;
pub(crate) mod seal;
mod table;

use std::fmt;
use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_units::{Narrow, PAGE_BYTES};

use crate::areas::{Area, Areas, GIVEN_TWICE, View};
use crate::{Counter, Credentials, Fabric, FabricError, Module, QueuePair, RemoteAddress, Vector};
use queue::StoredQueuePair;
use table::{Stored, Table};

/// A form of pages.
pub trait Form: Sized + Send + Sync + 'static {
    /// What stands before the URL of the fabric below.
    const PREFIX: &'static str;

    /// What a queue pair makes the form with.
    type Codec: Codec;

    /// The form of one fabric.
    fn new() -> Result<Self, String>;

    /// A codec for a queue pair.
    fn codec(self: &Arc<Self>) -> Self::Codec;

    /// A write was posted: these bytes of a page, so many of them as are stored.
    fn posted(&self, _vector: Vector, _stored_bytes: usize) {}

    /// What it has counted.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }
}

/// Makes what is stored of a page, and the page of that. Allocates nothing after it was made: it runs in fault
/// handlers.
pub trait Codec: Send {
    /// What proves that what is below is what was stored. It stays here.
    type Proof: Copy + Eq + fmt::Debug + Default + AsRef<[u64]> + AsMut<[u64]> + Send + Sync + 'static;

    /// What is to be stored at `to` of the bytes of `vector` in the page of `frames` at `offset`, and its proof.
    fn pack(
        &mut self,
        to: RemoteAddress,
        vector: Vector,
        frames: &Mapping,
        offset: u64,
    ) -> (Stored, &[u8], Self::Proof);

    /// Reads what is `stored` at `address` from where it has arrived, in `from` at `offset`, has it proved, and unpacks
    /// it: `bytes` bytes.
    fn unpack(
        &mut self,
        address: RemoteAddress,
        stored: (Stored, Self::Proof),
        bytes: usize,
        from: &Mapping,
        offset: u64,
    ) -> Result<&[u8], Damaged>;
}

/// What has arrived is not what was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged;

/// The proofs of a form.
type ProofOf<F> = <<F as Form>::Codec as Codec>::Proof;

/// A fabric whose pages are kept in the form `F` below.
pub struct StoredFabric<F: Form> {
    url: String,
    below: Arc<dyn Fabric>,
    shared: Arc<Shared<F>>,
}

/// What queue pairs share.
struct Shared<F: Form> {
    areas: Arc<Areas<Table<ProofOf<F>>>>,
    form: Arc<F>,
}

impl<F: Form> StoredFabric<F> {
    /// Keeps pages in `below`.
    pub fn over(below: Arc<dyn Fabric>) -> Result<Self, FabricError> {
        let url = format!("{}{}", F::PREFIX, below.url());
        let form = F::new().map_err(|cause| FabricError::System { url: url.clone(), cause })?;
        let shared = Shared { areas: Arc::new(Areas::new()), form: Arc::new(form) };
        Ok(Self { url, below, shared: Arc::new(shared) })
    }
}

impl<F: Form> Fabric for StoredFabric<F> {
    fn url(&self) -> &str {
        &self.url
    }

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        Ok(Box::new(StoredQueuePair::new(&self.url, &*self.below, module, &self.shared, frames)?))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let refused = |cause: &str| FabricError::System { url: self.url.clone(), cause: cause.to_owned() };
        let start = self.below.allocate(bytes)?;
        let Some(table) = Table::new((bytes / PAGE_BYTES as u64).narrow_usize()) else {
            self.below.release(start)?;
            return Err(refused("there is no memory for what is known of so many pages"));
        };
        // It stays allocated below: given back, it would take the other's memory with it.
        let is_apart = self.shared.areas.add(Area::new(start, bytes, table));
        if is_apart { Ok(start) } else { Err(refused(GIVEN_TWICE)) }
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
        let mut counters = self.below.counters();
        counters.extend(self.shared.form.counters());
        counters
    }
}

#[cfg(test)]
mod lz4_tests;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod seal_tests;
