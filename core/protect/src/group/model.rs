//! Models of [`Group`]: writes, reads, mends and settlings of one page while its places are given up and replaced.
//!
//! What places contain is read and written relaxed, as if over a network, so that only the words and the slots order
//! it. Every thread begins with its turn, a step that says only that it begins, so that loom tries both orders of two.

use std::sync::Arc;

use loom::sync::atomic::AtomicU32;
use loom::thread;

use super::*;
use crate::page::{Extent, Look, MendEnd, WriteEnd};
use crate::slots::SlotSet;
use crate::sweep::Swept;

const PAGE: usize = 0;
const OLD: u64 = 1;
const NEW: u64 = 2;

#[derive(Clone, Copy)]
struct Broken(Option<Rule>);

impl Rules for Broken {
    fn breaks(self, rule: Rule) -> bool {
        self.0 == Some(rule)
    }
}

/// A group with one page, and what the places of its first two slots contain.
struct Scene {
    group: Group<Broken>,
    content: [AtomicU64; 2],
    turn: AtomicU32,
}

fn slot(number: u8) -> Slot {
    Slot::new(number)
}

fn set(bits: u8) -> SlotSet {
    SlotSet::from_bits(bits)
}

impl Scene {
    /// Two live places; the page is current at those of `current`.
    fn new(current: u8, broken: Option<Rule>) -> Arc<Self> {
        let group = Group::with_rules(1, Protection::copies(2), Broken(broken));
        group.adopt(slot(0), 0);
        group.adopt(slot(1), 1);
        let content = [0, 1].map(|number| AtomicU64::new(if current >> number & 1 == 1 { OLD } else { 0 }));
        if current != 0 {
            let ticket = group.begin_write(PAGE, Extent::All).unwrap();
            assert_eq!(group.end_write(&ticket, set(current), SlotSet::NONE), WriteEnd::Acknowledged(set(current)));
        }
        Arc::new(Self { group, content, turn: AtomicU32::new(0) })
    }

