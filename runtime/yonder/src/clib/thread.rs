//! [`Thread`]: one thread's operations on an address space.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use yonder_client::{OperationId, Outcome};
use yonder_placement::NodeId;
use yonder_units::Nanos;
use yonder_wire::{AtomicOperation, Body, ErrorCode, Header, Kind, NodeStatus};

use super::ClibError;
use super::flows::{Flows, Request, Route};
use super::process::{Place, Shared};
use super::table::{Asked, Buffer, Completed, Index, Memory, SYNCHRONOUS, Slice, Table};

/// Operations of a lane beside the asynchronous ones: the synchronous one, fences, and those that were given up.
const OTHER_OPERATIONS_MAX: usize = 64;
/// First and longest pause before a lock that somebody has is tried again.
const LOCK_PAUSE_MIN: Duration = Duration::from_micros(2);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(1);
/// A lock that nobody has.
const UNLOCKED: u64 = 0;
/// The token of fences, which have no result.
const FENCE: u64 = u64::MAX - 1;
/// Most asynchronous operations that wait to be sent with others. The first goes at once, so that the node has work.
const UNSENT_MAX: usize = 16;
/// How long a node may be out of reach until the controller is asked whether it still has an address.
const DOWN_TIME_MAX: Nanos = 100_000_000;
/// How often one operation is asked for again at another node.
const MOVES_MAX: u32 = 16;

/// One thread's way to an address space, with buffers of type `B` for asynchronous operations.
pub struct Thread<B = Vec<u8>> {
    pub(super) process: Arc<Shared>,
    flows: Flows,
    table: Table<B>,
    /// Asynchronous operations whose node does not have the address any more.
    moved: Vec<(u32, ErrorCode)>,
    /// Asynchronous operations begun.
    begun: u64,
    /// Those that were submitted since the lanes were last polled: they are sent together.
    unsent: usize,
}

/// An asynchronous operation whose result was not taken yet. Its buffer stays with the thread if it is dropped.
#[must_use = "its result is never seen, and its place never free again"]
#[derive(Debug)]
pub struct Pending<B> {
    index: Index,
    buffer: PhantomData<B>,
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

    /// Begins to fill `buffer` with the bytes at `address`. It may be sent with the next call only.
    pub fn rread_async(&mut self, address: u64, buffer: B) -> Result<Pending<B>, ClibError> {
        self.begin(Kind::Read, address, buffer)
    }

    /// Begins to copy `buffer` to `address`. It may be sent with the next call only.
    pub fn rwrite_async(&mut self, address: u64, buffer: B) -> Result<Pending<B>, ClibError> {
        self.begin(Kind::Write, address, buffer)
    }

    /// What an operation has come to, or `pending` again if it has not ended.
    pub fn rpoll(&mut self, pending: Pending<B>) -> Result<Completed<B>, Pending<B>> {
        // What has arrived before is taken without asking the kernel again.
        let taken = self.table.take(pending.index).or_else(|| {
            self.poll_and_follow();
            self.table.take(pending.index)
        });
        match taken {
            Some((buffer, outcome)) => Ok(Completed { buffer, result: self.result(outcome).map(drop) }),
            None => Err(pending),
        }
    }

    /// Waits until an operation has ended.
    pub fn rwait(&mut self, pending: Pending<B>) -> Completed<B> {
        let mut waited = Waited::new(self.process.config.spin);
        let mut pending = pending;
        loop {
            match self.rpoll(pending) {
                Ok(completed) => return completed,
                Err(again) => pending = again,
            }
            waited.wait(&mut self.flows);
        }
    }

    /// Waits until all asynchronous operations have ended. Their results can be asked for afterwards.
    pub fn rrelease(&mut self) {
        let mut waited = Waited::new(self.process.config.spin);
        loop {
            self.poll_and_follow();
            if !self.table.has_pending() {
                return;
            }
            waited.wait(&mut self.flows);
        }
    }

