//! Models of [`BlockGate`] with the page table: installs, holds and sweeps of one block.
//!
//! [`Block`] performs the steps of the fault path and of the evictor in their order, on a page of which the kernel
//! knows only whether it is mapped. Its fields are read and written relaxed, so only the gate and the entries order
//! them: a step that came too early would find them wrong.
//!
//! Every attempt begins with its turn, a step that says only that it begins. Loom tries both orders of two steps that
//! change one atomic, but forgets a load of one thread once another has loaded too: without turns it would never let
//! the second attempt end before the first begins.

use std::sync::Arc;

use crate::pagetable::{Event, PageTable, State};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread::{self, JoinHandle};
use yonder_units::{FrameIndex, PageIndex};

use super::BlockGate;

const FRAME: FrameIndex = FrameIndex(3);
const RESIDENT: [Event; 2] = [Event::Install, Event::Installed];
const STANDBY: [Event; 4] = [Event::Install, Event::Installed, Event::Evict, Event::Evicted(FRAME)];
const REMOTE: [Event; 4] = [Event::Install, Event::Installed, Event::Evict, Event::Dropped];

/// A block with few pages.
struct Block {
    gate: BlockGate,
    table: PageTable,
    /// Which pages the kernel has mapped.
    mapped: Vec<AtomicBool>,
    /// Installers between their steps.
    inside: AtomicU32,
    /// Whether a sweep is between its steps.
    swept: AtomicBool,
    turn: AtomicU32,
}

impl Block {
    /// A block whose pages have gone through `pasts`.
    fn with_pages(pasts: &[&[Event]]) -> Arc<Self> {
        let table = PageTable::new(pasts.len());
        for (page, past) in pages().zip(pasts) {
            past.iter().for_each(|event| _ = table.advance_owned(page, *event));
        }
        let mapped = pages().zip(pasts).map(|(page, _)| AtomicBool::new(table.load(page).is_resident())).collect();
        Arc::new(Self {
            gate: BlockGate::default(),
            table,
            mapped,
            inside: AtomicU32::new(0),
            swept: AtomicBool::new(false),
            turn: AtomicU32::new(0),
        })
    }

    fn take_turn(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    /// One attempt of a fault on an untouched or standby page. Tells whether it mapped the page.
    fn install(&self, page: PageIndex) -> bool {
        self.take_turn();
        let seen = self.table.load(page);
        if !matches!(seen.state(), State::Untouched | State::Standby(_)) || !self.gate.enter() {
            return false;
        }
        let is_mine = self.table.advance(page, seen, Event::Install).is_ok();
        if is_mine {
            self.map(page);
        }
        self.gate.leave();
        is_mine
    }

    /// A page has arrived: its entry is `Fetching` and belongs to the caller. False if it has to wait.
    fn map_arrived(&self, page: PageIndex) -> bool {
        self.take_turn();
        if !self.gate.enter() {
            return false;
        }
        self.map(page);
        self.gate.leave();
        true
    }

    fn map(&self, page: PageIndex) {
        self.inside.fetch_add(1, Ordering::Relaxed);
        assert!(!self.swept.load(Ordering::Relaxed), "an install into a block that is swept");
        assert!(!self.is_mapped(page), "a page that the table says is missing is mapped");
        self.mapped[page.index()].store(true, Ordering::Relaxed);
        self.table.advance_owned(page, Event::Installed);
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }

    /// The evictor. Tells whether it could take the block.
    fn sweep(&self) -> bool {
        self.take_turn();
        if !self.gate.try_sweep() {
            return false;
        }
        self.swept.store(true, Ordering::Relaxed);
        assert_eq!(self.inside.load(Ordering::Relaxed), 0, "a sweep of a block with an installer inside");
        let resident: Vec<_> = self.pages().filter(|page| self.table.load(*page).state() == State::Resident).collect();
        resident.iter().for_each(|page| _ = self.table.advance_owned(*page, Event::Evict));
        for page in &resident {
            assert!(self.is_mapped(*page), "a resident page is not mapped");
            self.mapped[page.index()].store(false, Ordering::Relaxed);
            self.table.advance_owned(*page, Event::Evicted(FRAME));
        }
        self.swept.store(false, Ordering::Relaxed);
        self.gate.end_sweep();
        true
    }

    /// A release of a page that nobody holds. Tells whether it could close the block.
    fn release(&self, page: PageIndex) -> bool {
        self.take_turn();
        if !self.gate.try_close() {
            return false;
        }
        assert!(!self.swept.load(Ordering::Relaxed), "a release in a block that is swept");
        assert_eq!(self.inside.load(Ordering::Relaxed), 0, "a release in a block with an installer inside");
        if self.table.load(page).state() == State::Resident {
            self.table.advance_owned(page, Event::Evict);
            assert!(self.is_mapped(page), "a resident page is not mapped");
            self.mapped[page.index()].store(false, Ordering::Relaxed);
            self.table.advance_owned(page, Event::Free);
        }
        self.gate.open();
        true
    }

    fn pages(&self) -> impl Iterator<Item = PageIndex> {
        pages().take(self.table.pages())
    }

    fn is_mapped(&self, page: PageIndex) -> bool {
        self.mapped[page.index()].load(Ordering::Relaxed)
    }

    /// With nobody inside, a page is mapped exactly if its entry says so.
    fn assert_consistent(&self) {
        for page in self.pages() {
            let state = self.table.load(page).state();
            assert_eq!(self.is_mapped(page), state == State::Resident, "page {} is {state:?}", page.0);
        }
        assert!(self.gate.try_sweep(), "somebody never left");
    }

    fn spawn<T: 'static>(self: &Arc<Self>, work: impl FnOnce(&Self) -> T + 'static) -> JoinHandle<T> {
        let block = Arc::clone(self);
        thread::spawn(move || work(&block))
    }
}

