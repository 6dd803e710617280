//! [`KeySpace`]: which keys there are, while inserts add to them.
//!
//! Keys are numbered from 0. An insert takes the next number when it is sent, so no two ever collide; a key may be read
//! once it and all before it have been answered (YCSB's `AcknowledgedCounterGenerator`), so that no read comes before
//! its insert.
//!
//! Touched by every loading thread. Invariant: `stored <= next`, and neither ever falls.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The keys of a load.
#[derive(Debug)]
pub(crate) struct KeySpace {
    /// The key of the next insert.
    next: AtomicU64,
    /// Every key below this one may be read.
    stored: AtomicU64,
    /// Keys that were answered before one below them; at most as many as there are inserts under way.
    early: Mutex<BTreeSet<u64>>,
}

impl KeySpace {
    /// With `keys` keys at the start.
    pub(crate) fn new(keys: u64) -> Self {
        Self { next: AtomicU64::new(keys), stored: AtomicU64::new(keys), early: Mutex::default() }
    }

    /// An insert is about to be sent: its key.
    pub(crate) fn begin_insert(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The insert of `key` is over: it was stored, or refused, or lost with its connection. In the last cases a get of
    /// it may miss, which is counted.
    pub(crate) fn end_insert(&self, key: u64) {
        let mut early = self.early.lock().expect("no thread panics while it holds the early keys");
        early.insert(key);
        // Only who holds the lock changes it, so that this cannot be overtaken.
        let mut stored = self.stored.load(Ordering::Relaxed);
        while early.remove(&stored) {
            stored += 1;
        }
        self.stored.store(stored, Ordering::Release);
    }

    /// How many keys may be read: those from 0 up to this.
    pub(crate) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn threads_never_insert_the_same_key() {
        let keys = KeySpace::new(100);
        let insert = || {
            let mut mine = Vec::new();
            for _ in 0..1_000 {
                let key = keys.begin_insert();
                assert!(keys.stored() <= key, "a key that is being inserted may not be read");
                keys.end_insert(key);
                mine.push(key);
            }
            mine
        };
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(insert)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert_eq!(all, (100..4_100).collect::<Vec<u64>>());
        assert_eq!(keys.stored(), 4_100);
        assert!(keys.early.lock().unwrap().is_empty());
    }

    proptest! {
        /// Inserts that are answered in any order: what may be read is the longest run that was answered.
        #[test]
        fn a_key_may_be_read_when_all_before_it_are_there(order in Just((10u64..40).collect::<Vec<_>>()).prop_shuffle()) {
            let keys = KeySpace::new(10);
            let begun: Vec<u64> = order.iter().map(|_| keys.begin_insert()).collect();
            prop_assert_eq!(begun, (10..40).collect::<Vec<u64>>());
            for answered in 1..=order.len() {
                keys.end_insert(order[answered - 1]);
                let run = (10..).take_while(|key| order[..answered].contains(key)).count() as u64;
                prop_assert_eq!(keys.stored(), 10 + run);
            }
        }
    }
}
