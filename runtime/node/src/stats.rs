//! What a node has done, counted by its threads and read by anyone.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use yonder_board::{AccountNumber, Accounts};
use yonder_units::{Nanos, Narrow};
use yonder_wire::{ErrorCode, Header, Kind};

/// A snapshot of a node's counters. Counts are since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeStats {
    /// Reads answered.
    pub reads: u64,
    /// Writes applied.
    pub writes: u64,
    /// Atomic operations applied.
    pub atomics: u64,
    /// Requests of the slow path answered: allocations and the like.
    pub slow_requests: u64,
    /// Calls of offloads answered.
    pub calls: u64,
    /// Bytes sent as answers to reads.
    pub read_bytes: u64,
    /// Bytes received with writes.
    pub written_bytes: u64,
    /// Requests refused with an error.
    pub errors: u64,
    /// Those among them whose capability was not one for their address space.
    pub refused_capabilities: u64,
    /// Sessions that were asked for and not made: by strangers, and by those whose certificate is over or revoked.
    pub refused_sessions: u64,
    /// Regions moved to other nodes.
    pub moves: u64,
    /// Regions that were to move to other nodes and did not.
    pub failed_moves: u64,
    /// Bytes sent to other nodes with regions that moved.
    pub moved_bytes: u64,
    /// Longest time that a region which moved was not served, in nanoseconds.
    pub longest_move_pause_ns: u64,
    /// Connections closed because their peer did not follow the protocol.
    pub bad_peers: u64,
    /// Datagrams that are no requests, and were dropped.
    pub bad_datagrams: u64,
    /// Connections open now.
    pub connections: u64,
    /// Address spaces now.
    pub spaces: u64,
    /// Bytes allocated to address spaces now, with memory or without.
    pub allocated_bytes: u64,
    /// Bytes of machine memory in use now.
    pub backed_bytes: u64,
    /// Bytes of the node's memory.
    pub limit_bytes: u64,
    /// Bytes that the node itself uses for its page table and for what it remembers, whatever its clients do.
    pub own_bytes: u64,
}

/// The counters themselves. Each is a sum of independent additions, so no order between them is needed.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    atomics: AtomicU64,
    slow_requests: AtomicU64,
    calls: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
    refused_capabilities: AtomicU64,
    refused_sessions: AtomicU64,
    moves: AtomicU64,
    failed_moves: AtomicU64,
    moved_bytes: AtomicU64,
    longest_move_pause_ns: AtomicU64,
    bad_peers: AtomicU64,
    bad_datagrams: AtomicU64,
    connections: AtomicUsize,
    /// What the slow path last said.
    pub(crate) spaces: AtomicU64,
    pub(crate) allocated_bytes: AtomicU64,
}

/// Requests after which an account is charged, though the batch goes on: trains of datagrams may have thousands.
const SETTLED_AFTER: u64 = 32;

/// What one batch of requests adds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Batch {
    reads: u64,
    writes: u64,
    atomics: u64,
    slow_requests: u64,
    calls: u64,
    read_bytes: u64,
    written_bytes: u64,
    errors: u64,
    refused_capabilities: u64,
    pub(crate) bad_datagrams: u64,
    /// What the account that was seen last has done in the batch and is not charged with yet.
    account: AccountNumber,
    own_requests: u64,
    own_bytes: u64,
    /// Bytes of all messages, both ways.
    bytes: u64,
}

impl Batch {
    /// Counts an answer to `request`, which refuses with a code, or does not if that is 0.
    #[inline]
    pub(crate) fn answered(&mut self, request: &Header, code: u16) {
        if code != 0 {
            self.errors += 1;
            self.refused_capabilities += u64::from(code == ErrorCode::BadCapability as u16);
            return;
        }
        let length = u64::from(request.length);
        match request.kind {
            Kind::Read => (self.reads, self.read_bytes) = (self.reads + 1, self.read_bytes + length),
            Kind::Write => (self.writes, self.written_bytes) = (self.writes + 1, self.written_bytes + length),
            Kind::Atomic => self.atomics += 1,
            Kind::Call => self.calls += 1,
            kind if kind.is_fast() => {}
            _ => self.slow_requests += 1,
        }
    }
}

