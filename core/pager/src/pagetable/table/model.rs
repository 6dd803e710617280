//! Models of [`PageTable`]: who wins when two threads move one page, and who owns its frame afterwards.
//!
//! [`Local`] is one page with the frame that holds its content. The frame counts its holders, as the pool of
//! `core/pager` does; whoever ends the last hold overwrites the content, as the next user of the frame would. How a
//! write begins is tried there, on the pool itself.
//!
//! Every attempt begins with its turn, a step that says only that it begins. Loom tries both orders of two steps that
//! change one atomic, but forgets a load of one thread once another has loaded too: without turns it would never let
//! the second attempt end before the first begins.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use yonder_units::{FrameIndex, PageIndex};

use crate::pagetable::{Event, PageTable, State};

const PAGE: PageIndex = PageIndex(0);
const FRAME: FrameIndex = FrameIndex(7);

/// What the page holds.
const CONTENT: u32 = 42;
/// What the next user of the frame puts into it.
const REUSED: u32 = 99;

/// A page on standby in a frame.
struct Local {
    table: PageTable,
    holders: AtomicU32,
    frame: AtomicU32,
    times_freed: AtomicU32,
    turn: AtomicU32,
}

impl Local {
    /// A page that has gone through `events` since it was put on standby.
    fn on_standby(events: &[Event]) -> Arc<Self> {
        let table = PageTable::new(1);
        let to_standby = [Event::Install, Event::Installed, Event::Evict, Event::Evicted(FRAME)];
        to_standby.iter().chain(events).for_each(|event| _ = table.advance_owned(PAGE, *event));
        let holders = if table.load(PAGE).write_in_flight() { 2 } else { 1 };
        Arc::new(Self {
            table,
            holders: AtomicU32::new(holders),
            frame: AtomicU32::new(CONTENT),
            times_freed: AtomicU32::new(0),
            turn: AtomicU32::new(0),
        })
    }

    fn take_turn(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    fn release(&self) {
        let before = self.holders.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "the frame was released twice");
        if before == 1 {
            self.times_freed.fetch_add(1, Ordering::Relaxed);
            self.frame.store(REUSED, Ordering::Relaxed);
        }
    }

    /// Whoever uses the frame holds it, so it has the page's content.
    fn assert_content(&self) {
        assert_eq!(self.frame.load(Ordering::Relaxed), CONTENT, "the frame belongs to somebody else");
    }

