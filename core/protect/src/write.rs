//! [`Write`]: one write under way: which places have acknowledged it, which are waited for, and when it is over.
//!
//! A small copy that the caller keeps for each write. Its events say what to do ([`WriteStep`]): first cancel, then
//! the rest. When a step says that it is over, [`Write::finish`] tells the group.
//!
//! A node that is suspect is not waited for if enough others have the page: it was left out if it was suspect when the
//! write began, and what it was sent is cancelled if it is now. Its place is behind with the page then. Where too few
//! others have it, it is waited for, as it would be if it were the only node. A node that is slow is always waited for,
//! until the write would not go there if it began anew ([`Write::is_held_up`]).

use crate::group::Group;
use crate::page::{WriteEnd, WriteTicket};
use crate::rules::{Rule, Rules};
use crate::slots::{Place, Slot, SlotSet};

/// One write under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    ticket: WriteTicket,
    needed: u8,
    sent: SlotSet,
    waiting: SlotSet,
    done: SlotSet,
    /// Those where it was given up and may still land.
    unsettled: SlotSet,
    is_abandoned: bool,
}

/// What to do about a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct WriteStep {
    /// Cancel what was sent to these slots. When it is known that nothing of it will land, say so: to the write while
    /// it goes on ([`Write::settled`]), and to the group when it has ended ([`Group::settle`]).
    pub cancel: SlotSet,
    /// What comes then.
    pub then: WriteNext,
}

/// What comes next for a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteNext {
    /// Nothing, until the next event.
    Wait,
    /// It is over: [`Write::finish`].
    Over,
}

/// Whether a write that has failed may still land.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landing {
    /// Nothing of it will.
    Never,
    /// It is not known.
    Possible,
}

impl Write {
    /// A write that was begun, and is now sent to [`Write::waiting`]. `up` are the slots whose nodes are not suspect.
    #[must_use]
    pub fn begin<R: Rules>(ticket: WriteTicket, group: &Group<R>, up: SlotSet) -> Self {
        let needed = group.protection().needed();
        let up = ticket.targets() & up;
        let sent = if up.count() >= needed { up } else { ticket.targets() };
        let (done, unsettled) = (SlotSet::NONE, SlotSet::NONE);
        Self { ticket, needed, sent, waiting: sent, done, unsettled, is_abandoned: false }
    }

    /// What it was begun with.
    #[must_use]
    pub const fn ticket(&self) -> WriteTicket {
        self.ticket
    }

    /// The place in a slot that it goes to.
    #[must_use]
    pub fn place(&self, slot: Slot) -> Place {
        self.ticket.place(slot)
    }

    /// The slots that it was sent to and whose answers are waited for.
    #[must_use]
    pub const fn waiting(&self) -> SlotSet {
        self.waiting
    }

    /// A slot's place has it.
    pub fn acknowledged(&mut self, slot: Slot) -> WriteStep {
        if self.waiting.contains(slot) {
            self.waiting -= slot.into();
            self.done |= slot.into();
        }
        self.step(SlotSet::NONE)
    }

    /// A slot's place has not taken it.
    pub fn failed(&mut self, slot: Slot, landing: Landing) -> WriteStep {
        if self.waiting.contains(slot) {
            self.waiting -= slot.into();
            if landing == Landing::Possible {
                self.unsettled |= slot.into();
            }
        }
        self.step(SlotSet::NONE)
    }

    /// It could not be posted to a slot: nothing of it was sent there.
    pub fn was_not_sent(&mut self, slot: Slot) -> WriteStep {
        self.sent -= slot.into();
        self.waiting -= slot.into();
        self.step(SlotSet::NONE)
    }

    /// Looks whether places were given up, or nodes are suspect that need not be waited for.
    pub fn look<R: Rules>(&mut self, group: &Group<R>, up: SlotSet) -> WriteStep {
        let view = group.view();
        let is_gone = |slot: &Slot| !view.live().contains(*slot) || view.place(*slot) != self.place(*slot);
        let mut cancel: SlotSet = self.waiting.iter().filter(is_gone).collect();
        let there = self.done.iter().filter(|slot| !is_gone(slot)).count();
        if there >= usize::from(self.needed) {
            cancel |= self.waiting - up;
        }
        self.give_up_at(cancel);
        self.step(cancel)
    }

