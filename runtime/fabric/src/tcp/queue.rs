//! [`TcpQueuePair`]: reads and writes of one queue pair over one [`Link`].
//!
//! Every operation has a slot. Its request id on the wire is `serial * DEPTH + slot`, so a reply finds its slot at once,
//! and a reply to an operation that was cancelled matches no slot: it never touches a frame that has been reused.
//!
//! Invariants: nothing is allocated after the queue pair was made. A frame is read only when its write is composed, and
//! written only by a verified reply to the read that is outstanding for it. When the link goes down every slot becomes
//! lost and is completed as [`Status::Disconnected`], also those that the node may have executed.

use std::collections::VecDeque;
use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, PAGE_BYTES};
use yonder_wire::{Header, Kind, Message};

use crate::{Completion, PostError, QUEUE_DEPTH_MAX, QueuePair, ReadInto, RemoteAddress, Status, WorkId};

use super::link::{Arrival, Condition, Link};

/// Operations that a queue pair holds. A power of two, so that a request id divides into serial and slot.
const DEPTH: usize = 256;
/// How often a queue pair without operations looks whether its link still stands.
const IDLE_LOOK_INTERVAL: Nanos = 10_000_000;

const _: () = assert!(DEPTH.is_power_of_two() && DEPTH <= QUEUE_DEPTH_MAX);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// Posted, and not yet composed for the socket.
    Unsent,
    /// Composed or sent; a reply may come.
    Sent,
    /// The link went down: to be completed as disconnected.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    id: WorkId,
    request_id: u64,
    direction: Direction,
    address: RemoteAddress,
    frame: FrameIndex,
}

/// A queue pair over TCP.
pub(super) struct TcpQueuePair {
    link: Link,
    frames: Arc<Mapping>,
    slots: Box<[Slot; DEPTH]>,
    free: Vec<usize>,
    /// Slots in [`State::Unsent`], in the order of their posts.
    unsent: VecDeque<usize>,
    /// Number of slots in [`State::Lost`].
    lost: usize,
    serial: u64,
    idle_look_at: Nanos,
}

impl TcpQueuePair {
    pub(super) fn new(link: Link, frames: Arc<Mapping>) -> Self {
        let empty = Slot {
            state: State::Free,
            id: WorkId(0),
            request_id: 0,
            direction: Direction::Read,
            address: RemoteAddress(0),
            frame: FrameIndex(0),
        };
        Self {
            link,
            frames,
            slots: Box::new([empty; DEPTH]),
            free: (0..DEPTH).collect(),
            unsent: VecDeque::with_capacity(DEPTH),
            lost: 0,
            serial: 0,
            idle_look_at: 0,
        }
    }

    fn post(
        &mut self,
        id: WorkId,
        direction: Direction,
        address: RemoteAddress,
        frame: FrameIndex,
    ) -> Result<(), PostError> {
        let index = self.free.pop().ok_or(PostError::Full)?;
        self.serial += 1;
        let request_id = self.serial * DEPTH as u64 + index as u64;
        self.slots[index] = Slot { state: State::Unsent, id, request_id, direction, address, frame };
        self.unsent.push_back(index);
        Ok(())
    }

    /// Composes what was posted, in order, and sends it, for as long as the socket takes it.
    fn send_posted(&mut self, now: Nanos) -> Condition {
        loop {
            while let Some(&index) = self.unsent.front() {
                let slot = &mut self.slots[index];
                let kind = match slot.direction {
                    Direction::Read => Kind::Read,
                    Direction::Write => Kind::Write,
                };
                let header = Header::request(kind, slot.request_id, slot.address.0, PAGE_BYTES as u64);
                let frame = slot.frame.offset();
                let fill = |payload: &mut [u8]| {
                    if !payload.is_empty() {
                        self.frames.read(frame, payload);
                    }
                };
                if self.link.requests.compose(&header, fill).is_err() {
                    break;
                }
                slot.state = State::Sent;
                self.unsent.pop_front();
            }
            if self.link.requests.is_empty() {
                return Condition::Up;
            }
            if self.link.send(now) == Condition::Down {
                return Condition::Down;
            }
            if self.unsent.is_empty() || !self.link.requests.is_empty() {
                return Condition::Up;
            }
        }
    }

