//! Which versions of a key may be stored at a moment: the oracle behind the verification of values.
//!
//! A get that was sent after a set had been acknowledged must not see anything older, and nothing may be seen that was
//! never sent. Several connections write one key at once and the server may order their sets as it likes, so the
//! ledger knows a *least* version only after a quiet moment: when every set of a key has been answered, the stored
//! version is one of those that overlapped. With sets that do not overlap that is exactly the last one.
//!
//! Touched by every loading thread; each key's state is under the lock of its shard. Invariant of a key:
//! `least <= issued`, and `least` never falls.

use std::sync::{Mutex, MutexGuard};

use crate::key_space::KeySpace;
use crate::value::WrongValue;

/// Locks over all keys, so that threads seldom meet.
const SHARDS: u64 = 64;

/// Most sets of one key that may overlap.
pub(crate) const OVERLAP_MAX: usize = u16::MAX as usize;

/// How a set ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetOutcome {
    Stored,
    /// The server refused: what is stored now may be older than this set's group.
    Refused,
}

/// The versions of all keys. The upper half of a version is the ledger's epoch: versions that an earlier load left on
/// the server are of another epoch.
pub(crate) struct Ledger {
    epoch: u32,
    keys: KeySpace,
    shards: Vec<Mutex<Vec<KeyVersions>>>,
}

#[derive(Clone, Copy, Default, Debug)]
struct KeyVersions {
    /// The newest version that was sent; 0 before the first.
    issued: u32,
    /// Gets sent from now on must see at least this version; 0 when an earlier load's value may still be there.
    least: u32,
    /// First version of the group of overlapping sets that is being answered.
    group_first: u32,
    /// Sets sent and not yet answered.
    outstanding: u16,
    /// A set of the group was refused.
    group_refused: bool,
}

impl Ledger {
    pub(crate) fn new(keys: u64, epoch: u32) -> Self {
        let in_shard = |shard| vec![KeyVersions::default(); ((keys + SHARDS - 1 - shard) / SHARDS) as usize];
        let shards = (0..SHARDS).map(|shard| Mutex::new(in_shard(shard))).collect();
        Self { epoch, keys: KeySpace::new(keys), shards }
    }

    /// Which keys there are.
    pub(crate) fn keys(&self) -> &KeySpace {
        &self.keys
    }

    /// A set of `key` is about to be sent: the version to send. A key that was not there before is from now on.
    pub(crate) fn begin_set(&self, key: u64) -> u64 {
        let (mut shard, slot) = self.lock(key);
        if slot >= shard.len() {
            shard.resize(slot + 1, KeyVersions::default());
        }
        let state = &mut shard[slot];
        state.issued += 1;
        if state.outstanding == 0 {
            state.group_first = state.issued;
            state.group_refused = false;
        }
        state.outstanding += 1;
        u64::from(self.epoch) << 32 | u64::from(state.issued)
    }

    /// A set of `key` was answered. A set that is never answered keeps its group open for ever, which is right: it may
    /// still take effect at any time.
    pub(crate) fn end_set(&self, key: u64, outcome: SetOutcome) {
        let (mut shard, slot) = self.lock(key);
        let state = &mut shard[slot];
        state.outstanding -= 1;
        state.group_refused |= outcome == SetOutcome::Refused;
        if state.outstanding == 0 && !state.group_refused {
            state.least = state.group_first;
        }
    }

    /// A get of `key` is about to be sent: the least version that it must see.
    pub(crate) fn begin_get(&self, key: u64) -> u32 {
        let (shard, slot) = self.lock(key);
        shard[slot].least
    }

    /// A get of `key` has answered `version`, and `least` was required when it was sent.
    pub(crate) fn judge(&self, key: u64, version: u64, least: u32) -> Result<(), WrongValue> {
        let found = version as u32;
        if (version >> 32) as u32 != self.epoch {
            return if least == 0 { Ok(()) } else { Err(WrongValue::OfAnotherLoad { least }) };
        }
        let (shard, slot) = self.lock(key);
        if found == 0 || found > shard[slot].issued {
            Err(WrongValue::NeverStored { found })
        } else if found < least {
            Err(WrongValue::Stale { found, least })
        } else {
            Ok(())
        }
    }

