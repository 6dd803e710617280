//! [`Group`]: the pages of a part of an allocation, and the places that have their content.
//!
//! A place is put into a slot ([`Group::adopt`]), is used until it is given up ([`Group::give_up`]), and then the words
//! of all pages are swept of it ([`Group::sweep`]), in steps, by one thread at a time. Only then is the slot free for
//! the next place. `page` has what happens to a page, `sweep` the sweeps.
//!
//! Who touches what: queue pairs and the mender change words, all of them by compare-and-swap; any of them gives a
//! place up; a supervisor adopts and sweeps. A change of a word looks at the slots after the word, and is repeated if
//! the word has changed since. A sweep changes each word that names the place or is being written or mended. So what
//! ends later than the sweep came by has seen that the place was given up.
//!
//! Invariants: a slot never gets a place before all words are swept of the last; the address of a place is there
//! before its slot is live; a silent place that alone has a page is not given up, but retires; no page is at fewer
//! places because one is evacuated.

use std::cell::Cell;

use crate::atomic::{self, AtomicU8, AtomicU64, Ordering, fence};
use crate::counts::Counts;
use crate::rules::{Kept, Rule, Rules};
use crate::slots::{Place, SLOTS_MAX, Slot, SlotSet};
use crate::view::{Use, View};
use crate::word::Word;

/// How often each page's content is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protection {
    needed: u8,
    wanted: u8,
}

/// Why a place is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Its content is lost, or its node refuses: its node started anew, revoked the right, or the controller says so.
    Lost,
    /// Its node was silent for too long, and may come back.
    Silent,
}

/// What became of a place that was to be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// It is not asked again. The slot is free after a sweep.
    Leaving,
    /// It alone has pages, as far as known now: they are read there still, and nothing is written. Sweeps go on.
    Retiring,
    /// It was given up before.
    Already,
    /// It is silent, and without it too few places could be written: it stays what it was.
    Kept,
}

/// The pages of a part of an allocation, and the places that have their content.
pub struct Group<R: Rules = Kept> {
    pub(crate) rules: R,
    pub(crate) protection: Protection,
    words: Box<[AtomicU64]>,
    slots: AtomicU64,
    /// Slots whose places are written behind: they get what others have.
    pub(crate) behind: SlotSet,
    /// Slots whose places are evacuated: of `evacuate`.
    pub(crate) evacuated: AtomicU8,
    /// What the runtime knows each place by.
    addresses: [AtomicU64; SLOTS_MAX],
    pub(crate) counts: Counts,
    /// Of `sweep`.
    pub(crate) sweep: AtomicU64,
}

/// A word before and after a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) before: Word,
    pub(crate) after: Word,
}

impl Protection {
    /// `count` places with all of the content: any one is enough.
    ///
    /// # Panics
    /// If that is none, or more than there are slots.
    #[must_use]
    pub const fn copies(count: u8) -> Self {
        assert!(count > 0 && count as usize <= SLOTS_MAX, "one place for each slot at most");
        Self { needed: 1, wanted: count }
    }

    /// `data + parity` places, any `data` of which are enough.
    ///
    /// # Panics
    /// If no data is kept, or there are more places than slots.
    #[must_use]
    pub const fn code(data: u8, parity: u8) -> Self {
        assert!(data > 0 && (data + parity) as usize <= SLOTS_MAX, "one place for each slot at most");
        Self { needed: data, wanted: data + parity }
    }

    /// Places without which a page cannot be read.
    #[must_use]
    pub const fn needed(self) -> u8 {
        self.needed
    }

    /// Places that a page should have.
    #[must_use]
    pub const fn wanted(self) -> u8 {
        self.wanted
    }
}

impl Group {
    /// Pages that were never written, without a place.
    #[must_use]
    pub fn new(pages: usize, protection: Protection) -> Self {
        Self::with_rules(pages, protection, Kept)
    }
}

