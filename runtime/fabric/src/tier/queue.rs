//! [`TierQueuePair`]: one queue pair of each tier, as one.
//!
//! A read goes to where the current copy is; when it has arrived it counts if the copy is still there, and is posted
//! again if not. A write goes to a free slot of the node, or to the far tier. It never overwrites the current copy on
//! the node: that stays what it is until the write is done, and then its slot is free. A write that has failed leaves
//! the page as it was, so that the poster's next attempt finds the node marked as failed and goes far.
//!
//! Invariants: nothing is allocated after the queue pair was made. A slot whose write was given up is written by this
//! queue pair only, because below the order holds within a queue pair: the late write never lands on another page.

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos};

use super::entry::{Entries, Entry, Location, Tier};
use super::near::Slot;
use super::{Event, Shared};
use crate::areas::{AreaPage, View};
use crate::operations::Operations;
use crate::vector::MoveBytes as _;
use crate::{
    Completion, FabricError, Module, PageRead, PageWrite, PostError, Posting, QueuePair, ReadInto, RemoteAddress,
    Status, Vector, WorkId,
};

/// Operations that a queue pair holds, if those below hold as many.
const DEPTH_MAX: usize = 256;
/// A write to the node that was cancelled after so long is a failure of the node.
const SILENCE: Nanos = 10_000_000;

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Of the copy that was there at the look.
    Read(Entry),
    WriteNear(Slot),
    WriteFar,
}

struct Operation {
    id: WorkId,
    kind: Kind,
    place: AreaPage<Entries>,
    frame: FrameIndex,
    vector: Vector,
    posted: Nanos,
}

/// A queue pair over two.
pub(super) struct TierQueuePair {
    shared: Arc<Shared>,
    module: Module,
    view: View<Entries>,
    frames: Arc<Mapping>,
    /// None if the node was lost when the queue pair was made.
    near: Option<Box<dyn QueuePair>>,
    far: Box<dyn QueuePair>,
    operations: Operations<Operation>,
    /// Slots that only this queue pair may write.
    own_slots: Vec<Slot>,
    arrived: Vec<Completion>,
    /// The time of the last poll.
    polled: Nanos,
}

impl TierQueuePair {
    pub(super) fn new(shared: &Arc<Shared>, module: Module, frames: Arc<Mapping>) -> Result<Self, FabricError> {
        let far = shared.far.queue_pair(module, Arc::clone(&frames))?;
        // Without the node everything goes far, and what is on the node cannot be read.
        let near = shared.near.fabric().queue_pair(module, Arc::clone(&frames)).ok();
        let depth = near.iter().chain([&far]).map(|queue| queue.depth()).min().unwrap_or(0).min(DEPTH_MAX);
        Ok(Self {
            shared: Arc::clone(shared),
            module,
            view: View::new(&shared.areas),
            frames,
            near,
            far,
            operations: Operations::new(depth),
            own_slots: Vec::with_capacity(2 * depth),
            arrived: Vec::with_capacity(2 * depth),
            polled: 0,
        })
    }

    fn next(&self) -> Result<u16, PostError> {
        if self.outstanding() >= self.depth() { Err(PostError::Full) } else { self.operations.next() }
    }

