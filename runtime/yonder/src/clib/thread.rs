//! [`Thread`]: one thread's operations on an address space.

use std::sync::Arc;
use std::time::Duration;

use yonder_client::{OperationId, Outcome};
use yonder_fabric::AdaptiveSpin;
use yonder_placement::NodeId;
use yonder_units::{Nanos, Narrow, saturating_nanos};
use yonder_wire::{AtomicOperation, Body, ErrorCode, Header, Kind, NodeStatus};

use super::allocate::is_full;
use super::flows::{Flows, Request, Route};
use super::process::{Backend, Shared};
use super::table::{Buffer, Memory, SYNCHRONOUS, Slice, Table};
use super::{Begun, ClibError};

/// Operations of a lane beside the asynchronous ones: the synchronous one, fences, and those that were given up.
const OTHER_OPERATIONS_MAX: usize = 64;
/// First and longest pause before a lock that somebody has is tried again.
const LOCK_PAUSE_MIN: Duration = Duration::from_micros(2);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(1);
/// A lock that nobody has.
const UNLOCKED: u64 = 0;
/// The token of fences, which have no result.
const FENCE: u64 = u64::MAX - 1;
/// How long a node may be out of reach until the controller is asked whether it still has an address.
const DOWN_TIME_MAX: Nanos = 100_000_000;
/// How often one operation is asked for again at another node.
pub(super) const MOVES_MAX: u32 = 16;

/// One thread's way to an address space, with buffers of type `B` for asynchronous operations.
pub struct Thread<B = Vec<u8>> {
    pub(super) process: Arc<Shared>,
    pub(super) flows: Flows,
    pub(super) table: Table<B>,
    /// Asynchronous operations whose node does not have the address any more, or no room for an allocation.
    pub(super) moved: Vec<(u32, ErrorCode)>,
    /// Asynchronous operations begun.
    pub(super) begun: u64,
    /// Those that were submitted since the lanes were last polled: they are sent together.
    pub(super) unsent: usize,
    spin: AdaptiveSpin,
}

impl<B: Buffer> Thread<B> {
    pub(super) fn new(process: &Arc<Shared>) -> Result<Self, ClibError> {
        let pending_max = process.config.pending_max.max(1);
        let flows = Flows::new(process, pending_max + OTHER_OPERATIONS_MAX)?;
        Ok(Self {
            process: Arc::clone(process),
            flows,
            table: Table::new(pending_max),
            moved: Vec::new(),
            begun: 0,
            unsent: 0,
            spin: AdaptiveSpin::new(process.config.spin),
        })
    }

    /// Copies the bytes at `address` into `into`.
    pub fn rread(&mut self, address: u64, into: &mut [u8]) -> Result<(), ClibError> {
        let mut done = 0;
        self.for_each_region(address, into.len(), |thread, address, bytes| {
            let part = &mut into[done..done + bytes];
            done += bytes;
            thread.perform(&Request::at(Kind::Read, address, bytes as u64), Slice::Into(part)).map(drop)
        })
    }

    /// Copies `from` to `address`.
    pub fn rwrite(&mut self, address: u64, from: &[u8]) -> Result<(), ClibError> {
        let mut done = 0;
        self.for_each_region(address, from.len(), |thread, address, bytes| {
            let part = &from[done..done + bytes];
            done += bytes;
            thread.perform(&Request::at(Kind::Write, address, bytes as u64), Slice::From(part)).map(drop)
        })
    }

    /// What an operation has come to, or `pending` again if it has not ended.
    pub fn rpoll<P: Begun<B>>(&mut self, pending: P) -> Result<P::Completed, P> {
        // What has arrived before is taken without asking the kernel again.
        let taken = self.table.take(pending.index()).or_else(|| {
            self.poll_and_follow();
            self.table.take(pending.index())
        });
        match taken {
            Some((content, outcome)) => Ok(P::completed(content, self.result(outcome).map(drop))),
            None => Err(pending),
        }
    }

