//! A model of fault, sweep, arrival, end of write and release on two pages and two frames, all at once.
//!
//! [`World`] performs the steps of each in their order on the real page table, gate, frames and budget; the kernel is a
//! word for each page, the node another. All of these words are read and written relaxed, so only the pager's own words
//! order them. The oracle is what the program stored last, and that each frame is spare once in the end.
//!
//! `gate`, `frames` and `budget` have models of their own, which look at fewer things and at more interleavings of
//! them.

use std::sync::Arc;

use crate::pagetable::{Event, PageTable, State};
use crate::reclaim::{Policy, Shares};
use loom::model::Builder;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Mutex, MutexGuard};
use loom::thread;
use yonder_units::{FrameIndex, PageId, PageIndex};

use crate::budget::{Account, Budget};
use crate::fake::Fake;
use crate::frames::FramePool;
use crate::gate::BlockGate;

/// The page that the program stores to, and the one that arrives and is released.
const STORED: PageIndex = PageIndex(0);
const ARRIVING: PageIndex = PageIndex(1);
const REGION: u32 = 0;
/// What the node has of the page that arrives, and what is mapped of the other.
const ON_NODE: u32 = 7;
const DIRTY: u32 = 1;
/// A mapped page's word: its content and one, and whether it is write-protected. Zero if nothing is mapped.
const PROTECTED: u32 = 1 << 31;
/// Tries of a touch: each may find the page under way.
const TRIES: usize = 2;
/// How often a thread may be stopped between two steps to let another go on.
const PREEMPTIONS_MAX: usize = 3;

/// A write that the node has taken.
struct Write {
    frame: FrameIndex,
    content: u32,
}

/// What is behind the reclaimer's lock.
struct Reclaimer {
    /// What the node has of each page, as far as is known here.
    node_has: [u32; 2],
    write: Option<Write>,
}