impl<R: Rules> Group<R> {
    /// One that may break a rule.
    #[must_use]
    pub fn with_rules(pages: usize, protection: Protection, rules: R) -> Self {
        Self {
            rules,
            protection,
            words: atomic::zeros(pages),
            slots: AtomicU64::new(0),
            behind: SlotSet::NONE,
            evacuated: AtomicU8::new(0),
            addresses: std::array::from_fn(|_| AtomicU64::new(0)),
            counts: Counts::new(protection.needed, protection.wanted),
            sweep: AtomicU64::new(0),
        }
    }

    /// One in which these slots are for places that are written behind: whatever a write leaves out there comes later.
    #[must_use]
    pub fn written_behind(self, slots: SlotSet) -> Self {
        Self { behind: slots, ..self }
    }

    /// How many pages it has.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.words.len()
    }

    /// How often each page's content should be there.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// What is in the slots.
    #[must_use]
    pub fn view(&self) -> View {
        View::from_word(self.slots.load(Ordering::Acquire))
    }

    /// Puts a place into a free slot, whose content is zeros: writes go there from now on. `address` is what the caller
    /// knows it by.
    ///
    /// Of one supervisor.
    ///
    /// # Panics
    /// If the slot is not free.
    pub fn adopt(&self, slot: Slot, address: u64) -> Place {
        assert!(self.view().use_of(slot) == Use::Free, "a place is put into a slot that is not free");
        self.addresses[slot.index()].store(address, Ordering::Release);
        // What was said of the last place of the slot is not said of this one.
        self.evacuate(self.evacuated() - slot.into());
        let after = self.change_slots(|view| Some(view.with(slot, Use::Live))).expect("nothing refuses it");
        after.place(slot)
    }

    /// A place with all of its content is known by another address from now on: its node has handed it over.
    ///
    /// Of one supervisor.
    pub fn relocate(&self, place: Place, address: u64) {
        if self.view().has(place) {
            self.addresses[place.slot.index()].store(address, Ordering::Release);
        }
    }

    /// What a place is known by; `None` if it was given up.
    #[must_use]
    pub fn address(&self, place: Place) -> Option<u64> {
        // The next place's address is stored when the slot is seen to be free, and so is that it is.
        let address = self.addresses[place.slot.index()].load(Ordering::Acquire);
        (self.view().has(place) || self.rules.breaks(Rule::GivenUpIsNotAsked)).then_some(address)
    }

    /// Gives a place up. Any thread may; the supervisor sweeps then.
    pub fn give_up(&self, place: Place, cause: Cause) -> GivenUp {
        match cause {
            Cause::Lost => {
                let changed = self.change_slots(|view| view.has(place).then(|| view.with(place.slot, Use::Leaving)));
                if changed.is_some() { GivenUp::Leaving } else { GivenUp::Already }
            }
            Cause::Silent => self.retire(place),
        }
    }

    fn retire(&self, place: Place) -> GivenUp {
        let slot = place.slot;
        let refused = Cell::new(GivenUp::Already);
        let changed = self.change_slots(|view| {
            let is_live = view.live().contains(slot) && view.has(place);
            let others = view.live() - slot.into();
            let is_kept = others.count() < self.protection.needed && !self.rules.breaks(Rule::SolePlaceStays);
            refused.set(if is_live { GivenUp::Kept } else { GivenUp::Already });
            (is_live && !is_kept).then(|| view.with(slot, Use::Retiring))
        });
        match changed {
            None => refused.get(),
            Some(_) if self.let_go(slot) => GivenUp::Leaving,
            Some(_) => GivenUp::Retiring,
        }
    }

    /// A place that retires was heard again: it is written as before, unless as many others are as wanted. Then it goes
    /// on retiring, until the mender has copied what it alone has. Whether it is written.
    pub fn take_back(&self, place: Place) -> bool {
        let changed = self.change_slots(|view| {
            let retires = view.retiring().contains(place.slot) && view.has(place);
            let is_missing = self.without_evacuated(view.live()).count() < self.protection.wanted;
            (retires && is_missing).then(|| view.with(place.slot, Use::Live))
        });
        changed.is_some()
    }

    /// Gives a place up that retires, if no page is at it alone. Whether it is given up.
    ///
    /// While another place is leaving it is not known which pages are: that is when the words are swept of that one.
    pub(crate) fn let_go(&self, slot: Slot) -> bool {
        // What ends a write or a mend counts the page first and looks at the slots then.
        fence(Ordering::SeqCst);
        let changed = self.change_slots(|view| {
            let is_known = view.use_of(slot) == Use::Retiring && view.leaving().is_empty();
            let is_sole = self.counts.sole(slot) > 0 && !self.rules.breaks(Rule::SolePlaceStays);
            (is_known && !is_sole).then(|| view.with(slot, Use::Leaving))
        });
        changed.is_some()
    }

    /// Pages that have content.
    #[must_use]
    pub fn pages_written(&self) -> u64 {
        self.counts.written()
    }

    /// Pages that are at fewer places than wanted.
    #[must_use]
    pub fn pages_degraded(&self) -> u64 {
        (0..self.protection.wanted).map(|copies| self.counts.below(copies)).sum()
    }

    /// Pages that cannot be read until they are written again.
    #[must_use]
    pub fn pages_unreadable(&self) -> u64 {
        (0..self.protection.needed).map(|copies| self.counts.below(copies)).sum()
    }

    /// Pages at exactly so many places, if that are fewer than wanted.
    #[must_use]
    pub fn pages_at(&self, copies: u8) -> u64 {
        self.counts.below(copies)
    }

    /// Pages that a slot's place has, those included that it is not yet swept of.
    #[must_use]
    pub fn pages_current(&self, slot: Slot) -> u64 {
        self.counts.current(slot)
    }

    /// Pages that a slot's place does not have.
    #[must_use]
    pub fn pages_behind(&self, slot: Slot) -> u64 {
        self.counts.written().saturating_sub(self.counts.current(slot))
    }

    /// Pages that would be lost with a slot's place.
    #[must_use]
    pub fn pages_sole(&self, slot: Slot) -> u64 {
        self.counts.sole(slot)
    }

    /// What is known of a page now.
    #[must_use]
    pub fn look(&self, page: usize) -> Word {
        Word::from_bits(self.words[page].load(Ordering::Acquire))
    }

    /// Changes a word, unless `step` refuses. The word before and after, or that which it refused.
    ///
    /// `step` is asked with the slots as they were after the word, and again until the word is still the same.
    pub(crate) fn change(&self, page: usize, step: impl Fn(Word, View) -> Option<Word>) -> Result<Change, Word> {
        let mut before = self.look(page);
        loop {
            let view = self.view();
            let after = step(before, view).ok_or(before)?;
            if after == before {
                return Ok(Change { before, after });
            }
            if self.counts.announce(before, after) && self.view() != view {
                self.counts.take_back(before, after);
                before = self.look(page);
                continue;
            }
            let (from, to) = (before.to_bits(), after.to_bits());
            match self.words[page].compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.counts.changed(before, after);
                    return Ok(Change { before, after });
                }
                Err(now) => {
                    self.counts.take_back(before, after);
                    before = Word::from_bits(now);
                }
            }
        }
    }

    /// Changes what is in the slots, unless `step` refuses. What is in them then.
    pub(crate) fn change_slots(&self, step: impl Fn(View) -> Option<View>) -> Option<View> {
        let mut before = self.view();
        loop {
            let after = step(before)?;
            let (from, to) = (before.to_word(), after.to_word());
            match self.slots.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(after),
                Err(now) => before = View::from_word(now),
            }
        }
    }
}

#[cfg(all(test, yonder_loom))]
mod model;

#[cfg(all(test, not(yonder_loom)))]
mod tests;
