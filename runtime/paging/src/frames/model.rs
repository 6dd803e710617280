//! Models of [`FramePool`] with the page table: a page on standby is rescued while its write begins.
//!
//! The pool's queues are not loom's, so a step of theirs counts as one with the step of a holder count before it. What is
//! tried is the order of holds, releases and changes of the entry.

use std::sync::Arc;

use loom::sync::atomic::AtomicU32;
use loom::thread;
use yonder_reclaim::{Policy, Shares};

use super::*;

const PAGE: PageIndex = PageIndex(0);

/// One page on standby in the only frame of a pool.
struct Local {
    frames: FramePool,
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
