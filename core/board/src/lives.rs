//! [`Lives`]: which life of an address space is the present one, so that a capability of an earlier one opens nothing.
//!
//! A hash table of a fixed size with one word for each address space there is. Every number of an address space that
//! begins, or whose capabilities are revoked, gets a number for its life that none had before, and that its
//! capabilities have inside.
//!
//! Who touches what: the slow path alone changes words, each by one store; any thread looks. A word is whole, so a
//! reader sees a life that was, and at worst refuses what has just begun. What ends leaves a mark that keeps the way to
//! those behind it, until nothing is behind it.
//!
//! Beside each word is whose account pays for the address space, with its number again: a place has changed hands if
//! that is another's.

use crate::accounts::AccountNumber;
use crate::address::Pid;
use crate::atomic::{AtomicU64, Ordering};

/// Places for each address space that there may be: so that ways stay short.
const PLACES_PER_SPACE: usize = 4;
/// Most places, whatever the limit of address spaces.
const PLACES_MAX: usize = 1 << 22;
/// Nothing is here, nor behind here.
const EMPTY: u64 = 0;
/// Nothing is here; something may be behind.
const GONE: u64 = 1;
/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A life: at most [`LIFE_MAX`].
pub(crate) type Life = u32;
/// The last life. Capabilities have 31 bits for it.
pub(crate) const LIFE_MAX: Life = (1 << 31) - 1;

/// The present lives.
#[derive(Debug)]
pub(crate) struct Lives {
    places: Box<[AtomicU64]>,
    /// Who pays, as [`word`] makes it.
    payers: Box<[AtomicU64]>,
}

impl Lives {
    /// Room for so many address spaces.
    pub(crate) fn new(spaces_max: usize) -> Self {
        let places = spaces_max.saturating_mul(PLACES_PER_SPACE).clamp(2 * PLACES_PER_SPACE, PLACES_MAX);
        let empty = || (0..places.next_power_of_two()).map(|_| AtomicU64::new(EMPTY)).collect();
        Self { places: empty(), payers: empty() }
    }

    /// Whether this life of the address space is the present one.
    #[inline]
    pub(crate) fn is_present(&self, pid: Pid, life: Life) -> bool {
        let wanted = word(pid, life);
        for place in self.way(pid) {
            match self.places[place].load(Ordering::Acquire) {
                EMPTY => return false,
                found if found == wanted => return true,
                _ => {}
            }
        }
        false
    }

    /// Who pays for an address space, if it lives.
    pub(crate) fn payer_of(&self, pid: Pid) -> Option<AccountNumber> {
        let payer = self.payers[self.place_of(pid)?].load(Ordering::Acquire);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        (payer >> u32::BITS == u64::from(pid.get())).then_some(AccountNumber::of(payer as u32))
    }

    /// Begins the life of an address space that has none, and for which `payer` pays. False if there is no room. Only
    /// the slow path calls this, and the rest that changes something.
    pub(crate) fn begin(&self, pid: Pid, life: Life, payer: AccountNumber) -> bool {
        debug_assert!(self.place_of(pid).is_none(), "{pid:?} lives already");
        let vacant = self.way(pid).find(|place| self.places[*place].load(Ordering::Relaxed) <= GONE);
        if let Some(place) = vacant {
            self.payers[place].store(word(pid, payer.get()), Ordering::Release);
            self.places[place].store(word(pid, life), Ordering::Release);
        }
        vacant.is_some()
    }

    /// Puts another life in the place of the present one.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn renew(&self, pid: Pid, life: Life) {
        let place = self.place_of(pid).expect("only what lives gets another life");
        self.places[place].store(word(pid, life), Ordering::Release);
    }

    /// Ends the life of an address space.
    ///
    /// # Panics
    /// If it has none.
    pub(crate) fn end(&self, pid: Pid) {
        let mut place = self.place_of(pid).expect("only what lives ends");
        self.places[place].store(GONE, Ordering::Release);
        let last = self.places.len() - 1;
        if self.places[(place + 1) & last].load(Ordering::Relaxed) != EMPTY {
            return;
        }
        // Nothing is behind these marks any more.
        while self.places[place].load(Ordering::Relaxed) == GONE {
            self.places[place].store(EMPTY, Ordering::Release);
            place = place.wrapping_sub(1) & last;
        }
    }

    /// Bytes that it takes, however many address spaces there are.
    pub(crate) fn bytes(&self) -> u64 {
        2 * size_of_val::<[AtomicU64]>(&self.places) as u64
    }

    fn place_of(&self, pid: Pid) -> Option<usize> {
        let mut way = self.way(pid).map(|place| (place, self.places[place].load(Ordering::Relaxed)));
        way.find_map(|(place, found)| match found {
            EMPTY => Some(None),
            found if found >> u32::BITS == u64::from(pid.get()) => Some(Some(place)),
            _ => None,
        })?
    }

    /// Where to look for an address space, in this order.
    #[inline]
    fn way(&self, pid: Pid) -> impl Iterator<Item = usize> + use<> {
        let places = self.places.len();
        let hash = u64::from(pid.get()).wrapping_mul(GOLDEN);
        #[expect(clippy::cast_possible_truncation, reason = "as many bits as there are places")]
        let first = (hash >> (u64::BITS - places.ilog2())) as usize;
        (0..places).map(move |step| (first + step) & (places - 1))
    }
}

