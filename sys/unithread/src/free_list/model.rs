//! Models of [`FreeList`]: an index has one owner, who sees what the owner before did, and one caller is last.
//!
//! [`Slots`] stands for what the indices name: plain memory that only the owner of an index touches.
//!
//! Every attempt begins with its turn, a step that says only that it begins. Loom tries both orders of two steps that
//! change one atomic, but forgets a load of one thread once another has loaded too: without turns it would never let
//! the second attempt end before the first begins.

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread::{self, JoinHandle};

use super::{FreeList, Homecoming};

struct Slots {
    list: FreeList,
    owned: Vec<AtomicBool>,
    /// How often each slot was taken. Read and written relaxed: only the list orders one owner after the other.
    uses: Vec<AtomicU32>,
    turn: AtomicU32,
}

impl Slots {
    fn new(len: u32) -> Arc<Self> {
        Arc::new(Self {
            list: FreeList::full(len),
            owned: (0..len).map(|_| AtomicBool::new(false)).collect(),
            uses: (0..len).map(|_| AtomicU32::new(0)).collect(),
            turn: AtomicU32::new(0),
        })
    }

    fn take(&self) -> Option<u32> {
        self.take_turn();
        let index = self.list.pop()?;
        assert!(!self.owned[index as usize].swap(true, Ordering::Relaxed), "index {index} was given out twice");
        let uses = &self.uses[index as usize];
        uses.store(uses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(index)
    }

    fn give(&self, index: u32) -> Homecoming {
        self.owned[index as usize].store(false, Ordering::Relaxed);
        self.take_turn();
        self.list.push(index)
    }

    fn close(&self) -> Homecoming {
        self.take_turn();
        self.list.close()
    }

    fn take_turn(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    fn uses(&self) -> u32 {
        self.uses.iter().map(|uses| uses.load(Ordering::Relaxed)).sum()
    }

    fn spawn<T: 'static>(self: &Arc<Self>, work: impl FnOnce(&Self) -> T + 'static) -> JoinHandle<T> {
        let slots = Arc::clone(self);
        thread::spawn(move || work(&slots))
    }
}

#[test]
fn an_index_has_one_owner_who_sees_what_the_one_before_did() {
    loom::model(|| {
        let slots = Slots::new(1);
        let take_and_give = |slots: &Slots| match slots.take() {
            Some(index) => {
                assert_eq!(slots.give(index), Homecoming::OthersRemain);
                1
            }
            None => 0,
        };
        let others = [slots.spawn(take_and_give), slots.spawn(take_and_give)];
        let taken = take_and_give(&slots) + others.map(|other| other.join().unwrap()).iter().sum::<u32>();
        assert_eq!(slots.uses(), taken, "an owner did not see what the one before did");
        assert_eq!((slots.take(), slots.take()), (Some(0), None));
    });
}

#[test]
fn a_pop_overtaken_by_pop_and_push_of_its_index_notices() {
    loom::model(|| {
        let slots = Slots::new(3);
        let slow = slots.spawn(Slots::take);
        // The index on top comes home again, the one below it stays out.
        let first = slots.take().unwrap();
        let second = slots.take().unwrap();
        slots.give(first);
        let third = slow.join().unwrap();
        assert!(third.is_some_and(|third| third != second));
        assert!(slots.take().is_some(), "an index was lost");
        assert_eq!(slots.take(), None);
    });
}

#[test]
fn a_close_against_pushes_names_one_last_who_sees_what_all_did() {
    loom::model(|| {
        let slots = Slots::new(2);
        let out = [slots.take().unwrap(), slots.take().unwrap()];
        let end = |slots: &Slots, coming_home: Homecoming| {
            // Whoever is last frees the slots, so the last touch of each must be over.
            assert!(coming_home == Homecoming::OthersRemain || slots.uses() == 4, "a slot is still in use");
            u32::from(coming_home == Homecoming::Last)
        };
        let pushers = out.map(|index| {
            slots.spawn(move |slots: &Slots| {
                slots.uses[index as usize].store(2, Ordering::Relaxed);
                end(slots, slots.give(index))
            })
        });
        let closing = end(&slots, slots.close());
        let lasts = closing + pushers.map(|pusher| pusher.join().unwrap()).iter().sum::<u32>();
        assert_eq!(lasts, 1);
    });
}

#[test]
fn a_close_against_a_pop_gives_nothing_out_after_the_last() {
    loom::model(|| {
        let slots = Slots::new(2);
        let user = slots.spawn(|slots: &Slots| match slots.take() {
            Some(index) => u32::from(slots.give(index) == Homecoming::Last),
            None => 0,
        });
        let closing = u32::from(slots.close() == Homecoming::Last);
        assert_eq!(slots.list.pop(), None);
        assert_eq!(closing + user.join().unwrap(), 1);
    });
}