    /// Handles what has arrived, as far as `completions` has room.
    fn receive_replies(&mut self, now: Nanos, completions: &mut Vec<Completion>) -> Condition {
        loop {
            if !self.handle_replies(completions) {
                self.link.fail(now);
                return Condition::Down;
            }
            if completions.len() == completions.capacity() {
                return Condition::Up;
            }
            match self.link.receive(now) {
                Arrival::Full => {}
                Arrival::Drained if self.handle_replies(completions) => return Condition::Up,
                Arrival::Drained => {
                    self.link.fail(now);
                    return Condition::Down;
                }
                Arrival::Broken => return Condition::Down,
            }
        }
    }

    /// Handles the whole messages that are there. False if the bytes are no messages.
    fn handle_replies(&mut self, completions: &mut Vec<Completion>) -> bool {
        while completions.len() < completions.capacity() {
            let message = match self.link.received.message() {
                Ok(Some(message)) => message,
                Ok(None) => return true,
                Err(_) => return false,
            };
            let bytes = message.bytes();
            let index = message.header.request_id as usize % DEPTH;
            let slot = &mut self.slots[index];
            if slot.state == State::Sent && slot.request_id == message.header.request_id {
                let status = outcome(&message, slot, &self.frames);
                completions.push(Completion { id: slot.id, status });
                slot.state = State::Free;
                self.free.push(index);
            }
            self.link.received.consume(bytes);
        }
        true
    }

    /// Marks every operation as lost: the link is down.
    fn lose_all(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| matches!(slot.state, State::Unsent | State::Sent)) {
            slot.state = State::Lost;
            self.lost += 1;
        }
        self.unsent.clear();
    }

    /// Completes lost operations, as far as `completions` has room.
    fn complete_lost(&mut self, completions: &mut Vec<Completion>) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if self.lost == 0 || completions.len() == completions.capacity() {
                return;
            }
            if slot.state == State::Lost {
                completions.push(Completion { id: slot.id, status: Status::Disconnected });
                slot.state = State::Free;
                self.free.push(index);
                self.lost -= 1;
            }
        }
    }

    /// Sends and receives on a link that is up. The condition afterwards.
    fn exchange(&mut self, now: Nanos, completions: &mut Vec<Completion>) -> Condition {
        match self.send_posted(now) {
            Condition::Up => self.receive_replies(now, completions),
            Condition::Down => Condition::Down,
        }
    }
}

impl QueuePair for TcpQueuePair {
    fn post_read(&mut self, id: WorkId, from: RemoteAddress, into: ReadInto, _now: Nanos) -> Result<(), PostError> {
        let ReadInto::Frame(frame) = into else { panic!("this fabric maps nothing: read into a frame") };
        self.post(id, Direction::Read, from, frame)
    }

    fn post_write(&mut self, id: WorkId, to: RemoteAddress, from: FrameIndex, _now: Nanos) -> Result<(), PostError> {
        self.post(id, Direction::Write, to, from)
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        let mut condition = self.link.advance(now);
        if condition == Condition::Up {
            if self.outstanding() == 0 && now < self.idle_look_at {
                return;
            }
            self.idle_look_at = now + IDLE_LOOK_INTERVAL;
            condition = self.exchange(now, completions);
        }
        if condition == Condition::Down {
            self.lose_all();
        }
        self.complete_lost(completions);
    }

    fn cancel(&mut self, id: WorkId) {
        let Some(index) = self.slots.iter().position(|slot| slot.state != State::Free && slot.id == id) else { return };
        match self.slots[index].state {
            State::Unsent => self.unsent.retain(|waiting| *waiting != index),
            State::Lost => self.lost -= 1,
            State::Sent | State::Free => {}
        }
        self.slots[index].state = State::Free;
        self.free.push(index);
    }

    fn outstanding(&self) -> usize {
        DEPTH - self.free.len()
    }

    fn depth(&self) -> usize {
        DEPTH
    }
}

/// What the reply to the operation in `slot` means. Copies the page of a read that is right into its frame.
#[inline]
fn outcome(message: &Message<'_>, slot: &Slot, frames: &Mapping) -> Status {
    let header = &message.header;
    let expected = match slot.direction {
        Direction::Read => Kind::ReadReply,
        Direction::Write => Kind::WriteAck,
    };
    let right = header.kind == expected && header.address == slot.address.0 && header.length == PAGE_BYTES as u64;
    if !right || message.verify().is_err() {
        return Status::Failed;
    }
    if slot.direction == Direction::Read {
        frames.write(slot.frame.offset(), message.payload);
    }
    Status::Done
}