    fn take_turn(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    fn put(&self, slot: Slot, content: u64) {
        self.content[slot.index()].store(content, Ordering::Relaxed);
    }

    fn content(&self, slot: Slot) -> u64 {
        self.content[slot.index()].load(Ordering::Relaxed)
    }

    /// Writes the page at all targets that are still there. Those that had it, and how it ended.
    fn write(&self) -> Option<(crate::page::WriteTicket, WriteEnd)> {
        self.take_turn();
        let ticket = self.group.begin_write(PAGE, Extent::All).ok()?;
        let there = |slot: &Slot| self.group.address(ticket.place(*slot)).is_some();
        let done: SlotSet = ticket.targets().iter().filter(there).collect();
        done.iter().for_each(|slot| self.put(slot, NEW));
        let end = self.group.end_write(&ticket, done, SlotSet::NONE);
        Some((ticket, end))
    }

    /// Copies the page to slot 1. Whether it is there.
    fn mend(&self) -> bool {
        self.take_turn();
        let Some(ticket) = self.group.begin_mend(PAGE, slot(1)) else { return false };
        let from = ticket.source().slots().first().unwrap();
        let content = self.content(from);
        if !self.group.read_counts(&ticket.source(), from) {
            return self.group.end_mend(&ticket, MendEnd::Failed);
        }
        self.put(slot(1), content);
        self.group.end_mend(&ticket, MendEnd::Done)
    }

    /// The place of a slot is given up, and the words are swept.
    fn remove(&self, number: u8, cause: Cause) -> GivenUp {
        self.take_turn();
        let given_up = self.group.give_up(self.group.view().place(slot(number)), cause);
        while matches!(self.group.sweep(1), Swept::More | Swept::Freed(_)) {}
        given_up
    }

    /// Another place comes into a slot.
    fn replace(&self, number: u8) -> Place {
        self.remove(number, Cause::Lost);
        self.content[usize::from(number)].store(0, Ordering::Relaxed);
        self.group.adopt(slot(number), 2)
    }

    /// Whatever the word says is current has what was last written.
    fn check(&self, written: u64) {
        let word = self.group.look(PAGE);
        for slot in word.current().iter() {
            assert_eq!(self.content(slot), written, "{word:?}");
        }
        let copies = word.is_written().then(|| word.current().count());
        assert_eq!(self.group.pages_degraded(), u64::from(copies.is_some_and(|copies| copies < 2)));
        for slot in [slot(0), slot(1)] {
            let is_sole = copies == Some(1) && word.current().contains(slot);
            assert_eq!(self.group.pages_sole(slot), u64::from(is_sole));
        }
    }
}

/// A write under way while a place is replaced: the new place is current only if the write went there.
fn write_and_replace(broken: Option<Rule>) {
    loom::model(move || {
        let scene = Scene::new(0b01, broken);
        let other = Arc::clone(&scene);
        let writer = thread::spawn(move || other.write());
        let place = scene.replace(1);
        let written = writer.join().unwrap();
        let word = scene.group.look(PAGE);
        if word.current().contains(slot(1)) {
            assert_eq!(written.unwrap().0.place(slot(1)), place, "the place has not been written");
        }
        assert!(word.current().contains(slot(0)));
    });
}

#[test]
fn a_write_does_not_vouch_for_the_next_place() {
    write_and_replace(None);
}

#[test]
#[should_panic(expected = "the place has not been written")]
fn a_sweep_that_tells_nothing_is_found() {
    write_and_replace(Some(Rule::SweepTellsTheRest));
}

#[test]
fn a_mend_does_not_vouch_for_the_next_place() {
    loom::model(|| {
        let scene = Scene::new(0b01, None);
        let other = Arc::clone(&scene);
        let mender = thread::spawn(move || {
            other.take_turn();
            let ticket = other.group.begin_mend(PAGE, slot(1))?;
            Some((ticket, other.group.end_mend(&ticket, MendEnd::Done)))
        });
        let place = scene.replace(1);
        let mended = mender.join().unwrap();
        if scene.group.look(PAGE).current().contains(slot(1)) {
            assert_eq!(mended.unwrap().0.to(), place, "the place has not been written");
        }
    });
}

#[test]
fn a_write_and_a_mend_do_not_meet() {
    loom::model(|| {
        let scene = Scene::new(0b01, None);
        let other = Arc::clone(&scene);
        let mender = thread::spawn(move || other.mend());
        let (_, end) = scene.write().unwrap();
        mender.join().unwrap();
        assert!(matches!(end, WriteEnd::Acknowledged(_)));
        scene.check(NEW);
    });
}

#[test]
fn what_counts_is_what_was_acknowledged() {
    loom::model(|| {
        let scene = Scene::new(0b11, None);
        let read = |scene: &Scene, number| {
            scene.take_turn();
            let Look::At(ticket) = scene.group.look_to_read(PAGE) else { return };
            let content = scene.content(slot(number));
            if scene.group.read_counts(&ticket, slot(number)) {
                let expected = if ticket.version() == 1 { OLD } else { NEW };
                assert_eq!(content, expected);
            }
        };
        let others = [Arc::clone(&scene), Arc::clone(&scene)];
        let readers = others.map(|scene| thread::spawn(move || read(&scene, 0)));
        scene.write().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        scene.check(NEW);
    });
}

/// A reader while the only place that the page has is lost and another comes: what it read there is not taken.
#[test]
fn a_read_of_a_place_that_was_replaced_does_not_count() {
    loom::model(|| {
        let scene = Scene::new(0b11, None);
        let other = Arc::clone(&scene);
        let reader = thread::spawn(move || {
            other.take_turn();
            let Look::At(ticket) = other.group.look_to_read(PAGE) else { return };
            let content = other.content(slot(1));
            if ticket.slots().contains(slot(1)) && other.group.read_counts(&ticket, slot(1)) {
                assert_eq!(content, OLD);
            }
        });
        scene.replace(1);
        scene.mend();
        reader.join().unwrap();
        scene.check(OLD);
    });
}

#[test]
fn a_page_that_is_forgotten_while_it_is_mended_is_not_mended() {
    loom::model(|| {
        let scene = Scene::new(0b01, None);
        let other = Arc::clone(&scene);
        let mender = thread::spawn(move || other.mend());
        scene.take_turn();
        scene.group.forget(PAGE).unwrap();
        let (_, end) = scene.write().unwrap();
        mender.join().unwrap();
        assert!(matches!(end, WriteEnd::Acknowledged(_)));
        scene.check(NEW);
    });
}

/// A write that only a silent place has acknowledged, while that place is given up: it is acknowledged and can be read,
/// or neither.
fn write_and_silence(broken: Option<Rule>) {
    loom::model(move || {
        let scene = Scene::new(0b11, broken);
        let other = Arc::clone(&scene);
        let writer = thread::spawn(move || {
            other.take_turn();
            let ticket = other.group.begin_write(PAGE, Extent::All).ok()?;
            let there = ticket.targets() & set(0b01);
            Some(other.group.end_write(&ticket, there, SlotSet::NONE))
        });
        scene.remove(0, Cause::Silent);
        let end = writer.join().unwrap();
        while matches!(scene.group.sweep(1), Swept::More | Swept::Freed(_)) {}
        if let Some(WriteEnd::Acknowledged(_)) = end {
            assert!(matches!(scene.group.look_to_read(PAGE), Look::At(_)), "the only place was given up");
        }
    });
}

#[test]
fn a_silent_place_that_becomes_the_only_one_is_kept() {
    write_and_silence(None);
}

#[test]
#[should_panic(expected = "the only place was given up")]
fn the_loss_of_an_only_place_is_found() {
    write_and_silence(Some(Rule::SolePlaceStays));
}

#[test]
fn of_two_silent_places_one_is_kept() {
    loom::model(|| {
        let scene = Scene::new(0b11, None);
        // One that has nothing, so that neither has to stay because nothing else could be written.
        scene.group.adopt(slot(2), 2);
        let other = Arc::clone(&scene);
        let remover = thread::spawn(move || other.remove(0, Cause::Silent));
        scene.remove(1, Cause::Silent);
        remover.join().unwrap();
        while matches!(scene.group.sweep(1), Swept::More | Swept::Freed(_)) {}
        assert!(matches!(scene.group.look_to_read(PAGE), Look::At(_)), "both places were given up");
        scene.check(OLD);
    });
}

#[test]
fn what_settles_at_a_place_says_nothing_of_the_next() {
    loom::model(|| {
        let scene = Scene::new(0b11, None);
        let first = scene.group.view().place(slot(1));
        let ticket = scene.group.begin_write(PAGE, Extent::All).unwrap();
        scene.group.end_write(&ticket, set(0b01), set(0b10));
        let other = Arc::clone(&scene);
        let settler = thread::spawn(move || {
            other.take_turn();
            other.group.settle(PAGE, first);
        });
        let second = scene.replace(1);
        let ticket = scene.group.begin_mend(PAGE, slot(1)).unwrap();
        assert_eq!(ticket.to(), second);
        scene.group.end_mend(&ticket, MendEnd::Unsettled);
        settler.join().unwrap();
        assert_eq!(scene.group.look(PAGE).unsettled(), set(0b10));
    });
}