    /// Whether it waits only for places that are evacuated, and that it would not go to if it began anew, but to others
    /// that are `up`: the caller abandons it, and does that.
    #[must_use]
    pub fn is_held_up<R: Rules>(&self, group: &Group<R>, up: SlotSet) -> bool {
        group.would_not_write(&self.ticket, self.waiting, up)
    }

    /// The caller does not want it any more, whatever has become of it.
    pub fn abandon(&mut self) -> WriteStep {
        self.is_abandoned = true;
        let cancel = self.waiting;
        self.give_up_at(cancel);
        self.step(cancel)
    }

    /// Nothing of what was cancelled at a slot will land.
    pub fn settled(&mut self, slot: Slot) {
        self.unsettled -= slot.into();
    }

    /// Those slots where it was given up and may still land.
    #[must_use]
    pub const fn unsettled(&self) -> SlotSet {
        self.unsettled
    }

    /// Tells the group how it has ended.
    ///
    /// # Panics
    /// If it is not over.
    pub fn finish<R: Rules>(self, group: &Group<R>) -> WriteEnd {
        assert!(self.waiting.is_empty(), "a write ends while answers are waited for");
        let needed = if group.rules.breaks(Rule::WriteNeedsEnough) { 1 } else { self.needed };
        if self.is_abandoned || self.done.count() < needed {
            group.give_write_up(&self.ticket, self.sent, self.unsettled);
            return WriteEnd::Unacknowledged;
        }
        group.end_write(&self.ticket, self.done, self.unsettled)
    }

    fn give_up_at(&mut self, slots: SlotSet) {
        self.waiting -= slots;
        self.unsettled |= slots;
    }

