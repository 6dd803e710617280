//! [`LaneQueue`]: reads and writes of pages over one [`Lane`]; [`LaneQueuePair`]: the one of a node that has all of a
//! fabric's memory.
//!
//! Every operation has a slot, and one request on the lane for each segment, which is named by the slot and its place
//! in the vector. The lane repeats what the network loses, executes each write once, and orders what concerns the same
//! bytes, also after a write that was cancelled: a later write of them waits until the node has confirmed that the
//! cancelled one will not be executed any more. An operation is over when all of its requests are, or when one of them
//! has failed, which cancels the others.
//!
//! Invariants: nothing is allocated after the queue was made. A frame is read only when its write is composed, and
//! written only by a verified answer to the read that is outstanding for it. When the lane is down every operation is
//! given up and ends as [`End::Unknown`], also those that the node may have executed.

use std::collections::VecDeque;
use std::sync::Arc;

use yonder_client::{Config, Operation, OperationId, Outcome};
use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, Narrow};
use yonder_wire::{ErrorCode, Header, Kind};

use crate::lane::{Condition, Data, Lane, NodeSession};
use crate::lease::Lease;
use crate::space::{Credentials, Space};
use crate::vector::Operation as Posted;
use crate::{
    Completion, GRANULE_BYTES, PageRead, PageWrite, PostError, QUEUE_DEPTH_MAX, QueuePair, ReadInto, RemoteAddress,
    SEGMENTS_MAX, Status, WorkId,
};

/// Operations that a queue pair holds.
const DEPTH: usize = 256;
/// Requests of its lane: all segments of as many, and as many again that were cancelled and that the node has not
/// confirmed.
const REQUESTS_MAX: usize = (SEGMENTS_MAX + 1) * DEPTH;
/// How often a queue pair without operations looks whether its lane still stands.
const IDLE_LOOK_INTERVAL: Nanos = 10_000_000;

const _: () = assert!(DEPTH <= QUEUE_DEPTH_MAX);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// The lane has what is not over of it.
    Posted,
    /// It has ended, and its end is to be taken.
    Ended(End),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    id: WorkId,
    is_write: bool,
    frame: FrameIndex,
    requests: [Request; SEGMENTS_MAX],
}

/// What moves one segment.
#[derive(Clone, Copy, Default, Debug)]
struct Request {
    /// Of the segment in its page.
    offset: u64,
    bytes: u64,
    /// The lane's name for it, until it is over.
    operation: Option<OperationId>,
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The node has done it.
    Done,
    /// The node says no.
    Refused(ErrorCode),
    /// The node was not reached, or has not answered: it may have done it.
    Unknown,
}

/// The node has forgotten the address space: nothing of it lands there any more.
const FORGOTTEN: End = End::Refused(ErrorCode::BadCapability);

/// Reads and writes over a lane, each with the right to its memory.
pub(crate) struct LaneQueue {
    lane: Lane,
    pages: Pages,
    free: Vec<u16>,
    /// Slots in [`State::Ended`], in the order in which they ended.
    ended: VecDeque<u16>,
    idle_look_at: Nanos,
}

/// A queue pair over a lane to a node that has all of a fabric's memory.
pub(crate) struct LaneQueuePair {
    queue: LaneQueue,
    credentials: Credentials,
    lease: Arc<Lease>,
}

/// The frames of the operations.
struct Pages {
    frames: Arc<Mapping>,
    slots: Box<[Slot; DEPTH]>,
}

/// The limits of a lane for a queue pair, whose requests depend on one another if they have bytes in common: segments
/// of one page do not wait for each other.
pub(crate) fn lane_config(config: Config) -> Config {
    Config { operations_max: REQUESTS_MAX, dependency_page_bytes: GRANULE_BYTES as u64, ..config }
}

impl LaneQueue {
    /// A queue over `lane`, which was opened with the limits of [`lane_config`].
    pub(crate) fn new(lane: Lane, frames: Arc<Mapping>) -> Self {
        let requests = [Request::default(); SEGMENTS_MAX];
        let empty = Slot { state: State::Free, id: WorkId(0), is_write: false, frame: FrameIndex(0), requests };
        Self {
            lane,
            pages: Pages { frames, slots: Box::new([empty; DEPTH]) },
            free: (0..DEPTH.narrow_u16()).collect(),
            ended: VecDeque::with_capacity(DEPTH),
            idle_look_at: 0,
        }
    }

    /// What all lanes to the node know about it.
    pub(crate) fn session(&self) -> &Arc<NodeSession> {
        self.lane.session()
    }

