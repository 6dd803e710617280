//! [`SpreadQueuePair`]: a queue of reads and writes to pages that lie on many nodes, each perhaps on several.
//!
//! What `core/protect` decides is done here. A read goes to one place that has the page; it is asked for at another one
//! when the first is late, and the first answer that counts ends it. A write goes to all live places and ends when each
//! has it, was given up, or is silent for so long that the others are enough. A node that says that it has a region no
//! more makes its part wait until the follower has found where the region is.
//!
//! What was given up and may still land is remembered (`unsettled`) until the lane says that it never will: until then
//! nothing else is written there.
//!
//! Invariants: nothing is allocated or freed after the queue pair was made, but for what the lanes that arrive bring.

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_protect::{Extent, Look, Place, ReadTicket, SLOTS_MAX, Slot, SlotSet, WriteEnd, WriteRefusal, WriteTicket};
use yonder_units::{FrameIndex, Nanos, Narrow};
use yonder_wire::ErrorCode;

use super::group::Entry;
use super::lanes::Lanes;
use super::nodes::NodeIndex;
use super::unsettled::Unsettled;
use super::{Event, Shared};
use crate::areas::{AreaPage, View};
use crate::operations::Operations;
use crate::queue::End;
use crate::vector::{MoveBytes as _, Operation as Posted};
use crate::{Completion, PageRead, PageWrite, PostError, QueuePair, ReadInto, RemoteAddress, Status, Vector, WorkId};

/// Operations that a queue pair holds.
const DEPTH: usize = 256;
/// Time after which a part is posted again that waits to hear where its page is.
const AGAIN: Nanos = 2_000_000;
/// How often operations are looked at that have no answer.
const LOOK_INTERVAL: Nanos = 500_000;
/// Time without an answer after which a read is posted at another place too.
const HEDGE_AFTER: Nanos = 5_000_000;
/// Writes that were given up and may still land, at most: more are not begun then.
const UNSETTLED_MAX: usize = 4096;
/// Where the slot is in the name below.
const SLOT_SHIFT: u32 = 56;

/// Where an operation is in its course.
#[derive(Clone, Copy, Debug)]
enum Course {
    /// Nothing is posted: it begins at this time, or when something has changed.
    Waiting(Nanos),
    Read {
        ticket: ReadTicket,
        /// Slots that were asked and have not answered.
        asked: SlotSet,
        /// Slots that have answered in vain.
        tried: SlotSet,
    },
    Write {
        ticket: WriteTicket,
        asked: SlotSet,
        done: SlotSet,
        /// Given up, and it may still land.
        open: SlotSet,
        /// To be posted again, where the place is by then.
        again: SlotSet,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
}

#[derive(Clone)]
struct Operation {
    id: WorkId,
    kind: Kind,
    at: AreaPage<Entry>,
    frame: FrameIndex,
    vector: Vector,
    /// When it was posted, or asked for at a further place.
    posted: Nanos,
    course: Course,
}

/// What comes of a step of an operation.
enum Step {
    /// It goes on so.
    On(Course),
    Ended(Status),
}

/// A queue pair to many nodes.
pub(super) struct SpreadQueuePair {
    shared: Arc<Shared>,
    frames: Arc<Mapping>,
    view: View<Entry>,
    lanes: Lanes,
    operations: Operations<Operation>,
    /// At which node each slot was asked, for each operation.
    asked_at: Box<[[NodeIndex; SLOTS_MAX]]>,
    unsettled: Unsettled,
    look_at: Nanos,
}

impl SpreadQueuePair {
    pub(super) fn new(shared: &Arc<Shared>, frames: Arc<Mapping>) -> Self {
        let lanes = Lanes::new(shared.nodes.inbox(Arc::clone(&frames)));
        Self {
            shared: Arc::clone(shared),
            frames,
            view: View::new(&shared.areas),
            lanes,
            operations: Operations::new(DEPTH),
            asked_at: vec![[NodeIndex(0); SLOTS_MAX]; DEPTH].into(),
            unsettled: Unsettled::new(UNSETTLED_MAX),
            look_at: 0,
        }
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
            Look::At(ticket) => self.read_at(at, operation, ticket, (SlotSet::NONE, SlotSet::NONE), now),
        }
    }