    /// Orders: no operation that is called from now on is executed before all that were called before have ended.
    pub fn rfence(&mut self) -> Result<(), ClibError> {
        let several = matches!(self.process.place, Place::Cluster(_));
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
            let until = yonder_clock::now() + pause.as_nanos() as Nanos;
            while yonder_clock::now() < until {
                std::thread::yield_now();
            }
            pause = (2 * pause).min(LOCK_PAUSE_MAX);
        }
        Ok(())
    }

    /// Gives the lock at `address` back. What this thread has written before is seen by whoever takes it next: the thread
    /// waits for its asynchronous operations first.
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

    /// Calls the offload with number `offload` on the node, and returns its answer. Arguments and answer fit one message:
    /// 64 KiB on a stream, some 64 bytes less in a datagram.
    pub fn call(&mut self, offload: u64, arguments: &[u8]) -> Result<Vec<u8>, ClibError> {
        match self.process.place {
            Place::Node(_) => self.call_at(0, offload, arguments),
            Place::Cluster(_) => Err(ClibError::ManyNodes),
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
            Place::Node(_) => self.node_status_at(0),
            Place::Cluster(_) => Err(ClibError::ManyNodes),
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

    fn begin(&mut self, kind: Kind, address: u64, mut buffer: B) -> Result<Pending<B>, ClibError> {
        let (now, length) = (yonder_clock::now(), buffer.len() as u64);
        let full = ClibError::TooManyPending(self.table.capacity());
        let route = self.flows.route(address)?;
        if length > route.end - address {
            // It lies on two nodes, which is rare: it is done at once.
            let outcome = self.across_nodes(kind, address, &mut buffer)?;
            let index = self.table.insert_done(buffer, outcome).map_err(|_| full)?;
            return Ok(Pending { index, buffer: PhantomData });
        }
        self.begun += 1;
        let asked = Asked { kind, address, node: route.node, order: self.begun };
        let Ok(index) = self.table.insert(buffer, asked) else { return Err(full) };
        match self.submit(&route, &Request::at(kind, address, length), u64::from(index.slot), now) {
            Ok(id) => {
                self.table.submitted(index.slot, id, route.node);
                self.unsent += 1;
                if self.unsent == UNSENT_MAX || self.flows.outstanding() == 1 {
                    self.poll(now, Slice::From(&[]), &mut None);
                }
                Ok(Pending { index, buffer: PhantomData })
            }
            Err(error) => {
                self.table.withdraw(index);
                Err(error)
            }
        }
    }

    /// An operation with a buffer that lies on two nodes.
    fn across_nodes(&mut self, kind: Kind, address: u64, buffer: &mut B) -> Result<Outcome, ClibError> {
        let mut bytes = vec![0; buffer.len()];
        let done = if kind == Kind::Read {
            self.rread(address, &mut bytes)
        } else {
            buffer.copy_out(0, &mut bytes);
            self.rwrite(address, &bytes)
        };
        match done {
            Ok(()) if kind == Kind::Read => buffer.copy_in(0, &bytes),
            Ok(()) => {}
            Err(ClibError::TimedOut) => return Ok(Outcome::TimedOut),
            Err(error) => return Err(error),
        }
        Ok(Outcome::Done)
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
                    Outcome::Refused(code) => self.has_moved(request.near, node, code)?,
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
        let mut waited = Waited::new(self.process.config.spin);
        let id = self.submit(route, request, SYNCHRONOUS, now)?;
        let (mut ended, mut ask_at) = (None, now + DOWN_TIME_MAX);
        loop {
            self.poll(now, slice.reborrow(), &mut ended);
            if !self.moved.is_empty() {
                self.follow(slice.reborrow(), &mut ended);
            }
            if let Some(outcome) = ended {
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
            waited.wait(&mut self.flows);
            now = yonder_clock::now();
        }
    }

    /// Whether `address` is at another node than `node` now, as the controller says.
    fn is_elsewhere(&self, address: u64, node: NodeId) -> Result<bool, ClibError> {
        let Place::Cluster(cluster) = &self.process.place else { return Ok(false) };
        cluster.is_elsewhere(cluster.region_of(address)?, node)
    }

    /// Whether a refusal with `code` by `node` means that `address` is at another node now, after waiting until it is
    /// known which.
    fn has_moved(&self, address: u64, node: NodeId, code: ErrorCode) -> Result<bool, ClibError> {
        let Place::Cluster(cluster) = &self.process.place else { return Ok(false) };
        let region = cluster.region_of(address)?;
        match code {
            ErrorCode::Moved => Ok(cluster.relocate(region, node)?.is_some()),
            // A node that had the region some time ago does not know it any more.
            ErrorCode::BadAddress | ErrorCode::BadCapability => self.is_elsewhere(address, node),
            _ => Ok(false),
        }
    }

    fn submit(
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

    /// Sends and receives, and goes after what has moved.
    fn poll_and_follow(&mut self) {
        self.poll(yonder_clock::now(), Slice::From(&[]), &mut None);
        if !self.moved.is_empty() {
            self.follow(Slice::From(&[]), &mut None);
        }
    }

    /// Sends and receives, and notes what has ended; the synchronous operation's end goes into `ended`.
    fn poll(&mut self, now: Nanos, mut slice: Slice<'_>, ended: &mut Option<Outcome>) {
        let follows = matches!(self.process.place, Place::Cluster(_));
        self.unsent = 0;
        for lane in self.flows.lanes() {
            lane.poll(now, &mut Memory { table: &mut self.table, slice: slice.reborrow() });
            while let Some(completion) = lane.completion() {
                match (completion.token, completion.outcome) {
                    (SYNCHRONOUS, outcome) => *ended = Some(outcome),
                    (FENCE, _) => {}
                    (token, Outcome::Refused(code)) if follows && may_have_moved(code) => {
                        self.moved.push((token as u32, code));
                    }
                    (token, Outcome::TimedOut) => {
                        if let Place::Cluster(cluster) = &self.process.place {
                            cluster.forget(self.table.asked(token as u32).0.address);
                        }
                        self.table.complete(&completion);
                    }
                    _ => self.table.complete(&completion),
                }
            }
        }
    }

    /// Asks for operations again whose addresses have moved, in the order in which they were called. Everything else that
    /// is under way ends first, so that nothing that was called later comes before them.
    fn follow(&mut self, mut slice: Slice<'_>, ended: &mut Option<Outcome>) {
        while self.flows.outstanding() > 0 {
            self.flows.wait();
            self.poll(yonder_clock::now(), slice.reborrow(), ended);
        }
        let mut moved = std::mem::take(&mut self.moved);
        moved.sort_unstable_by_key(|(slot, _)| self.table.asked(*slot).0.order);
        for (slot, code) in moved {
            if let Err(outcome) = self.ask_again(slot, code) {
                self.table.end(slot, outcome);
            }
        }
    }

    /// Asks for an asynchronous operation at the node that has its address now; or says how it has ended.
    fn ask_again(&mut self, slot: u32, code: ErrorCode) -> Result<(), Outcome> {
        let (asked, length) = self.table.asked(slot);
        let node = asked.node.expect("only an address space of several nodes moves");
        let unknown = |_| Outcome::TimedOut;
        if !self.has_moved(asked.address, node, code).map_err(unknown)? {
            return Err(Outcome::Refused(code));
        }
        let route = self.flows.route(asked.address).map_err(unknown)?;
        let request = Request::at(asked.kind, asked.address, length);
        let id = self.submit(&route, &request, u64::from(slot), yonder_clock::now()).map_err(unknown)?;
        self.table.submitted(slot, id, route.node);
        Ok(())
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

/// How a thread waits: it spins at first, if it is to, and sleeps from then on.
struct Waited {
    spin_until: Nanos,
}

impl Waited {
    fn new(spin: Duration) -> Self {
        let spin_until = if spin.is_zero() { 0 } else { yonder_clock::now() + spin.as_nanos() as Nanos };
        Self { spin_until }
    }

    fn wait(&mut self, flows: &mut Flows) {
        if self.spin_until > 0 && yonder_clock::now() < self.spin_until {
            std::hint::spin_loop();
        } else {
            flows.wait();
        }
    }
}

/// Whether a refusal may mean that the address is at another node.
fn may_have_moved(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Moved | ErrorCode::BadAddress | ErrorCode::BadCapability)
}
