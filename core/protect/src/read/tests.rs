//! Tests of [`Read`].

use super::*;
use crate::group::{Cause, Protection};
use crate::page::{Extent, Look};

const DELAY: Nanos = 100;

fn set(bits: u8) -> SlotSet {
    SlotSet::from_bits(bits)
}

fn slot(number: u8) -> Slot {
    Slot::new(number)
}

/// A group of which all pages are at all places.
fn group_of(protection: Protection) -> Group {
    let group = Group::new(6, protection);
    let slots: SlotSet = (0..protection.wanted()).map(slot).collect();
    slots.iter().for_each(|slot| _ = group.adopt(slot, 0));
    for page in 0..6 {
        let ticket = group.begin_write(page, Extent::All).unwrap();
        group.end_write(&ticket, slots, SlotSet::NONE);
    }
    group
}

fn group() -> Group {
    group_of(Protection::copies(3))
}

fn look(group: &Group, page: usize) -> ReadTicket {
    match group.look_to_read(page) {
        Look::At(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn begin(group: &Group, page: usize, up: u8) -> (Read, SlotSet) {
    Read::begin(look(group, page), group, set(up), 0, DELAY)
}

fn step(cancel: u8, then: ReadNext) -> ReadStep {
    ReadStep { cancel: set(cancel), then }
}

#[test]
fn reads_of_pages_spread_over_nodes_that_are_up() {
    let group = group();
    let asked = |up| (0..6).map(|page| begin(&group, page, up).1.first().unwrap().number()).collect::<Vec<_>>();
    assert_eq!(asked(0b111), [0, 1, 2, 0, 1, 2]);
    assert_eq!(asked(0b101), [0, 2, 0, 2, 0, 2]);
    assert_eq!(asked(0), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn slow_nodes_are_asked_last_and_waited_for_like_others() {
    let (group, mut budget) = (group(), Budget::full());
    let nodes = |up, quick| Answering { up: set(up), quick: set(quick) };
    let asked = |page, nodes| Read::begin(look(&group, page), &group, nodes, 0, DELAY).1;
    assert_eq!([0, 1, 2].map(|page| asked(page, nodes(0b111, 0b101))), [0b001, 0b100, 0b001].map(set));
    assert_eq!([0, 1, 2].map(|page| asked(page, nodes(0b110, 0b001))), [0b010, 0b100, 0b010].map(set));
    let (mut read, first) = Read::begin(look(&group, 0), &group, nodes(0b001, 0), 0, DELAY);
    assert_eq!(first, set(0b001), "one that is slow rather than one that is suspect");
    assert_eq!(read.look(&group, nodes(0b111, 0b100), 1, &mut budget), step(0, ReadNext::Wait));
    assert_eq!(read.look(&group, nodes(0b111, 0b100), DELAY, &mut budget), step(0, ReadNext::Ask(set(0b100))));
    let shares = group_of(Protection::code(2, 2));
    let asked = |nodes| Read::begin(look(&shares, 0), &shares, nodes, 0, DELAY).1;
    assert_eq!(asked(nodes(0b1111, 0b1110)), set(0b0110));
    assert_eq!(asked(nodes(0b1011, 0b1000)), set(0b1001));
}

#[test]
fn a_late_answer_is_hedged_once_and_the_first_that_counts_wins() {
    let (group, mut budget) = (group(), Budget::full());
    let (mut read, first) = begin(&group, 0, 0b111);
    assert_eq!((first, read.next_look()), (set(0b1), DELAY));
    assert_eq!(read.look(&group, set(0b111), DELAY - 1, &mut budget), step(0, ReadNext::Wait));
    assert_eq!(read.look(&group, set(0b111), DELAY, &mut budget), step(0, ReadNext::Ask(set(0b10))));
    assert_eq!(read.look(&group, set(0b111), 9 * DELAY, &mut budget), step(0, ReadNext::Wait));
    assert_eq!((read.waited(slot(0), 300), read.waited(slot(1), 300)), (Some(300), Some(200)));
    assert_eq!((read.next_look(), read.waiting()), (Nanos::MAX, set(0b11)));
    assert_eq!(read.answered(&group, slot(1)), step(0b01, ReadNext::Done));
    assert_eq!(read.answered(&group, slot(0)), step(0, ReadNext::Wait), "it was cancelled");
}

#[test]
fn an_answer_that_does_not_count_spoils_the_other() {
    let (group, mut budget) = (group(), Budget::full());
    let (mut read, _) = begin(&group, 0, 0b111);
    assert_eq!(read.look(&group, set(0b111), DELAY, &mut budget).then, ReadNext::Ask(set(0b10)));
    group.give_up(read.place(slot(1)), Cause::Lost);
    assert_eq!(read.answered(&group, slot(1)), step(0b01, ReadNext::Again));
}

#[test]
fn a_place_that_was_given_up_is_left_at_once() {
    let (group, mut budget) = (group(), Budget::empty());
    let (mut read, _) = begin(&group, 0, 0b111);
    group.give_up(read.place(slot(0)), Cause::Lost);
    group.give_up(read.place(slot(1)), Cause::Lost);
    assert_eq!(read.look(&group, set(0b111), 1, &mut budget), step(0b001, ReadNext::Ask(set(0b100))));
    group.give_up(read.place(slot(2)), Cause::Lost);
    assert_eq!(read.look(&group, set(0b111), 2, &mut budget), step(0b100, ReadNext::Again));
}

#[test]
fn a_suspect_node_is_not_waited_for_alone() {
    let (group, mut budget) = (group(), Budget::empty());
    let (mut read, _) = begin(&group, 0, 0b111);
    assert_eq!(read.look(&group, set(0b110), 1, &mut budget), step(0, ReadNext::Ask(set(0b10))));
    assert_eq!(read.look(&group, set(0b100), 2, &mut budget), step(0, ReadNext::Ask(set(0b100))));
    assert_eq!(read.look(&group, set(0), 3, &mut budget), step(0, ReadNext::Wait));
    // It was only slow.
    assert_eq!(read.answered(&group, slot(0)), step(0b110, ReadNext::Done));
    let (mut read, _) = begin(&group, 0, 0);
    assert_eq!(read.look(&group, set(0), 9 * DELAY, &mut Budget::full()), step(0, ReadNext::Wait));
}

#[test]
fn places_that_fail_are_asked_one_after_another() {
    let group = group();
    let (mut read, _) = begin(&group, 1, 0b111);
    assert_eq!(read.failed(slot(1), set(0b111), 1), step(0, ReadNext::Ask(set(0b100))));
    assert_eq!(read.failed(slot(2), set(0b111), 2), step(0, ReadNext::Ask(set(0b1))));
    assert_eq!(read.failed(slot(0), set(0b111), 3), step(0, ReadNext::Failed));
}

#[test]
fn what_could_not_be_posted_is_asked_later() {
    let (group, mut budget) = (group(), Budget::full());
    let (mut read, _) = begin(&group, 0, 0b111);
    assert_eq!(read.look(&group, set(0b110), 1, &mut budget).then, ReadNext::Ask(set(0b10)));
    read.was_not_asked(slot(1));
    assert_eq!(read.look(&group, set(0b110), 2, &mut budget).then, ReadNext::Ask(set(0b10)));
    assert_eq!(read.give_up(), set(0b11));
}

#[test]
fn a_hedge_needs_a_budget_unless_an_answer_is_very_late() {
    let group = group();
    let (mut read, _) = begin(&group, 0, 0b111);
    assert_eq!(read.look(&group, set(0b111), DELAY, &mut Budget::empty()), step(0, ReadNext::Wait));
    assert_eq!(read.look(&group, set(0b111), PATIENCE - 1, &mut Budget::empty()), step(0, ReadNext::Wait));
    let asked = read.look(&group, set(0b111), PATIENCE, &mut Budget::empty()).then;
    assert!(matches!(asked, ReadNext::Ask(slots) if slots.count() == 1), "{asked:?}");
}

#[test]
fn a_page_in_shares_is_asked_for_at_the_parts_and_done_when_enough_have_come() {
    let group = group_of(Protection::code(3, 2));
    let (mut read, first) = begin(&group, 4, 0b11111);
    assert_eq!(first, set(0b00111));
    assert_eq!(read.answered(&group, slot(2)), step(0, ReadNext::Wait));
    assert_eq!(read.answered(&group, slot(0)), step(0, ReadNext::Wait));
    assert_eq!(read.answered(&group, slot(1)), step(0, ReadNext::Done));
    assert_eq!(read.got(), set(0b00111));
    assert_eq!(begin(&group, 4, 0b11101).1, set(0b01101));
    assert_eq!(begin(&group, 4, 0b10000).1, set(0b10011), "suspects are asked where others are too few");
}

#[test]
fn one_more_share_is_asked_for_when_one_is_late_or_cannot_come() {
    let (group, mut budget) = (group_of(Protection::code(2, 2)), Budget::full());
    let (mut read, first) = begin(&group, 0, 0b1111);
    assert_eq!(first, set(0b0011));
    assert_eq!(read.answered(&group, slot(1)), step(0, ReadNext::Wait));
    assert_eq!(read.look(&group, set(0b1111), DELAY, &mut budget), step(0, ReadNext::Ask(set(0b0100))));
    assert_eq!(read.look(&group, set(0b1111), 2 * DELAY, &mut budget), step(0, ReadNext::Wait));
    assert_eq!(read.answered(&group, slot(2)), step(0b0001, ReadNext::Done));
    assert_eq!(read.got(), set(0b0110));

    // Both are suspect, and then fail: each is replaced, as long as there are others.
    let (mut read, _) = begin(&group, 0, 0b1111);
    assert_eq!(read.look(&group, set(0b1100), 1, &mut Budget::empty()), step(0, ReadNext::Ask(set(0b1100))));
    assert_eq!(read.failed(slot(0), set(0b1100), 2), step(0, ReadNext::Wait));
    assert_eq!(read.failed(slot(1), set(0b1100), 2), step(0, ReadNext::Wait));
    assert_eq!(read.answered(&group, slot(3)), step(0, ReadNext::Wait));
    assert_eq!(read.failed(slot(2), set(0b1100), 2), step(0, ReadNext::Failed));
}

#[test]
fn shares_of_different_contents_are_never_put_together() {
    let group = group_of(Protection::code(2, 1));
    let (mut read, _) = begin(&group, 0, 0b111);
    assert_eq!(read.answered(&group, slot(0)), step(0, ReadNext::Wait));
    let ticket = group.begin_write(0, Extent::All).unwrap();
    group.end_write(&ticket, set(0b111), SlotSet::NONE);
    assert_eq!(read.answered(&group, slot(1)), step(0, ReadNext::Again));
}

#[test]
fn a_page_with_too_few_shares_left_is_looked_at_again() {
    let (group, mut budget) = (group_of(Protection::code(2, 1)), Budget::full());
    let (mut read, _) = begin(&group, 0, 0b111);
    group.give_up(read.place(slot(0)), Cause::Lost);
    assert_eq!(read.look(&group, set(0b110), 1, &mut budget), step(0b001, ReadNext::Ask(set(0b100))));
    group.give_up(read.place(slot(1)), Cause::Lost);
    assert_eq!(read.look(&group, set(0b100), 1, &mut budget), step(0b110, ReadNext::Again));
    assert_eq!(group.look_to_read(0), Look::Nowhere);
}
