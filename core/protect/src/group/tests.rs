//! Tests of [`Group`] and of what happens to its pages, by examples.

use super::*;
use crate::page::{Extent, Look, MendEnd, ReadTicket, WriteEnd, WriteRefusal};
use crate::slots::SlotSet;
use crate::sweep::Swept;

const PAGES: usize = 10;

fn set(bits: u8) -> SlotSet {
    SlotSet::from_bits(bits)
}

fn slot(number: u8) -> Slot {
    Slot::new(number)
}

/// With places in the first slots, as many as wanted.
fn group(protection: Protection) -> Group {
    let group = Group::new(PAGES, protection);
    (0..protection.wanted()).for_each(|number| _ = group.adopt(slot(number), u64::from(number) + 100));
    group
}

/// A write that was acknowledged by those of `done`, and is refused by the other targets.
fn write(group: &Group, page: usize, done: u8) {
    let ticket = group.begin_write(page, Extent::All).unwrap();
    let end = group.end_write(&ticket, set(done), SlotSet::NONE);
    assert_eq!(end, WriteEnd::Acknowledged(set(done)));
}

fn read(group: &Group, page: usize) -> ReadTicket {
    match group.look_to_read(page) {
        Look::At(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn sweep(group: &Group) -> SlotSet {
    let mut freed = SlotSet::NONE;
    loop {
        match group.sweep(3) {
            Swept::Nothing => return freed,
            Swept::More => {}
            Swept::Busy => panic!("nothing else sweeps"),
            Swept::Freed(slots) => freed |= slots,
        }
    }
}

#[test]
fn a_page_is_zeros_until_it_is_written_and_when_it_is_forgotten() {
    let group = group(Protection::copies(2));
    assert_eq!(group.look_to_read(7), Look::Zeros);
    let ticket = group.begin_write(7, Extent::All).unwrap();
    assert_eq!((ticket.page(), ticket.targets(), group.look_to_read(7)), (7, set(0b11), Look::Writing));
    assert_eq!(group.begin_write(7, Extent::All), Err(WriteRefusal::Writing));
    assert_eq!(group.forget(7), Err(crate::page::Writing));
    assert_eq!(group.end_write(&ticket, set(0b11), SlotSet::NONE), WriteEnd::Acknowledged(set(0b11)));
    let seen = read(&group, 7);
    assert_eq!(seen.slots(), set(0b11));
    assert!(group.read_counts(&seen, slot(0)) && group.read_counts(&seen, slot(1)));
    assert!(!group.read_counts(&seen, slot(2)));
    group.forget(7).unwrap();
    assert_eq!((group.look_to_read(7), group.read_counts(&seen, slot(0))), (Look::Zeros, false));
    assert_eq!((group.pages_written(), group.pages_degraded()), (0, 0));
}

#[test]
fn a_read_does_not_count_when_the_page_was_written_meanwhile() {
    let group = group(Protection::copies(2));
    write(&group, 1, 0b11);
    let seen = read(&group, 1);
    let ticket = group.begin_write(1, Extent::All).unwrap();
    assert!(!group.read_counts(&seen, slot(0)), "the write may have landed");
    group.end_write(&ticket, set(0b11), SlotSet::NONE);
    assert!(!group.read_counts(&seen, slot(0)));
}

#[test]
fn a_write_that_reaches_one_place_leaves_the_other_behind_until_it_is_mended() {
    let group = group(Protection::copies(2));
    write(&group, 3, 0b11);
    let ticket = group.begin_write(3, Extent::All).unwrap();
    assert_eq!(group.end_write(&ticket, set(0b01), set(0b10)), WriteEnd::Acknowledged(set(0b01)));
    assert_eq!((group.pages_degraded(), group.pages_behind(slot(1)), group.pages_sole(slot(0))), (1, 1, 1));
    assert_eq!(read(&group, 3).slots(), set(0b01));
    assert_eq!(group.begin_mend(3, slot(1)), None, "a write may still land there");
    let ticket = group.begin_write(3, Extent::All).unwrap();
    assert_eq!(ticket.targets(), set(0b01));
    group.end_write(&ticket, set(0b01), SlotSet::NONE);
    group.settle(3, ticket.place(slot(1)));
    let mend = group.begin_mend(3, slot(1)).unwrap();
    assert_eq!((mend.page(), mend.source().slots(), mend.to()), (3, set(0b01), ticket.place(slot(1))));
    assert_eq!(group.begin_mend(3, slot(1)), None, "it is being mended");
    assert!(group.end_mend(&mend, MendEnd::Done));
    assert_eq!((group.pages_degraded(), group.pages_behind(slot(1)), group.pages_sole(slot(0))), (0, 0, 0));
}

#[test]
fn a_write_leaves_out_where_the_page_is_copied_to() {
    let group = group(Protection::copies(3));
    write(&group, 0, 0b011);
    let mend = group.begin_mend(0, slot(2)).unwrap();
    let ticket = group.begin_write(0, Extent::All).unwrap();
    assert_eq!(ticket.targets(), set(0b011));
    group.end_write(&ticket, set(0b011), SlotSet::NONE);
    assert!(!group.end_mend(&mend, MendEnd::Done), "it is a copy of what the page was before");
    assert_eq!(group.look(0).current(), set(0b011));
    let mend = group.begin_mend(0, slot(2)).unwrap();
    assert!(!group.end_mend(&mend, MendEnd::Unsettled));
    assert_eq!(group.look(0).unsettled(), set(0b100));
}

#[test]
fn a_write_that_reaches_no_place_leaves_nothing_to_read() {
    let group = group(Protection::copies(2));
    write(&group, 0, 0b11);
    let ticket = group.begin_write(0, Extent::All).unwrap();
    group.give_write_up(&ticket, set(0b11), set(0b11));
    assert_eq!((group.look_to_read(0), group.pages_unreadable()), (Look::Nowhere, 1));
    assert_eq!(group.begin_write(0, Extent::All), Err(WriteRefusal::NoPlace));
    group.settle(0, ticket.place(slot(1)));
    assert_eq!(group.begin_mend(0, slot(1)), None, "there is nothing to copy");
    write(&group, 0, 0b10);
    assert_eq!(read(&group, 0).slots(), set(0b10));
}

#[test]
fn a_write_that_was_sent_nowhere_changes_nothing() {
    let group = group(Protection::copies(2));
    write(&group, 0, 0b11);
    let ticket = group.begin_write(0, Extent::All).unwrap();
    group.give_write_up(&ticket, SlotSet::NONE, SlotSet::NONE);
    assert_eq!(read(&group, 0).slots(), set(0b11));
}

#[test]
fn a_part_goes_where_the_rest_is() {
    let group = group(Protection::copies(3));
    // All places have zeros.
    let ticket = group.begin_write(0, Extent::Part).unwrap();
    assert_eq!(ticket.targets(), set(0b111));
    group.end_write(&ticket, set(0b011), SlotSet::NONE);
    let ticket = group.begin_write(0, Extent::Part).unwrap();
    assert_eq!(ticket.targets(), set(0b011));
    group.end_write(&ticket, set(0b011), SlotSet::NONE);
    // The places still have what the page was before it was forgotten.
    group.forget(0).unwrap();
    assert_eq!(group.begin_write(0, Extent::Part), Err(WriteRefusal::NeedsAll));
    assert_eq!(group.begin_write(0, Extent::All).unwrap().targets(), set(0b111));
}

#[test]
fn a_refused_write_leaves_the_page_as_it_was() {
    let group = Group::new(PAGES, Protection::copies(2));
    assert_eq!(group.begin_write(0, Extent::Part), Err(WriteRefusal::NoPlace));
    let place = group.adopt(slot(5), 7);
    assert_eq!(group.address(place), Some(7));
    assert_eq!(group.begin_write(0, Extent::Part).unwrap().targets(), set(0b10_0000));
}

#[test]
fn a_place_that_was_given_up_is_not_asked_and_its_slot_is_free_after_a_sweep() {
    let group = group(Protection::copies(2));
    (0..PAGES).for_each(|page| write(&group, page, 0b11));
    let (seen, first) = (read(&group, 9), group.view().place(slot(1)));
    let ticket = group.begin_write(0, Extent::All).unwrap();
    assert_eq!(group.give_up(first, Cause::Lost), GivenUp::Leaving);
    assert_eq!(group.give_up(first, Cause::Lost), GivenUp::Already);
    assert_eq!((group.address(first), group.read_counts(&seen, slot(1))), (None, false));
    assert_eq!((read(&group, 9).slots(), group.view().use_of(slot(1))), (set(0b01), Use::Leaving));
    assert_eq!(sweep(&group), set(0b10));
    assert_eq!((group.pages_degraded(), group.pages_sole(slot(0))), (10, 10), "the page that is being written is too");
    let second = group.adopt(slot(1), 7);
    assert_eq!((group.address(first), group.address(second)), (None, Some(7)));
    assert_eq!(group.end_write(&ticket, set(0b11), SlotSet::NONE), WriteEnd::Acknowledged(set(0b01)));
    assert_eq!((group.pages_degraded(), group.pages_behind(slot(1))), (10, 10));
    for page in 0..PAGES {
        let mend = group.begin_mend(page, slot(1)).unwrap();
        assert!(group.end_mend(&mend, MendEnd::Done));
    }
    assert_eq!(group.pages_degraded(), 0);
    assert!(group.read_counts(&seen, slot(0)) && !group.read_counts(&seen, slot(1)), "it was read at the first");
}

#[test]
fn a_write_whose_only_place_was_given_up_is_not_acknowledged() {
    let group = group(Protection::copies(2));
    let ticket = group.begin_write(0, Extent::All).unwrap();
    group.give_up(ticket.place(slot(0)), Cause::Lost);
    assert_eq!(group.end_write(&ticket, set(0b01), set(0b10)), WriteEnd::Unacknowledged);
}

#[test]
fn what_settles_at_a_place_that_was_given_up_says_nothing_of_the_next() {
    let group = group(Protection::copies(2));
    let ticket = group.begin_write(0, Extent::All).unwrap();
    group.end_write(&ticket, set(0b01), set(0b10));
    group.give_up(ticket.place(slot(1)), Cause::Lost);
    sweep(&group);
    assert_eq!(group.look(0).unsettled(), SlotSet::NONE);
    group.adopt(slot(1), 7);
    let later = group.begin_write(0, Extent::All).unwrap();
    group.end_write(&later, set(0b01), set(0b10));
    group.settle(0, ticket.place(slot(1)));
    assert_eq!(group.look(0).unsettled(), set(0b10));
    group.settle(0, later.place(slot(1)));
    assert_eq!(group.look(0).unsettled(), SlotSet::NONE);
}

#[test]
fn a_silent_place_retires_while_it_alone_has_pages() {
    let group = group(Protection::copies(2));
    write(&group, 0, 0b11);
    write(&group, 1, 0b01);
    let silent = group.view().place(slot(0));
    assert_eq!(group.give_up(silent, Cause::Silent), GivenUp::Retiring);
    assert_eq!(group.give_up(silent, Cause::Silent), GivenUp::Already);
    assert_eq!((sweep(&group), group.view().use_of(slot(0))), (SlotSet::NONE, Use::Retiring));
    assert_eq!([0, 1].map(|page| group.look(page).current()), [set(0b10), set(0b01)]);
    assert!(group.wants_sweep() && group.address(silent).is_some());
    // It is heard again: what it alone has is copied, and then it goes.
    let mend = group.begin_mend(1, slot(1)).unwrap();
    assert!(group.read_counts(&mend.source(), slot(0)) && group.end_mend(&mend, MendEnd::Done));
    assert_eq!(sweep(&group), set(0b01));
    assert_eq!([0, 1].map(|page| group.look(page).current()), [set(0b10), set(0b10)]);
    assert!(!group.wants_sweep());
}

#[test]
fn of_two_silent_places_one_stays() {
    let group = group(Protection::copies(2));
    write(&group, 0, 0b11);
    let places = [0, 1].map(|number| group.view().place(slot(number)));
    let given_up = places.map(|place| group.give_up(place, Cause::Silent));
    assert_eq!(given_up, [GivenUp::Leaving, GivenUp::Kept]);
    assert_eq!((sweep(&group), read(&group, 0).slots()), (set(0b01), set(0b10)));
    assert_eq!(group.give_up(places[1], Cause::Lost), GivenUp::Leaving);
    assert_eq!((sweep(&group), group.look_to_read(0)), (set(0b10), Look::Nowhere));
}

#[test]
fn of_two_silent_places_that_share_pages_one_retires() {
    let group = group(Protection::copies(3));
    write(&group, 0, 0b011);
    let places = [0, 1].map(|number| group.view().place(slot(number)));
    let given_up = places.map(|place| group.give_up(place, Cause::Silent));
    assert_eq!(given_up, [GivenUp::Leaving, GivenUp::Retiring], "the words are not swept of the first");
    assert_eq!((sweep(&group), read(&group, 0).slots()), (set(0b001), set(0b010)));
}

#[test]
fn a_place_that_retires_and_is_heard_again_is_written_again() {
    let group = group(Protection::copies(3));
    write(&group, 0, 0b001);
    let ticket = group.begin_write(1, Extent::All).unwrap();
    group.end_write(&ticket, set(0b110), set(0b001));
    let silent = ticket.place(slot(0));
    assert_eq!(group.give_up(silent, Cause::Silent), GivenUp::Retiring);
    assert_eq!(sweep(&group), SlotSet::NONE);
    assert_eq!(group.begin_write(2, Extent::All).unwrap().targets(), set(0b110));
    assert!(group.take_back(silent) && !group.take_back(silent));
    assert_eq!((group.view().live(), group.address(silent)), (set(0b111), Some(100)));
    assert_eq!(group.look(1).unsettled(), set(0b001), "what may land there still may");
    assert_eq!(group.begin_write(3, Extent::All).unwrap().targets(), set(0b111));
}

#[test]
fn a_place_that_was_replaced_meanwhile_goes_on_retiring() {
    let group = group(Protection::copies(2));
    write(&group, 0, 0b01);
    let silent = group.view().place(slot(0));
    assert_eq!(group.give_up(silent, Cause::Silent), GivenUp::Retiring);
    group.adopt(slot(2), 7);
    assert!(!group.take_back(silent));
    let mend = group.begin_mend(0, slot(2)).unwrap();
    assert!(group.end_mend(&mend, MendEnd::Done));
    assert_eq!((sweep(&group), read(&group, 0).slots()), (set(0b001), set(0b100)));
}

#[test]
fn a_code_needs_as_many_places_as_it_has_data() {
    let group = group(Protection::code(2, 1));
    write(&group, 0, 0b111);
    let ticket = group.begin_write(0, Extent::All).unwrap();
    assert_eq!(group.end_write(&ticket, set(0b001), set(0b110)), WriteEnd::Unacknowledged);
    assert_eq!((group.pages_unreadable(), group.look_to_read(0)), (1, Look::Nowhere));
    write(&group, 1, 0b011);
    assert_eq!((read(&group, 1).slots(), group.pages_sole(slot(1)), group.pages_at(2)), (set(0b011), 1, 1));
}

#[test]
#[should_panic(expected = "a slot that is not free")]
fn a_place_is_not_put_on_another() {
    let group = group(Protection::copies(2));
    group.adopt(slot(1), 7);
}

#[test]
#[should_panic(expected = "slots of another write")]
fn a_write_ends_only_where_it_went() {
    let group = group(Protection::copies(2));
    let ticket = group.begin_write(0, Extent::All).unwrap();
    group.end_write(&ticket, set(0b111), SlotSet::NONE);
}