impl Batch {
    /// A request of an account has taken so many bytes of messages, both ways.
    #[inline]
    pub(crate) fn spend(&mut self, account: AccountNumber, bytes: usize, accounts: &Accounts, now: Nanos) {
        self.spend_later(account, bytes, accounts, now);
        self.own_requests += 1;
        if self.own_requests >= SETTLED_AFTER {
            self.settle(accounts, now);
        }
    }

    /// The answer to a request that was counted before has so many bytes.
    #[inline]
    pub(crate) fn spend_later(&mut self, account: AccountNumber, bytes: usize, accounts: &Accounts, now: Nanos) {
        if account != self.account {
            self.settle(accounts, now);
            self.account = account;
        }
        self.own_bytes += bytes as u64;
        self.bytes += bytes as u64;
    }

    /// Charges the account that was seen last.
    pub(crate) fn settle(&mut self, accounts: &Accounts, now: Nanos) {
        if self.own_bytes > 0 {
            accounts.get(self.account).charge(self.own_requests, self.own_bytes, now);
            (self.own_requests, self.own_bytes) = (0, 0);
        }
    }

    /// Bytes of all messages so far, both ways.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.narrow_usize()
    }
}

impl Counters {
    /// Counts one answer, before it is sent: who has it finds it counted.
    pub(crate) fn answered(&self, request: &Header, code: u16) {
        let mut batch = Batch::default();
        batch.answered(request, code);
        self.add(&batch);
    }

    pub(crate) fn add(&self, batch: &Batch) {
        let sums = [
            (&self.reads, batch.reads),
            (&self.writes, batch.writes),
            (&self.atomics, batch.atomics),
            (&self.slow_requests, batch.slow_requests),
            (&self.calls, batch.calls),
            (&self.read_bytes, batch.read_bytes),
            (&self.written_bytes, batch.written_bytes),
            (&self.errors, batch.errors),
            (&self.refused_capabilities, batch.refused_capabilities),
            (&self.bad_datagrams, batch.bad_datagrams),
        ];
        for (counter, more) in sums.into_iter().filter(|(_, more)| *more > 0) {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Counts a region that has moved away with `bytes`, and was not served for `pause`.
    pub(crate) fn moved(&self, bytes: u64, pause: Duration) {
        self.moves.fetch_add(1, Ordering::Relaxed);
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
        let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.longest_move_pause_ns.fetch_max(pause, Ordering::Relaxed);
    }

    pub(crate) fn move_failed(&self) {
        self.failed_moves.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn bad_peer(&self) {
        self.bad_peers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Someone wanted a session and did not get one.
    pub(crate) fn refused_session(&self) {
        self.refused_sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// What was counted. The gauges of the memory are the caller's to fill in.
    pub(crate) fn snapshot(&self) -> NodeStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NodeStats {
            reads: get(&self.reads),
            writes: get(&self.writes),
            atomics: get(&self.atomics),
            slow_requests: get(&self.slow_requests),
            calls: get(&self.calls),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            errors: get(&self.errors),
            refused_capabilities: get(&self.refused_capabilities),
            refused_sessions: get(&self.refused_sessions),
            moves: get(&self.moves),
            failed_moves: get(&self.failed_moves),
            moved_bytes: get(&self.moved_bytes),
            longest_move_pause_ns: get(&self.longest_move_pause_ns),
            bad_peers: get(&self.bad_peers),
            bad_datagrams: get(&self.bad_datagrams),
            connections: self.connections.load(Ordering::Relaxed) as u64,
            spaces: get(&self.spaces),
            allocated_bytes: get(&self.allocated_bytes),
            ..NodeStats::default()
        }
    }
}
