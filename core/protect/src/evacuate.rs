//! Places that are evacuated: their nodes answer, and writes would wait for them for too long.
//!
//! Such a place is written no more as long as as many others can be written as are wanted. The mender copies its pages
//! to the others; when they have a page, the place has it no more. So no page is at fewer places at any time because
//! one is evacuated, and a node that fails meanwhile is one failure, as always. When the place has had no page for a
//! while it is given up like one that fell silent.
//!
//! Who touches what: one supervisor says which places are ([`Evacuation`]); who reads that late only writes more than
//! need be, or keeps a page for longer.

use yonder_units::Nanos;

use crate::atomic::Ordering;
use crate::group::Group;
use crate::page::WriteTicket;
use crate::rules::{Rule, Rules};
use crate::slots::{SLOTS_MAX, Slot, SlotSet};
use crate::view::View;
use crate::word::Word;

/// A place that is evacuated has no page for so long before it is given up. A write that was begun before, and that the
/// other places have, has long begun anew by then.
const EMPTY_FOR: Nanos = 300_000_000;
/// What one look adds to that at most: where the program stood still, its writes did too.
const STEP_MAX: Nanos = 10_000_000;

/// What the supervisor of a group remembers of its places that are evacuated.
#[derive(Clone, Default, Debug)]
pub struct Evacuation {
    /// Those that pages are moved off, and are until they have none.
    begun: SlotSet,
    /// For how long each has had none.
    empty_for: [Nanos; SLOTS_MAX],
    looked_at: Nanos,
}

impl Evacuation {
    /// Says which places of a group are evacuated: those of `slow` nodes, those whose pages are being moved already,
    /// and of the `usable` live ones so many others that no more than `wanted` are written, those that lack the most
    /// pages. Returns those that are to be given up as silent: they have no page any more.
    pub fn look<R: Rules>(
        &mut self,
        group: &Group<R>,
        usable: SlotSet,
        slow: SlotSet,
        wanted: u8,
        now: Nanos,
    ) -> SlotSet {
        let live = group.view().live() & usable;
        let evacuated = to_evacuate(live, slow | self.begun, wanted, |slot| group.pages_behind(slot));
        group.evacuate(evacuated);
        let goes_on = group.is_evacuating();
        // Where there is nowhere to go, nothing is begun.
        self.begun = if goes_on { evacuated } else { SlotSet::NONE };
        let step = now.saturating_sub(self.looked_at).min(STEP_MAX);
        self.looked_at = now;
        for slot in Slot::all() {
            let is_empty = goes_on && evacuated.contains(slot) && group.pages_current(slot) == 0;
            let empty_for = &mut self.empty_for[slot.index()];
            *empty_for = if is_empty { *empty_for + step } else { 0 };
        }
        let is_over = |slot: &Slot| self.empty_for[slot.index()] >= EMPTY_FOR;
        let over: SlotSet = evacuated.iter().filter(is_over).collect();
        // The next place of the slot may be there at the next look.
        self.begun -= over;
        over.iter().for_each(|slot| self.empty_for[slot.index()] = 0);
        over
    }
}

impl<R: Rules> Group<R> {
    /// Says which places are evacuated: those of these slots, and no others.
    ///
    /// Of one supervisor.
    pub(crate) fn evacuate(&self, slots: SlotSet) {
        self.evacuated.store(slots.bits(), Ordering::Release);
    }

    /// The live slots whose places are evacuated.
    #[must_use]
    pub fn evacuated(&self) -> SlotSet {
        match SlotSet::from_bits(self.evacuated.load(Ordering::Acquire)) {
            SlotSet::NONE => SlotSet::NONE,
            slots => slots & self.view().live(),
        }
    }

    /// Whether places are evacuated, and there are enough others.
    #[must_use]
    pub fn is_evacuating(&self) -> bool {
        let evacuated = self.evacuated();
        !evacuated.is_empty() && (self.view().live() - evacuated).count() >= self.protection.wanted()
    }

