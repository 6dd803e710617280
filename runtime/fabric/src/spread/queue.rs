//! [`SpreadQueuePair`]: a queue of reads and writes to pages that lie on many nodes, each perhaps on several.
//!
//! What `core/protect` decides is done here. A read goes to one place that has the page, or to as many as its shares
//! are needed of; another one is asked when one of them is late, and the first answers that are enough end it. A write
//! goes to all live places and ends when each has it, was given up, or is silent for so long that the others are
//! enough. A node that says that it has a region no more makes its part wait until the keeper has found where the
//! region is.
//!
//! What was given up and may still land is remembered (`unsettled`) until the lane says that it never will: until then
//! nothing else is written there.
//!
//! Invariants: nothing is allocated or freed after the queue pair was made, but for what the lanes that arrive bring.

mod writing;

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_protect::hedge::Budget;
use yonder_protect::pace::READS_PER_SAMPLE;
use yonder_protect::{Landing, Look, Place, Read, ReadNext, ReadStep, SLOTS_MAX, Slot, SlotSet};
use yonder_units::{FrameIndex, Nanos, Narrow};

use super::backup::Waits;
use super::course::{Course, Kind, Operation, Step};
use super::group::{Asked, Entry};
use super::lanes::{Lanes, below, name_and_slot};
use super::nodes::{NodeIndex, may_have_moved};
use super::shares::Shares;
use super::unsettled::{Orphan, Unsettled};
use super::{Event, Shared};
use crate::areas::{AreaPage, View};
use crate::operations::Operations;
use crate::queue::End;
use crate::vector::{MoveBytes as _, Operation as Posted};
use crate::{
    Completion, FabricError, Module, PageRead, PageWrite, PostError, Posting, QueuePair, ReadInto, RemoteAddress,
    Status, Vector, WorkId,
};

/// Operations that a queue pair holds.
const DEPTH: usize = 256;
/// Time after which what has found no place is begun again, or posted again.
const AGAIN: Nanos = 2_000_000;
/// How often operations are looked at that have no answer.
const LOOK_INTERVAL: Nanos = 100_000;
/// How often everything is looked at: nodes may be suspect, and places given up.
const LOOK_AT_ALL_INTERVAL: Nanos = 5_000_000;
/// Writes that were given up and may still land, at most: more are not begun then.
const UNSETTLED_MAX: usize = 4096;

/// A queue pair to many nodes.
pub(super) struct SpreadQueuePair {
    shared: Arc<Shared>,
    frames: Arc<Mapping>,
    view: View<Entry>,
    lanes: Lanes,
    operations: Operations<Operation>,
    /// At which node each slot was asked, for each operation.
    asked_at: Box<[[Asked; SLOTS_MAX]]>,
    /// When each write was begun, unless its time says nothing of nodes.
    begun_at: Box<[Option<Nanos>]>,
    /// When each write is posted again where it was refused because the place has moved.
    again_at: Box<[Nanos]>,
    unsettled: Unsettled,
    /// Where pages are cut into shares; none where all places have copies.
    shares: Option<Shares>,
    budget: Budget,
    /// Reads of pages that slow nodes have too.
    reads_beside_slow: u64,
    look_at: Nanos,
    /// When everything is looked at, and not only what is due.
    look_at_all: Nanos,
}

impl SpreadQueuePair {
    pub(super) fn new(shared: &Arc<Shared>, module: Module, frames: Arc<Mapping>) -> Result<Self, FabricError> {
        let is_cut = shared.protection.needed() > 1;
        let shares = is_cut.then(|| Shares::new(shared.code(), DEPTH, 0)).transpose()?;
        let moved = shares.as_ref().map_or(&frames, Shares::frames);
        let file = shared.backup.as_ref().map(|backup| backup.link(module, Arc::clone(moved))).transpose()?;
        let lanes = Lanes::new(shared.nodes.inbox(Arc::clone(moved)), file, shared.protection.needed());
        Ok(Self {
            shared: Arc::clone(shared),
            frames,
            view: View::new(&shared.areas),
            lanes,
            operations: Operations::new(DEPTH),
            asked_at: vec![[Asked { node: NodeIndex(0), era: 0 }; SLOTS_MAX]; DEPTH].into(),
            begun_at: vec![None; DEPTH].into(),
            again_at: vec![0; DEPTH].into(),
            unsettled: Unsettled::new(UNSETTLED_MAX),
            shares,
            budget: Budget::default(),
            reads_beside_slow: 0,
            look_at: 0,
            look_at_all: 0,
        })
    }

    fn post(&mut self, operation: Operation, now: Nanos) -> Result<(), PostError> {
        let at = self.operations.next()?;
        match self.begin(at, &operation, now) {
            Step::On(course) => self.operations.begin(at, Operation { course, ..operation }),
            Step::Ended(status) => self.operations.end(operation.id, status),
        }
        Ok(())
    }