struct World {
    table: PageTable,
    gate: BlockGate,
    frames: FramePool<Fake>,
    budget: Budget,
    mapped: [AtomicU32; 2],
    in_frames: [AtomicU32; 2],
    on_node: [AtomicU32; 2],
    reclaimer: Mutex<Reclaimer>,
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            table: PageTable::new(2),
            gate: BlockGate::default(),
            frames: FramePool::new(2).expect("memory of a test"),
            budget: Budget::new(&Policy::new(512, Shares::default()).expect("the smallest limit")),
            mapped: [AtomicU32::new(DIRTY + 1), AtomicU32::new(0)],
            in_frames: [AtomicU32::new(0), AtomicU32::new(0)],
            on_node: [AtomicU32::new(0), AtomicU32::new(ON_NODE)],
            reclaimer: Mutex::new(Reclaimer { node_has: [0, ON_NODE], write: None }),
        };
        for event in [Event::Install, Event::Installed] {
            world.table.advance_owned(STORED, event);
        }
        for event in [Event::Install, Event::Installed, Event::Evict, Event::Dropped] {
            world.table.advance_owned(ARRIVING, event);
        }
        Arc::new(world)
    }

    fn lock(&self) -> MutexGuard<'_, Reclaimer> {
        self.reclaimer.lock().expect("no thread panics with the lock")
    }

    fn map(&self, page: PageIndex, content: u32) {
        let before = self.mapped[page.index()].swap(content + 1, Ordering::Relaxed);
        assert_eq!(before, 0, "a page that the table says is missing is mapped");
        self.table.advance_owned(page, Event::Installed);
    }

    /// The program stores `value`, and brings the page as often as it has to. Whether it could.
    fn store(&self, page: PageIndex, value: u32) -> bool {
        for _ in 0..TRIES {
            let store = |word: u32| (word != 0 && word & PROTECTED == 0).then_some(value + 1);
            if self.mapped[page.index()].fetch_update(Ordering::Relaxed, Ordering::Relaxed, store).is_ok() {
                return true;
            }
            self.fault(page);
        }
        false
    }

    /// One attempt of a fault.
    fn fault(&self, page: PageIndex) {
        let seen = self.table.load(page);
        match seen.state() {
            State::Standby(frame) if self.gate.enter() => {
                if self.table.advance(page, seen, Event::Install).is_ok() {
                    self.map(page, self.in_frames[frame.index()].load(Ordering::Relaxed));
                    self.frames.release(frame);
                }
                self.gate.leave();
            }
            State::Untouched if self.gate.enter() => {
                if self.table.advance(page, seen, Event::Install).is_ok() {
                    self.map(page, 0);
                }
                self.gate.leave();
            }
            State::Remote => {
                let Some(frame) = self.arrive(page, seen) else { return };
                if self.gate.enter() {
                    self.map(page, self.in_frames[frame.index()].load(Ordering::Relaxed));
                    self.gate.leave();
                } else {
                    self.table.advance_owned(page, Event::FetchFailed);
                }
                self.frames.release(frame);
            }
            _ => {}
        }
    }

    /// A page is fetched into a frame: it is there, and its entry the caller's.
    fn arrive(&self, page: PageIndex, seen: crate::pagetable::Entry) -> Option<FrameIndex> {
        let frame = self.frames.take(&self.budget, Account::Fault)?;
        if self.table.advance(page, seen, Event::Fetch { port: 0, slot: 0 }).is_err() {
            self.frames.release(frame);
            return None;
        }
        let content = self.on_node[page.index()].load(Ordering::Relaxed);
        self.in_frames[frame.index()].store(content, Ordering::Relaxed);
        Some(frame)
    }

    /// A page arrives, stays in its frame and is read there.
    fn read_in_frame(&self, page: PageIndex) -> Option<u32> {
        let seen = self.table.load(page);
        if seen.state() == State::Remote {
            let frame = self.arrive(page, seen)?;
            self.frames.stand(&self.table, PageId { region: REGION, page }, frame);
        }
        let State::Standby(frame) = self.table.load(page).state() else { return None };
        let stands = || self.table.load(page).state() == State::Standby(frame);
        self.frames.read(frame, stands, |_| self.in_frames[frame.index()].load(Ordering::Relaxed))
    }

    /// The evictor.
    fn sweep(&self) {
        let _reclaimer = self.lock();
        if !self.gate.try_sweep() {
            return;
        }
        for page in [STORED, ARRIVING] {
            if self.table.load(page).state() != State::Resident {
                continue;
            }
            let Some(frame) = self.frames.take(&self.budget, Account::Reclaim) else { continue };
            self.table.advance_owned(page, Event::Evict);
            let word = self.mapped[page.index()].fetch_or(PROTECTED, Ordering::Relaxed);
            self.in_frames[frame.index()].store(word - 1, Ordering::Relaxed);
            self.mapped[page.index()].store(0, Ordering::Relaxed);
            self.table.advance_owned(page, Event::Evicted(frame));
        }
        self.gate.end_sweep();
    }

    /// The cleaner comes to the page that is stored to: forgets it if it is clean, or begins to write it.
    fn begin_write(&self) {
        let mut reclaimer = self.lock();
        let seen = self.table.load(STORED);
        let State::Standby(frame) = seen.state() else { return };
        let content = self.in_frames[frame.index()].load(Ordering::Relaxed);
        if content == reclaimer.node_has[STORED.index()] {
            if self.table.advance(STORED, seen, Event::Clean).is_ok() {
                self.frames.release(frame);
            }
        } else if self.frames.hold_for_write(&self.table, STORED, frame) {
            reclaimer.write = Some(Write { frame, content });
        }
    }

    /// The node has what was written.
    fn end_write(&self) {
        let mut reclaimer = self.lock();
        let Some(Write { frame, content }) = reclaimer.write.take() else { return };
        assert_eq!(self.in_frames[frame.index()].load(Ordering::Relaxed), content, "a frame changed under its write");
        self.on_node[STORED.index()].store(content, Ordering::Relaxed);
        reclaimer.node_has[STORED.index()] = content;
        let ended = self.table.advance_owned(STORED, Event::WriteEnded);
        if ended.state() == State::Standby(frame) && self.table.advance(STORED, ended, Event::Clean).is_ok() {
            self.frames.release(frame);
        }
        self.frames.release(frame);
    }

    /// The program gives a page back. Whether it is forgotten.
    fn release(&self, page: PageIndex) -> bool {
        let mut reclaimer = self.lock();
        let seen = self.table.load(page);
        let is_forgotten = match seen.state() {
            _ if seen.write_in_flight() => false,
            State::Untouched => true,
            State::Remote => self.table.advance(page, seen, Event::Free).is_ok(),
            State::Standby(frame) if self.table.advance(page, seen, Event::Free).is_ok() => {
                self.frames.release(frame);
                true
            }
            State::Resident if self.gate.try_close() => {
                let is_resident = self.table.load(page).state() == State::Resident;
                if is_resident {
                    self.table.advance_owned(page, Event::Evict);
                    self.mapped[page.index()].store(0, Ordering::Relaxed);
                    self.table.advance_owned(page, Event::Free);
                }
                self.gate.open();
                is_resident
            }
            _ => false,
        };
        if is_forgotten {
            self.on_node[page.index()].store(0, Ordering::Relaxed);
            reclaimer.node_has[page.index()] = 0;
        }
        is_forgotten
    }

    /// What the next touch of a page would find, when nothing is under way.
    fn content(&self, page: PageIndex) -> u32 {
        let entry = self.table.load(page);
        assert!(!entry.write_in_flight(), "a write has no end");
        match entry.state() {
            State::Resident => {
                let word = self.mapped[page.index()].load(Ordering::Relaxed);
                assert!(word != 0 && word & PROTECTED == 0, "a resident page is not there, or protected for good");
                word - 1
            }
            State::Standby(frame) => self.in_frames[frame.index()].load(Ordering::Relaxed),
            State::Remote => self.on_node[page.index()].load(Ordering::Relaxed),
            State::Untouched => 0,
            state => panic!("page {} is left {state:?}", page.0),
        }
    }
}

#[test]
fn two_pages_and_two_frames_lose_nothing() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(|| {
        let world = World::new();
        let (program, worker) = (Arc::clone(&world), Arc::clone(&world));
        let program = thread::spawn(move || program.store(STORED, 2));
        let worker = thread::spawn(move || {
            let found = worker.read_in_frame(ARRIVING);
            assert!(found.is_none_or(|found| found == ON_NODE || found == 0), "a page read as another: {found:?}");
            worker.release(ARRIVING)
        });
        world.sweep();
        world.begin_write();
        world.end_write();
        let (is_stored, is_released) = (program.join().unwrap(), worker.join().unwrap());
        assert_eq!(world.content(STORED), if is_stored { 2 } else { DIRTY }, "a store is lost, or another came up");
        assert_eq!(world.content(ARRIVING), if is_released { 0 } else { ON_NODE });
        let standing = [STORED, ARRIVING].map(|page| matches!(world.table.load(page).state(), State::Standby(_)));
        let held = standing.iter().filter(|stands| **stands).count() as u64;
        assert_eq!(world.frames.spare() + held, world.frames.backed(), "a frame is lost, or twice spare");
    });
}
