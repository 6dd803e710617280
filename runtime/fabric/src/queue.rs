//! [`LaneQueuePair`]: reads and writes of pages over one [`Lane`].
//!
//! Every operation has a slot, whose number is its name on the lane. The lane repeats what the network loses, executes each
//! write once, and orders what concerns one page, also after a write that was cancelled: a later write of the page waits
//! until the node has confirmed that the cancelled one will not be executed any more.
//!
//! Invariants: nothing is allocated after the queue pair was made. A frame is read only when its write is composed, and
//! written only by a verified answer to the read that is outstanding for it. When the lane is down every operation is given
//! up and completed as [`Status::Disconnected`], also those that the node may have executed.

use std::sync::Arc;

use yonder_client::{Operation, OperationId, Outcome};
use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, PAGE_BYTES};
use yonder_wire::{ErrorCode, Header, Kind};

use crate::lane::{Condition, Data, Lane};
use crate::space::Credentials;
use crate::{Completion, PostError, QUEUE_DEPTH_MAX, QueuePair, ReadInto, RemoteAddress, Status, WorkId};

/// Operations that a queue pair holds.
const DEPTH: usize = 256;
/// Operations of its lane: as many, and as many again that were cancelled and that the node has not confirmed.
pub(crate) const OPERATIONS_MAX: usize = 2 * DEPTH;
/// How often a queue pair without operations looks whether its lane still stands.
const IDLE_LOOK_INTERVAL: Nanos = 10_000_000;

const _: () = assert!(DEPTH <= QUEUE_DEPTH_MAX);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// The lane has it.
    Posted(OperationId),
    /// To be completed as disconnected.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    id: WorkId,
    frame: FrameIndex,
}

/// A queue pair over a lane.
pub(crate) struct LaneQueuePair {
    lane: Lane,
    credentials: Credentials,
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

impl LaneQueuePair {
    pub(crate) fn new(lane: Lane, credentials: Credentials, frames: Arc<Mapping>) -> Self {
        let empty = Slot { state: State::Free, id: WorkId(0), frame: FrameIndex(0) };
        Self {
            lane,
            credentials,
            pages: Pages { frames, slots: Box::new([empty; DEPTH]) },
            free: (0..DEPTH as u16).collect(),
            lost: 0,
            idle_look_at: 0,
        }
    }

    fn post(
        &mut self,
        id: WorkId,
        kind: Kind,
        address: RemoteAddress,
        frame: FrameIndex,
        now: Nanos,
    ) -> Result<(), PostError> {
        let index = *self.free.last().ok_or(PostError::Full)?;
        let operation = Operation {
            kind,
            pid: self.credentials.pid,
            capability: self.credentials.capability,
            address: address.0,
            length: PAGE_BYTES as u64,
            body: &[],
            deadline: Nanos::MAX,
            token: u64::from(index),
        };
        let submitted = self.lane.submit(&operation, now).map_err(|_| PostError::Full)?;
        self.free.pop();
        self.pages.slots[usize::from(index)] = Slot { state: State::Posted(submitted), id, frame };
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
                    self.lane.standing().lose();
                    Status::Disconnected
                }
                Outcome::Refused(_) => Status::Failed,
                Outcome::Lost | Outcome::TimedOut => Status::Disconnected,
                Outcome::Old(_) => unreachable!("no atomic was submitted"),
            };
            self.complete(done.token as u16, status, completions);
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
            if let State::Posted(operation) = slot.state {
                self.lane.cancel(operation);
                slot.state = State::Lost;
                self.lost += 1;
            }
        }
    }

    /// Completes lost operations, as far as `completions` has room.
    fn complete_lost(&mut self, completions: &mut Vec<Completion>) {
        for index in 0..DEPTH as u16 {
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
    fn post_read(&mut self, id: WorkId, from: RemoteAddress, into: ReadInto, now: Nanos) -> Result<(), PostError> {
        let ReadInto::Frame(frame) = into else { panic!("this fabric maps nothing: read into a frame") };
        self.post(id, Kind::Read, from, frame, now)
    }

    fn post_write(&mut self, id: WorkId, to: RemoteAddress, from: FrameIndex, now: Nanos) -> Result<(), PostError> {
        self.post(id, Kind::Write, to, from, now)
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        if self.outstanding() == 0 && now < self.idle_look_at {
            return;
        }
        self.idle_look_at = now + IDLE_LOOK_INTERVAL;
        if self.lane.poll(now, &mut self.pages) == Condition::Down {
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
            State::Posted(operation) => self.lane.cancel(operation),
            State::Lost => self.lost -= 1,
            State::Free => unreachable!("it was looked for among the others"),
        }
        self.pages.slots[index].state = State::Free;
        self.free.push(index as u16);
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
        self.frames.read(self.slots[token as usize].frame.offset() + offset, into);
    }

    #[inline]
    fn copy_in(&mut self, token: u64, offset: u64, bytes: &[u8]) {
        let slot = &self.slots[token as usize];
        assert!(offset as usize + bytes.len() <= PAGE_BYTES, "a read of a page brought more");
        self.frames.write(slot.frame.offset() + offset, bytes);
    }

    fn answer(&mut self, _token: u64, _header: &Header, _payload: &[u8]) {
        unreachable!("only reads and writes are submitted");
    }
}