    fn begin(&mut self, at: u16, operation: &Operation, now: Nanos) -> Step {
        match operation.kind {
            Kind::Read => self.begin_read(at, operation, now),
            Kind::Write => self.begin_write(at, operation, now),
        }
    }

    fn begin_read(&mut self, at: u16, operation: &Operation, now: Nanos) -> Step {
        let AreaPage { area, page } = &operation.at;
        match area.table.group.look_to_read(*page) {
            Look::Zeros => {
                operation.vector.clear(&self.frames, operation.frame.offset());
                Step::Ended(Status::Done)
            }
            // Who fetches a page has seen the end of its write: a guide looks at pages that may change meanwhile.
            Look::Writing => Step::Ended(Status::Failed),
            Look::Nowhere => Step::Ended(Status::Disconnected),
            Look::At(ticket) => {
                let mut nodes = self.lanes.answering(&area.table, ticket.slots(), |slot| ticket.place(slot));
                if nodes.quick != nodes.up {
                    self.reads_beside_slow += 1;
                    if self.reads_beside_slow.is_multiple_of(READS_PER_SAMPLE) {
                        nodes = nodes.slow_first();
                    }
                }
                let (read, first) = Read::begin(ticket, &area.table.group, nodes, now, self.lanes.hedge_after());
                self.budget.earn();
                self.ask(at, operation, read, first, now)
            }
        }
    }

    /// Posts a read at the places of some slots.
    fn ask(&mut self, at: u16, operation: &Operation, mut read: Read, slots: SlotSet, now: Nanos) -> Step {
        let entry = &operation.at.area.table;
        for slot in slots.iter() {
            let posted = entry.ask(read.place(slot)).map(|(address, asked)| {
                let (frame, vector) = self.moved(at, operation, slot);
                let from = entry.page_at(address, operation.at.page);
                self.asked_at[usize::from(at)][slot.index()] = asked;
                let posted = Posted::Read(PageRead { from, into: ReadInto::Frame(frame), vector });
                self.lanes.post(address.node, below(self.operations.id_below(at), slot), posted, now)
            });
            match posted {
                Some(Some(Ok(()))) => continue,
                // There is no lane to it.
                Some(None) => self.shared.doubt(entry, slot.into()),
                Some(Some(Err(PostError::Full))) | None => {}
            }
            read.was_not_asked(slot);
        }
        if read.waiting().is_empty() { Step::On(Course::Waiting(now + AGAIN)) } else { Step::On(Course::Read(read)) }
    }

    /// The bytes here that an operation moves to or from a slot's place.
    fn moved(&self, at: u16, operation: &Operation, slot: Slot) -> (FrameIndex, Vector) {
        match &self.shares {
            None => (operation.frame, operation.vector),
            Some(shares) => (shares.frame(at.into(), slot), shares.vector()),
        }
    }

    /// Does what a step of a read says.
    fn go_on_reading(&mut self, at: u16, operation: &Operation, read: Read, step: ReadStep, now: Nanos) -> Step {
        self.note_late(at, &read, step.cancel, now);
        self.withdraw(at, step.cancel);
        match step.then {
            ReadNext::Wait => Step::On(Course::Read(read)),
            ReadNext::Ask(slots) => self.ask(at, operation, read, slots, now),
            ReadNext::Done => {
                if let Some(shares) = &mut self.shares {
                    let Operation { vector, frame, .. } = operation;
                    shares.join(at.into(), read.got(), *vector, &self.frames, frame.offset());
                }
                Step::Ended(Status::Done)
            }
            ReadNext::Again => {
                self.shared.count(Event::ReadAgain);
                self.operations.rename(at);
                self.begin_read(at, operation, now)
            }
            ReadNext::Failed => Step::On(Course::Waiting(now + AGAIN)),
        }
    }

    /// An answer that is not waited for any more was waited for all the same.
    fn note_late(&mut self, at: u16, read: &Read, slots: SlotSet, now: Nanos) {
        for slot in slots.iter() {
            if let Some(span) = read.waited(slot, now) {
                self.lanes.was_not_heard(self.asked_at[usize::from(at)][slot.index()].node, span, now);
            }
        }
    }

    /// Withdraws what was posted for the operation at `at` to these slots.
    fn withdraw(&mut self, at: u16, asked: SlotSet) {
        for slot in asked.iter() {
            let id = below(self.operations.id_below(at), slot);
            self.lanes.cancel(self.asked_at[usize::from(at)][slot.index()].node, id);
        }
    }