    /// Waits until an operation has ended.
    pub fn rwait<P: Begun<B>>(&mut self, pending: P) -> P::Completed {
        let mut pending = match self.rpoll(pending) {
            Ok(completed) => return completed,
            Err(pending) => pending,
        };
        self.spin.begin(yonder_clock::now());
        loop {
            self.pause();
            match self.rpoll(pending) {
                Ok(completed) => {
                    self.spin.end(yonder_clock::now());
                    return completed;
                }
                Err(again) => pending = again,
            }
        }
    }

    /// Waits until all asynchronous operations have ended. Their results can be asked for afterwards.
    pub fn rrelease(&mut self) {
        self.spin.begin(yonder_clock::now());
        loop {
            self.poll_and_follow();
            if !self.table.has_pending() {
                return;
            }
            self.pause();
        }
    }

    /// Orders: no operation that is called from now on is executed before all that were called before have ended.
    pub fn rfence(&mut self) -> Result<(), ClibError> {
        let several = matches!(self.process.place, Backend::Cluster(_));
        if several {
            // One node cannot wait for another.
            self.rrelease();
            return Ok(());
        }
        let now = yonder_clock::now();
        let fenced = self.flows.lanes().try_for_each(|lane| lane.fence(FENCE, now).map(drop));
        fenced.map_err(|_| ClibError::TooManyPending(self.table.len()))
    }

    /// Takes the lock at `address`, an aligned word that was 0 at first. Waits while somebody has it.
    pub fn rlock(&mut self, address: u64) -> Result<(), ClibError> {
        let mut pause = LOCK_PAUSE_MIN;
        while self.atomic(address, AtomicOperation::TestAndSet)? != UNLOCKED {
            let until = yonder_clock::now() + saturating_nanos(pause);
            while yonder_clock::now() < until {
                std::thread::yield_now();
            }
            pause = (2 * pause).min(LOCK_PAUSE_MAX);
        }
        Ok(())
    }

    /// Gives the lock at `address` back. What this thread has written before is seen by whoever takes it next: the
    /// thread waits for its asynchronous operations first.
    pub fn runlock(&mut self, address: u64) -> Result<(), ClibError> {
        self.rrelease();
        self.atomic(address, AtomicOperation::Store(UNLOCKED)).map(drop)
    }

    /// Sets the aligned word at `address` to 1, and returns what it was.
    pub fn test_and_set(&mut self, address: u64) -> Result<u64, ClibError> {
        self.atomic(address, AtomicOperation::TestAndSet)
    }

    /// Adds to the aligned word at `address`, modulo 2^64, and returns what it was.
    pub fn fetch_add(&mut self, address: u64, more: u64) -> Result<u64, ClibError> {
        self.atomic(address, AtomicOperation::FetchAdd(more))
    }

    /// Replaces the aligned word at `address` by `new` if it is `expected`, and returns what it was.
    pub fn compare_and_swap(&mut self, address: u64, expected: u64, new: u64) -> Result<u64, ClibError> {
        self.atomic(address, AtomicOperation::CompareAndSwap { expected, new })
    }

    /// Changes the aligned word at `address`, and returns what it was.
    pub fn atomic(&mut self, address: u64, operation: AtomicOperation) -> Result<u64, ClibError> {
        let mut body = [0; AtomicOperation::BYTES];
        operation.write_to(&mut body);
        let request = Request { body: &body, ..Request::at(Kind::Atomic, address, 8) };
        match self.perform(&request, Slice::From(&[]))? {
            Outcome::Old(old) => Ok(old),
            _ => unreachable!("an atomic operation is answered with the old word"),
        }
    }

    /// Calls the offload with number `offload` on the node, and returns its answer. Arguments and answer fit one
    /// message: 64 KiB on a stream, some 64 bytes less in a datagram.
    pub fn call(&mut self, offload: u64, arguments: &[u8]) -> Result<Vec<u8>, ClibError> {
        match self.process.place {
            Backend::Node(_) => self.call_at(0, offload, arguments),
            Backend::Cluster(_) => Err(ClibError::ManyNodes),
        }
    }