fn pages() -> impl Iterator<Item = PageIndex> {
    (0..).map(PageIndex)
}

#[test]
fn installs_and_a_sweep_leave_no_page_in_between() {
    loom::model(|| {
        let block = Block::with_pages(&[&RESIDENT, &STANDBY]);
        // The swept page may be touched again at once, the other one while the sweep is under way.
        let touchers = [0, 1].map(|page| block.spawn(move |block: &Block| block.install(PageIndex(page))));
        block.sweep();
        touchers.into_iter().for_each(|toucher| _ = toucher.join().unwrap());
        block.assert_consistent();
    });
}

#[test]
fn two_touches_of_a_page_and_a_sweep_map_it_once() {
    loom::model(|| {
        let block = Block::with_pages(&[&STANDBY]);
        let touch = |block: &Block| block.install(PageIndex(0));
        let touchers = [block.spawn(touch), block.spawn(touch)];
        block.sweep();
        touchers.into_iter().for_each(|toucher| _ = toucher.join().unwrap());
        block.assert_consistent();
    });
}

#[test]
fn a_page_that_arrives_waits_for_the_sweep_and_keeps_its_entry() {
    loom::model(|| {
        let block = Block::with_pages(&[&REMOTE, &RESIDENT]);
        let page = PageIndex(0);
        block.table.advance_owned(page, Event::Fetch { port: 1, slot: 2 });
        let fetcher = block.spawn(move |block: &Block| block.map_arrived(page));
        let first = block.sweep();
        let second = block.sweep();
        if !fetcher.join().unwrap() {
            assert!(first || second, "an install waited for nobody");
            assert_eq!(block.table.load(page).state(), State::Fetching { port: 1, slot: 2 });
            assert!(block.map_arrived(page));
        }
        block.assert_consistent();
    });
}

#[test]
fn a_held_page_stays_mapped_until_the_hold_ends() {
    loom::model(|| {
        let block = Block::with_pages(&[&STANDBY]);
        let page = PageIndex(0);
        let toucher = block.spawn(move |block: &Block| block.install(page));
        let holder = block.spawn(move |block: &Block| {
            block.take_turn();
            if !block.gate.hold() {
                return;
            }
            block.install(page);
            // Else the other one has it and is still inside.
            if block.table.load(page).state() == State::Resident {
                assert!(block.is_mapped(page));
                block.take_turn();
                assert_eq!(block.table.load(page).state(), State::Resident, "a held page was swept");
                assert!(block.is_mapped(page), "a held page was unmapped");
            }
            block.gate.unhold();
        });
        block.sweep();
        holder.join().unwrap();
        toucher.join().unwrap();
        block.assert_consistent();
    });
}

#[test]
fn a_page_is_released_beside_one_that_is_held_and_installed() {
    loom::model(|| {
        let block = Block::with_pages(&[&STANDBY, &RESIDENT]);
        let (held, released) = (PageIndex(0), PageIndex(1));
        let holder = block.spawn(move |block: &Block| {
            block.take_turn();
            if !block.gate.hold() {
                return;
            }
            if block.install(held) {
                block.take_turn();
                assert!(block.is_mapped(held), "a held page was unmapped");
            }
            block.gate.unhold();
        });
        let sweeper = block.spawn(|block: &Block| block.sweep());
        let is_released = block.release(released);
        holder.join().unwrap();
        sweeper.join().unwrap();
        assert!(!is_released || !block.is_mapped(released));
        block.assert_consistent();
    });
}
