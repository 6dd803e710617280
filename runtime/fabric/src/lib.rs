//! How bytes reach far memory.
//!
//! A [`Fabric`] is one memory node (or the embedded stand-in for one); a [`QueuePair`] is one queue of reads and writes
//! to it. Which queue pairs the pager needs, and in which words it speaks to them, is its own to say: `core/pager` has
//! the trait, and this crate what implements it.
//!
//! [`lane`] is what is below for a node in another process: one flow of requests to it; a [`SpaceLease`] holds an
//! address space there. `yonder::clib` uses both too.
//!
//! Neighbours: `core/pager` posts page reads and writes here; `core/client` decides what goes over a lane and when.

#![forbid(unsafe_code)]

mod adaptive_spin;
#[cfg(test)]
mod adversarial;
mod areas;
mod background;
pub mod cluster;
mod emu;
mod file;
pub mod lane;
mod lease;
mod operations;
mod queue;
mod ranges;
mod remote;
mod second_copy;
mod shm;
mod space;
mod spread;
mod stored;
mod tier;
mod url;
mod vector;

pub use adaptive_spin::AdaptiveSpin;
pub use emu::{EmuControl, EmuFabric};
pub use file::FileFabric;
pub use remote::RemoteFabric;
pub use second_copy::{Copies, Mismatch, SecondCopy};
pub use shm::ShmFabric;
pub use space::{Credentials, SpaceLease, SpaceLeaseError, end_space};
pub use spread::SpreadFabric;
pub use stored::lz4::Lz4Fabric;
pub use stored::seal::SealFabric;
pub use tier::TierFabric;
pub use url::{keeps_in_file, likely_page_cost, open, page_deadline};
pub use yonder_pager::{
    ALONE_AGE_MAX, CleanDrop, Completion, GATHERED_MAX, GRANULE_BYTES, Module, PageRead, PageWrite, PostError, Posting,
    QUEUE_DEPTH_MAX, QueuePair, ReadInto, ReadsAs, RemoteAddress, SEGMENTS_MAX, Status, TOGETHER_AGE_MAX, Vector,
    WorkId,
};

use std::sync::Arc;

use yonder_mapping::Mapping;

/// A number that a fabric counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Its name, with the unit last.
    pub name: &'static str,
    /// The count.
    pub value: u64,
}

/// Why a control operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The URL names no fabric. The text says what is wrong and what to type.
    #[error("{0}")]
    BadUrl(String),
    /// The node cannot be reached or does not speak our protocol.
    #[error("memory node {url} cannot be reached: {cause}; start one with `yonder node --listen {url} --memory SIZE`")]
    Unreachable {
        /// The fabric's URL.
        url: String,
        /// What the operating system or the peer said.
        cause: String,
    },
    /// The node has no room left.
    #[error("{}", no_room(.url, *.bytes))]
    OutOfMemory {
        /// The fabric's URL.
        url: String,
        /// The size that was asked for.
        bytes: u64,
    },
    /// The machine refused something that the fabric needs, such as memory.
    #[error("fabric {url}: {cause}")]
    System {
        /// The fabric's URL.
        url: String,
        /// What was refused.
        cause: String,
    },
}

fn no_room(url: &str, bytes: u64) -> String {
    let (more, mib) = (yonder_units::format_bytes(bytes), file::size_for(bytes).div_ceil(1 << 20));
    if url.starts_with("file://") {
        format!("'{url}' has no room for {more} more: type a smaller --memory, or size={mib}MiB or more in the URL")
    } else {
        format!(
            "memory node {url} has no room for {more} more: type a smaller --memory, or start the node with a larger one"
        )
    }
}

/// One memory node, or the embedded stand-in for one. Control operations may block; they are never on the fault path.
pub trait Fabric: Send + Sync {
    /// The URL the fabric was opened with, for messages.
    fn url(&self) -> &str;

    /// A new queue pair. Reads and writes move bytes between far memory and `frames`, the local frame pool.
    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError>;

    /// Reserves `bytes` of far memory that reads as zeros, and returns where it starts. `bytes` is a whole number of
    /// pages.
    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError>;

    /// Gives the allocation that begins at `start` back to the node. The node may use the memory for others at once;
    /// the caller has no operation outstanding on it.
    fn release(&self, start: RemoteAddress) -> Result<(), FabricError>;

    /// Gives the backing of `bytes` at `start` back while the address range stays allocated: it reads as zeros again.
    /// After an error it may still be executed, until another call for the same range has succeeded: then it has been,
    /// or never will be. Nothing is to be written there in between.
    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError>;

    /// The address space that the memory is in, on a node; `None` if there is no node. See [`end_space`].
    fn space(&self) -> Option<Credentials> {
        None
    }

    /// Whether far memory lies in this process, mapped, so that a forked child has a copy of it as it was at the fork.
    fn is_inherited(&self) -> bool {
        false
    }

    /// Whether an operation may be lost on its way and never end, so that it is worth posting again after some time.
    fn loses_operations(&self) -> bool {
        true
    }

    /// What the fabric has counted since it was opened, those of fabrics below it included.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// A second copy of far memory, to compare with what is dropped as clean, if the fabric keeps one ([`SecondCopy`]).
    fn copies(&self) -> Option<&Copies> {
        None
    }

    /// Far memory itself, if this fabric maps it: byte `a` of the mapping is [`RemoteAddress`] `a`. Reads may then be
    /// posted with [`ReadInto::Mapped`].
    fn mapped(&self) -> Option<&Arc<Mapping>> {
        None
    }
}
