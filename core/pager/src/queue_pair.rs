//! [`QueuePair`]: one queue of reads and writes to a memory node, and the words in which it is spoken to.
//!
//! Shaped like verbs: posts are bounded and never block, errors are completions. The pager has a queue pair for each
//! [`Module`], so a demand fetch never queues behind a write-back.
//!
//! Neighbours: `runtime/fabric` has the queue pairs that reach far memory, and a simulator has one of its own; `vector`
//! says which bytes of a page an operation moves.

use yonder_units::{FrameIndex, Nanos};

use yonder_units::Vector;

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
    /// Nowhere: the fabric maps far memory ([`Machine::mapped`](crate::machine::Machine::mapped)), and the poster will
    /// copy from the mapping after the completion. Only for fabrics that map.
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

/// What the thread of a queue pair does after its posts, and so how long a read may wait for others before it is begun.
/// A system call begins many reads as fast as one.
///
/// Whatever it is, a poll begins what has waited long enough, or as many as are gathered at most; which poll that is
/// depends on the time that polls are given. Who does not go on polling asks for [`Posting::AtOnce`] first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Posting {
    /// It may wait for what it has posted: the next poll begins it, at whatever time. A new queue pair is so.
    #[default]
    AtOnce,
    /// It has other work, and few others to read for: what is begun [`ALONE_AGE_MAX`] late delays one request only, and
    /// saves its CPU a system call.
    Alone,
    /// It has other work, and much to read: [`TOGETHER_AGE_MAX`] are enough to gather some. What finds nothing under
    /// way begins with the next poll.
    Together,
}

/// Reads that are gathered at most. When there are as many, the next poll begins them.
pub const GATHERED_MAX: usize = 16;
/// How old a read gets at most, in nanoseconds, before a poll begins it, with [`Posting::Alone`].
pub const ALONE_AGE_MAX: Nanos = 100_000;
/// The same with [`Posting::Together`]; where a read is messages to several nodes, so much for each of them, but no
/// more than alone.
pub const TOGETHER_AGE_MAX: Nanos = 25_000;

/// A read of bytes of the page at `from`, to where they are in a page: the other bytes of a frame stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRead {
    /// The page on the node.
    pub from: RemoteAddress,
    /// Where the bytes go.
    pub into: ReadInto,
    /// Which bytes.
    pub vector: Vector,
}

/// A write of bytes of the frame `from`: the other bytes of the page at `to` stay as they are on the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageWrite {
    /// The page on the node.
    pub to: RemoteAddress,
    /// The frame, which must not change until the completion or [`QueuePair::cancel`].
    pub from: FrameIndex,
    /// Which bytes.
    pub vector: Vector,
}

/// The end of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// As given to the post.
    pub id: WorkId,
    /// How it ended.
    pub status: Status,
}

/// Why a post was not taken. Nothing has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// The queue pair holds as many operations as it can: poll, then post again.
    #[error("the queue pair is full")]
    Full,
}

/// One queue of operations to a memory node, used by one thread at a time.
///
/// Posting neither allocates nor makes a system call; `poll` sends what was posted, reads perhaps later ([`Posting`]),
/// and collects what has arrived.
pub trait QueuePair: Send {
    /// Posts a read of one page at `from`.
    fn post_read(&mut self, id: WorkId, from: RemoteAddress, into: ReadInto, now: Nanos) -> Result<(), PostError> {
        self.post_read_vector(id, PageRead { from, into, vector: Vector::WHOLE }, now)
    }

    /// Posts a write of the frame `from` to the page at `to`. The frame must not change until the completion or
    /// [`QueuePair::cancel`]. Two writes to one page are never outstanding together.
    fn post_write(&mut self, id: WorkId, to: RemoteAddress, from: FrameIndex, now: Nanos) -> Result<(), PostError> {
        self.post_write_vector(id, PageWrite { to, from, vector: Vector::WHOLE }, now)
    }

    /// Posts a read: one operation, which fails if the read of one segment does.
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError>;

    /// Posts a write: one operation, which fails if the write of one segment does; others may have been written then.
    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError>;

    /// Says how long reads may be gathered from now on, those included that are. Fabrics that begin a read without a
    /// system call gather none, and need not say what they do here; writes are never gathered.
    fn set_posting(&mut self, _posting: Posting) {}

    /// Makes progress and appends finished operations to `completions`, never beyond its capacity.
    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>);

    /// Forgets an outstanding operation: it will not complete, and from now on its frame is not touched. A cancelled
    /// write may or may not reach the node, but never after a write that is posted later on the same queue pair.
    fn cancel(&mut self, id: WorkId);

    /// Whether a write that was cancelled may still reach one of the `bytes` at `start`. It ends while the queue pair
    /// is polled and the node answers; until then the range is nobody's, and the node is not given it back.
    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool;

    /// By when a poll is needed for more than to take what has arrived: to send what was posted, or to repeat what was
    /// lost. A thread that waits may sleep until then, and not longer.
    fn next_poll(&self) -> Nanos {
        Nanos::MAX
    }

    /// Operations posted and not yet completed or cancelled: the congestion signal of page-fault-aware dispatch.
    fn outstanding(&self) -> usize;

    /// How many operations fit.
    fn depth(&self) -> usize;
}
