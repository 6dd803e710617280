//! Which slots of a pool are home: [`FreeList`], a lock-free stack of slot indices.
//!
//! Last in, first out, so that the slot taken next is the one whose stack is still in the cache. Any thread may pop,
//! push or close. After [`FreeList::close`] nothing can be popped, and exactly one caller (of `close` or of `push`) is
//! told that it brought the last index home; it may free what the indices stand for.
//!
//! Fields and who touches them: `head` and `outstanding_after_close` are changed by atomic read-modify-write by
//! anyone; `next[i]` is written only by the thread that is pushing `i`, which owns that index.

use crate::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The end of the list.
const NONE: u32 = u32::MAX;
/// Stands in the head once the list is closed.
const CLOSED: u32 = u32::MAX - 1;

/// A lock-free stack of the indices `0..len`, all of them in it at first.
pub(crate) struct FreeList {
    /// Low half: the index on top, [`NONE`] or [`CLOSED`]. High half: counts pops, so that a pop which was overtaken
    /// by pop and push of the same index notices (unless exactly 2^32 pops happened while it was interrupted).
    head: AtomicU64,
    /// `next[i]` is the index below `i` while `i` is home.
    next: Box<[AtomicU32]>,
    /// Zero until the list is closed, less one for every push that found it closed before `close` has counted.
    outstanding_after_close: AtomicI64,
}

/// Whether the pool behind a closed list may be freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Homecoming {
    /// Somebody else still needs it.
    OthersRemain,
    /// The list is closed and every index is home. Only one caller ever gets this.
    Last,
}

impl FreeList {
    /// A list with every index below `len` in it, lowest on top.
    pub(crate) fn full(len: u32) -> Self {
        assert!(len < CLOSED);
        let next = (1..=len).map(|below| AtomicU32::new(if below == len { NONE } else { below })).collect();
        let top = if len == 0 { NONE } else { 0 };
        Self { head: AtomicU64::new(u64::from(top)), next, outstanding_after_close: AtomicI64::new(0) }
    }

    /// Takes the index that came home last, or none if all are out or the list is closed.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half of the head is an index")]
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let top = head as u32;
            if top >= CLOSED {
                return None;
            }
            let below = self.next[top as usize].load(Ordering::Relaxed);
            let new = ((head >> 32).wrapping_add(1) << 32) | u64::from(below);
            match self.head.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(top),
                Err(now) => head = now,
            }
        }
    }

    /// Brings home an index that was popped before. The caller touches nothing of the pool afterwards, unless it is
    /// told that it is the last.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half of the head is an index")]
    pub(crate) fn push(&self, index: u32) -> Homecoming {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let top = head as u32;
            if top == CLOSED {
                return self.come_home_late();
            }
            self.next[index as usize].store(top, Ordering::Relaxed);
            let new = (head & !u64::from(u32::MAX)) | u64::from(index);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Homecoming::OthersRemain,
                Err(now) => head = now,
            }
        }
    }

    /// Ends popping, once.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half of the head is an index")]
    pub(crate) fn close(&self) -> Homecoming {
        let mut top = self.head.swap(u64::from(CLOSED), Ordering::AcqRel) as u32;
        assert!(top != CLOSED, "a free list is closed once");
        let mut outstanding = (self.next.len() as u64).cast_signed();
        while top != NONE {
            outstanding -= 1;
            top = self.next[top as usize].load(Ordering::Relaxed);
        }
        let late = self.outstanding_after_close.fetch_add(outstanding, Ordering::AcqRel);
        if late + outstanding == 0 { Homecoming::Last } else { Homecoming::OthersRemain }
    }

    #[cold]
    fn come_home_late(&self) -> Homecoming {
        // The count passes one only after `close` has added what was outstanding; before that it is zero or less.
        match self.outstanding_after_close.fetch_sub(1, Ordering::AcqRel) {
            1 => Homecoming::Last,
            _ => Homecoming::OthersRemain,
        }
    }
}

