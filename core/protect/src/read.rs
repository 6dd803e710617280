//! [`Read`]: one read under way: which places are asked, when another is asked too, and which answers are taken.
//!
//! A small copy that the caller keeps for each read. Each of its events says what to do ([`ReadStep`]): first cancel,
//! then the rest. As many places are asked as are needed: one, or of a page in shares as many as it has parts, those
//! with the parts first, for nothing is summed then. Of copies it is another one for each page, so that reads spread.
//! Slow nodes are asked where others do not suffice, and suspect ones where those do not. One more is asked when an
//! answer is late (a *hedge*, which the budget allows or not; late binding in Hydra, FAST'22), when one is very late,
//! and whenever one of those asked is suspect, was given up, or has failed. The first answers that are enough end the
//! read. Two copies may land in one frame, because they are the same bytes as long as both count; shares have a buffer
//! each.
//!
//! Invariants: no slot is asked twice for one ticket; an answer that does not count ends what was asked with its
//! ticket, because it may have landed over one that does; at most one hedge for each ticket; what was read is of one
//! version.

use yonder_units::Nanos;

use crate::group::Group;
use crate::hedge::{Budget, PATIENCE};
use crate::pace::Answering;
use crate::page::ReadTicket;
use crate::rules::{Rule, Rules};
use crate::slots::{Place, Slot, SlotSet};

/// One read under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    ticket: ReadTicket,
    /// Answers that are enough.
    needed: u8,
    /// The slots whose answers are waited for.
    waiting: SlotSet,
    /// The slots whose answers have come, and count.
    got: SlotSet,
    /// The slots that are not asked (again).
    tried: SlotSet,
    first: SlotSet,
    first_asked: Nanos,
    last: SlotSet,
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
    /// Ask the places of these slots too. If one cannot be posted to, say so ([`Read::was_not_asked`]).
    Ask(SlotSet),
    /// What was needed is there ([`Read::got`]). The read is over.
    Done,
    /// Nothing that has arrived counts. The read is over: look at the page again.
    Again,
    /// Every place that could be asked has failed. The read is over.
    Failed,
}

impl Read {
    /// A read of a page of a group that was looked at, and the slots to ask for it. Slots whose nodes keep up are asked
    /// rather than others that answer, and these rather than the rest; a hedge is sent after `hedge_after`.
    #[must_use]
    pub fn begin<R: Rules>(
        ticket: ReadTicket,
        group: &Group<R>,
        nodes: impl Into<Answering>,
        now: Nanos,
        hedge_after: Nanos,
    ) -> (Self, SlotSet) {
        let needed = group.protection().needed();
        let first = choose(&ticket, ticket.slots(), nodes.into(), needed);
        assert!(first.count() == needed, "a page that can be read is at enough places");
        let read = Self {
            ticket,
            needed,
            waiting: first,
            got: SlotSet::NONE,
            tried: first,
            first,
            first_asked: now,
            last: first,
            last_asked: now,
            hedge_after,
            is_hedged: false,
        };
        (read, first)
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

    /// The slots whose answers have come and count: as many as are needed when it is done.
    #[must_use]
    pub const fn got(&self) -> SlotSet {
        self.got
    }

    /// For how long an answer of a slot has been waited for, if it was asked first or last: what the
    /// estimate of answers' times is told.
    #[must_use]
    pub fn waited(&self, slot: Slot, now: Nanos) -> Option<Nanos> {
        let asked = match slot {
            slot if self.last.contains(slot) => self.last_asked,
            slot if self.first.contains(slot) => self.first_asked,
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
        let is_taken_unseen = group.rules.breaks(Rule::HedgeIsLookedAt) && !self.first.contains(slot);
        self.waiting -= slot.into();
        if !is_taken_unseen && !group.read_counts(&self.ticket, slot) {
            return self.end(ReadNext::Again);
        }
        self.got |= slot.into();
        let is_enough = self.got.count() >= self.needed || group.rules.breaks(Rule::ReadNeedsEnough);
        if is_enough { self.end(ReadNext::Done) } else { self.wait() }
    }

    /// A slot's place has said that it cannot.
    pub fn failed(&mut self, slot: Slot, nodes: impl Into<Answering>, now: Nanos) -> ReadStep {
        self.waiting -= slot.into();
        let missing = self.missing(self.waiting);
        let next = choose(&self.ticket, self.ticket.slots() - self.tried, nodes.into(), missing);
        if next.count() < missing {
            return self.end(ReadNext::Failed);
        }
        self.ask(next, now)
    }

    /// Looks whether places were given up or nodes are suspect, and whether the time for a hedge has come.
    pub fn look<R: Rules>(
        &mut self,
        group: &Group<R>,
        nodes: impl Into<Answering>,
        now: Nanos,
        budget: &mut Budget,
    ) -> ReadStep {
        let nodes = nodes.into();
        let up = nodes.up;
        let view = group.view();
        let is_gone = |slot: &Slot| !view.has(self.place(*slot)) && !group.rules.breaks(Rule::GivenUpIsNotAsked);
        let gone: SlotSet = self.ticket.slots().iter().filter(is_gone).collect();
        let cancel = self.waiting & gone;
        self.waiting -= gone;
        self.tried |= gone;
        let rest = self.ticket.slots() - self.tried;
        // One that is suspect is not waited for where one answers, and asked where nothing else is left.
        let mut next = choose(&self.ticket, rest & up, nodes, self.missing(self.waiting & up));
        next |= choose(&self.ticket, rest - next, nodes, self.missing(self.waiting | next));
        if self.missing(self.waiting | next) > 0 {
            let end = self.end(ReadNext::Again);
            return ReadStep { cancel: cancel | end.cancel, ..end };
        }
        if next.is_empty() && !(rest & up).is_empty() && self.is_due(now) && (self.is_overdue(now) || budget.take()) {
            self.is_hedged = true;
            next = choose(&self.ticket, rest & up, nodes, 1);
        }
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

    fn is_overdue(&self, now: Nanos) -> bool {
        now >= self.first_asked.saturating_add(PATIENCE.max(self.hedge_after))
    }

    /// How many answers are missing if those of some slots come.
    fn missing(&self, coming: SlotSet) -> u8 {
        self.needed.saturating_sub(self.got.count() + coming.count())
    }

    fn ask(&mut self, slots: SlotSet, now: Nanos) -> ReadStep {
        assert!((slots & self.tried).is_empty(), "a slot is asked twice");
        if slots.is_empty() {
            return self.wait();
        }
        self.tried |= slots;
        self.waiting |= slots;
        (self.last, self.last_asked) = (slots, now);
        ReadStep { cancel: SlotSet::NONE, then: ReadNext::Ask(slots) }
    }

    fn wait(&self) -> ReadStep {
        ReadStep { cancel: SlotSet::NONE, then: ReadNext::Wait }
    }

    fn end(&mut self, then: ReadNext) -> ReadStep {
        ReadStep { cancel: std::mem::take(&mut self.waiting), then }
    }
}

/// So many of some slots that a page is asked for at, if there are as many: first those whose nodes keep up, then those
/// that answer.
fn choose(ticket: &ReadTicket, slots: SlotSet, nodes: Answering, count: u8) -> SlotSet {
    let Answering { up, quick } = nodes;
    let ranks = [slots & up & quick, (slots & up) - quick, slots - up];
    match count {
        1 => ranks.iter().find_map(|rank| rank.pick(ticket.page() as u64)).into_iter().collect(),
        count => ranks.iter().flat_map(|rank| rank.iter()).take(count.into()).collect(),
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests;
