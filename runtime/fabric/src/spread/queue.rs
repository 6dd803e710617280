//! [`SpreadQueuePair`]: a queue of reads and writes to pages that lie on many nodes.
//!
//! An operation goes to the node that has its page, by a lane of this queue pair. If the node says that it has the
//! region no more, the operation waits here until the follower has found where it is, and is posted there. Whatever
//! the node that it was at before still does with it comes to nothing: a source of a move has closed the region for
//! good before anyone else opens it.
//!
//! Invariants: nothing is allocated or freed after the queue pair was made, but for what the lanes that arrive bring.

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, Narrow, PAGE_BYTES};
use yonder_wire::ErrorCode;

use super::Shared;
use super::group::{Group, Standing};
use super::nodes::{Inbox, Link, NODES_MAX, NodeIndex};
use crate::areas::View;
use crate::operations::Operations;
use crate::queue::{End, LaneQueue};
use crate::vector::Operation as Posted;
use crate::{Completion, PageRead, PageWrite, PostError, QueuePair, ReadInto, RemoteAddress, Status, Vector, WorkId};

/// Operations that a queue pair holds.
const DEPTH: usize = 256;
/// Time after which an operation is posted again that waits to hear where its page is.
const AGAIN: Nanos = 2_000_000;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A node has it.
    Posted(NodeIndex),
    /// It is posted at this time, or when places have changed.
    Waiting(Nanos),
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    id: WorkId,
    kind: Kind,
    page: RemoteAddress,
    frame: FrameIndex,
    vector: Vector,
    state: State,
}

/// The lanes of a queue pair, by the numbers of their nodes.
struct Lanes {
    links: Box<[Option<Box<Link>>]>,
    /// Those that are there.
    nodes: Vec<NodeIndex>,
}

/// A queue pair to many nodes.
pub(super) struct SpreadQueuePair {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    view: View<Group>,
    lanes: Lanes,
    operations: Operations<Operation>,
    waiting: usize,
    /// How often places had changed at the last poll.
    changes: u64,
}

impl Lanes {
    fn get(&mut self, node: NodeIndex) -> Option<&mut Link> {
        self.links[usize::from(node.0)].as_deref_mut()
    }

    fn at(&mut self, node: NodeIndex) -> &mut LaneQueue {
        &mut self.get(node).expect("what is posted has a lane").queue
    }

    /// All of them.
    fn iter(&self) -> impl Iterator<Item = &LaneQueue> {
        self.nodes.iter().filter_map(|node| Some(&self.links[usize::from(node.0)].as_ref()?.queue))
    }

    fn add(&mut self, node: NodeIndex, link: Box<Link>) {
        assert!(self.links[usize::from(node.0)].replace(link).is_none(), "a queue pair has one lane to a node");
        self.nodes.push(node);
    }
}

impl SpreadQueuePair {
    pub(super) fn new(shared: &Arc<Shared>, frames: Arc<Mapping>) -> Self {
        let inbox = shared.nodes.inbox(frames);
        let lanes = Lanes { links: (0..NODES_MAX).map(|_| None).collect(), nodes: Vec::with_capacity(NODES_MAX) };
        let mut queue_pair = Self {
            shared: Arc::clone(shared),
            inbox,
            view: View::new(&shared.areas),
            lanes,
            operations: Operations::new(DEPTH),
            waiting: 0,
            changes: 0,
        };
        queue_pair.take_lanes();
        queue_pair
    }

    fn take_lanes(&mut self) {
        let Self { inbox, lanes, .. } = self;
        inbox.take(|node, link| lanes.add(node, link));
    }

    /// Posts an operation at the node that has its page now, and returns its state; or how it has ended.
    fn post_below(&mut self, at: u16, operation: &Operation, now: Nanos) -> Result<Result<State, Status>, PostError> {
        let Some(found) = self.view.find(operation.page) else { return Ok(Err(Status::Failed)) };
        let group = &found.area.table;
        if group.standing() == Standing::Lost {
            return Ok(Err(Status::Disconnected));
        }
        let place = group.place;
        let below = RemoteAddress(place.address + (found.page * PAGE_BYTES) as u64);
        let Some(link) = self.lanes.get(place.node) else {
            self.shared.doubt(group);
            return Ok(Ok(State::Waiting(now + AGAIN)));
        };
        let Operation { kind, frame, vector, .. } = *operation;
        let posted = match kind {
            Kind::Read => Posted::Read(PageRead { from: below, into: ReadInto::Frame(frame), vector }),
            Kind::Write => Posted::Write(PageWrite { to: below, from: frame, vector }),
        };
        link.queue.post(self.operations.id_below(at), posted, link.right, now)?;
        Ok(Ok(State::Posted(place.node)))
    }

