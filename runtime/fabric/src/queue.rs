//! [`LaneQueuePair`]: reads and writes of pages over one [`Lane`].
//!
//! Every operation has a slot, and one request on the lane for each segment, which is named by the slot and its place
//! in the vector. The lane repeats what the network loses, executes each write once, and orders what concerns the same
//! bytes, also after a write that was cancelled: a later write of them waits until the node has confirmed that the
//! cancelled one will not be executed any more. An operation is over when all of its requests are, or when one of them
//! has failed, which cancels the others.
//!
//! Invariants: nothing is allocated after the queue pair was made. A frame is read only when its write is composed, and
//! written only by a verified answer to the read that is outstanding for it. When the lane is down every operation is
//! given up and completed as [`Status::Disconnected`], also those that the node may have executed.

use std::sync::Arc;

use yonder_client::{Config, Operation, OperationId, Outcome};
use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, Narrow};
use yonder_wire::{ErrorCode, Header, Kind};

use crate::lane::{Condition, Data, Lane};
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
    /// To be completed as disconnected.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    id: WorkId,
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

/// A queue pair over a lane.
pub(crate) struct LaneQueuePair {
    lane: Lane,
    credentials: Credentials,
    lease: Arc<Lease>,
    pages: Pages,
    free: Vec<u16>,
    /// Number of slots in [`State::Lost`].
    lost: usize,
    idle_look_at: Nanos,
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

impl LaneQueuePair {
    /// A queue pair over `lane`, which was opened with the limits of [`lane_config`], to memory in `space`.
    pub(crate) fn new(lane: Lane, space: &Space, frames: Arc<Mapping>) -> Self {
        let requests = [Request::default(); SEGMENTS_MAX];
        let empty = Slot { state: State::Free, id: WorkId(0), frame: FrameIndex(0), requests };
        Self {
            lane,
            credentials: space.credentials(),
            lease: Arc::clone(space.lease()),
            pages: Pages { frames, slots: Box::new([empty; DEPTH]) },
            free: (0..DEPTH.narrow_u16()).collect(),
            lost: 0,
            idle_look_at: 0,
        }
    }

    fn post(&mut self, id: WorkId, posted: Posted, now: Nanos) -> Result<(), PostError> {
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
                pid: self.credentials.pid,
                capability: self.credentials.capability,
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
        self.pages.slots[usize::from(index)] = Slot { state: State::Posted, id, frame, requests };
        Ok(())
    }

    /// Takes what the lane has completed, as far as `completions` has room.
    fn complete_done(&mut self, completions: &mut Vec<Completion>) {
        while completions.len() < completions.capacity() {
            let Some(done) = self.lane.completion() else { return };
            let status = match done.outcome {
                Outcome::Done => Status::Done,
                Outcome::Refused(ErrorCode::BadCapability) => {
                    // The node has forgotten the address space: nothing that it says of it from now on counts.
                    self.lane.session().lose();
                    Status::Disconnected
                }
                Outcome::Refused(_) => Status::Failed,
                Outcome::Lost | Outcome::TimedOut => Status::Disconnected,
                Outcome::Old(_) => unreachable!("no atomic was submitted"),
            };
            let (index, place) = slot_and_place(done.token);
            let requests = &mut self.pages.slots[index].requests;
            requests[place].operation = None;
            if status != Status::Done {
                give_up(&mut self.lane, requests);
            }
            if requests.iter().all(|request| request.operation.is_none()) {
                self.complete(index.narrow_u16(), status, completions);
            }
        }
    }

    fn complete(&mut self, index: u16, status: Status, completions: &mut Vec<Completion>) {
        let slot = &mut self.pages.slots[usize::from(index)];
        assert!(slot.state != State::Free, "a completion for a slot that is free");
        completions.push(Completion { id: slot.id, status });
        slot.state = State::Free;
        self.free.push(index);
    }

    /// Gives every operation up: the lane is down.
    fn lose_all(&mut self) {
        for slot in self.pages.slots.iter_mut() {
            if slot.state == State::Posted {
                give_up(&mut self.lane, &mut slot.requests);
                slot.state = State::Lost;
                self.lost += 1;
            }
        }
    }

    /// Completes lost operations, as far as `completions` has room.
    fn complete_lost(&mut self, completions: &mut Vec<Completion>) {
        for index in 0..DEPTH.narrow_u16() {
            if self.lost == 0 || completions.len() == completions.capacity() {
                return;
            }
            if self.pages.slots[usize::from(index)].state == State::Lost {
                self.lost -= 1;
                self.complete(index, Status::Disconnected, completions);
            }
        }
    }
}

impl QueuePair for LaneQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        self.post(id, Posted::Read(read), now)
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        self.post(id, Posted::Write(write), now)
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        if self.outstanding() == 0 && now < self.idle_look_at {
            return;
        }
        self.idle_look_at = now + IDLE_LOOK_INTERVAL;
        // Behind the lease nothing is sent: the node may have ended the address space.
        if self.lease.is_over() || self.lane.poll(now, &mut self.pages) == Condition::Down {
            self.complete_done(completions);
            self.lose_all();
        }
        self.complete_done(completions);
        self.complete_lost(completions);
    }

    fn cancel(&mut self, id: WorkId) {
        let posted = self.pages.slots.iter().position(|slot| slot.state != State::Free && slot.id == id);
        let Some(index) = posted else { return };
        match self.pages.slots[index].state {
            State::Posted => give_up(&mut self.lane, &mut self.pages.slots[index].requests),
            State::Lost => self.lost -= 1,
            State::Free => unreachable!("it was looked for among the others"),
        }
        self.pages.slots[index].state = State::Free;
        self.free.push(index.narrow_u16());
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        self.lane.may_still_change(self.credentials.pid, start.0, bytes)
    }

    fn next_poll(&self) -> Nanos {
        if self.outstanding() > 0 { self.lane.next_poll() } else { Nanos::MAX }
    }

    fn outstanding(&self) -> usize {
        DEPTH - self.free.len()
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

/// Gives up those of an operation's requests that are not over.
fn give_up(lane: &mut Lane, requests: &mut [Request; SEGMENTS_MAX]) {
    requests.iter_mut().filter_map(|request| request.operation.take()).for_each(|operation| lane.cancel(operation));
}

/// The name on the lane of the request for the segment at `place` of the operation in slot `index`.
fn token(index: u16, place: usize) -> u64 {
    (place as u64) << u16::BITS | u64::from(index)
}

fn slot_and_place(token: u64) -> (usize, usize) {
    ((token & u64::from(u16::MAX)).narrow_usize(), (token >> u16::BITS).narrow_usize())
}
