//! [`Inbox`]: where other threads name the light threads of a worker that may go on.
//!
//! The worker asks for post at each turn, which costs it one load while there is none. A light thread is named at most
//! once for one wait, so an inbox with room for all of them never allocates.
//!
//! Neighbours: `local` has one for each worker, and wakes the worker after posting; `wait_word` sees to it that a wait
//! ends once.

use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::atomic::{AtomicBool, Mutex, Ordering};

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Inbox {
    has_post: AtomicBool,
    tokens: Mutex<Vec<u32>>,
}

impl Inbox {
    /// An empty inbox with room for so many light threads.
    pub(super) fn new(light_threads: usize) -> Self {
        Self { has_post: AtomicBool::new(false), tokens: Mutex::new(Vec::with_capacity(light_threads)) }
    }

    /// Names a light thread.
    pub(super) fn post(&self, token: u32) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.push(token);
        self.has_post.store(true, Ordering::Release);
    }

    /// Whether there is post.
    #[inline]
    pub(super) fn has_post(&self) -> bool {
        self.has_post.load(Ordering::Acquire)
    }

    /// Appends what was posted, in the order in which it was.
    #[inline]
    pub(super) fn collect(&self, ready: &mut VecDeque<u32>) {
        if self.has_post() {
            let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            self.has_post.store(false, Ordering::Relaxed);
            ready.extend(tokens.drain(..));
        }
    }
}

#[cfg(all(test, yonder_loom))]
mod model {
    use loom::sync::atomic::AtomicU32;
    use loom::sync::{Arc, Condvar};
    use loom::thread;

    use super::super::wait_word::{End, Signal, WaitWord};
    use super::*;
    use crate::park::Sleeper;

    /// A worker that sleeps by a token, as `std::thread::park` does, and its only light thread.
    struct Office {
        word: WaitWord,
        inbox: Inbox,
        sleeper: Sleeper,
        token: Mutex<bool>,
        token_given: Condvar,
        /// Calls that have ended the wait.
        ended: AtomicU32,
    }

    impl Office {
        fn new() -> Self {
            Self {
                word: WaitWord::default(),
                inbox: Inbox::new(1),
                sleeper: Sleeper::default(),
                token: Mutex::new(false),
                token_given: Condvar::new(),
                ended: AtomicU32::new(0),
            }
        }

        fn wake(&self, ticket: super::super::wait_word::Ticket, signal: Signal) {
            let end = self.word.end(ticket, signal);
            if end == End::Stale {
                return;
            }
            self.ended.fetch_add(1, Ordering::Relaxed);
            if end == End::OfParked {
                self.inbox.post(7);
                self.sleeper.wake(|| {
                    *self.token.lock().unwrap() = true;
                    self.token_given.notify_one();
                });
            }
        }

        fn sleep(&self) {
            let mut token = self.token.lock().unwrap();
            while !*token {
                token = self.token_given.wait(token).unwrap();
            }
            *token = false;
        }
    }

    /// Two wakers, one of them too late: the wait ends once, the light thread is named once if it has parked, and a
    /// lost wake-up would be a deadlock, which loom reports.
    #[test]
    fn a_wait_ends_once_and_no_wake_up_is_lost() {
        loom::model(|| {
            let office = Arc::new(Office::new());
            let ticket = office.word.begin();
            let wakers: Vec<_> = [Signal::Granted, Signal::Closed]
                .into_iter()
                .map(|signal| {
                    let office = Arc::clone(&office);
                    thread::spawn(move || office.wake(ticket, signal))
                })
                .collect();
            let mut ready = VecDeque::new();
            if office.word.park(ticket) {
                loop {
                    office.inbox.collect(&mut ready);
                    if !ready.is_empty() {
                        break;
                    }
                    office.sleeper.sleep(|| office.inbox.has_post(), || office.sleep());
                }
            }
            assert!(office.word.signal(ticket).is_some(), "a light thread goes on when its wait is over");
            let named = ready.len();
            wakers.into_iter().for_each(|waker| waker.join().unwrap());
            office.inbox.collect(&mut ready);
            assert_eq!((ready.len(), office.ended.load(Ordering::Relaxed)), (named, 1), "it is named once");
        });
    }
}
