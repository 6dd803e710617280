//! What happens to a page of a [`Group`]: writes, reads, mends, and that it is forgotten.
//!
//! Each begins with a look, whose ticket says what was seen, and ends by showing it: [`WriteTicket`], [`ReadTicket`],
//! [`MendTicket`]. Tickets are small copies. A ticket of a write or a mend is shown once.
//!
//! ```text
//! begin_write -> sent to its targets -> end_write, or give_write_up
//! look_to_read -> asked at one of its places -> read_counts, or look again
//! begin_mend -> read at one place, written to the other -> end_mend
//! ```
//!
//! Invariants: a read that counts has brought what was last acknowledged; no two writes of a page to one place are
//! under way, those that were given up included.

use yonder_units::Narrow as _;

use crate::atomic::{Ordering, fence};
use crate::group::{Change, Group};
use crate::rules::{Rule, Rules};
use crate::slots::{Place, Slot, SlotSet};
use crate::view::View;
use crate::word::Word;

/// What a write has of its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All that will be read of it: the whole page, or those bytes of it that anything will ask for.
    All,
    /// Some bytes: the others stay as they are, and will be read.
    Part,
}

/// Why no write was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WriteRefusal {
    /// Another write of the page is under way.
    #[error("another write of the page is under way")]
    Writing,
    /// No place can be written now: it ends when a place is adopted, or what was given up has settled.
    #[error("no place of the page can be written now")]
    NoPlace,
    /// The rest of the page is not at enough places: only all of it can be written.
    #[error("the rest of the page is not at enough places: only all of it can be written")]
    NeedsAll,
}

/// A write that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteTicket {
    page: u32,
    version: u32,
    view: View,
    targets: SlotSet,
}

/// How a write has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteEnd {
    /// The page is what was written, at these places.
    Acknowledged(SlotSet),
    /// Too few places have it: nothing is read of the page until another write has ended.
    Unacknowledged,
}

/// What a look for a reader has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// The page was never written, or was forgotten: it is zeros.
    Zeros,
    /// A write of it is under way: only a guide asks for such a page.
    Writing,
    /// Too few places have it that may be asked.
    Nowhere,
    /// It can be read.
    At(ReadTicket),
}

/// A look at a page that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadTicket {
    page: u32,
    version: u32,
    view: View,
    slots: SlotSet,
}

/// A mend that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MendTicket {
    source: ReadTicket,
    to: Place,
}

/// How the write of a mend has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MendEnd {
    /// The place has what was read from another, and that read counted.
    Done,
    /// Nothing was written, or it is known that nothing will land any more.
    Failed,
    /// It was given up, and may still land.
    Unsettled,
}

/// The page is being written: it is not forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a write of the page is under way")]
pub struct Writing;

impl WriteTicket {
    /// The page.
    #[must_use]
    pub const fn page(&self) -> usize {
        self.page as usize
    }

    /// The slots that it goes to, all of them.
    #[must_use]
    pub const fn targets(&self) -> SlotSet {
        self.targets
    }

    /// What is in a slot, as the write sees it.
    #[must_use]
    pub fn place(&self, slot: Slot) -> Place {
        self.view.place(slot)
    }
}

impl ReadTicket {
    /// The number of the content that it is for.
    #[cfg(all(test, yonder_loom))]
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// The page.
    #[must_use]
    pub const fn page(&self) -> usize {
        self.page as usize
    }

    /// The slots that it may be read at.
    #[must_use]
    pub const fn slots(&self) -> SlotSet {
        self.slots
    }

    /// What is in a slot, as the read sees it.
    #[must_use]
    pub fn place(&self, slot: Slot) -> Place {
        self.view.place(slot)
    }
}

impl MendTicket {
    /// The page.
    #[must_use]
    pub const fn page(&self) -> usize {
        self.source.page()
    }

    /// The look for the read of it.
    #[must_use]
    pub const fn source(&self) -> ReadTicket {
        self.source
    }

    /// Where it is copied to.
    #[must_use]
    pub const fn to(&self) -> Place {
        self.to
    }
}

impl<R: Rules> Group<R> {
    /// Begins a write of a page. It goes to all targets of the ticket, and ends by [`Group::end_write`] or
    /// [`Group::give_write_up`].
    pub fn begin_write(&self, page: usize, extent: Extent) -> Result<WriteTicket, WriteRefusal> {
        let begun = self.change(page, |word, _| (!word.is_writing()).then(|| word.begin_write()));
        let Change { before, after } = begun.map_err(|_| WriteRefusal::Writing)?;
        // Who gives a place up changes the slots first and sweeps the words then: either sees the other.
        fence(Ordering::SeqCst);
        let view = self.view();
        match self.targets(before, view, extent) {
            Ok(targets) => Ok(WriteTicket { page: page.narrow_u32(), version: after.version(), view, targets }),
            Err(refusal) => {
                self.advance(page, |word, _| word.take_write_back(before));
                Err(refusal)
            }
        }
    }