    /// Looks for the current copy, and posts the read of it: a look to compare with later, or how the read has ended.
    fn read(
        &mut self,
        at: u16,
        place: &AreaPage<Entries>,
        (frame, vector): (FrameIndex, Vector),
        now: Nanos,
    ) -> Result<Result<Entry, Status>, PostError> {
        let entries = &place.area.table;
        let Some((seen, shape)) = entries.look_to_read(place.page) else { return Ok(Err(Status::Failed)) };
        if seen.is_being_written() {
            // Who fetches a page has seen the end of its write. A guide only looks, at pages that may change meanwhile.
            assert!(self.module == Module::Guide, "a page is read while a write of it is under way");
            return Ok(Err(Status::Failed));
        }
        if seen.location() != Location::Nowhere && !shape.covers(vector) {
            // Nobody asks for bytes that he has not written.
            return Ok(Err(Status::Failed));
        }
        let (id, into) = (self.operations.id_below(at), ReadInto::Frame(frame));
        match seen.location() {
            Location::Nowhere => {
                vector.clear(&self.frames, frame.offset());
                return Ok(Err(Status::Done));
            }
            Location::Near(slot) => match &mut self.near {
                Some(near) => {
                    near.post_read_vector(id, PageRead { from: self.shared.near.address(slot), into, vector }, now)?;
                }
                None => return Ok(Err(Status::Disconnected)),
            },
            Location::Far => {
                let from = place.area.address(place.page);
                self.far.post_read_vector(id, PageRead { from, into, vector }, now)?;
                if seen.is_used() {
                    self.shared.suggest(from, now);
                }
            }
        }
        Ok(Ok(seen))
    }

    /// A slot of the node to write to.
    fn slot(&mut self, now: Nanos) -> Option<Slot> {
        let node = &self.shared.near;
        if self.near.is_none() || !node.is_up(now) {
            return None;
        }
        let slot = self.own_slots.pop().or_else(|| node.take());
        if node.is_short() && (node.slots() > 0 || !node.is_complete(now)) {
            self.shared.wake();
        }
        slot
    }

    /// Gives a slot back that was not written, or was left by its page.
    fn leave(&mut self, location: Location) {
        if let Location::Near(slot) = location {
            self.shared.near.give(slot);
        }
    }

    /// Handles the end of what is below for the operation at `at`.
    fn arrive(&mut self, at: u16, status: Status, now: Nanos) {
        let operation = self.operations.at(at);
        let (place, vector, frame) = (operation.place.clone(), operation.vector, operation.frame);
        let entries = &place.area.table;
        let status = match (operation.kind, status) {
            (Kind::Read(seen), Status::Done) if !entries.is_still(place.page, seen) => {
                self.shared.count(Event::ReadAgain);
                self.operations.rename(at);
                match self.read(at, &place, (frame, vector), now) {
                    Ok(Ok(seen)) => {
                        self.operations.at(at).kind = Kind::Read(seen);
                        return;
                    }
                    Ok(Err(status)) => status,
                    Err(PostError::Full) => Status::Failed,
                }
            }
            (Kind::Read(_), status) => status,
            (Kind::WriteNear(slot), Status::Done) => {
                self.shared.near.set_owner(slot, Some(place.area.address(place.page)));
                let older = entries.end_write(place.page, Location::Near(slot), vector);
                self.leave(older);
                self.shared.count(Event::WrittenNear);
                Status::Done
            }
            (Kind::WriteFar, Status::Done) => {
                let older = entries.end_write(place.page, Location::Far, vector);
                self.leave(older);
                self.shared.count(Event::WrittenFar);
                Status::Done
            }
            (kind @ (Kind::WriteNear(_) | Kind::WriteFar), status) => {
                self.give_write_up(kind, &place);
                if matches!(kind, Kind::WriteNear(_)) {
                    self.shared.near.failed(now);
                }
                status
            }
        };
        let id = self.operations.take(at).id;
        self.operations.end(id, status);
    }

    /// A write was not done, as far as anyone knows.
    fn give_write_up(&mut self, kind: Kind, place: &AreaPage<Entries>) {
        place.area.table.give_write_up(place.page);
        if let Kind::WriteNear(slot) = kind {
            self.own_slots.push(slot);
        }
    }

    fn poll_tier(&mut self, tier: Tier, now: Nanos) {
        let mut arrived = std::mem::take(&mut self.arrived);
        match (tier, &mut self.near) {
            (Tier::Near, Some(near)) => near.poll(now, &mut arrived),
            (Tier::Near, None) => {}
            (Tier::Far, _) => self.far.poll(now, &mut arrived),
        }
        for Completion { id, status } in arrived.drain(..) {
            self.arrive(self.operations.place_of(id), status, now);
        }
        self.arrived = arrived;
    }

