//! [`Pool`]: what parties share, so that a few have not all of it: places for connections, bytes of long lines.
//!
//! Any thread takes and gives back; all is behind one lock, which is held for a moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use yonder_board::Share;

use crate::desk::Party;

/// So many of something; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Shared>);

/// What a party has of a [`Pool`] in one place, which has it again when this is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    pool: Pool,
    party: Party,
    size: usize,
}

/// Why a party has no more: what is taken, and what of that is its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    pub(crate) taken: usize,
    pub(crate) own: usize,
}

#[derive(Debug)]
struct Shared {
    share: Share,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<Party, usize>,
}

impl Pool {
    pub(crate) fn new(share: Share) -> Self {
        Self(Arc::new(Shared { share, taken: Mutex::default() }))
    }

    /// Nothing of it yet.
    pub(crate) fn part_of(&self, party: Party) -> Part {
        Part { pool: self.clone(), party, size: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// Makes it as large as this at least, if its party's share has so much.
    pub(crate) fn grow_to(&mut self, size: usize) -> Result<(), Full> {
        let more = size.saturating_sub(self.size);
        if more == 0 {
            return Ok(());
        }
        let mut taken = self.pool.lock();
        let full = Full { taken: taken.all, own: taken.of.get(&self.party).copied().unwrap_or(0) };
        // The last one of them decides.
        if !self.pool.0.share.admits(full.taken + more - 1, full.own + more - 1) {
            return Err(full);
        }
        taken.all += more;
        *taken.of.entry(self.party.clone()).or_default() += more;
        drop(taken);
        self.size += more;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.size == 0 {
            return;
        }
        let mut taken = self.pool.lock();
        taken.all -= self.size;
        let own = taken.of.get_mut(&self.party).expect("what was taken is counted");
        *own -= self.size;
        if *own == 0 {
            taken.of.remove(&self.party);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Pool {
        pub(crate) fn taken(&self) -> usize {
            let taken = self.lock();
            assert_eq!(taken.all, taken.of.values().sum::<usize>());
            taken.all
        }
    }

    fn party(number: u64) -> Party {
        Party::Member(number.to_string())
    }

    #[test]
    fn one_has_its_share_of_any_sizes_and_gives_back_all_of_it() {
        let pool = Pool::new(Share { places_max: 100, of_one_max: 50, few_max: 10 });
        let mut first = [pool.part_of(party(1)), pool.part_of(party(1))];
        assert_eq!([first[0].grow_to(30), first[1].grow_to(20)], [Ok(()); 2]);
        assert_eq!(first[1].grow_to(21), Err(Full { taken: 50, own: 50 }));
        assert_eq!((first[1].grow_to(20), first[1].grow_to(3), first[1].size), (Ok(()), Ok(()), 20));
        let mut second = pool.part_of(party(2));
        assert!(second.grow_to(26).is_err(), "its last one were one of those that are kept");
        second.grow_to(25).unwrap();
        let few: Vec<Part> = (3..6)
            .map(|number| {
                let mut part = pool.part_of(party(number));
                assert!(part.grow_to(11).is_err());
                part.grow_to(if number < 5 { 10 } else { 5 }).unwrap();
                part
            })
            .collect();
        assert_eq!((pool.taken(), pool.part_of(party(9)).grow_to(1).is_err()), (100, true));
        drop((first, second, few));
        assert_eq!((pool.taken(), pool.lock().of.len()), (0, 0));
    }
}