#[cfg(all(test, yonder_loom))]
mod model;

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_list_gives_nothing_and_closes_at_once() {
        let list = FreeList::full(0);
        assert_eq!(list.pop(), None);
        assert_eq!(list.close(), Homecoming::Last);
    }

    #[test]
    fn a_closed_list_gives_nothing_and_names_one_last_index() {
        let list = FreeList::full(3);
        let (a, b) = (list.pop().unwrap(), list.pop().unwrap());
        assert_eq!(list.close(), Homecoming::OthersRemain);
        assert_eq!(list.pop(), None);
        assert_eq!(list.push(a), Homecoming::OthersRemain);
        assert_eq!(list.push(b), Homecoming::Last);
    }

    #[test]
    fn a_pop_that_was_overtaken_notices() {
        let list = FreeList::full(3);
        let seen_by_the_slow_pop = list.head.load(Ordering::Relaxed);
        let (first, second) = (list.pop().unwrap(), list.pop().unwrap());
        list.push(first);
        // The same index is on top, but what was below it is out: the slow pop must fail to install it as the top.
        assert_eq!(list.head.load(Ordering::Relaxed) as u32, seen_by_the_slow_pop as u32);
        assert_ne!(list.head.load(Ordering::Relaxed), seen_by_the_slow_pop);
        assert_ne!(list.pop(), Some(second));
    }

    #[test]
    fn threads_never_share_an_index_and_one_is_last() {
        const INDICES: u32 = 4;
        const ROUNDS: u32 = if cfg!(miri) { 200 } else { 20_000 };
        let list = FreeList::full(INDICES);
        let owners: Vec<AtomicU32> = (0..INDICES).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let Some(index) = list.pop() else { continue };
                        let owner = &owners[index as usize];
                        assert_eq!(owner.fetch_add(1, Ordering::Relaxed), 0, "index {index} was given out twice");
                        owner.fetch_sub(1, Ordering::Relaxed);
                        assert_eq!(list.push(index), Homecoming::OthersRemain);
                    }
                });
            }
        });
        assert_eq!((0..INDICES).map(|_| list.pop().unwrap()).collect::<HashSet<_>>().len(), INDICES as usize);
    }

    #[test]
    fn closing_against_pushing_threads_names_exactly_one_last() {
        const ROUNDS: u32 = if cfg!(miri) { 50 } else { 2_000 };
        for _ in 0..ROUNDS {
            let list = FreeList::full(2);
            let out = [list.pop().unwrap(), list.pop().unwrap()];
            let results = std::thread::scope(|scope| {
                let list = &list;
                let pushers = out.map(|index| scope.spawn(move || list.push(index)));
                let closing = list.close();
                let [first, second] = pushers.map(|pusher| pusher.join().unwrap());
                [closing, first, second]
            });
            assert_eq!(results.iter().filter(|result| **result == Homecoming::Last).count(), 1);
        }
    }

    proptest! {
        /// Against the obvious model: a stack. An operation is "pop" or "push the n-th index that is out".
        #[test]
        fn behaves_like_a_stack(
            len in 0u32..20,
            operations in prop::collection::vec(prop::option::of(0usize..20), 0..200),
        ) {
            let list = FreeList::full(len);
            let mut home: Vec<u32> = (0..len).rev().collect();
            let mut out = Vec::new();
            for operation in operations {
                match operation {
                    None => {
                        let popped = list.pop();
                        prop_assert_eq!(popped, home.pop());
                        out.extend(popped);
                    }
                    Some(nth) if !out.is_empty() => {
                        let index = out.swap_remove(nth % out.len());
                        prop_assert_eq!(list.push(index), Homecoming::OthersRemain);
                        home.push(index);
                    }
                    Some(_) => {}
                }
            }
            let expected = if out.is_empty() { Homecoming::Last } else { Homecoming::OthersRemain };
            prop_assert_eq!(list.close(), expected);
            let last = out.len().checked_sub(1);
            for (nth, index) in out.into_iter().enumerate() {
                let expected = if Some(nth) == last { Homecoming::Last } else { Homecoming::OthersRemain };
                prop_assert_eq!(list.push(index), expected);
            }
        }
    }
}