    /// Asks at one more place than `asked` and `tried`.
    fn read_at(
        &mut self,
        at: u16,
        operation: &Operation,
        ticket: ReadTicket,
        (asked, mut tried): (SlotSet, SlotSet),
        now: Nanos,
    ) -> Step {
        let entry = &operation.at.area.table;
        loop {
            let left = ticket.slots() - asked - tried;
            let sound: SlotSet = left.iter().filter(|slot| self.is_sound(entry, ticket.place(*slot), now)).collect();
            let among = if sound.is_empty() { left } else { sound };
            let Some(slot) = among.pick(ticket.page() as u64) else {
                let is_over = asked.is_empty();
                return if is_over {
                    self.read_nowhere(operation, tried, now)
                } else {
                    Step::On(Course::Read { ticket, asked, tried })
                };
            };
            let Some(address) = entry.address(ticket.place(slot)) else {
                tried |= slot.into();
                continue;
            };
            let read = PageRead {
                from: address.page(operation.at.page),
                into: ReadInto::Frame(operation.frame),
                vector: operation.vector,
            };
            match self.lanes.post(address.node, below(self.operations.id_below(at), slot), Posted::Read(read), now) {
                Some(Ok(())) => {
                    self.asked_at[usize::from(at)][slot.index()] = address.node;
                    return Step::On(Course::Read { ticket, asked: asked | slot.into(), tried });
                }
                Some(Err(PostError::Full)) => tried |= slot.into(),
                None => {
                    self.shared.doubt(entry, slot.into());
                    tried |= slot.into();
                }
            }
        }
    }

    /// A read has been everywhere in vain: it begins anew soon, where the pages may be by then.
    fn read_nowhere(&self, operation: &Operation, tried: SlotSet, now: Nanos) -> Step {
        self.shared.doubt(&operation.at.area.table, tried);
        Step::On(Course::Waiting(now + AGAIN))
    }

    fn begin_write(&mut self, at: u16, operation: &Operation, now: Nanos) -> Step {
        let AreaPage { area, page } = &operation.at;
        let writes = self.operations.outstanding();
        if self.unsettled.len() + (writes + 1) * SLOTS_MAX > UNSETTLED_MAX {
            return Step::On(Course::Waiting(now + AGAIN));
        }
        match area.table.group.begin_write(*page, Extent::All) {
            Ok(ticket) => {
                let course = Course::Write {
                    ticket,
                    asked: SlotSet::NONE,
                    done: SlotSet::NONE,
                    open: SlotSet::NONE,
                    again: ticket.targets(),
                };
                self.write_again(at, operation, course, now)
            }
            Err(WriteRefusal::NoPlace) => Step::On(Course::Waiting(now + AGAIN)),
            Err(WriteRefusal::Writing | WriteRefusal::NeedsAll) => Step::Ended(Status::Failed),
        }
    }

    /// Posts a write where it is to be posted again, and looks whether it is over.
    fn write_again(&mut self, at: u16, operation: &Operation, course: Course, now: Nanos) -> Step {
        let Course::Write { ticket, mut asked, done, mut open, mut again } = course else {
            unreachable!("a read writes nothing")
        };
        let entry = &operation.at.area.table;
        let needed = entry.group.protection().needed();
        for slot in again.iter() {
            let place = ticket.place(slot);
            let Some(address) = entry.address(place) else {
                // It was given up: nothing counts there.
                again -= slot.into();
                continue;
            };
            if done.count() >= needed && !self.is_sound(entry, place, now) {
                again -= slot.into();
                continue;
            }
            let write =
                PageWrite { to: address.page(operation.at.page), from: operation.frame, vector: operation.vector };
            match self.lanes.post(address.node, below(self.operations.id_below(at), slot), Posted::Write(write), now) {
                Some(Ok(())) => {
                    self.asked_at[usize::from(at)][slot.index()] = address.node;
                    again -= slot.into();
                    asked |= slot.into();
                }
                Some(Err(PostError::Full)) => {}
                None => {
                    self.shared.doubt(entry, slot.into());
                }
            }
        }
        // A place that was given up or is silent is not waited for, if the others are enough.
        for slot in asked.iter() {
            let place = ticket.place(slot);
            let address = entry.address(place);
            let is_waited_for = match address {
                Some(_) => done.count() < needed || self.is_sound(entry, place, now),
                None => false,
            };
            if !is_waited_for {
                asked -= slot.into();
                open |= slot.into();
                self.withdraw(at, slot.into());
            }
        }
        if !(asked | again).is_empty() {
            return Step::On(Course::Write { ticket, asked, done, open, again });
        }
        self.unsettled.add(&operation.at, open.iter().map(|slot| ticket.place(slot)));
        match entry.group.end_write(&ticket, done, open) {
            WriteEnd::Acknowledged(_) => Step::Ended(Status::Done),
            WriteEnd::Unacknowledged if open.is_empty() => Step::Ended(Status::Failed),
            WriteEnd::Unacknowledged => Step::Ended(Status::Disconnected),
        }
    }

    /// Withdraws what was posted for the operation at `at` to these slots.
    fn withdraw(&mut self, at: u16, asked: SlotSet) {
        for slot in asked.iter() {
            let id = below(self.operations.id_below(at), slot);
            self.lanes.cancel(self.asked_at[usize::from(at)][slot.index()], id);
        }
    }

