//! What a node has done, counted by its threads and read by anyone.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::memory::Memory;

/// A snapshot of a node's counters. Counts are since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeStats {
    /// Reads answered.
    pub reads: u64,
    /// Writes applied.
    pub writes: u64,
    /// Bytes sent as answers to reads.
    pub read_bytes: u64,
    /// Bytes received with writes.
    pub written_bytes: u64,
    /// Requests refused with an error.
    pub errors: u64,
    /// Connections closed because their peer did not follow the protocol.
    pub bad_peers: u64,
    /// Connections open now.
    pub connections: u64,
    /// Bytes allocated to clients now.
    pub allocated_bytes: u64,
    /// Bytes of machine memory in use now.
    pub backed_bytes: u64,
    /// Most bytes that may be allocated.
    pub limit_bytes: u64,
}

/// The counters themselves. Each is a sum of independent additions, so no order between them is needed.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
    bad_peers: AtomicU64,
    connections: AtomicUsize,
}

/// What one batch of requests adds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Batch {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) errors: u64,
}

impl Counters {
    pub(crate) fn add(&self, batch: &Batch) {
        let sums = [
            (&self.reads, batch.reads),
            (&self.writes, batch.writes),
            (&self.read_bytes, batch.read_bytes),
            (&self.written_bytes, batch.written_bytes),
            (&self.errors, batch.errors),
        ];
        for (counter, more) in sums.into_iter().filter(|(_, more)| *more > 0) {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn bad_peer(&self) {
        self.bad_peers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection in, unless there are `max` already.
    pub(crate) fn try_connect(&self, max: usize) -> bool {
        self.connections
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < max).then_some(count + 1))
            .is_ok()
    }

    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self, memory: &Memory) -> NodeStats {
        let (allocated_bytes, limit_bytes) = memory.allocated_and_limit_bytes();
        NodeStats {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            bad_peers: self.bad_peers.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed) as u64,
            allocated_bytes,
            backed_bytes: memory.backed_bytes(),
            limit_bytes,
        }
    }
}
