//! Models of [`FramePool`] with the page table: a page on standby is rescued while its write begins, and is read where
//! it stands while the frame goes to another page.
//!
//! The pool's queues are not loom's, so a step of theirs counts as one with the step of a word before it. What is
//! tried is the order of holds, releases, turns and changes of the entry.

use std::sync::Arc;

use crate::reclaim::{Policy, Shares};
use loom::sync::atomic::AtomicU32;
use loom::thread;

use super::*;
use crate::fake::Fake;

const PAGE: PageIndex = PageIndex(0);

/// One page on standby in the only frame of a pool.
struct Local {
    frames: FramePool<Fake>,
    table: PageTable,
    frame: FrameIndex,
    /// Says only that an attempt begins, so that loom tries both orders of two attempts.
    turn: AtomicU32,
}

impl Local {
    fn on_standby() -> Arc<Self> {
        let budget = Budget::new(&Policy::new(512, Shares::default()).unwrap());
        let frames = FramePool::new(1).unwrap();
        let frame = frames.take(&budget, Account::Reclaim).unwrap();
        let table = PageTable::new(1);
        for event in [Event::Install, Event::Installed, Event::Evict, Event::Evicted(frame)] {
            table.advance_owned(PAGE, event);
        }
        Arc::new(Self { frames, table, frame, turn: AtomicU32::new(0) })
    }

    /// A fault on the page: maps it from its frame, unless it has left standby. Tells whether it did.
    fn rescue(&self) -> bool {
        self.turn.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.table.load(PAGE);
        while seen.state() == State::Standby(self.frame) {
            match self.table.advance(PAGE, seen, Event::Install) {
                Ok(_) => {
                    self.table.advance_owned(PAGE, Event::Installed);
                    self.frames.release(self.frame);
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The reclaimer writes the page, unless it has left standby. While it does, the frame is nobody else's.
    fn write(&self) -> bool {
        self.turn.fetch_add(1, Ordering::Relaxed);
        if !self.frames.hold_for_write(&self.table, PAGE, self.frame) {
            return false;
        }
        assert_eq!(self.frames.spare(), 0, "a frame that is being written is free for others");
        self.turn.fetch_add(1, Ordering::Relaxed);
        assert_eq!(self.frames.spare(), 0, "a frame became free for others while it was written");
        self.table.advance_owned(PAGE, Event::WriteEnded);
        self.frames.release(self.frame);
        true
    }
}

#[test]
fn a_frame_is_nobody_elses_while_its_page_is_written() {
    loom::model(|| {
        let page = Local::on_standby();
        let toucher = Arc::clone(&page);
        let toucher = thread::spawn(move || toucher.rescue());
        page.write();
        assert!(toucher.join().unwrap(), "only the toucher takes the page from standby");
        let last = page.table.load(PAGE);
        assert_eq!((last.state(), last.write_in_flight()), (State::Resident, false));
        assert_eq!(page.frames.spare(), 1, "the frame is free once");
    });
}

/// Pages that take turns in the only frame of a pool, each with its own content: what loom sees instead of the frame's
/// bytes.
struct Shared {
    frames: FramePool<Fake>,
    table: PageTable,
    budget: Budget,
    content: AtomicU32,
}

const OTHER: PageIndex = PageIndex(1);
const REGION: u32 = 3;

impl Shared {
    /// `PAGE` stands in the frame.
    fn new() -> Arc<Self> {
        let shared = Self {
            frames: FramePool::new(1).unwrap(),
            table: PageTable::new(2),
            budget: Budget::new(&Policy::new(512, Shares::default()).unwrap()),
            content: AtomicU32::new(0),
        };
        for page in [PAGE, OTHER] {
            for event in [Event::Install, Event::Installed, Event::Evict, Event::Dropped] {
                shared.table.advance_owned(page, event);
            }
        }
        assert!(shared.fetch(PAGE));
        Arc::new(shared)
    }

    /// Brings a page, if the frame is free.
    fn fetch(&self, page: PageIndex) -> bool {
        let Some(frame) = self.frames.take(&self.budget, Account::Fault) else { return false };
        self.table.advance_owned(page, Event::Fetch { port: 0, slot: 0 });
        self.content.store(page.0, Ordering::Relaxed);
        self.frames.stand(&self.table, PageId { region: REGION, page }, frame);
        true
    }

    /// The reclaimer takes a page that it has heard of; which.
    fn drain(&self) -> Option<PageIndex> {
        let Arrival { frame, page_id: PageId { region, page }, .. } = self.frames.next_arrival()?;
        let seen = self.table.load(page);
        assert_eq!(region, REGION);
        if seen.state() != State::Standby(frame) || self.table.advance(page, seen, Event::Clean).is_err() {
            return None;
        }
        self.frames.release(frame);
        Some(page)
    }

    /// What is read of a page, if it stands in the frame.
    fn read(&self, page: PageIndex) -> Option<u32> {
        let State::Standby(frame) = self.table.load(page).state() else { return None };
        let stands = || self.table.load(page).state() == State::Standby(frame);
        self.frames.read(frame, stands, |_| self.content.load(Ordering::Relaxed))
    }
}

#[test]
fn what_is_read_in_a_frame_is_the_page_that_stands_there() {
    loom::model(|| {
        let shared = Shared::new();
        let reader = Arc::clone(&shared);
        let reader = thread::spawn(move || reader.read(PAGE));
        assert_eq!(shared.drain(), Some(PAGE));
        assert!(shared.fetch(OTHER));
        let found = reader.join().unwrap();
        assert!(found.is_none_or(|content| content == PAGE.0), "a page read as another");
        assert_eq!(shared.read(OTHER), Some(OTHER.0));
    });
}

#[test]
fn the_reclaimer_hears_of_every_page_that_stays() {
    loom::model(|| {
        let shared = Shared::new();
        let worker = Arc::clone(&shared);
        // The frame's first page leaves without the reclaimer, who may hear of it before, between or after.
        let frame = FrameIndex(0);
        let worker = thread::spawn(move || {
            let seen = worker.table.load(PAGE);
            if seen.state() != State::Standby(frame) || worker.table.advance(PAGE, seen, Event::Free).is_err() {
                return false;
            }
            worker.frames.release(frame);
            worker.fetch(OTHER)
        });
        let heard = match shared.frames.next_arrival() {
            Some(Arrival { page_id, .. }) => {
                shared.table.load(page_id.page).state() == State::Standby(frame) && page_id.page == OTHER
            }
            None => false,
        };
        assert!(worker.join().unwrap(), "nobody else takes the page");
        assert!(heard || shared.drain() == Some(OTHER), "a page stands that the reclaimer will never hear of");
    });
}

#[test]
fn the_reclaimer_hears_of_a_page_whose_install_fails_while_it_looks() {
    loom::model(|| {
        let shared = Shared::new();
        let toucher = Arc::clone(&shared);
        let frame = FrameIndex(0);
        let toucher = thread::spawn(move || {
            let seen = toucher.table.load(PAGE);
            if seen.state() == State::Standby(frame) && toucher.table.advance(PAGE, seen, Event::Install).is_ok() {
                toucher.frames.restand(&toucher.table, PageId { region: REGION, page: PAGE }, frame);
            }
        });
        // What has left standby is let go of.
        let taken = shared.drain() == Some(PAGE);
        toucher.join().unwrap();
        assert!(taken || shared.drain() == Some(PAGE), "a page stands that the reclaimer will never hear of");
    });
}