    fn post(&mut self, operation: Operation, now: Nanos) -> Result<(), PostError> {
        if self.outstanding() >= DEPTH {
            return Err(PostError::Full);
        }
        let at = self.operations.next()?;
        match self.post_below(at, &operation, now)? {
            Ok(state) => {
                self.waiting += usize::from(matches!(state, State::Waiting(_)));
                self.operations.begin(at, Operation { state, ..operation });
            }
            Err(status) => self.operations.end(operation.id, status),
        }
        Ok(())
    }

    /// Handles the end of what was below for the operation at `at`.
    fn arrive(&mut self, at: u16, end: End, now: Nanos) {
        let status = match end {
            End::Done => Status::Done,
            End::Refused(code) if may_have_moved(code) => {
                self.doubt(at);
                self.operations.rename(at);
                self.operations.at(at).state = State::Waiting(now + AGAIN);
                self.waiting += 1;
                return;
            }
            End::Refused(_) => Status::Failed,
            End::Unknown => {
                self.doubt(at);
                Status::Disconnected
            }
        };
        let id = self.operations.take(at).id;
        self.operations.end(id, status);
    }

    /// The operation at `at` was not done where its page should be.
    fn doubt(&mut self, at: u16) {
        let page = self.operations.at(at).page;
        if let Some(found) = self.view.find(page) {
            self.shared.doubt(&found.area.table);
        }
    }

    /// Posts what waits again, if it is time or something has changed.
    fn post_waiting(&mut self, now: Nanos) {
        let changes = self.shared.areas.changes();
        let has_changed = std::mem::replace(&mut self.changes, changes) != changes;
        for at in 0..DEPTH.narrow_u16() {
            let Some(operation) = self.operations.get(at).copied() else { continue };
            let State::Waiting(until) = operation.state else { continue };
            if !has_changed && now < until {
                continue;
            }
            match self.post_below(at, &operation, now) {
                Ok(Ok(state)) => {
                    self.waiting -= usize::from(matches!(state, State::Posted(_)));
                    self.operations.at(at).state = state;
                }
                Ok(Err(status)) => {
                    self.waiting -= 1;
                    let id = self.operations.take(at).id;
                    self.operations.end(id, status);
                }
                Err(PostError::Full) => self.operations.at(at).state = State::Waiting(now + AGAIN),
            }
        }
    }
}

/// Whether a refusal may mean that the memory is at another node.
pub(super) fn may_have_moved(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Moved | ErrorCode::BadAddress | ErrorCode::BadCapability)
}

impl QueuePair for SpreadQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        let PageRead { from: page, into: ReadInto::Frame(frame), vector } = read else {
            panic!("this fabric maps nothing: read into a frame")
        };
        self.post(Operation { id, kind: Kind::Read, page, frame, vector, state: State::Waiting(now) }, now)
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        let PageWrite { to: page, from: frame, vector } = write;
        self.post(Operation { id, kind: Kind::Write, page, frame, vector, state: State::Waiting(now) }, now)
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        self.take_lanes();
        for node in 0..self.lanes.nodes.len() {
            let node = self.lanes.nodes[node];
            self.lanes.at(node).poll(now, || false);
            while let Some((id, end)) = self.lanes.at(node).take_ended() {
                self.arrive(self.operations.place_of(id), end, now);
            }
        }
        if self.waiting > 0 {
            self.post_waiting(now);
        }
        self.operations.hand_out(completions);
    }

    fn cancel(&mut self, id: WorkId) {
        let Some(at) = self.operations.position(|operation| operation.id == id) else {
            return self.operations.forget_ended(id);
        };
        let below = self.operations.id_below(at);
        let operation = self.operations.take(at);
        match operation.state {
            State::Posted(node) => {
                self.lanes.at(node).cancel(below);
                // It may have waited for long: perhaps the node has gone, and the memory is elsewhere.
                if let Some(found) = self.view.find(operation.page) {
                    self.shared.doubt(&found.area.table);
                }
            }
            State::Waiting(_) => self.waiting -= 1,
        }
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        // What was given up where a part has been before its last move is never executed: it was closed there for good.
        let pid = self.shared.pid();
        self.view.parts(start, bytes).any(|(area, pages)| {
            let (place, first) = (area.table.place, (pages.start * PAGE_BYTES) as u64);
            let bytes = (pages.len() * PAGE_BYTES) as u64;
            let link = self.lanes.links[usize::from(place.node.0)].as_ref();
            link.is_some_and(|link| link.queue.may_still_write(pid, RemoteAddress(place.address + first), bytes))
        })
    }

    fn next_poll(&self) -> Nanos {
        let waiting = self.operations.iter().filter_map(|operation| match operation.state {
            State::Waiting(until) => Some(until),
            State::Posted(_) => None,
        });
        let waiting = if self.waiting > 0 { waiting.min() } else { None };
        self.lanes.iter().map(LaneQueue::next_poll).chain(waiting).min().unwrap_or(Nanos::MAX)
    }

    fn outstanding(&self) -> usize {
        self.operations.outstanding()
    }

    fn depth(&self) -> usize {
        DEPTH
    }
}