    fn lock(&self, key: u64) -> (MutexGuard<'_, Vec<KeyVersions>>, usize) {
        let shard = self.shards[(key % SHARDS) as usize].lock().expect("no thread panics while it holds a shard");
        (shard, (key / SHARDS) as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EPOCH: u32 = 9;

    fn version(seq: u32) -> u64 {
        u64::from(EPOCH) << 32 | u64::from(seq)
    }

    #[test]
    fn an_acknowledged_set_makes_older_values_wrong() {
        let ledger = Ledger::new(100, EPOCH);
        assert_eq!(ledger.judge(99, 0xdead << 32 | 5, ledger.begin_get(99)), Ok(()), "an earlier load's value");
        let first = ledger.begin_set(99);
        assert_eq!(first, version(1));
        assert_eq!(ledger.begin_get(99), 0, "the set is not yet acknowledged");
        assert_eq!(ledger.judge(99, first, 0), Ok(()), "but may be seen already");
        ledger.end_set(99, SetOutcome::Stored);
        let second = ledger.begin_set(99);
        ledger.end_set(99, SetOutcome::Stored);
        let least = ledger.begin_get(99);
        assert_eq!(ledger.judge(99, second, least), Ok(()));
        assert_eq!(ledger.judge(99, first, least), Err(WrongValue::Stale { found: 1, least: 2 }));
        assert_eq!(ledger.judge(99, version(3), least), Err(WrongValue::NeverStored { found: 3 }));
        assert_eq!(ledger.judge(99, 0xdead << 32 | 5, least), Err(WrongValue::OfAnotherLoad { least: 2 }));
    }

    #[test]
    fn overlapping_sets_may_end_in_any_order() {
        let ledger = Ledger::new(1, EPOCH);
        let (first, second) = (ledger.begin_set(0), ledger.begin_set(0));
        ledger.end_set(0, SetOutcome::Stored);
        ledger.end_set(0, SetOutcome::Stored);
        let least = ledger.begin_get(0);
        assert_eq!(ledger.judge(0, first, least), Ok(()));
        assert_eq!(ledger.judge(0, second, least), Ok(()));
    }

    #[test]
    fn keys_that_are_inserted_are_known_from_then_on() {
        let ledger = Ledger::new(3, EPOCH);
        for key in 3..200 {
            assert_eq!(ledger.keys().begin_insert(), key);
            assert_eq!(ledger.begin_set(key), version(1));
            ledger.end_set(key, SetOutcome::Stored);
            ledger.keys().end_insert(key);
            assert_eq!(ledger.judge(key, version(1), ledger.begin_get(key)), Ok(()));
            assert!(ledger.judge(key, 0, ledger.begin_get(key)).is_err());
        }
    }

    #[test]
    fn a_refused_set_proves_nothing() {
        let ledger = Ledger::new(1, EPOCH);
        let first = ledger.begin_set(0);
        ledger.end_set(0, SetOutcome::Stored);
        ledger.begin_set(0);
        ledger.end_set(0, SetOutcome::Refused);
        assert_eq!(ledger.judge(0, first, ledger.begin_get(0)), Ok(()));
    }

    /// What one step of the model does: start a set, finish one of those that run, or get.
    #[derive(Clone, Debug)]
    enum Step {
        Begin,
        End(prop::sample::Index, bool),
        Get,
    }

    proptest! {
        /// A linearizable register: sets take effect when they end, in any order, or not at all. It is never blamed.
        #[test]
        fn a_correct_server_is_never_blamed(steps in prop::collection::vec(prop_oneof![
            Just(Step::Begin),
            (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(which, stored)| Step::End(which, stored)),
            Just(Step::Get),
        ], 0..200)) {
            let ledger = Ledger::new(1, EPOCH);
            let (mut running, mut stored_version) = (Vec::new(), 0x77u64 << 32);
            for step in steps {
                match step {
                    Step::Begin => running.push(ledger.begin_set(0)),
                    Step::End(which, stored) if !running.is_empty() => {
                        let version = running.swap_remove(which.index(running.len()));
                        if stored {
                            stored_version = version;
                        }
                        ledger.end_set(0, if stored { SetOutcome::Stored } else { SetOutcome::Refused });
                    }
                    Step::End(..) => {}
                    Step::Get => prop_assert_eq!(ledger.judge(0, stored_version, ledger.begin_get(0)), Ok(())),
                }
            }
        }
    }
}