    /// Posts an operation on memory that `right` is the right to.
    pub(crate) fn post(&mut self, id: WorkId, posted: Posted, right: Credentials, now: Nanos) -> Result<(), PostError> {
        let (kind, address, frame, vector) = match posted {
            Posted::Read(PageRead { from, into: ReadInto::Frame(frame), vector }) => (Kind::Read, from, frame, vector),
            Posted::Read(_) => panic!("this fabric maps nothing: read into a frame"),
            Posted::Write(PageWrite { to, from, vector }) => (Kind::Write, to, from, vector),
        };
        let index = *self.free.last().ok_or(PostError::Full)?;
        let mut requests = [Request::default(); SEGMENTS_MAX];
        for (place, (request, segment)) in requests.iter_mut().zip(vector.segments()).enumerate() {
            let (offset, bytes) = (segment.start as u64, segment.len() as u64);
            let operation = Operation {
                kind,
                pid: right.pid,
                capability: right.capability,
                address: address.0 + offset,
                length: bytes,
                body: &[],
                deadline: Nanos::MAX,
                token: token(index, place),
            };
            let Ok(submitted) = self.lane.submit(&operation, now) else {
                // Nothing is sent before a poll, so those that the lane has taken never are.
                give_up(&mut self.lane, &mut requests);
                return Err(PostError::Full);
            };
            *request = Request { offset, bytes, operation: Some(submitted) };
        }
        self.free.pop();
        self.pages.slots[usize::from(index)] =
            Slot { state: State::Posted, id, is_write: kind == Kind::Write, frame, requests };
        Ok(())
    }

    /// Sends what was posted and takes what has arrived; ends are there to be taken then. If it `is_over`, nothing is
    /// sent any more, and everything ends.
    pub(crate) fn poll(&mut self, now: Nanos, is_over: impl FnOnce() -> bool) {
        if self.outstanding() == 0 && now < self.idle_look_at {
            return;
        }
        self.idle_look_at = now + IDLE_LOOK_INTERVAL;
        let condition = if is_over() { Condition::Down } else { self.lane.poll(now, &mut self.pages) };
        self.take_completions();
        if condition == Condition::Down {
            self.lose_all();
        }
    }

    /// The next operation that has ended, and how.
    pub(crate) fn take_ended(&mut self) -> Option<(WorkId, End)> {
        let index = self.ended.pop_front()?;
        let slot = &mut self.pages.slots[usize::from(index)];
        let State::Ended(end) = slot.state else { unreachable!("its end was noted") };
        slot.state = State::Free;
        self.free.push(index);
        Some((slot.id, end))
    }

    /// Forgets an operation, as [`QueuePair::cancel`]. False if there is none called so.
    pub(crate) fn cancel(&mut self, id: WorkId) -> bool {
        let posted = self.pages.slots.iter().position(|slot| slot.state != State::Free && slot.id == id);
        let Some(index) = posted else { return false };
        match self.pages.slots[index].state {
            State::Posted => _ = give_up(&mut self.lane, &mut self.pages.slots[index].requests),
            State::Ended(_) => self.ended.retain(|ended| usize::from(*ended) != index),
            State::Free => unreachable!("it was looked for among the others"),
        }
        self.pages.slots[index].state = State::Free;
        self.free.push(index.narrow_u16());
        true
    }

    /// As [`QueuePair::may_still_write`], of the address space with this number.
    pub(crate) fn may_still_write(&self, pid: u32, start: RemoteAddress, bytes: u64) -> bool {
        self.lane.may_still_change(pid, start.0, bytes)
    }

    /// As [`QueuePair::next_poll`].
    pub(crate) fn next_poll(&self) -> Nanos {
        if self.outstanding() > 0 { self.lane.next_poll() } else { Nanos::MAX }
    }