    /// Withdraws the operation at `at` below.
    fn withdraw(&mut self, at: u16) {
        let id = self.operations.id_below(at);
        let Operation { kind, place, posted, .. } = self.operations.take(at);
        let is_near = match kind {
            Kind::Read(seen) => matches!(seen.location(), Location::Near(_)),
            Kind::WriteNear(_) => true,
            Kind::WriteFar => false,
        };
        match &mut self.near {
            Some(near) if is_near => near.cancel(id),
            _ => self.far.cancel(id),
        }
        if !matches!(kind, Kind::Read(_)) {
            self.give_write_up(kind, &place);
        }
        if matches!(kind, Kind::WriteNear(_)) && self.polled > posted + SILENCE {
            self.shared.near.failed(self.polled);
        }
    }
}

impl QueuePair for TierQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        let PageRead { from, into: ReadInto::Frame(frame), vector } = read else {
            panic!("a tiered store is not mapped")
        };
        let at = self.next()?;
        let Some(place) = self.view.find(from) else {
            self.operations.end(id, Status::Failed);
            return Ok(());
        };
        match self.read(at, &place, (frame, vector), now)? {
            Ok(seen) => {
                let operation = Operation { id, kind: Kind::Read(seen), place, frame, vector, posted: now };
                self.operations.begin(at, operation);
            }
            Err(status) => self.operations.end(id, status),
        }
        Ok(())
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        let at = self.next()?;
        let PageWrite { to, from, vector } = write;
        let Some(place) = self.view.find(to) else {
            self.operations.end(id, Status::Failed);
            return Ok(());
        };
        let slot = self.slot(now);
        let (entries, page) = (&place.area.table, place.page);
        let before = entries.look(page);
        let tier = if slot.is_some() { Tier::Near } else { Tier::Far };
        // A page that the mover is writing far can only go near: later, if there is no slot now.
        entries.begin_write(page, tier).map_err(|_| PostError::Full)?;
        let id_below = self.operations.id_below(at);
        let posted = match (slot, &mut self.near) {
            (Some(slot), Some(near)) => {
                near.post_write_vector(id_below, PageWrite { to: self.shared.near.address(slot), ..write }, now)
            }
            _ => self.far.post_write_vector(id_below, write, now),
        };
        if posted.is_err() {
            entries.take_back_write(page, before);
            // It may be one that only this queue pair may write.
            self.own_slots.extend(slot);
            return posted;
        }
        let kind = slot.map_or(Kind::WriteFar, Kind::WriteNear);
        self.operations.begin(at, Operation { id, kind, place, frame: from, vector, posted: now });
        Ok(())
    }

    fn set_posting(&mut self, posting: Posting) {
        self.near.iter_mut().chain([&mut self.far]).for_each(|queue| queue.set_posting(posting));
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        self.polled = now;
        self.poll_tier(Tier::Near, now);
        self.poll_tier(Tier::Far, now);
        self.operations.hand_out(completions);
    }

    fn cancel(&mut self, id: WorkId) {
        match self.operations.position(|operation| operation.id == id) {
            Some(at) => self.withdraw(at),
            None => self.operations.forget_ended(id),
        }
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        // A slot of the node whose write was given up stays this queue pair's.
        self.far.may_still_write(start, bytes)
    }

    fn next_poll(&self) -> Nanos {
        self.near.iter().chain([&self.far]).map(|queue| queue.next_poll()).min().unwrap_or(Nanos::MAX)
    }

    fn outstanding(&self) -> usize {
        self.operations.outstanding()
    }

    fn depth(&self) -> usize {
        self.operations.depth()
    }
}

impl Drop for TierQueuePair {
    fn drop(&mut self) {
        // The slots of writes that were given up are lost with it: a late write may still land there.
        for operation in self.operations.iter() {
            if !matches!(operation.kind, Kind::Read(_)) {
                operation.place.area.table.give_write_up(operation.place.page);
            }
        }
    }
}
