//! Tests of [`Plan`], [`Rate`] and [`Progress`].

use super::*;
use crate::group::Protection;
use crate::page::{Extent, MendEnd};
use crate::slots::Slot;

const MIB: u64 = 1 << 20;

fn set(bits: u8) -> SlotSet {
    SlotSet::from_bits(bits)
}

/// A group with three live places, whose pages are current at these.
fn group(pages: &[u8]) -> Group {
    let group = Group::new(pages.len(), Protection::copies(3));
    (0..3).for_each(|number| _ = group.adopt(Slot::new(number), 0));
    for (page, current) in pages.iter().enumerate().filter(|(_, current)| **current != 0) {
        let ticket = group.begin_write(page, Extent::All).unwrap();
        group.end_write(&ticket, set(*current), SlotSet::NONE);
    }
    group
}

/// All that is mended, in order: group, page and slot.
fn mended(plan: &mut Plan, groups: &[&Group], up: u8, words: usize) -> Vec<(usize, usize, u8)> {
    let mut mended = Vec::new();
    for _ in 0..1_000 {
        match plan.next(groups, |_| set(up), words) {
            Next::Job(Job { group, ticket }) => {
                mended.push((group, ticket.page(), ticket.to().slot.number()));
                assert!(groups[group].end_mend(&ticket, MendEnd::Done));
            }
            Next::More => {}
            Next::Nothing => return mended,
        }
    }
    panic!("the plan has no end: {mended:?}");
}

#[test]
fn the_most_endangered_pages_come_first() {
    for words in [1, 3, 100] {
        let groups = [group(&[0b111, 0b011, 0, 0b100]), group(&[0b111; 4]), group(&[0b010, 0b110])];
        let groups = [0, 1, 2].map(|index| &groups[index]);
        let mut plan = Plan::default();
        let mut order = mended(&mut plan, &groups, 0b111, words);
        assert_eq!(order.len(), 6, "{order:?}");
        order[..2].sort_unstable();
        assert_eq!(order[..2].iter().map(|(group, page, _)| (*group, *page)).collect::<Vec<_>>(), [(0, 3), (2, 0)]);
        assert!(groups.iter().all(|group| group.pages_degraded() == 0));
        assert_eq!(plan.next(&groups, |_| set(0b111), words), Next::Nothing);
    }
}

#[test]
fn a_page_that_becomes_more_endangered_comes_next() {
    let group = group(&[0b011, 0b011, 0b011, 0b011]);
    let mut plan = Plan::default();
    let Next::Job(job) = plan.next(&[&group], |_| set(0b111), 9) else { panic!() };
    assert_eq!(job.ticket.page(), 0);
    group.end_mend(&job.ticket, MendEnd::Done);
    let write = group.begin_write(0, Extent::All).unwrap();
    group.end_write(&write, set(0b001), SlotSet::NONE);
    let Next::Job(job) = plan.next(&[&group], |_| set(0b111), 9) else { panic!() };
    assert_eq!(job.ticket.page(), 0);
}

#[test]
fn pages_are_copied_to_nodes_that_are_up() {
    let group = group(&[0b001, 0b001, 0b001]);
    assert_eq!(mended(&mut Plan::default(), &[&group], 0b011, 9), [(0, 0, 1), (0, 1, 1), (0, 2, 1)]);
    assert_eq!(group.pages_degraded(), 3);
    assert_eq!(mended(&mut Plan::default(), &[&group], 0b111, 9), [(0, 0, 2), (0, 1, 2), (0, 2, 2)]);
}

#[test]
fn pages_that_only_suspect_nodes_have_wait() {
    let group = group(&[0b001, 0b010]);
    assert_eq!(mended(&mut Plan::default(), &[&group], 0b110, 9), [(0, 1, 2)]);
    assert_eq!(mended(&mut Plan::default(), &[&group], 0b101, 9), [(0, 0, 2), (0, 1, 0)]);
}