    /// Handles the end of what was posted to a slot for the operation at `at`.
    fn arrive(&mut self, at: u16, slot: Slot, end: End, now: Nanos) {
        let operation = self.operations.at(at).clone();
        let entry = &operation.at.area.table;
        let has_moved = matches!(end, End::Refused(code) if may_have_moved(code));
        if has_moved || end == End::Unknown {
            self.shared.doubt(entry, slot.into());
        }
        if end == End::Done {
            entry.has_answered(slot, self.asked_at[usize::from(at)][slot.index()]);
        }
        let step = match operation.course {
            Course::Read(mut read) => {
                if end != End::Done && entry.group.read_counts(&read.ticket(), slot) {
                    self.shared.file_refused(slot);
                }
                let step = if end == End::Done {
                    let node = self.asked_at[usize::from(at)][slot.index()].node;
                    read.waited(slot, now).into_iter().for_each(|span| self.lanes.took(node, span));
                    read.answered(&entry.group, slot)
                } else {
                    let nodes = self.lanes.answering(entry, read.ticket().slots(), |slot| read.place(slot));
                    read.failed(slot, nodes, now)
                };
                let goes_on = self.go_on_reading(at, &operation, read, step, now);
                match (step.then, end) {
                    // As with one node, whoever has posted it decides how often it is tried.
                    (ReadNext::Failed, End::Unknown) => Step::Ended(Status::Disconnected),
                    (ReadNext::Failed, End::Refused(_)) if !has_moved => Step::Ended(Status::Failed),
                    _ => goes_on,
                }
            }
            // Where it is by then: the keeper has to ask. Or here, if the region came when this was on its way.
            Course::Write(write, again) if has_moved => {
                self.begun_at[usize::from(at)] = None;
                self.again_at[usize::from(at)] = now + AGAIN;
                Step::On(Course::Write(write, again | slot.into()))
            }
            Course::Write(mut write, again) => {
                if end != End::Done {
                    self.shared.file_refused(slot);
                }
                let step = match end {
                    End::Done => {
                        self.wrote(at, slot.into(), now);
                        write.acknowledged(slot)
                    }
                    End::Refused(_) => write.failed(slot, Landing::Never),
                    End::Unknown => write.failed(slot, Landing::Possible),
                };
                self.go_on_writing(at, &operation, (write, again), step, now)
            }
            Course::Waiting(_) | Course::Leaving => unreachable!("nothing is posted for what waits"),
        };
        self.go_on(at, step);
    }

    fn go_on(&mut self, at: u16, step: Step) {
        match step {
            Step::On(course) => {
                if matches!(course, Course::Waiting(_)) {
                    self.operations.rename(at);
                }
                self.operations.at(at).course = course;
            }
            Step::Ended(status) => {
                let id = self.operations.take(at).id;
                self.operations.end(id, status);
            }
        }
    }

    /// Nodes that are waited for and do not answer may have gone.
    fn doubt_silent(&self, entry: &Entry, waiting: SlotSet, place: impl Fn(Slot) -> Place) {
        self.shared.doubt(entry, self.shared.of_nodes(waiting - self.lanes.up(entry, waiting, place)));
    }

    /// Looks at what has no answer.
    fn look(&mut self, now: Nanos) {
        let all = now >= self.look_at_all;
        if all {
            self.look_at_all = now + LOOK_AT_ALL_INTERVAL;
            self.lanes.reckon();
        }
        for at in 0..DEPTH.narrow_u16() {
            let Some(operation) = self.operations.get(at) else { continue };
            let is_due = match &operation.course {
                Course::Waiting(until) => now >= *until,
                Course::Read(read) => all || now >= read.next_look(),
                Course::Write(_, again) => all || !again.is_empty() && now >= self.again_at[usize::from(at)],
                Course::Leaving => true,
            };
            if !is_due {
                continue;
            }
            let operation = operation.clone();
            let entry = &operation.at.area.table;
            let step = match operation.course {
                Course::Waiting(_) => self.begin(at, &operation, now),
                Course::Leaving => self.leave_to_file(&operation, now),
                Course::Read(mut read) => {
                    let nodes = self.lanes.answering(entry, read.ticket().slots(), |slot| read.place(slot));
                    self.doubt_silent(entry, read.waiting(), |slot| read.place(slot));
                    let waits = Waits::ToRead(read.waiting());
                    let step = if self.lanes.wants_file(&operation.at, waits, |slot| read.place(slot)) {
                        ReadStep { cancel: read.give_up(), then: ReadNext::Again }
                    } else {
                        read.look(&entry.group, nodes, now, &mut self.budget)
                    };
                    let goes_on = self.go_on_reading(at, &operation, read, step, now);
                    if let (ReadNext::Ask(slots), Step::On(Course::Read(read))) = (step.then, &goes_on)
                        && !(read.waiting() & slots).is_empty()
                    {
                        self.shared.count(Event::Hedged);
                    }
                    goes_on
                }
                Course::Write(mut write, again) => {
                    let up = self.lanes.up(entry, write.waiting(), |slot| write.place(slot));
                    self.doubt_silent(entry, write.waiting(), |slot| write.place(slot));
                    let waits = Waits::ToWrite(write.waiting());
                    let is_held_up = self.is_held_up(entry, &write);
                    if is_held_up {
                        self.wrote(at, write.waiting() - again, now);
                    }
                    let is_anew = is_held_up || self.lanes.wants_file(&operation.at, waits, |slot| write.place(slot));
                    let step = if is_anew { write.abandon() } else { write.look(&entry.group, up) };
                    if !is_held_up {
                        // What is not waited for any more was waited for all the same.
                        self.wrote(at, step.cancel - again, now);
                    }
                    match self.go_on_writing(at, &operation, (write, again), step, now) {
                        Step::Ended(_) if is_anew => Step::On(Course::Waiting(now)),
                        Step::On(Course::Write(write, again)) if !again.is_empty() => {
                            self.send(at, &operation, write, again, now)
                        }
                        step => step,
                    }
                }
            };
            self.go_on(at, step);
        }
    }
}

