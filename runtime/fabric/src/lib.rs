//! How bytes reach far memory.
//!
//! A [`Fabric`] is one memory node (or the embedded stand-in for one); a [`QueuePair`] is one queue of reads and writes
//! to it, shaped like verbs: posts are bounded and never block, errors are completions. A worker has a queue pair per
//! [`Module`], so a demand fetch never queues behind a write-back.
//!
//! [`lane`] is what is below for a node in another process: one flow of requests to it; a [`Tenancy`] holds an address space
//! there. `yonder::clib` uses both too.
//!
//! Neighbours: `runtime/paging` posts page reads and writes here; `core/client` decides what goes over a lane and when.

#![forbid(unsafe_code)]

mod areas;
mod background;
mod emu;
mod file;
pub mod lane;
mod lease;
#[cfg(test)]
mod loose;
mod lz4;
mod patience;
mod queue;
mod ranges;
mod remote;
mod second_copy;
mod shm;
mod space;
mod tier;
mod url;
mod vector;

pub use emu::{EmuControl, EmuFabric};
pub use file::FileFabric;
pub use lz4::Lz4Fabric;
pub use patience::Patience;
pub use remote::RemoteFabric;
pub use second_copy::{CleanDrop, Copies, Mismatch, ReadsAs, SecondCopy};
pub use shm::ShmFabric;
pub use space::{Credentials, Tenancy, TenancyError, end_space};
pub use tier::TierFabric;
pub use url::{is_tiered, keeps_in_file, open};
pub use vector::{GRANULE_BYTES, SEGMENTS_MAX, Vector};

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos};

/// Largest number of operations one queue pair can hold.
pub const QUEUE_DEPTH_MAX: usize = 1024;

/// Which part of the system a queue pair serves. Modules never share a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// Demand fetches of a worker or of an ordinary thread.
    Fault,
    /// Fetches ahead of demand.
    Prefetch,
    /// Reads of a guide, of a few bytes.
    Guide,
    /// Write-back of the reclaimer.
    WriteBack,
}

/// The poster's name for an operation. Unique among the outstanding operations of a queue pair; a retry of an
/// operation that was cancelled gets a new id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WorkId(pub u64);

/// A byte address in the memory node's address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RemoteAddress(pub u64);

/// Where the bytes of a read go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadInto {
    /// Into a local frame, which nothing else touches until the completion or [`QueuePair::cancel`].
    Frame(FrameIndex),
    /// Nowhere: the fabric maps far memory ([`Fabric::mapped`]), and the poster will copy from the mapping after the
    /// completion. Only for fabrics that map.
    Mapped,
}

/// How one operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The bytes have arrived (read) or the node has them (write).
    Done,
    /// The node or the link reported an error for this operation; a retry may succeed.
    Failed,
    /// The page's bytes on the node are not those that were written, and will never be: only reads end so.
    Lost,
    /// The node is gone or the connection is lost. Retries go on being answered this way until it is back.
    Disconnected,
}

/// What the thread of a queue pair does after its posts, and so how long a read may wait for others before it is begun. A system
/// call begins many reads as fast as one.
///
/// Whatever it is, a poll begins what has waited long enough, or as many as are gathered at most; which poll that is depends on
/// the time that polls are given. Who does not go on polling asks for [`Posting::AtOnce`] first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Posting {
    /// It may wait for what it has posted: the next poll begins it, at whatever time. A new queue pair is so.
    #[default]
    AtOnce,
    /// It has other work, and few others to read for: what is begun [`ALONE_AGE_MAX`] late delays one request only, and saves its
    /// CPU a system call.
    Alone,
    /// It has other work, and much to read: [`TOGETHER_AGE_MAX`] are enough to gather some. What finds nothing under way
    /// begins with the next poll.
    Together,
}

/// Reads that are gathered at most. When there are as many, the next poll begins them.
pub const GATHERED_MAX: usize = 16;
/// How old a read gets at most, in nanoseconds, before a poll begins it, with [`Posting::Alone`].
pub const ALONE_AGE_MAX: Nanos = 100_000;
/// The same with [`Posting::Together`].
pub const TOGETHER_AGE_MAX: Nanos = 25_000;

/// The end of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// As given to the post.
    pub id: WorkId,
    /// How it ended.
    pub status: Status,
}

/// A number that a fabric counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Its name, with the unit last.
    pub name: &'static str,
    /// The count.
    pub value: u64,
}

/// Why a post was not taken. Nothing has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// The queue pair holds as many operations as it can: poll, then post again.
    #[error("the queue pair is full")]
    Full,
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

    /// Gives the allocation that begins at `start` back to the node. The node may use the memory for others at once; the
    /// caller has no operation outstanding on it.
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
    fn mapped(&self) -> Option<&Arc<Mapping>>;
}

/// One queue of operations to a memory node, used by one thread at a time.
///
/// Posting neither allocates nor makes a system call; `poll` sends what was posted, reads perhaps later ([`Posting`]), and
/// collects what has arrived.
pub trait QueuePair: Send {
    /// Posts a read of one page at `from`.
    fn post_read(&mut self, id: WorkId, from: RemoteAddress, into: ReadInto, now: Nanos) -> Result<(), PostError> {
        self.post_read_vector(id, from, into, Vector::WHOLE, now)
    }

    /// Posts a write of the frame `from` to the page at `to`. The frame must not change until the completion or
    /// [`QueuePair::cancel`]. Two writes to one page are never outstanding together.
    fn post_write(&mut self, id: WorkId, to: RemoteAddress, from: FrameIndex, now: Nanos) -> Result<(), PostError> {
        self.post_write_vector(id, to, from, Vector::WHOLE, now)
    }

    /// As [`QueuePair::post_read`], of the bytes of `vector` alone, to where they are in a page: the other bytes of a frame
    /// stay as they are. One operation, which fails if the read of one segment does.
    fn post_read_vector(
        &mut self,
        id: WorkId,
        from: RemoteAddress,
        into: ReadInto,
        vector: Vector,
        now: Nanos,
    ) -> Result<(), PostError>;

    /// As [`QueuePair::post_write`], of the bytes of `vector` alone: the other bytes of the page stay as they are on the node.
    /// One operation, which fails if the write of one segment does; others may have been written then.
    fn post_write_vector(
        &mut self,
        id: WorkId,
        to: RemoteAddress,
        from: FrameIndex,
        vector: Vector,
        now: Nanos,
    ) -> Result<(), PostError>;

    /// Says how long reads may be gathered from now on, those included that are. Fabrics that begin a read without a system call
    /// gather none, and writes are never gathered.
    fn set_posting(&mut self, posting: Posting);

    /// Makes progress and appends finished operations to `completions`, never beyond its capacity.
    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>);

    /// Forgets an outstanding operation: it will not complete, and from now on its frame is not touched. A cancelled
    /// write may or may not reach the node, but never after a write that is posted later on the same queue pair.
    fn cancel(&mut self, id: WorkId);

    /// Whether a write that was cancelled may still reach one of the `bytes` at `start`. It ends while the queue pair is polled
    /// and the node answers; until then the range is nobody's, and the node is not given it back.
    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool;

    /// By when a poll is needed for more than to take what has arrived: to send what was posted, or to repeat what was lost. A
    /// thread that waits may sleep until then, and not longer.
    fn next_poll(&self) -> Nanos {
        Nanos::MAX
    }

    /// Operations posted and not yet completed or cancelled: the congestion signal of page-fault-aware dispatch.
    fn outstanding(&self) -> usize;

    /// How many operations fit.
    fn depth(&self) -> usize;
}
