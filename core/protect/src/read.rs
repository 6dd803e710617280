//! [`Read`]: one read under way: which place is asked, when another is asked too, and which answer is taken.
//!
//! A small copy that the caller keeps for each read. Each of its events says what to do ([`ReadStep`]): first cancel,
//! then the rest. The place that is asked first is another for each page, so that reads spread; a second is asked when
//! the first is late (a *hedge*, which the budget allows or not), is suspect, was given up, or has failed. Both answers
//! may land in one frame, because they are the same bytes as long as both count.
//!
//! Invariants: no slot is asked twice for one ticket; an answer that does not count ends what was asked with its
//! ticket, because it may have landed over one that does; at most one hedge for each ticket.

use yonder_units::Nanos;

use crate::group::Group;
use crate::hedge::Budget;
use crate::page::ReadTicket;
use crate::rules::{Rule, Rules};
use crate::slots::{Place, Slot, SlotSet};

/// One read under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    ticket: ReadTicket,
    /// The slots whose answers are waited for.
    waiting: SlotSet,
    /// The slots that are not asked (again).
    tried: SlotSet,
    first: Slot,
    first_asked: Nanos,
    last: Slot,
    last_asked: Nanos,
    hedge_after: Nanos,
    is_hedged: bool,
}

/// What to do about a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct ReadStep {
    /// Cancel what was asked of these slots, before anything else: from then on it does not touch the frame.
    pub cancel: SlotSet,
    /// What comes then.
    pub then: ReadNext,
}

/// What comes next for a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadNext {
    /// Nothing, until the next event or [`Read::next_look`].
    Wait,
    /// Ask this slot's place too. If that cannot be posted, say so ([`Read::was_not_asked`]).
    Ask(Slot),
    /// The page is in the frame. The read is over.
    Done,
    /// Nothing that has arrived counts. The read is over: look at the page again.
    Again,
    /// Every place that could be asked has failed. The read is over.
    Failed,
}

impl Read {
    /// A read of a page that was looked at, and the slot to ask for it. `up` are the slots whose nodes are not suspect;
    /// a hedge is sent after `hedge_after`.
    #[must_use]
    pub fn begin(ticket: ReadTicket, up: SlotSet, now: Nanos, hedge_after: Nanos) -> (Self, Slot) {
        let first = pick(&ticket, ticket.slots(), up).expect("a page that can be read has a place");
        let (waiting, tried) = (first.into(), first.into());
        let (first_asked, last_asked, last) = (now, now, first);
        let is_hedged = false;
        (Self { ticket, waiting, tried, first, first_asked, last, last_asked, hedge_after, is_hedged }, first)
    }

    /// The look that it is for.
    #[must_use]
    pub const fn ticket(&self) -> ReadTicket {
        self.ticket
    }

    /// The place in a slot that is asked.
    #[must_use]
    pub fn place(&self, slot: Slot) -> Place {
        self.ticket.place(slot)
    }

    /// The slots whose answers are waited for.
    #[must_use]
    pub const fn waiting(&self) -> SlotSet {
        self.waiting
    }

    /// For how long an answer of a slot has been waited for, if it is one of the last two that were asked: what the
    /// estimate of answers' times is told.
    #[must_use]
    pub fn waited(&self, slot: Slot, now: Nanos) -> Option<Nanos> {
        let asked = match slot {
            slot if slot == self.last => self.last_asked,
            slot if slot == self.first => self.first_asked,
            _ => return None,
        };
        Some(now.saturating_sub(asked))
    }

    /// When [`Read::look`] may have something to do, if nothing is heard of nodes.
    #[must_use]
    pub fn next_look(&self) -> Nanos {
        let may_hedge = !self.is_hedged && !(self.ticket.slots() - self.tried).is_empty();
        if may_hedge { self.first_asked.saturating_add(self.hedge_after) } else { Nanos::MAX }
    }

    /// A slot's place has answered.
    pub fn answered<R: Rules>(&mut self, group: &Group<R>, slot: Slot) -> ReadStep {
        if !self.waiting.contains(slot) {
            return self.wait();
        }
        let is_taken_unseen = group.rules.breaks(Rule::HedgeIsLookedAt) && slot != self.first;
        self.waiting -= slot.into();
        if is_taken_unseen || group.read_counts(&self.ticket, slot) {
            return self.end(ReadNext::Done);
        }
        self.end(ReadNext::Again)
    }

    /// A slot's place has said that it cannot.
    pub fn failed(&mut self, slot: Slot, up: SlotSet, now: Nanos) -> ReadStep {
        self.waiting -= slot.into();
        let next = pick(&self.ticket, self.ticket.slots() - self.tried, up);
        match next {
            Some(next) if self.waiting.is_empty() => self.ask(next, now),
            None if self.waiting.is_empty() => self.end(ReadNext::Failed),
            _ => self.wait(),
        }
    }

    /// Looks whether places were given up or nodes are suspect, and whether the time for a hedge has come.
    pub fn look<R: Rules>(&mut self, group: &Group<R>, up: SlotSet, now: Nanos, budget: &mut Budget) -> ReadStep {
        let view = group.view();
        let is_gone = |slot: &Slot| !view.has(self.place(*slot)) && !group.rules.breaks(Rule::GivenUpIsNotAsked);
        let gone: SlotSet = self.ticket.slots().iter().filter(is_gone).collect();
        let cancel = self.waiting & gone;
        self.waiting -= gone;
        self.tried |= gone;
        let rest = self.ticket.slots() - self.tried;
        let next = match pick(&self.ticket, rest, up) {
            None if self.waiting.is_empty() => return ReadStep { cancel, then: ReadNext::Again },
            // No node that answers is waited for. One that is suspect is no better than those that are waited for.
            Some(next) if (self.waiting & up).is_empty() && (up.contains(next) || self.waiting.is_empty()) => next,
            Some(next) if up.contains(next) && self.is_due(now) && budget.take() => {
                self.is_hedged = true;
                next
            }
            _ => return ReadStep { cancel, then: ReadNext::Wait },
        };
        ReadStep { cancel, ..self.ask(next, now) }
    }

    /// What a step wanted to be asked could not be posted.
    pub fn was_not_asked(&mut self, slot: Slot) {
        self.waiting -= slot.into();
        self.tried -= slot.into();
    }

    /// The read is given up: what is to be cancelled.
    #[must_use]
    pub fn give_up(&mut self) -> SlotSet {
        std::mem::take(&mut self.waiting)
    }

    fn is_due(&self, now: Nanos) -> bool {
        !self.is_hedged && now >= self.first_asked.saturating_add(self.hedge_after)
    }

    fn ask(&mut self, slot: Slot, now: Nanos) -> ReadStep {
        assert!(!self.tried.contains(slot), "a slot is asked twice");
        self.tried |= slot.into();
        self.waiting |= slot.into();
        (self.last, self.last_asked) = (slot, now);
        ReadStep { cancel: SlotSet::NONE, then: ReadNext::Ask(slot) }
    }

    fn wait(&self) -> ReadStep {
        ReadStep { cancel: SlotSet::NONE, then: ReadNext::Wait }
    }

    fn end(&mut self, then: ReadNext) -> ReadStep {
        ReadStep { cancel: std::mem::take(&mut self.waiting), then }
    }
}

/// The slot of some that a page is asked for at: one whose node is not suspect, if there is one.
fn pick(ticket: &ReadTicket, slots: SlotSet, up: SlotSet) -> Option<Slot> {
    let turn = ticket.page() as u64;
    (slots & up).pick(turn).or_else(|| slots.pick(turn))
}

#[cfg(all(test, not(yonder_loom)))]
mod tests;