    /// A write has ended: the slots in `done` have acknowledged it; in those of `unsettled` it was given up and may
    /// still land; in the others it was refused, or never sent.
    ///
    /// # Panics
    /// If the ticket is not of the write that is under way, or a slot is none of its targets.
    pub fn end_write(&self, ticket: &WriteTicket, done: SlotSet, unsettled: SlotSet) -> WriteEnd {
        assert!(
            (done | unsettled).is_within(ticket.targets) && (done & unsettled).is_empty(),
            "slots of another write"
        );
        let needed = if self.rules.breaks(Rule::WriteNeedsEnough) { 1 } else { self.protection.needed() };
        let Change { after, .. } = self.advance(ticket.page(), |word, view| {
            assert!(word.version() == ticket.version, "another write of the page has begun");
            let mut current = self.same_places(done, view.live(), (view, ticket.view));
            let unsettled = self.still_unsettled(unsettled, (view, ticket.view));
            if current.count() < needed {
                return word.give_write_up(ticket.targets, unsettled);
            }
            if self.rules.breaks(Rule::EndedWriteIsCurrentOnly) {
                current |= word.current() - unsettled;
            }
            word.end_write(current, unsettled)
        });
        let current = after.current();
        if (current & done).count() >= needed { WriteEnd::Acknowledged(current) } else { WriteEnd::Unacknowledged }
    }

    /// A write is not done, and is not acknowledged: it was sent to the slots of `sent`, and may still land at those of
    /// `unsettled`. Nothing is read of the page where it was sent to, until another write has ended; one that had no
    /// content goes on reading as zeros.
    ///
    /// # Panics
    /// As [`Group::end_write`].
    pub fn give_write_up(&self, ticket: &WriteTicket, sent: SlotSet, unsettled: SlotSet) {
        assert!(unsettled.is_within(sent) && sent.is_within(ticket.targets), "slots of another write");
        self.advance(ticket.page(), |word, view| {
            assert!(word.version() == ticket.version, "another write of the page has begun");
            word.give_write_up(sent, self.still_unsettled(unsettled, (view, ticket.view)))
        });
    }

    /// Looks where a page can be read. Each read that is posted is shown to [`Group::read_counts`] when it has arrived.
    #[must_use]
    pub fn look_to_read(&self, page: usize) -> Look {
        // The slots first: if the word is of a later place of a slot, the read will not count.
        let view = self.view();
        let word = self.look(page);
        if word.is_writing() {
            return Look::Writing;
        }
        if !word.is_written() {
            return Look::Zeros;
        }
        let readable = if self.rules.breaks(Rule::GivenUpIsNotAsked) { SlotSet::ALL } else { view.readable() };
        let current = if self.rules.breaks(Rule::ReadGoesToCurrent) { view.live() } else { word.current() };
        let slots = current & readable;
        if slots.count() < self.protection.needed() {
            return Look::Nowhere;
        }
        Look::At(ReadTicket { page: page.narrow_u32(), version: word.version(), view, slots })
    }

    /// Whether what a read has brought from a slot's place is what was last acknowledged. If not, the caller looks
    /// again; so does it not take what another read of the same ticket brings into the same frame.
    #[must_use]
    pub fn read_counts(&self, ticket: &ReadTicket, slot: Slot) -> bool {
        // The word first: the slot had the same place at the look and after the word, so the word is of that place.
        fence(Ordering::Acquire);
        let word = self.look(ticket.page());
        let view = self.view();
        // A write changes the version when it begins, and so does forgetting.
        let is_same = word.version() == ticket.version;
        let is_there = word.current().contains(slot) || self.rules.breaks(Rule::ReadGoesToCurrent);
        (is_same || self.rules.breaks(Rule::ReadLooksAtVersion))
            && (is_there && view.has(ticket.place(slot)) || self.rules.breaks(Rule::ReadLooksAtPlace))
    }

