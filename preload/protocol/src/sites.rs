//! [`Sites`]: a table of the instructions that had faults, in words that several threads and processes change at a
//! time.
//!
//! Open addressing by the instruction's address. An entry is claimed by writing the address into it, once, as one step;
//! from then on it is only added to, so nothing is ever waited for. Entries are not given back. What finds none within
//! [`PROBES_MAX`] steps counts with the others.

/// Entries of the table.
pub const SITES: usize = 4096;
/// Entries that are looked at for an address.
const PROBES_MAX: usize = 32;
/// Words of an entry: the address, and a tally.
const ENTRY_WORDS: usize = 1 + TALLY_WORDS;
pub(crate) const TALLY_WORDS: usize = 3;

/// Faults, and how long they took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Faults that needed none.
    pub minor_faults: u64,
    /// How long all of them took, in nanoseconds.
    pub waited_ns: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
        self.waited_ns += other.waited_ns;
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |mut sum, tally| {
            sum += tally;
            sum
        })
    }
}

/// Words that several threads change at a time: those of a shared mapping, or of a model.
pub(crate) trait Words {
    /// The word at `index`.
    fn load(&self, index: usize) -> u64;
    /// Adds to it, as one step.
    fn add(&self, index: usize, count: u64);
    /// Writes `value` if it is zero, as one step; what it was.
    fn claim(&self, index: usize, value: u64) -> u64;
}

/// Adds to the tally at `index`.
#[inline]
pub(crate) fn add_tally(words: &impl Words, index: usize, tally: &Tally) {
    for (word, count) in [tally.major_faults, tally.minor_faults, tally.waited_ns].into_iter().enumerate() {
        if count > 0 {
            words.add(index + word, count);
        }
    }
}

/// The tally at `index`.
pub(crate) fn load_tally(words: &impl Words, index: usize) -> Tally {
    let [major_faults, minor_faults, waited_ns] = [0, 1, 2].map(|word| words.load(index + word));
    Tally { major_faults, minor_faults, waited_ns }
}

/// Where the table is among other words: `ENTRIES` entries from `first` on, then the tally of the others and the number
/// of entries that are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sites<const ENTRIES: usize> {
    pub(crate) first: usize,
}

impl<const ENTRIES: usize> Sites<ENTRIES> {
    pub(crate) const WORDS: usize = ENTRIES * ENTRY_WORDS + TALLY_WORDS + 1;

    fn others_at(self) -> usize {
        self.first + ENTRIES * ENTRY_WORDS
    }

    fn taken_at(self) -> usize {
        self.others_at() + TALLY_WORDS
    }

    /// Counts faults of the instruction at `address`, which is not zero.
    #[inline]
    pub(crate) fn count(self, words: &impl Words, address: u64, tally: &Tally) {
        let start = hash(address) as usize % ENTRIES;
        for probe in 0..PROBES_MAX.min(ENTRIES) {
            let entry = self.first + (start + probe) % ENTRIES * ENTRY_WORDS;
            let mut owner = words.load(entry);
            if owner == 0 {
                owner = words.claim(entry, address);
                if owner == 0 {
                    words.add(self.taken_at(), 1);
                    owner = address;
                }
            }
            if owner == address {
                return add_tally(words, entry + 1, tally);
            }
        }
        add_tally(words, self.others_at(), tally);
    }

    /// How many entries are taken, or will be in a moment.
    pub(crate) fn taken(self, words: &impl Words) -> u64 {
        words.load(self.taken_at())
    }

    /// The addresses, and what was counted of each.
    pub(crate) fn list(self, words: &impl Words) -> Vec<(u64, Tally)> {
        let entries = (0..ENTRIES).map(|entry| self.first + entry * ENTRY_WORDS);
        let taken = entries.filter(|entry| words.load(*entry) != 0);
        taken.map(|entry| (words.load(entry), load_tally(words, entry + 1))).collect()
    }

    /// What found no entry.
    pub(crate) fn others(self, words: &impl Words) -> Tally {
        load_tally(words, self.others_at())
    }
}