#[test]
fn what_cannot_be_mended_now_is_left_and_found_later() {
    let group = group(&[0b011, 0b011, 0]);
    let mut plan = Plan::default();
    let ticket = group.begin_write(1, Extent::All).unwrap();
    assert_eq!(mended(&mut plan, &[&group], 0b111, 9), [(0, 0, 2)]);
    assert_eq!(plan.next(&[&group], |_| set(0b111), 9), Next::Nothing);
    group.end_write(&ticket, set(0b110), SlotSet::NONE);
    assert_eq!(mended(&mut plan, &[&group], 0b111, 9), [(0, 1, 0)]);
    assert_eq!(plan.next(&[] as &[&Group], |_| set(0b111), 9), Next::Nothing);
}

#[test]
fn a_round_that_ends_leaves_no_page_out() {
    let pages = [0b011; 50];
    let groups = [group(&pages), group(&pages)];
    let groups = [&groups[0], &groups[1]];
    let mut plan = Plan::default();
    // Some jobs fail: they come again.
    let mut failures = 0;
    while groups.iter().any(|group| group.pages_degraded() > 0) {
        match plan.next(&groups, |_| set(0b111), 7) {
            Next::Job(Job { group, ticket }) => {
                failures += 1;
                let end = if failures % 3 == 0 { MendEnd::Failed } else { MendEnd::Done };
                groups[group].end_mend(&ticket, end);
            }
            Next::More => {}
            Next::Nothing => panic!("{plan:?}"),
        }
    }
}

#[test]
fn mending_gives_way_to_the_program_down_to_its_floor() {
    let mut rate = Rate::new(16 * MIB, 512 * MIB);
    assert_eq!(rate.bytes_per_second(), 512 * MIB);
    let (mut bytes, mut now) = (0, 1);
    for _ in 0..100 {
        rate.foreground(bytes, now);
        (bytes, now) = (bytes + 20 * MIB, now + MEASURED_EACH);
    }
    let got = rate.bytes_per_second() / MIB;
    assert!((311..=313).contains(&got), "{got}");
    for _ in 0..100 {
        rate.foreground(bytes, now);
        (bytes, now) = (bytes + 200 * MIB, now + MEASURED_EACH);
    }
    assert_eq!(rate.bytes_per_second(), 16 * MIB);
    (0..100).for_each(|step| rate.foreground(bytes, now + step * MEASURED_EACH));
    assert!(rate.bytes_per_second() > 511 * MIB);
}

#[test]
fn pages_are_paid_for_at_the_rate() {
    let mut rate = Rate::new(40 * MIB, 40 * MIB);
    let (mut now, mut taken) = (SECOND, 0u64);
    while now < 2 * SECOND {
        match rate.take_page(now) {
            Ok(()) => taken += 1,
            Err(then) => {
                assert!(then > now);
                now = then;
            }
        }
    }
    let bytes = taken * PAGE_BYTES as u64;
    assert!((40 * MIB..=41 * MIB).contains(&bytes), "{bytes}");
    // Time in which nothing was mended is not saved up.
    now += 10 * SECOND;
    let burst = std::iter::from_fn(|| rate.take_page(now).ok()).count();
    assert!(burst < 60, "{burst}");
}

#[test]
fn the_time_that_is_left_follows_what_is_mended() {
    let mut progress = Progress::default();
    assert_eq!((progress.time_left(0), progress.time_left(9)), (Some(0), None));
    for step in 1..50 {
        progress.saw(step * 1_000, step * MEASURED_EACH);
    }
    assert!(progress.bytes_per_second().abs_diff(10_000 * 4_096) < 4_096 * 10, "{progress:?}");
    let left = progress.time_left(100_000).unwrap();
    assert!(left.abs_diff(10 * SECOND) < SECOND / 100, "{left}");
    (50..150).for_each(|step| progress.saw(50_000, step * MEASURED_EACH));
    assert_eq!((progress.bytes_per_second(), progress.time_left(9)), (0, None));
}