fn word(pid: Pid, life: Life) -> u64 {
    u64::from(pid.get()) << u32::BITS | u64::from(life)
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn pid(number: u32) -> Pid {
        Pid::new(number).unwrap()
    }

    proptest! {
        /// Against a map, in a table that is so small that ways cross.
        #[test]
        fn keeps_what_a_map_would_keep(steps in prop::collection::vec((1u32..12, 0u8..3), 0..200)) {
            let lives = Lives::new(2);
            let (mut model, mut last) = (HashMap::new(), 0);
            for (number, what) in steps {
                last += 1;
                match (what, model.contains_key(&number)) {
                    (0, false) => {
                        let has_room = lives.begin(pid(number), last, AccountNumber::of(number + 7));
                        prop_assert_eq!(has_room, model.len() < lives.places.len());
                        if has_room {
                            model.insert(number, last);
                        }
                    }
                    (1, true) => {
                        lives.renew(pid(number), last);
                        model.insert(number, last);
                    }
                    (2, true) => {
                        lives.end(pid(number));
                        model.remove(&number);
                    }
                    _ => {}
                }
                for number in 1..12 {
                    for life in 0..=last {
                        let expected = model.get(&number) == Some(&life);
                        prop_assert_eq!(lives.is_present(pid(number), life), expected);
                    }
                    let payer = model.get(&number).map(|_| AccountNumber::of(number + 7));
                    prop_assert_eq!(lives.payer_of(pid(number)), payer);
                }
            }
            for number in model.into_keys() {
                lives.end(pid(number));
            }
            prop_assert!(lives.places.iter().all(|place| place.load(Ordering::Relaxed) <= GONE));
        }
    }

    /// Readers beside an owner that lets neighbours come and go: what lives is found all the time.
    #[test]
    fn what_stays_is_found_while_others_come_and_go() {
        let lives = Lives::new(2);
        // One place is left for it behind others at first.
        for number in 1..7 {
            assert!(lives.begin(pid(number), 1, AccountNumber::SHARED));
        }
        std::thread::scope(|scope| {
            let reader =
                scope.spawn(|| (0..200_000).all(|_| lives.is_present(pid(6), 1) && !lives.is_present(pid(6), 2)));
            for life in 2..2000 {
                for number in [1, 2, 3, 4, 5, 7] {
                    if number < 7 {
                        lives.end(pid(number));
                    }
                    assert!(lives.begin(pid(number + 100), life, AccountNumber::SHARED));
                    lives.end(pid(number + 100));
                    if number < 7 {
                        assert!(lives.begin(pid(number), life, AccountNumber::SHARED));
                    }
                }
            }
            assert!(reader.join().unwrap());
        });
    }
}

#[cfg(all(test, yonder_loom))]
mod models {
    use loom::sync::Arc;

    use super::*;

    /// One that stays is found, whatever becomes of one whose place is on the way to it.
    #[test]
    fn a_way_is_never_cut() {
        loom::model(|| {
            let lives = Arc::new(Lives::new(1));
            // Two whose ways begin at one place.
            let first = |pid: Pid| lives.way(pid).next();
            let one = Pid::new(1).unwrap();
            let other = (2..).filter_map(Pid::new).find(|pid| first(*pid) == first(one)).unwrap();
            assert!(lives.begin(one, 1, AccountNumber::SHARED) && lives.begin(other, 2, AccountNumber::SHARED));
            let reader = {
                let lives = Arc::clone(&lives);
                loom::thread::spawn(move || assert!(lives.is_present(other, 2), "it was missed"))
            };
            lives.end(one);
            assert!(lives.begin(one, 3, AccountNumber::SHARED));
            reader.join().unwrap();
            lives.end(other);
            assert!(!lives.is_present(other, 2) && lives.is_present(one, 3));
        });
    }
}