    /// Pages that are to be moved off places that are evacuated or retire, or are at as many others already and need
    /// only be looked at. None while there are too few others to be written.
    #[must_use]
    pub fn pages_to_evacuate(&self) -> u64 {
        let Moves { off, to } = self.moves();
        let is_enough = to.count() >= self.protection.wanted();
        if is_enough { off.iter().map(|slot| self.pages_current(slot)).sum() } else { 0 }
    }

    /// The slots that pages are moved off, and those that they are moved to.
    pub(crate) fn moves(&self) -> Moves {
        let (view, evacuated) = (self.view(), self.evacuated());
        Moves { off: view.live() & evacuated | view.retiring(), to: view.live() - evacuated }
    }

    /// Pages that can be moved now, about, where these slots have nodes that answer.
    pub(crate) fn pages_movable(&self, up: SlotSet) -> u64 {
        let off = self.moves().off;
        let is_alone = self.protection.needed() == 1 && (off & up).is_empty();
        let alone: u64 = if is_alone { off.iter().map(|slot| self.counts.sole(slot)).sum() } else { 0 };
        self.pages_to_evacuate().saturating_sub(alone)
    }

    /// Those of some slots that a write goes to.
    pub(crate) fn without_evacuated(&self, slots: SlotSet) -> SlotSet {
        let others = slots - self.evacuated();
        let is_enough = (others | self.behind & self.view().live()).count() >= self.protection.wanted();
        if is_enough || self.rules.breaks(Rule::EvacuatedIsWrittenIfNeeded) { others } else { slots }
    }

    /// A word without the places that pages are moved off, if enough others have the page.
    pub(crate) fn leave_evacuated(&self, word: Word, view: View) -> Word {
        let Moves { off, to } = self.moves();
        let is_early = self.rules.breaks(Rule::EvacuatedStaysUntilMoved);
        let wanted = if is_early { self.protection.needed() } else { self.protection.wanted() };
        let leaves = !off.is_empty() && word.is_written() && !word.is_writing();
        if leaves { word.leave(off, to & view.live(), (self.protection.needed(), wanted)) } else { word }
    }

    /// A page that is at enough others is at places that pages are moved off no more.
    pub(crate) fn leave_page(&self, page: usize) {
        // A refusal is a word that stays as it is.
        let _ = self.change(page, |word, view| word.mended().is_none().then(|| self.leave_evacuated(word, view)));
    }

    /// Whether a write that waits for the places of these slots only would end sooner if it began anew: none of them
    /// would be written then, and those that would are `up`.
    pub(crate) fn would_not_write(&self, ticket: &WriteTicket, waiting: SlotSet, up: SlotSet) -> bool {
        if waiting.is_empty() || self.evacuated().is_empty() {
            return false;
        }
        let word = self.look(ticket.page());
        let closed = word.unsettled() | word.mended().map_or(SlotSet::NONE, SlotSet::only);
        let targets = self.without_evacuated(self.view().live() - closed);
        let reached = targets & up | self.behind & self.view().live();
        reached.count() >= self.protection.wanted() && (targets & waiting).is_empty()
    }
}

/// Between which slots pages are moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moves {
    pub(crate) off: SlotSet,
    pub(crate) to: SlotSet,
}

impl Moves {
    /// Whether a page is at a place that pages are moved off.
    pub(crate) fn concern(self, word: Word) -> bool {
        word.is_written() && !(word.current() & self.off).is_empty()
    }

    /// Where it is to be copied to, of some slots, so that it need not be there.
    pub(crate) fn target(self, word: Word, wanted: u8, slots: SlotSet, page: usize) -> Option<Slot> {
        let may = self.concern(word) && !word.is_writing() && word.mended().is_none();
        let is_missing = (word.current() & self.to).count() < wanted;
        ((slots & self.to) - word.current()).pick(page as u64).filter(|_| may && is_missing)
    }
}