    /// A fault on the page: maps it from its frame, unless it has left standby. Tells whether it did.
    fn rescue(&self) -> bool {
        self.take_turn();
        let mut seen = self.table.load(PAGE);
        while let State::Standby(_) = seen.state() {
            match self.table.advance(PAGE, seen, Event::Install) {
                Ok(_) => {
                    self.assert_content();
                    self.table.advance_owned(PAGE, Event::Installed);
                    self.release();
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The reclaimer forgets a clean page, unless it has left standby. Tells whether it did.
    fn forget(&self) -> bool {
        self.take_turn();
        let seen = self.table.load(PAGE);
        let forgotten = seen.state() == State::Standby(FRAME) && self.table.advance(PAGE, seen, Event::Clean).is_ok();
        if forgotten {
            self.release();
        }
        forgotten
    }

    /// The node has acknowledged the write. Tells whether the page was forgotten.
    fn end_write(&self) -> bool {
        self.take_turn();
        self.assert_content();
        let ended = self.table.advance_owned(PAGE, Event::WriteEnded);
        let forgotten = ended.state() == State::Standby(FRAME) && self.table.advance(PAGE, ended, Event::Clean).is_ok();
        if forgotten {
            self.release();
        }
        self.release();
        forgotten
    }

    /// The page is mapped or forgotten, by exactly one thread, and its frame is free.
    fn assert_over(&self, rescued: bool, forgotten: bool) {
        let last = self.table.load(PAGE);
        assert!(rescued != forgotten, "rescued: {rescued}, forgotten: {forgotten}");
        assert_eq!(last.state(), if rescued { State::Resident } else { State::Remote });
        assert!(!last.write_in_flight(), "the end of the write was lost");
        assert_eq!((self.holders.load(Ordering::Relaxed), self.times_freed.load(Ordering::Relaxed)), (0, 1));
    }
}

#[test]
fn one_of_two_fetchers_wins_and_the_other_learns_who() {
    loom::model(|| {
        let page = Local::on_standby(&[Event::Clean]);
        let fetch = |page: &Local, port| {
            page.take_turn();
            let seen = page.table.load(PAGE);
            match seen.state() {
                State::Remote => page.table.advance(PAGE, seen, Event::Fetch { port, slot: port }),
                _ => Err(seen),
            }
        };
        let other = Arc::clone(&page);
        let other = thread::spawn(move || fetch(&other, 1));
        let outcomes = [fetch(&page, 0), other.join().unwrap()];
        let winner = outcomes.iter().position(Result::is_ok).expect("one of them wins") as u16;
        let loser = outcomes.iter().position(Result::is_err).expect("one of them loses");
        assert_eq!(outcomes[loser].unwrap_err().state(), State::Fetching { port: winner, slot: winner });
        assert_eq!(page.table.load(PAGE), outcomes[usize::from(winner)].unwrap());
    });
}

#[test]
fn the_end_of_an_earlier_write_and_the_owners_step_are_both_kept() {
    for (owned, step, then) in [
        (Event::Install, Event::Installed, State::Resident),
        (Event::Install, Event::InstallFailed, State::Standby(FRAME)),
    ] {
        loom::model(move || {
            let page = Local::on_standby(&[Event::Write, owned]);
            let writer = Arc::clone(&page);
            let writer = thread::spawn(move || {
                writer.take_turn();
                writer.table.advance_owned(PAGE, Event::WriteEnded);
            });
            page.take_turn();
            assert_eq!(page.table.advance_owned(PAGE, step).state(), then);
            writer.join().unwrap();
            let last = page.table.load(PAGE);
            assert_eq!((last.state(), last.write_in_flight()), (then, false));
        });
    }
}

#[test]
fn whoever_takes_a_page_sees_what_its_owner_did() {
    loom::model(|| {
        let page = Local::on_standby(&[Event::Install, Event::Installed, Event::Evict]);
        page.frame.store(REUSED, Ordering::Relaxed);
        let toucher = Arc::clone(&page);
        let toucher = thread::spawn(move || toucher.rescue());
        page.frame.store(CONTENT, Ordering::Relaxed);
        page.take_turn();
        page.table.advance_owned(PAGE, Event::Evicted(FRAME));
        let rescued = toucher.join().unwrap() || page.rescue();
        page.assert_over(rescued, false);
    });
}

#[test]
fn a_rescue_against_a_clean_page_being_forgotten_has_one_winner() {
    loom::model(|| {
        let page = Local::on_standby(&[]);
        let toucher = Arc::clone(&page);
        let toucher = thread::spawn(move || toucher.rescue());
        let forgotten = page.forget();
        page.assert_over(toucher.join().unwrap(), forgotten);
    });
}

#[test]
fn two_rescues_against_a_page_being_forgotten_have_one_winner() {
    loom::model(|| {
        let page = Local::on_standby(&[]);
        let touchers = [(); 2].map(|()| {
            let toucher = Arc::clone(&page);
            thread::spawn(move || toucher.rescue())
        });
        let forgotten = page.forget();
        let rescues = touchers.map(|toucher| toucher.join().unwrap());
        assert_ne!(rescues, [true, true]);
        page.assert_over(rescues.contains(&true), forgotten);
    });
}

#[test]
fn a_rescue_against_the_end_of_a_write_has_one_winner() {
    loom::model(|| {
        let page = Local::on_standby(&[Event::Write]);
        let toucher = Arc::clone(&page);
        let toucher = thread::spawn(move || toucher.rescue());
        let forgotten = page.end_write();
        page.assert_over(toucher.join().unwrap(), forgotten);
    });
}