    /// Whether the node owes an answer and has brought none, or is out of reach.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lane.condition() == Condition::Down || self.outstanding() > 0 && self.ended.is_empty()
    }

    /// Whether the node owes nothing, not even its word that what was given up will not land.
    pub(crate) fn owes_nothing(&self) -> bool {
        self.lane.idle()
    }

    /// As [`Lane::answers_heard`].
    pub(crate) fn answers_heard(&self) -> u64 {
        self.lane.answers_heard()
    }

    /// As [`QueuePair::outstanding`].
    pub(crate) fn outstanding(&self) -> usize {
        DEPTH - self.free.len()
    }

    /// Notes what the lane has completed.
    fn take_completions(&mut self) {
        while let Some(done) = self.lane.completion() {
            let end = match done.outcome {
                Outcome::Done => End::Done,
                Outcome::Refused(code) => End::Refused(code),
                Outcome::Lost | Outcome::TimedOut => End::Unknown,
                Outcome::Old(_) => unreachable!("no atomic was submitted"),
            };
            let (index, place) = slot_and_place(done.token);
            let slot = &mut self.pages.slots[index];
            assert!(slot.state == State::Posted, "a completion for a slot that has no operation");
            slot.requests[place].operation = None;
            let mut end = end;
            let may_land = end != End::Done && give_up(&mut self.lane, &mut slot.requests) && slot.is_write;
            if may_land && end != FORGOTTEN {
                // The rest of a write may still land.
                end = End::Unknown;
            }
            if slot.requests.iter().all(|request| request.operation.is_none()) {
                slot.state = State::Ended(end);
                self.ended.push_back(index.narrow_u16());
            }
        }
    }

    /// Gives every operation up: the lane is down.
    fn lose_all(&mut self) {
        for (index, slot) in self.pages.slots.iter_mut().enumerate() {
            if slot.state == State::Posted {
                give_up(&mut self.lane, &mut slot.requests);
                slot.state = State::Ended(End::Unknown);
                self.ended.push_back(index.narrow_u16());
            }
        }
    }
}

impl LaneQueuePair {
    /// A queue pair over `lane`, which was opened with the limits of [`lane_config`], to memory in `space`.
    pub(crate) fn new(lane: Lane, space: &Space, frames: Arc<Mapping>) -> Self {
        let (credentials, lease) = (space.credentials(), Arc::clone(space.lease()));
        Self { queue: LaneQueue::new(lane, frames), credentials, lease }
    }
}

impl QueuePair for LaneQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        self.queue.post(id, Posted::Read(read), self.credentials, now)
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        self.queue.post(id, Posted::Write(write), self.credentials, now)
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        // Behind the lease nothing is sent: the node may have ended the address space.
        self.queue.poll(now, || self.lease.is_over());
        while completions.len() < completions.capacity() {
            let Some((id, end)) = self.queue.take_ended() else { return };
            let status = match end {
                End::Done => Status::Done,
                End::Refused(ErrorCode::BadCapability) => {
                    // The node has forgotten the address space: nothing that it says of it from now on counts.
                    self.queue.session().lose();
                    Status::Disconnected
                }
                End::Refused(_) => Status::Failed,
                End::Unknown => Status::Disconnected,
            };
            completions.push(Completion { id, status });
        }
    }

    fn cancel(&mut self, id: WorkId) {
        self.queue.cancel(id);
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        self.queue.may_still_write(self.credentials.pid, start, bytes)
    }

    fn next_poll(&self) -> Nanos {
        self.queue.next_poll()
    }

    fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    fn depth(&self) -> usize {
        DEPTH
    }
}

impl Data for Pages {
    #[inline]
    fn copy_out(&mut self, token: u64, offset: u64, into: &mut [u8]) {
        let (index, place) = slot_and_place(token);
        let slot = &self.slots[index];
        self.frames.read(slot.frame.offset() + slot.requests[place].offset + offset, into);
    }

    #[inline]
    fn copy_in(&mut self, token: u64, offset: u64, bytes: &[u8]) {
        let (index, place) = slot_and_place(token);
        let (slot, request) = (&self.slots[index], &self.slots[index].requests[place]);
        assert!(offset + bytes.len() as u64 <= request.bytes, "a read of {} bytes brought more", request.bytes);
        self.frames.write(slot.frame.offset() + request.offset + offset, bytes);
    }

    fn answer(&mut self, _token: u64, _header: &Header, _payload: &[u8]) {
        unreachable!("only reads and writes are submitted");
    }
}

/// Gives up those of an operation's requests that are not over. Whether there were any.
fn give_up(lane: &mut Lane, requests: &mut [Request; SEGMENTS_MAX]) -> bool {
    let mut any = false;
    for operation in requests.iter_mut().filter_map(|request| request.operation.take()) {
        lane.cancel(operation);
        any = true;
    }
    any
}

/// The name on the lane of the request for the segment at `place` of the operation in slot `index`.
fn token(index: u16, place: usize) -> u64 {
    (place as u64) << u16::BITS | u64::from(index)
}

fn slot_and_place(token: u64) -> (usize, usize) {
    ((token & u64::from(u16::MAX)).narrow_usize(), (token >> u16::BITS).narrow_usize())
}
