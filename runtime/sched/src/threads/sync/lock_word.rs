//! [`LockWord`]: the one atomic word that says whether a lock is held, and whether somebody waits for it.
//!
//! ```text
//!   FREE <--- hold, release: one exchange each ---> HELD <------------------+
//!                                                    | another thread       | release: the first waiter holds it
//!                                                    v queues               | now, or nobody waited
//!                                                CONTENDED -----------------+
//! ```
//!
//! The word becomes `CONTENDED` under the lock of the queue, and its holder's exchange fails then: so it comes to the
//! queue's lock, and finds the waiter.
//!
//! Invariant: it becomes `FREE` by an exchange that is the last touch of the lock by its holder. From then on another
//! thread can hold it, be the last to need it, and free its memory.
//!
//! Neighbours: `lock` has the queue; the model has a queue of its own.

use std::sync::atomic::{AtomicU32, Ordering};

use super::queue::WaitQueue;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and there may be waiters.
const CONTENDED: u32 = 2;

/// What the word is made of: the standard library's atomic, or loom's in the model.
pub(super) trait Atomic {
    fn load(&self) -> u32;
    fn store(&self, value: u32);
    fn swap(&self, value: u32) -> u32;
    /// Returns whether it was `from`, and is `to` now.
    fn exchange(&self, from: u32, to: u32) -> bool;
}

impl Atomic for AtomicU32 {
    #[inline]
    fn load(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn store(&self, value: u32) {
        self.store(value, Ordering::Release);
    }

    #[inline]
    fn swap(&self, value: u32) -> u32 {
        self.swap(value, Ordering::Acquire)
    }

    #[inline]
    fn exchange(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// See the head of this file.
pub(super) struct LockWord<A>(A);

/// Who holds a lock next that its holder releases.
pub(super) enum Next<W> {
    /// This one, who has waited longest, and whom the caller wakes.
    Waiter(W),
    /// Nobody waits.
    Nobody,
    /// It was not held.
    WasFree,
}

impl LockWord<AtomicU32> {
    /// Of a free lock.
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }
}

impl<A: Atomic> LockWord<A> {
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.0.load() != FREE
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_hold(&self) -> bool {
        self.0.exchange(FREE, HELD)
    }

    /// Takes the lock if it is free; else its holder will look for waiters. Called under the queue's lock.
    pub(super) fn hold_or_contend(&self) -> bool {
        self.0.swap(CONTENDED) == FREE
    }

    /// Frees the lock if it is held and nobody has come since.
    #[inline]
    pub(super) fn try_release(&self) -> bool {
        self.0.exchange(HELD, FREE)
    }

    /// Says who holds the lock next. Called under the queue's lock.
    pub(super) fn next<W>(&self, waiters: &mut WaitQueue<W>) -> Next<W> {
        if !self.is_held() {
            return Next::WasFree;
        }
        let next = waiters.pop();
        self.0.store(if waiters.is_empty() { HELD } else { CONTENDED });
        next.map_or(Next::Nobody, Next::Waiter)
    }

    /// Frees the lock, or gives it to whom `next` names: [`next`](Self::next) under the queue's lock.
    pub(super) fn release<W>(&self, mut next: impl FnMut() -> Next<W>) -> Next<W> {
        loop {
            let next = next();
            // The queue's lock has been released. Who has come since has made the word `CONTENDED`, and is found then.
            if !matches!(next, Next::Nobody) || self.try_release() {
                return next;
            }
        }
    }
}

#[cfg(all(test, yonder_loom))]
mod model {
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::{sync::atomic, thread};

    use super::*;

    /// Memory that one thread frees in the end: loom fails if a touch of another does not come before that.
    type Memory = Arc<UnsafeCell<()>>;

    struct Word {
        word: atomic::AtomicU32,
        memory: Memory,
    }

    impl Word {
        fn touched(&self) -> &atomic::AtomicU32 {
            self.memory.with(|_| ());
            &self.word
        }
    }

    impl Atomic for Word {
        fn load(&self) -> u32 {
            self.touched().load(Ordering::Relaxed)
        }

        fn store(&self, value: u32) {
            self.touched().store(value, Ordering::Release);
        }

        fn swap(&self, value: u32) -> u32 {
            self.touched().swap(value, Ordering::Acquire)
        }

        fn exchange(&self, from: u32, to: u32) -> bool {
            self.touched().compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        }
    }

    /// Whether it is a waiter's turn, and how that is told.
    type Turn = Arc<(Mutex<bool>, Condvar)>;

    /// A lock whose waiters block, and how many threads need it still, who touch that while they hold it.
    struct Bench {
        word: LockWord<Word>,
        waiters: Mutex<WaitQueue<Turn>>,
        memory: Memory,
        needed_by: atomic::AtomicUsize,
    }

    impl Bench {
        fn new(threads: usize) -> Self {
            let memory = Memory::default();
            Self {
                word: LockWord(Word { word: atomic::AtomicU32::new(FREE), memory: Arc::clone(&memory) }),
                waiters: Mutex::new(WaitQueue::new()),
                memory,
                needed_by: atomic::AtomicUsize::new(threads),
            }
        }

        fn with_waiters<R>(&self, look: impl FnOnce(&mut WaitQueue<Turn>) -> R) -> R {
            let mut waiters = self.waiters.lock().unwrap();
            let result = look(&mut waiters);
            // The queue's lock lies there too, and is touched when it is released.
            self.memory.with(|_| ());
            result
        }

        fn hold(&self) {
            if self.word.try_hold() {
                return;
            }
            let turn = Turn::default();
            let is_queued = self.with_waiters(|waiters| {
                let is_queued = !self.word.hold_or_contend();
                if is_queued {
                    waiters.0.push_back(Arc::clone(&turn));
                }
                is_queued
            });
            let mut is_my_turn = turn.0.lock().unwrap();
            while is_queued && !*is_my_turn {
                is_my_turn = turn.1.wait(is_my_turn).unwrap();
            }
        }

        fn release(&self) {
            if self.word.try_release() {
                return;
            }
            match self.word.release(|| self.with_waiters(|waiters| self.word.next(waiters))) {
                Next::Waiter(turn) => {
                    *turn.0.lock().unwrap() = true;
                    turn.1.notify_one();
                }
                Next::Nobody => {}
                Next::WasFree => panic!("it is held"),
            }
        }

        /// As in the example of POSIX's `pthread_mutex_destroy`.
        fn need_no_more(&self) {
            self.hold();
            let others = self.needed_by.load(Ordering::Relaxed) - 1;
            self.needed_by.store(others, Ordering::Relaxed);
            self.release();
            if others == 0 {
                self.memory.with_mut(|_| ());
            }
        }
    }

    /// One at a time holds it, nobody waits for ever, and who was the last to need it may free it.
    #[test]
    fn a_lock_may_be_freed_by_the_last_that_has_held_it() {
        loom::model(|| {
            let bench = Arc::new(Bench::new(3));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let bench = Arc::clone(&bench);
                    thread::spawn(move || bench.need_no_more())
                })
                .collect();
            bench.need_no_more();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(bench.needed_by.load(Ordering::Relaxed), 0);
        });
    }
}