impl QueuePair for SpreadQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        let PageRead { from, into: ReadInto::Frame(frame), vector } = read else {
            panic!("this fabric maps nothing: read into a frame")
        };
        if self.outstanding() >= DEPTH {
            return Err(PostError::Full);
        }
        let Some(at) = self.view.find(from) else {
            self.operations.end(id, Status::Failed);
            return Ok(());
        };
        let course = Course::Waiting(now);
        self.post(Operation { id, kind: Kind::Read, at, frame, vector, course }, now)
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        let PageWrite { to, from: frame, vector } = write;
        if self.outstanding() >= DEPTH {
            return Err(PostError::Full);
        }
        let Some(at) = self.view.find(to) else {
            self.operations.end(id, Status::Failed);
            return Ok(());
        };
        let course = Course::Waiting(now);
        self.post(Operation { id, kind: Kind::Write, at, frame, vector, course }, now)
    }

    fn set_posting(&mut self, posting: Posting) {
        self.lanes.set_posting(posting);
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        self.lanes.poll(now);
        while let Some((id, end)) = self.lanes.take_ended(now) {
            let (id, slot) = name_and_slot(id);
            let at = self.operations.place_of(id);
            self.arrive(at, slot, end, now);
        }
        if now >= self.look_at && (self.outstanding() > 0 || !self.unsettled.is_empty()) {
            self.look_at = now + LOOK_INTERVAL;
            self.look(now);
            self.unsettled.settle(&self.lanes, self.shared.pid());
        }
        self.operations.hand_out(completions);
    }

    fn cancel(&mut self, id: WorkId) {
        let Some(at) = self.operations.position(|operation| operation.id == id) else {
            return self.operations.forget_ended(id);
        };
        let operation = self.operations.at(at).clone();
        let entry = &operation.at.area.table;
        match operation.course {
            Course::Waiting(_) | Course::Leaving => {}
            Course::Read(mut read) => {
                // It may have waited for long: perhaps the node has gone.
                let asked = read.give_up();
                self.note_late(at, &read, asked, yonder_clock::now());
                self.shared.doubt(entry, asked);
                self.withdraw(at, asked);
            }
            Course::Write(mut write, again) => {
                self.shared.doubt(entry, write.waiting());
                let step = write.abandon();
                // It is told nothing more, however it ends.
                let _ = self.go_on_writing(at, &operation, (write, again), step, yonder_clock::now());
            }
        }
        self.operations.take(at);
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        self.unsettled.is_at(start, bytes)
    }

    fn next_poll(&self) -> Nanos {
        let look = if self.outstanding() > 0 || !self.unsettled.is_empty() { self.look_at } else { Nanos::MAX };
        self.lanes.next_poll().min(look)
    }

    fn outstanding(&self) -> usize {
        self.operations.outstanding()
    }

    fn depth(&self) -> usize {
        DEPTH
    }
}

impl Drop for SpreadQueuePair {
    /// What is under way is given up. Where a write of it may still land nothing else is written meanwhile: the mender
    /// goes on asking the lanes about that.
    fn drop(&mut self) {
        let ids: Vec<WorkId> = self.operations.iter().map(|operation| operation.id).collect();
        for id in ids {
            self.cancel(id);
        }
        if !self.unsettled.is_empty() {
            let lanes = std::mem::replace(&mut self.lanes, Lanes::none(Arc::clone(&self.frames)));
            let unsettled = std::mem::replace(&mut self.unsettled, Unsettled::new(0));
            self.shared.leave(Orphan { lanes, unsettled });
        }
    }
}