    /// As [`Thread::call`], on the node that has the memory at `near`.
    pub fn call_at(&mut self, near: u64, offload: u64, arguments: &[u8]) -> Result<Vec<u8>, ClibError> {
        let route = self.flows.route(near)?;
        if arguments.len() > self.flows.payload_bytes_max(&route) {
            return Err(ClibError::BadRange(ErrorCode::BadLength));
        }
        let length = arguments.len() as u64;
        let request = Request { kind: Kind::Call, near, address: offload, length, body: &[] };
        self.ask(&request, arguments).map(|(_, payload)| payload)
    }

    /// How full the node is.
    pub fn node_status(&mut self) -> Result<NodeStatus, ClibError> {
        match self.process.place {
            Backend::Node(_) => self.node_status_at(0),
            Backend::Cluster(_) => Err(ClibError::ManyNodes),
        }
    }

    /// How full the node is that has the memory at `near`.
    pub fn node_status_at(&mut self, near: u64) -> Result<NodeStatus, ClibError> {
        let request = Request { near, ..Request::at(Kind::Status, 0, 0) };
        let (_, payload) = self.ask(&request, &[])?;
        NodeStatus::from_bytes(&payload).map_err(|_| ClibError::Refused(ErrorCode::Corrupt))
    }

    /// Asynchronous operations that are pending or whose result was not taken.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.table.len()
    }

    /// What the flow to the node has seen.
    #[must_use]
    pub fn stats(&self) -> yonder_client::Stats {
        self.flows.stats()
    }

    /// Calls `each` with the parts of a range that lie on one node each.
    fn for_each_region(
        &mut self,
        address: u64,
        bytes: usize,
        mut each: impl FnMut(&mut Self, u64, usize) -> Result<(), ClibError>,
    ) -> Result<(), ClibError> {
        let (mut address, mut left) = (address, bytes);
        loop {
            let room = self.flows.route(address)?.end - address;
            let part = usize::try_from(room).unwrap_or(usize::MAX).min(left);
            each(self, address, part)?;
            left -= part;
            if left == 0 {
                return Ok(());
            }
            address += part as u64;
        }
    }

    /// An operation that is answered by a message.
    pub(super) fn ask(&mut self, request: &Request<'_>, arguments: &[u8]) -> Result<(Header, Vec<u8>), ClibError> {
        let mut answer = None;
        self.perform(request, Slice::Answer { arguments, answer: &mut answer })?;
        Ok(answer.expect("what is done was answered"))
    }

    /// Submits an operation and waits until it has ended, at whatever node its address is.
    fn perform(&mut self, request: &Request<'_>, mut slice: Slice<'_>) -> Result<Outcome, ClibError> {
        let mut moves = 0;
        loop {
            let route = self.flows.route(request.near)?;
            let outcome = self.perform_at(&route, request, slice.reborrow())?;
            let Some(node) = route.node else { return self.result(outcome) };
            moves += 1;
            let goes_on = moves <= MOVES_MAX
                && match outcome {
                    Outcome::Refused(code) => self.has_moved(request.near, node, code, moves)?,
                    // A node that has gone since may have executed it before: only what changes nothing is asked again.
                    Outcome::TimedOut => self.is_elsewhere(request.near, node)? && request.kind == Kind::Read,
                    _ => false,
                };
            if !goes_on {
                return self.result(outcome);
            }
        }
    }

    fn perform_at(&mut self, route: &Route, request: &Request<'_>, mut slice: Slice<'_>) -> Result<Outcome, ClibError> {
        let mut now = yonder_clock::now();
        self.spin.begin(now);
        let id = self.submit(route, request, SYNCHRONOUS, now)?;
        let (mut ended, mut ask_at) = (None, now + DOWN_TIME_MAX);
        loop {
            self.poll(now, slice.reborrow(), &mut ended);
            if !self.moved.is_empty() {
                self.follow(slice.reborrow(), &mut ended);
            }
            if let Some(outcome) = ended {
                self.spin.end(yonder_clock::now());
                return Ok(outcome);
            }
            if let Some(node) = route.node
                && now >= ask_at
            {
                ask_at = now + DOWN_TIME_MAX;
                // A node that was drained and has ended says nothing; the controller knows.
                if self.flows.is_down(route) && self.is_elsewhere(request.near, node)? {
                    self.flows.cancel(route, id);
                    return Ok(Outcome::TimedOut);
                }
            }
            self.pause();
            now = yonder_clock::now();
        }
    }

    /// Whether `address` is at another node than `node` now, as the controller says.
    fn is_elsewhere(&self, address: u64, node: NodeId) -> Result<bool, ClibError> {
        let Backend::Cluster(cluster) = &self.process.place else { return Ok(false) };
        Ok(cluster.is_elsewhere(cluster.region_of(address)?, node)?)
    }

    /// Whether a refusal with `code` by `node` means that `address` is at another node now, or there again, after
    /// waiting until it is known which. So often, this time included, the operation was refused: the first time it may
    /// have been on its way while the address came back, and asking again is enough.
    pub(super) fn has_moved(&self, address: u64, node: NodeId, code: ErrorCode, times: u32) -> Result<bool, ClibError> {
        let Backend::Cluster(cluster) = &self.process.place else { return Ok(false) };
        let region = cluster.region_of(address)?;
        match code {
            ErrorCode::Moved => cluster.relocate(region, node, times > 1).map(|_| true).map_err(Into::into),
            // A node that had the region some time ago does not know it any more.
            ErrorCode::BadAddress | ErrorCode::BadCapability => self.is_elsewhere(address, node),
            _ => Ok(false),
        }
    }

    pub(super) fn submit(
        &mut self,
        route: &Route,
        request: &Request<'_>,
        token: u64,
        now: Nanos,
    ) -> Result<OperationId, ClibError> {
        if request.length > u64::from(u32::MAX) {
            return Err(ClibError::BadRange(ErrorCode::BadLength));
        }
        let submitted = self.flows.submit(route, request, token, now);
        submitted.map_err(|_| ClibError::TooManyPending(self.table.len()))
    }

    /// Between two looks at the lanes: the thread asks again soon, or sleeps until something may have arrived.
    fn pause(&mut self) {
        if self.spin.asks_again(yonder_clock::now()) {
            AdaptiveSpin::pause();
        } else {
            self.flows.wait();
        }
    }

    /// Sends and receives, and goes after what has moved.
    fn poll_and_follow(&mut self) {
        self.poll(yonder_clock::now(), Slice::From(&[]), &mut None);
        if !self.moved.is_empty() {
            self.follow(Slice::From(&[]), &mut None);
        }
    }

    /// Sends and receives, and notes what has ended; the synchronous operation's end goes into `ended`.
    pub(super) fn poll(&mut self, now: Nanos, mut slice: Slice<'_>, ended: &mut Option<Outcome>) {
        let follows = matches!(self.process.place, Backend::Cluster(_));
        self.unsent = 0;
        for lane in self.flows.lanes() {
            lane.poll(now, &mut Memory { table: &mut self.table, slice: slice.reborrow() });
            while let Some(completion) = lane.completion() {
                match (completion.token, completion.outcome) {
                    (SYNCHRONOUS, outcome) => *ended = Some(outcome),
                    (FENCE, _) => {}
                    (token, Outcome::Refused(code))
                        if follows
                            && (may_have_moved(code)
                                || is_full(code) && self.table.allocation(token.narrow_u32()).is_some()) =>
                    {
                        self.moved.push((token.narrow_u32(), code));
                    }
                    (token, Outcome::TimedOut) => {
                        if let Backend::Cluster(cluster) = &self.process.place {
                            cluster.forget(self.table.asked(token.narrow_u32()).0.address);
                        }
                        self.table.complete(&completion);
                    }
                    _ => self.table.complete(&completion),
                }
            }
        }
    }

    fn result(&self, outcome: Outcome) -> Result<Outcome, ClibError> {
        match outcome {
            Outcome::Done | Outcome::Old(_) => Ok(outcome),
            Outcome::TimedOut => Err(ClibError::TimedOut),
            Outcome::Lost => Err(ClibError::Lost),
            Outcome::Refused(code) => {
                if code == ErrorCode::BadCapability {
                    self.process.lose();
                }
                Err(code.into())
            }
        }
    }
}

/// Whether a refusal may mean that the address is at another node.
fn may_have_moved(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Moved | ErrorCode::BadAddress | ErrorCode::BadCapability)
}
