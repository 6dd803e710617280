//! The writes of a [`SpreadQueuePair`].

use yonder_protect::{Extent, SLOTS_MAX, SlotSet, Write, WriteEnd, WriteNext, WriteRefusal, WriteStep};
use yonder_units::Nanos;

use super::super::backup::Left;
use super::super::course::{Course, Operation, Step};
use super::super::group::Entry;
use super::super::lanes::below;
use super::{AGAIN, SpreadQueuePair, UNSETTLED_MAX};
use crate::areas::AreaPage;
use crate::vector::Operation as Posted;
use crate::{PageWrite, PostError, Status};

impl SpreadQueuePair {
    pub(super) fn begin_write(&mut self, at: u16, operation: &Operation, now: Nanos) -> Step {
        let AreaPage { area, page } = &operation.at;
        let room = UNSETTLED_MAX - self.unsettled.len();
        if (self.operations.outstanding() + 1) * SLOTS_MAX > room {
            return Step::On(Course::Waiting(now + AGAIN));
        }
        match area.table.group.begin_write(*page, Extent::All) {
            Ok(ticket) => {
                let up = self.lanes.up_to_write(&area.table, ticket.targets(), |slot| ticket.place(slot));
                self.begun_at[usize::from(at)] = Some(now);
                self.again_at[usize::from(at)] = now;
                let write = Write::begin(ticket, &area.table.group, up);
                if let Some(shares) = &mut self.shares {
                    shares.cut(at.into(), write.waiting(), &self.frames, operation.frame.offset());
                }
                self.send(at, operation, write, write.waiting(), now)
            }
            Err(WriteRefusal::NoPlace) => Step::On(Course::Waiting(now + AGAIN)),
            Err(WriteRefusal::Writing | WriteRefusal::NeedsAll) => Step::Ended(Status::Failed),
        }
    }

    /// Posts a write at the places of these slots; those where that cannot be done now are left to be posted again.
    pub(super) fn send(&mut self, at: u16, operation: &Operation, write: Write, slots: SlotSet, now: Nanos) -> Step {
        let entry = &operation.at.area.table;
        let mut again = slots & write.waiting();
        for slot in again.iter() {
            let Some((address, asked)) = entry.ask(write.place(slot)) else { continue };
            let (from, vector) = self.moved(at, operation, slot);
            let posted = PageWrite { to: entry.page_at(address, operation.at.page), from, vector };
            let id = below(self.operations.id_below(at), slot);
            match self.lanes.post(address.node, id, Posted::Write(posted), now) {
                Some(Ok(())) => {
                    self.asked_at[usize::from(at)][slot.index()] = asked;
                    again -= slot.into();
                }
                Some(Err(PostError::Full)) => {}
                None => self.shared.doubt(entry, slot.into()),
            }
        }
        Step::On(Course::Write(write, again))
    }

    /// Whether a write would end sooner if it began anew.
    pub(super) fn is_held_up(&self, entry: &Entry, write: &Write) -> bool {
        let group = &entry.group;
        if !group.is_evacuating() {
            return false;
        }
        let view = group.view();
        write.is_held_up(group, self.lanes.up(entry, view.live(), |slot| view.place(slot)))
    }

    /// Notes how long a write has waited for some slots.
    pub(super) fn wrote(&mut self, at: u16, slots: SlotSet, now: Nanos) {
        let at = usize::from(at);
        let Some(begun) = self.begun_at[at] else { return };
        slots.iter().for_each(|slot| self.lanes.wrote(self.asked_at[at][slot.index()].node, begun, now));
    }

    /// Does what a step of a write says.
    pub(super) fn go_on_writing(
        &mut self,
        at: u16,
        operation: &Operation,
        (mut write, again): (Write, SlotSet),
        step: WriteStep,
        now: Nanos,
    ) -> Step {
        // What is to be posted again is not posted, and never lands.
        self.withdraw(at, step.cancel - again);
        (step.cancel & again).iter().for_each(|slot| write.settled(slot));
        match step.then {
            WriteNext::Wait => Step::On(Course::Write(write, again - step.cancel)),
            WriteNext::Over => self.end_write(at, operation, write, now),
        }
    }

    fn end_write(&mut self, at: u16, operation: &Operation, write: Write, now: Nanos) -> Step {
        let (may_land, asked) = (write.unsettled(), &self.asked_at[usize::from(at)]);
        let withdrawn = may_land.iter().map(|slot| (write.place(slot), asked[slot.index()]));
        self.unsettled.add(&operation.at, withdrawn);
        match write.finish(&operation.at.area.table.group) {
            WriteEnd::Acknowledged(_) => self.leave_to_file(operation, now),
            WriteEnd::Unacknowledged if may_land.is_empty() => Step::Ended(Status::Failed),
            WriteEnd::Unacknowledged => Step::Ended(Status::Disconnected),
        }
    }

    /// What nodes have goes to a file too, if there is one.
    pub(super) fn leave_to_file(&mut self, operation: &Operation, now: Nanos) -> Step {
        match self.lanes.leave_to_file(&operation.at, operation.frame, now) {
            Left::Taken => Step::Ended(Status::Done),
            Left::Later => Step::On(Course::Leaving),
            Left::Lost => Step::On(Course::Waiting(now)),
        }
    }
}