/// Which of the `live` places of a group are evacuated: those of `slow` nodes, and so many others that no more than
/// `wanted` are written, those that lack the most pages.
fn to_evacuate(live: SlotSet, slow: SlotSet, wanted: u8, behind: impl Fn(Slot) -> u64) -> SlotSet {
    let mut left = live & slow;
    while (live - left).count() > wanted {
        left |= (live - left).iter().max_by_key(|slot| behind(*slot)).expect("there are more than wanted").into();
    }
    left
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;
    use crate::group::{Cause, GivenUp, Protection};
    use crate::mend::{Next, Plan};
    use crate::page::{Extent, MendEnd};
    use crate::write::Write;

    fn set(bits: u8) -> SlotSet {
        SlotSet::from_bits(bits)
    }

    fn group(protection: Protection, places: u8) -> Group {
        let group = Group::new(4, protection);
        (0..places).for_each(|number| _ = group.adopt(Slot::new(number), 0));
        group
    }

    fn write(group: &Group, page: usize) -> SlotSet {
        let ticket = group.begin_write(page, Extent::All).unwrap();
        group.end_write(&ticket, ticket.targets(), SlotSet::NONE);
        ticket.targets()
    }

    /// Mends all that is to be. The pages, in order.
    fn mend(group: &Group) -> Vec<usize> {
        let (mut plan, mut mended) = (Plan::default(), Vec::new());
        loop {
            match plan.next(&[group], |_| SlotSet::ALL, 100) {
                Next::Job(job) => {
                    mended.push(job.ticket.page());
                    group.end_mend(&job.ticket, MendEnd::Done);
                    assert_eq!(group.pages_degraded(), 0, "no page is at fewer places meanwhile");
                }
                Next::More => {}
                Next::Nothing => return mended,
            }
        }
    }

    #[test]
    fn a_place_is_written_until_there_is_another() {
        let group = group(Protection::copies(2), 2);
        group.evacuate(set(0b01));
        assert_eq!((write(&group, 0), group.pages_to_evacuate()), (set(0b11), 0));
        group.adopt(Slot::new(2), 0);
        assert_eq!((write(&group, 1), group.pages_to_evacuate()), (set(0b110), 1));
    }

    #[test]
    fn pages_move_and_are_at_no_fewer_places_meanwhile() {
        for (protection, places, slow) in
            [(Protection::copies(1), 1, 0b1), (Protection::copies(3), 3, 0b11), (Protection::code(2, 1), 3, 0b100)]
        {
            let group = group(protection, places);
            (0..3).for_each(|page| _ = write(&group, page));
            group.evacuate(set(slow));
            (0..set(slow).count()).for_each(|more| _ = group.adopt(Slot::new(places + more), 0));
            let (mut evacuation, wanted) = (Evacuation::default(), protection.wanted());
            assert!(evacuation.look(&group, SlotSet::ALL, set(slow), wanted, 0).is_empty());
            write(&group, 2);
            let mended: std::collections::BTreeSet<usize> = mend(&group).into_iter().collect();
            assert_eq!(mended, [0, 1].into(), "the one that was written went to the others");
            assert_eq!((group.is_evacuating(), group.pages_to_evacuate()), (true, 0));
            // What was begun goes on though the node is slow no more.
            let mut look = |now| evacuation.look(&group, SlotSet::ALL, SlotSet::NONE, wanted, now);
            assert!(look(EMPTY_FOR).is_empty(), "the program stood still meanwhile");
            let looks = EMPTY_FOR / STEP_MAX - 1;
            assert!((1..looks).all(|number| look(EMPTY_FOR + number * STEP_MAX).is_empty()));
            assert_eq!(look(EMPTY_FOR + looks * STEP_MAX), set(slow));
            for slot in set(slow).iter() {
                let given_up = group.give_up(group.view().place(slot), Cause::Silent);
                // While one leaves it is not known whether another has pages alone.
                assert!(matches!(given_up, GivenUp::Leaving | GivenUp::Retiring), "{given_up:?}");
            }
            while group.sweep(100) != crate::Swept::Nothing {}
            assert!((group.view().readable() & set(slow)).is_empty());
            assert_eq!((group.pages_degraded(), group.pages_unreadable()), (0, 0));
        }
    }

    #[test]
    fn a_page_that_the_others_have_leaves_without_a_copy() {
        let group = group(Protection::copies(2), 3);
        assert_eq!(write(&group, 0), set(0b111));
        group.evacuate(set(0b010));
        assert_eq!((group.pages_to_evacuate(), mend(&group), group.look(0).current()), (1, vec![], set(0b101)));
    }

    #[test]
    fn nothing_is_begun_where_there_is_nowhere_to_go() {
        let group = group(Protection::copies(2), 2);
        let mut evacuation = Evacuation::default();
        let _ = evacuation.look(&group, SlotSet::ALL, set(0b01), 2, 0);
        assert_eq!((group.evacuated(), group.is_evacuating()), (set(0b01), false));
        let _ = evacuation.look(&group, SlotSet::ALL, SlotSet::NONE, 2, 0);
        assert_eq!(group.evacuated(), SlotSet::NONE);
    }

    #[test]
    fn a_part_of_a_page_is_written_to_a_place_that_is_needed() {
        let group = group(Protection::copies(2), 2);
        write(&group, 0);
        group.evacuate(set(0b01));
        group.adopt(Slot::new(2), 0);
        let part = group.begin_write(0, Extent::Part).unwrap();
        assert_eq!(part.targets(), set(0b011));
    }

    #[test]
    fn a_place_that_is_written_behind_need_not_be_written() {
        let group = Group::new(1, Protection::copies(2)).written_behind(set(0b1000_0000));
        [0, 7].into_iter().for_each(|number| _ = group.adopt(Slot::new(number), 0));
        let behind = group.begin_write(0, Extent::All).unwrap();
        group.end_write(&behind, set(0b01), SlotSet::NONE);
        let mend = group.begin_mend(0, Slot::new(7)).unwrap();
        group.evacuate(set(0b01));
        group.adopt(Slot::new(1), 0);
        assert_eq!(group.begin_write(0, Extent::All).unwrap().targets(), set(0b10), "it is on its way there");
        group.end_mend(&mend, MendEnd::Done);
    }

    #[test]
    fn the_next_place_of_a_slot_is_not_evacuated() {
        let group = group(Protection::copies(1), 2);
        group.evacuate(set(0b01));
        group.give_up(group.view().place(Slot::new(0)), Cause::Lost);
        while group.sweep(100) != crate::Swept::Nothing {}
        group.adopt(Slot::new(0), 0);
        assert!(group.evacuated().is_empty());
    }

    #[test]
    fn pages_of_a_place_that_retires_move_where_one_place_is_wanted() {
        let group = group(Protection::copies(1), 1);
        write(&group, 0);
        group.adopt(Slot::new(1), 0);
        let place = group.view().place(Slot::new(0));
        assert_eq!(group.give_up(place, Cause::Silent), GivenUp::Retiring);
        assert_eq!((mend(&group), group.look(0).current()), (vec![0], set(0b10)));
        while group.sweep(100) != crate::Swept::Nothing {}
        assert!(!group.view().has(place));
    }

    #[test]
    fn a_write_that_waits_for_such_a_place_alone_is_held_up() {
        let group = group(Protection::copies(2), 2);
        let begun = group.begin_write(0, Extent::All).unwrap();
        let mut held = Write::begin(begun, &group, set(0b11));
        let _ = held.acknowledged(Slot::new(1));
        group.evacuate(set(0b01));
        assert!(!held.is_held_up(&group, SlotSet::ALL), "there is no other yet");
        group.adopt(Slot::new(2), 0);
        assert!(!held.is_held_up(&group, set(0b011)), "the other is not up");
        assert!(held.is_held_up(&group, SlotSet::ALL));
        let _ = held.abandon();
        held.finish(&group);
        let again = Write::begin(group.begin_write(0, Extent::All).unwrap(), &group, set(0b111));
        assert_eq!((again.waiting(), again.is_held_up(&group, SlotSet::ALL)), (set(0b110), false));
    }

    #[test]
    fn slow_places_are_left_and_of_too_many_those_that_lack_the_most() {
        let behind = |slot: Slot| [0, 7, 9, 3][slot.index()];
        assert_eq!(to_evacuate(set(0b0011), set(0b0001), 2, behind), set(0b0001));
        assert_eq!(to_evacuate(set(0b1011), set(0b0100), 2, behind), set(0b0010));
        assert_eq!(to_evacuate(set(0b1111), set(0b0001), 2, behind), set(0b0101));
        assert_eq!(to_evacuate(set(0b0111), set(0b0111), 2, behind), set(0b0111));
    }
}