    /// The mender begins to copy a page to a slot. `None` if the page does not need it, or not now.
    #[must_use]
    pub fn begin_mend(&self, page: usize, to: Slot) -> Option<MendTicket> {
        let needed = self.protection.needed();
        let begun = self.change(page, |word, view| {
            let unsettled = if self.rules.breaks(Rule::MendAvoidsUnsettled) { SlotSet::NONE } else { word.unsettled() };
            word.begin_mend(to, word.current() | unsettled, needed).filter(|_| view.live().contains(to))
        });
        let Change { after, .. } = begun.ok()?;
        // As for a write. The slots may be later than the word, other than at a look to read: but no slot becomes
        // current while the page is copied to another, unless it is written.
        fence(Ordering::SeqCst);
        let view = self.view();
        let slots = after.current() & view.readable();
        if !view.live().contains(to) || slots.count() < needed {
            self.advance(page, |word, _| word.end_mend(to, SlotSet::NONE, SlotSet::NONE));
            return None;
        }
        let source = ReadTicket { page: page.narrow_u32(), version: after.version(), view, slots };
        Some(MendTicket { source, to: view.place(to) })
    }

    /// A mend has ended. Whether the page is current at its place now.
    ///
    /// # Panics
    /// If the page is not being mended there.
    pub fn end_mend(&self, ticket: &MendTicket, end: MendEnd) -> bool {
        let (source, to) = (&ticket.source, ticket.to.slot);
        let Change { after, .. } = self.advance(ticket.page(), |word, view| {
            let is_same =
                word.version() == source.version || self.rules.breaks(Rule::MendLooksAtVersion) && word.is_written();
            let is_good = end == MendEnd::Done && is_same;
            let done = if is_good { SlotSet::only(to) } else { SlotSet::NONE };
            let current = self.same_places(done, view.live(), (view, source.view));
            let open = if end == MendEnd::Unsettled { SlotSet::only(to) } else { SlotSet::NONE };
            let ended = word.end_mend(to, current, self.still_unsettled(open, (view, source.view)));
            self.leave_evacuated(ended, view)
        });
        end == MendEnd::Done && after.current().contains(to)
    }

    /// Nothing of a write or a mend that was given up can land at a place any more.
    pub fn settle(&self, page: usize, place: Place) {
        self.advance(page, |word, view| {
            // Of a place that was given up a sweep takes the mark.
            let is_its_own = view.has(place) || self.rules.breaks(Rule::SettlesItsOwnPlace);
            if is_its_own { word.settle(place.slot.into()) } else { word }
        });
    }

    /// The page reads as zeros from now on, without asking a node. Its places keep what they have.
    pub fn forget(&self, page: usize) -> Result<(), Writing> {
        let forgotten = self.change(page, |word, _| {
            let unchanged = self.rules.breaks(Rule::ForgettingIsChange) && word.is_written();
            (!word.is_writing()).then(|| match word.is_written() {
                true if unchanged => word.forget_unseen(),
                true => word.forget(),
                false => word,
            })
        });
        forgotten.map(drop).map_err(|_| Writing)
    }

    /// The slots that a write goes to, of a page that was `before`.
    fn targets(&self, before: Word, view: View, extent: Extent) -> Result<SlotSet, WriteRefusal> {
        let mut slots = view.live();
        if !self.rules.breaks(Rule::UnsettledIsLeftOut) {
            slots -= before.unsettled();
        }
        if !self.rules.breaks(Rule::MendedIsLeftOut) {
            slots -= before.mended().map_or(SlotSet::NONE, SlotSet::only);
        }
        let is_enough = |slots: SlotSet| slots.count() >= self.protection.needed();
        if !is_enough(slots) {
            return Err(WriteRefusal::NoPlace);
        }
        let with_rest = match extent {
            Extent::All => slots,
            Extent::Part if before.is_written() => slots & before.current(),
            // All places have zeros.
            Extent::Part if !before.is_touched() => slots,
            Extent::Part => SlotSet::NONE,
        };
        if is_enough(with_rest) { Ok(self.without_evacuated(with_rest)) } else { Err(WriteRefusal::NeedsAll) }
    }

    /// Those of some slots that are among `used` and have the same place at both views.
    fn same_places(&self, slots: SlotSet, used: SlotSet, (now, then): (View, View)) -> SlotSet {
        if self.rules.breaks(Rule::EndedWriteLooksAtPlaces) { slots } else { slots & used & now.same_places(then) }
    }

    /// Those of some slots where what was given up matters: a sweep has not come by.
    fn still_unsettled(&self, slots: SlotSet, (now, then): (View, View)) -> SlotSet {
        let forgets = self.rules.breaks(Rule::UnsettledIsRemembered);
        if forgets { SlotSet::NONE } else { slots & now.readable() & now.same_places(then) }
    }

    /// Changes a word in a way that nothing refuses.
    fn advance(&self, page: usize, step: impl Fn(Word, View) -> Word) -> Change {
        self.change(page, |word, view| Some(step(word, view))).expect("nothing refuses it")
    }
}