    fn step(&self, cancel: SlotSet) -> WriteStep {
        WriteStep { cancel, then: if self.waiting.is_empty() { WriteNext::Over } else { WriteNext::Wait } }
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;
    use crate::group::{Cause, Protection};
    use crate::page::{Extent, Look};

    fn set(bits: u8) -> SlotSet {
        SlotSet::from_bits(bits)
    }

    fn slot(number: u8) -> Slot {
        Slot::new(number)
    }

    fn group(protection: Protection) -> Group {
        let group = Group::new(1, protection);
        (0..protection.wanted()).for_each(|number| _ = group.adopt(slot(number), 0));
        group
    }

    fn begin(group: &Group, up: u8) -> Write {
        Write::begin(group.begin_write(0, Extent::All).unwrap(), group, set(up))
    }

    fn step(cancel: u8, then: WriteNext) -> WriteStep {
        WriteStep { cancel: set(cancel), then }
    }

    #[test]
    fn a_write_is_over_when_all_have_it() {
        let group = group(Protection::copies(3));
        let mut write = begin(&group, 0b111);
        assert_eq!(write.waiting(), set(0b111));
        assert_eq!(write.acknowledged(slot(1)), step(0, WriteNext::Wait));
        assert_eq!(write.look(&group, set(0b111)), step(0, WriteNext::Wait));
        assert_eq!(write.acknowledged(slot(0)), step(0, WriteNext::Wait));
        assert_eq!(write.acknowledged(slot(2)), step(0, WriteNext::Over));
        assert_eq!(write.finish(&group), WriteEnd::Acknowledged(set(0b111)));
    }

    #[test]
    fn a_suspect_node_is_not_waited_for_if_another_has_it() {
        let group = group(Protection::copies(2));
        let mut write = begin(&group, 0b11);
        assert_eq!(write.look(&group, set(0b01)), step(0, WriteNext::Wait), "none has it");
        assert_eq!(write.acknowledged(slot(0)), step(0, WriteNext::Wait));
        assert_eq!(write.look(&group, set(0b01)), step(0b10, WriteNext::Over));
        assert_eq!(write.finish(&group), WriteEnd::Acknowledged(set(0b01)));
        assert_eq!(group.look(0).unsettled(), set(0b10));
        let mut write = begin(&group, 0b11);
        assert_eq!(write.waiting(), set(0b01), "it may still land there");
        assert_eq!(write.acknowledged(slot(0)).then, WriteNext::Over);
        write.finish(&group);
    }

    #[test]
    fn a_suspect_node_is_left_out_unless_it_is_needed() {
        let copies = group(Protection::copies(2));
        assert_eq!(begin(&copies, 0b10).waiting(), set(0b10));
        let copies = group(Protection::copies(2));
        let mut write = begin(&copies, 0);
        assert_eq!(write.waiting(), set(0b11));
        assert_eq!(write.look(&copies, set(0)), step(0, WriteNext::Wait));
        let code = group(Protection::code(2, 1));
        assert_eq!(begin(&code, 0b001).waiting(), set(0b111));
    }

    #[test]
    fn a_place_that_was_given_up_is_not_waited_for() {
        let group = group(Protection::copies(2));
        let mut write = begin(&group, 0b11);
        group.give_up(write.place(slot(1)), Cause::Lost);
        assert_eq!(write.look(&group, set(0b11)), step(0b10, WriteNext::Wait));
        write.settled(slot(1));
        assert_eq!((write.unsettled(), write.acknowledged(slot(0))), (SlotSet::NONE, step(0, WriteNext::Over)));
        assert_eq!(write.finish(&group), WriteEnd::Acknowledged(set(0b01)));
    }

    #[test]
    fn an_acknowledgement_of_a_place_that_is_gone_is_not_enough_to_leave_another() {
        let group = group(Protection::copies(2));
        let mut write = begin(&group, 0b11);
        assert_eq!(write.acknowledged(slot(0)).then, WriteNext::Wait);
        group.give_up(write.place(slot(0)), Cause::Lost);
        assert_eq!(write.look(&group, set(0)), step(0, WriteNext::Wait));
        assert_eq!(write.acknowledged(slot(1)), step(0, WriteNext::Over));
        assert_eq!(write.finish(&group), WriteEnd::Acknowledged(set(0b10)));
    }

    #[test]
    fn a_write_that_fails_or_is_abandoned_is_not_acknowledged() {
        let group = group(Protection::copies(2));
        let mut write = begin(&group, 0b11);
        assert_eq!(write.failed(slot(0), Landing::Possible).then, WriteNext::Wait);
        assert_eq!(write.failed(slot(1), Landing::Never).then, WriteNext::Over);
        assert_eq!(write.finish(&group), WriteEnd::Unacknowledged);
        assert_eq!((group.look_to_read(0), group.look(0).unsettled()), (Look::Zeros, set(0b01)));
        let mut write = begin(&group, 0b11);
        assert_eq!(write.waiting(), set(0b10));
        assert_eq!(write.abandon(), step(0b10, WriteNext::Over));
        assert_eq!(write.finish(&group), WriteEnd::Unacknowledged);
        assert_eq!(group.look(0).unsettled(), set(0b11));
    }

    #[test]
    fn a_write_that_is_abandoned_is_not_acknowledged_though_a_place_has_it() {
        let group = group(Protection::copies(2));
        let mut write = begin(&group, 0b11);
        assert_eq!(write.acknowledged(slot(0)).then, WriteNext::Wait);
        assert_eq!(write.abandon(), step(0b10, WriteNext::Over));
        assert_eq!((write.finish(&group), group.look(0).current()), (WriteEnd::Unacknowledged, SlotSet::NONE));
    }

    #[test]
    fn what_was_not_sent_is_neither_done_nor_open() {
        let group = group(Protection::copies(2));
        let mut write = begin(&group, 0b11);
        assert_eq!(write.was_not_sent(slot(1)).then, WriteNext::Wait);
        assert_eq!(write.acknowledged(slot(0)).then, WriteNext::Over);
        assert_eq!(write.finish(&group), WriteEnd::Acknowledged(set(0b01)));
        assert_eq!(group.look(0).unsettled(), SlotSet::NONE);
    }
}