/// Spreads addresses, which are near to one another, over all values.
#[inline]
fn hash(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::collections::HashMap;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    impl Words for Vec<AtomicU64> {
        fn load(&self, index: usize) -> u64 {
            self[index].load(Ordering::Relaxed)
        }

        fn add(&self, index: usize, count: u64) {
            self[index].fetch_add(count, Ordering::Relaxed);
        }

        fn claim(&self, index: usize, value: u64) -> u64 {
            let claimed = self[index].compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed);
            claimed.unwrap_or_else(|was| was)
        }
    }

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    const MAJOR: Tally = Tally { major_faults: 1, minor_faults: 0, waited_ns: 10 };
    const MINOR: Tally = Tally { major_faults: 0, minor_faults: 1, waited_ns: 1 };

    #[test]
    fn a_full_table_counts_others_and_loses_nothing() {
        let table = Sites::<64> { first: 5 };
        let words = words(5 + Sites::<64>::WORDS);
        let mut model: HashMap<u64, Tally> = HashMap::new();
        for round in 0..3 {
            for address in (1..=200).map(|number| 0x5555_0000 + number * 7) {
                let tally = if (address + round) % 2 == 0 { MAJOR } else { MINOR };
                table.count(&words, address, &tally);
                *model.entry(address).or_default() += tally;
            }
        }
        let (list, others) = (table.list(&words), table.others(&words));
        assert!(list.len() > 32 && list.len() as u64 == table.taken(&words), "{} entries", list.len());
        assert!(list.iter().all(|(address, tally)| model[address] == *tally), "an address has what was another's");
        let mut sum: Tally = list.iter().map(|(_, tally)| *tally).sum();
        assert!(others.major_faults > 0 && others.minor_faults > 0, "{others:?}");
        sum += others;
        assert_eq!(sum, model.values().copied().sum());
        assert!(words[..5].iter().all(|word| word.load(Ordering::Relaxed) == 0), "it wrote before its first word");
    }

    #[test]
    fn writers_at_the_same_time_lose_nothing() {
        const WRITERS: u64 = 4;
        const ADDRESSES: u64 = 3000;
        const ROUNDS: u64 = 5;
        let table = Sites::<SITES> { first: 0 };
        for _ in 0..20 {
            let (words, together) = (words(Sites::<SITES>::WORDS), Barrier::new(WRITERS as usize));
            std::thread::scope(|scope| {
                for _ in 0..WRITERS {
                    // All meet the same addresses in the same order, so that they claim the same entries.
                    scope.spawn(|| {
                        together.wait();
                        (0..ROUNDS * ADDRESSES).for_each(|at| table.count(&words, 1 + at % ADDRESSES * 64, &MAJOR));
                    });
                }
            });
            let list = table.list(&words);
            assert_eq!(table.taken(&words), list.len() as u64, "an entry was claimed twice");
            let others = table.others(&words).major_faults;
            assert_eq!(WRITERS * ROUNDS * list.len() as u64 + others, WRITERS * ROUNDS * ADDRESSES);
            for (address, tally) in &list {
                assert_eq!(tally.major_faults, WRITERS * ROUNDS, "of {address}");
            }
            let mut addresses: Vec<u64> = list.iter().map(|(address, _)| *address).collect();
            addresses.sort_unstable();
            assert!(addresses.windows(2).all(|pair| pair[0] != pair[1]), "an address has two entries");
        }
    }
}

/// Every interleaving of two threads that meet the same entries.
#[cfg(all(test, yonder_loom))]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    impl Words for Vec<AtomicU64> {
        fn load(&self, index: usize) -> u64 {
            self[index].load(Ordering::Relaxed)
        }

        fn add(&self, index: usize, count: u64) {
            self[index].fetch_add(count, Ordering::Relaxed);
        }

        fn claim(&self, index: usize, value: u64) -> u64 {
            let claimed = self[index].compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed);
            claimed.unwrap_or_else(|was| was)
        }
    }

    #[test]
    fn an_address_has_one_entry_and_nothing_is_lost() {
        loom::model(|| {
            const MINOR: Tally = Tally { major_faults: 0, minor_faults: 1, waited_ns: 0 };
            // With two entries everything meets everything, and the third address has none.
            let table = Sites::<2> { first: 0 };
            let words: Arc<Vec<AtomicU64>> = Arc::new((0..Sites::<2>::WORDS).map(|_| AtomicU64::new(0)).collect());
            let threads = [[7, 8], [8, 9]].map(|addresses| {
                let words = Arc::clone(&words);
                loom::thread::spawn(move || addresses.map(|address| table.count(&*words, address, &MINOR)))
            });
            for thread in threads {
                thread.join().unwrap();
            }
            let list = table.list(&*words);
            assert!(list.len() == 2 && list[0].0 != list[1].0, "{list:?}");
            assert_eq!(table.taken(&*words), 2);
            let counted: u64 = list.iter().map(|(_, tally)| tally.minor_faults).sum();
            assert_eq!(counted + table.others(&*words).minor_faults, 4);
            for (address, tally) in list {
                assert_eq!(tally.minor_faults, if address == 8 { 2 } else { 1 }, "of {address}");
            }
        });
    }
}
