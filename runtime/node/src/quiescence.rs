//! [`QuiescentState`]: when nobody can still be using what was taken out of the page table.
//!
//! Threads that look pages up do so inside a visit, a batch of requests long, and keep nothing of it afterwards.
//! Whoever has removed pages waits until each visit that was under way has ended: later ones do not find the pages.
//!
//! A visitor's word is odd during a visit and grows with each step. The visitor alone writes it.

use crossbeam_utils::CachePadded;

use crate::atomic::{AtomicU64, Ordering, fence, yield_now};

/// The visits of a fixed number of threads.
#[derive(Debug)]
pub(crate) struct QuiescentState {
    visitors: Box<[CachePadded<AtomicU64>]>,
}

/// A visit, until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    word: &'a AtomicU64,
    number: u64,
}

impl QuiescentState {
    /// For `visitors` threads.
    pub(crate) fn new(visitors: usize) -> Self {
        Self { visitors: (0..visitors).map(|_| CachePadded::new(AtomicU64::new(0))).collect() }
    }

    /// Begins a visit of the thread with number `visitor`, which no other thread uses.
    #[inline]
    pub(crate) fn visit(&self, visitor: usize) -> ReadGuard<'_> {
        let word = &*self.visitors[visitor];
        let number = word.load(Ordering::Relaxed) + 1;
        assert!(number % 2 == 1, "a thread visits twice at a time");
        word.store(number, Ordering::Relaxed);
        // The visit is seen by whoever removes a page before anything is looked up in it.
        fence(Ordering::SeqCst);
        ReadGuard { word, number }
    }

    /// Waits until every visit has ended that began before pages were removed, by the caller and before this call.
    pub(crate) fn wait(&self) {
        // The removal is seen by every visit that this loop does not see.
        fence(Ordering::SeqCst);
        for word in &self.visitors {
            let seen = word.load(Ordering::Acquire);
            while seen % 2 == 1 && word.load(Ordering::Acquire) == seen {
                yield_now();
            }
        }
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.word.store(self.number + 1, Ordering::Release);
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn waiting_ends_with_the_visit_that_was_under_way() {
        let quiet = QuiescentState::new(2);
        quiet.wait();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let visit = quiet.visit(1);
            let (quiet, over) = (&quiet, &over);
            let waiting = scope.spawn(move || {
                quiet.wait();
                assert!(over.load(Ordering::SeqCst), "a visit was under way");
            });
            for _ in 0..1000 {
                yield_now();
            }
            over.store(true, Ordering::SeqCst);
            drop(visit);
            waiting.join().unwrap();
        });
    }
}

#[cfg(all(test, yonder_loom))]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    use super::*;

    /// A page is removed from the table and given to another owner after the wait: no visit that found it uses it then.
    #[test]
    fn nobody_uses_a_removed_page_after_the_wait() {
        loom::model(|| {
            let quiet = Arc::new(QuiescentState::new(1));
            let in_table = Arc::new(AtomicBool::new(true));
            let is_reused = Arc::new(AtomicBool::new(false));
            let visitor = {
                let (quiet, in_table, is_reused) = (Arc::clone(&quiet), Arc::clone(&in_table), Arc::clone(&is_reused));
                loom::thread::spawn(move || {
                    for _ in 0..2 {
                        let visit = quiet.visit(0);
                        if in_table.load(Ordering::Acquire) {
                            assert!(!is_reused.load(Ordering::Relaxed), "a page is used after it was given away");
                        }
                        drop(visit);
                    }
                })
            };
            in_table.store(false, Ordering::Release);
            quiet.wait();
            is_reused.store(true, Ordering::Relaxed);
            visitor.join().unwrap();
        });
    }
}