    /// Handles the end of what was posted to a slot for the operation at `at`.
    fn arrive(&mut self, at: u16, slot: Slot, end: End, now: Nanos) {
        let operation = self.operations.at(at).clone();
        let entry = &operation.at.area.table;
        if matches!(end, End::Unknown) || matches!(end, End::Refused(code) if may_have_moved(code)) {
            self.shared.doubt(entry, slot.into());
        }
        let step = match operation.course {
            Course::Read { ticket, asked, tried } => {
                let asked = asked - slot.into();
                match end {
                    End::Done => {
                        self.withdraw(at, asked);
                        self.operations.rename(at);
                        if entry.group.read_counts(&ticket, slot) {
                            Step::Ended(Status::Done)
                        } else {
                            self.shared.count(Event::ReadAgain);
                            self.begin_read(at, &operation, now)
                        }
                    }
                    End::Refused(code) if !may_have_moved(code) && asked.is_empty() && ticket.slots().count() == 1 => {
                        Step::Ended(Status::Failed)
                    }
                    End::Unknown if asked.is_empty() && (ticket.slots() - tried - slot.into()).is_empty() => {
                        Step::Ended(Status::Disconnected)
                    }
                    End::Refused(_) | End::Unknown => {
                        self.read_at(at, &operation, ticket, (asked, tried | slot.into()), now)
                    }
                }
            }
            Course::Write { ticket, asked, done, open, again } => {
                let (mut done, mut open, mut again) = (done, open, again);
                match end {
                    End::Done => done |= slot.into(),
                    // Soon, where it is by then.
                    End::Refused(code) if may_have_moved(code) => again |= slot.into(),
                    End::Refused(_) => {}
                    End::Unknown => open |= slot.into(),
                }
                let course = Course::Write { ticket, asked: asked - slot.into(), done, open, again };
                // What is posted again waits for a look.
                if again.is_empty() { self.write_again(at, &operation, course, now) } else { Step::On(course) }
            }
            Course::Waiting(_) => unreachable!("nothing is posted for what waits"),
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

    /// Looks at what has no answer.
    fn look(&mut self, now: Nanos) {
        for at in 0..DEPTH.narrow_u16() {
            let Some(operation) = self.operations.get(at) else { continue };
            let step = match operation.course {
                Course::Waiting(until) if now < until => continue,
                Course::Read { ticket, asked, .. } => {
                    let entry = &operation.at.area.table;
                    let gone = |slot: &Slot| entry.address(ticket.place(*slot)).is_none();
                    let is_late = now >= operation.posted.saturating_add(HEDGE_AFTER);
                    if asked.iter().any(|slot| gone(&slot)) || is_late && asked.count() == 1 {
                        operation.clone()
                    } else {
                        continue;
                    }
                }
                _ => operation.clone(),
            };
            let operation = step;
            let step = match operation.course {
                Course::Waiting(_) => self.begin(at, &operation, now),
                Course::Read { ticket, asked, tried } => {
                    let entry = &operation.at.area.table;
                    let gone = asked.iter().filter(|slot| entry.address(ticket.place(*slot)).is_none());
                    let gone: SlotSet = gone.collect();
                    self.withdraw(at, gone);
                    let (asked, tried) = (asked - gone, tried | gone);
                    let step = self.read_at(at, &operation, ticket, (asked, tried), now);
                    if matches!(&step, Step::On(Course::Read { asked: both, .. }) if *both != asked) {
                        self.shared.count(Event::Hedged);
                    }
                    self.operations.at(at).posted = now;
                    step
                }
                Course::Write { .. } => self.write_again(at, &operation, operation.course, now),
            };
            self.go_on(at, step);
        }
    }

    fn is_sound(&self, entry: &Entry, place: Place, now: Nanos) -> bool {
        entry.address(place).is_some_and(|address| self.lanes.is_sound(address.node, now))
    }
}

/// The name below of what is posted to a slot.
fn below(id: WorkId, slot: Slot) -> WorkId {
    WorkId(id.0 | u64::from(slot.number()) << SLOT_SHIFT)
}

/// Whether a refusal may mean that the memory is at another node.
pub(super) fn may_have_moved(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Moved | ErrorCode::BadAddress | ErrorCode::BadCapability)
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
        self.post(Operation { id, kind: Kind::Read, at, frame, vector, posted: now, course }, now)
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
        self.post(Operation { id, kind: Kind::Write, at, frame, vector, posted: now, course }, now)
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        self.lanes.poll(now);
        while let Some((id, end)) = self.lanes.take_ended() {
            let slot = Slot::new((id.0 >> SLOT_SHIFT).narrow_u8());
            let at = self.operations.place_of(WorkId(id.0 & ((1 << SLOT_SHIFT) - 1)));
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
            Course::Waiting(_) => {}
            Course::Read { asked, .. } => {
                self.withdraw(at, asked);
                // It may have waited for long: perhaps the node has gone.
                self.shared.doubt(entry, asked);
            }
            Course::Write { ticket, asked, open, again, .. } => {
                self.withdraw(at, asked);
                self.shared.doubt(entry, asked | again);
                let open = open | asked;
                self.unsettled.add(&operation.at, open.iter().map(|slot| ticket.place(slot)));
                entry.group.give_write_up(&ticket, ticket.targets(), open);
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
