//! [`Table::keys`]: which keys there are, told a part at a time while others put and delete.
//!
//! A key's position is its hash with the bits in reverse order. The keys of a bucket have the lowest bits of their
//! hashes in common, so the bucket has one range of positions, whatever its number; a split halves the range, and a
//! merge joins two halves. A walk through all positions in order thus meets every key once that stays, however the
//! buckets change meanwhile.
//!
//! Invariant: an answer ends where a range ends, of a bucket or of a half, quarter and so on of one. So callers learn
//! few bits of a key's hash.

use yonder_units::Narrow;
use yonder_wire::ErrorCode;

use super::protocol::{Answer, KEY_HEAD_BYTES, KEYS_BYTES_MAX, Keys};
use super::record::{Entry, RECORD_HEAD_BYTES, RecordHead};
use super::table::Table;
use crate::arena::Own;

/// Most buckets that are looked at for one answer.
const BUCKETS_TOLD_MAX: usize = 64;

/// Keys, as an answer has them.
#[derive(Debug, Default)]
pub(super) struct Told {
    packed: Vec<u8>,
    /// Where the next answer begins, or 0.
    next: u64,
}

impl Told {
    pub(super) fn answer(&self) -> Answer<'_> {
        let keys = Keys::decode(&self.packed).expect("keys are packed whole");
        Answer::Keys { next: self.next, keys }
    }
}

impl Table {
    /// Keys whose positions are `from` or behind it. The table has a bucket.
    pub(super) fn keys(&self, from: u64, own: &mut Own<'_>) -> Result<Told, ErrorCode> {
        let mut told = Told { packed: Vec::new(), next: from };
        for _ in 0..BUCKETS_TOLD_MAX {
            let bucket = self.bucket_of(told.next.reverse_bits());
            let found = self.keys_behind(bucket, told.next, own)?;
            let room = KEYS_BYTES_MAX - told.packed.len();
            let Some(last) = last_that_fits(&found, told.next, self.depth_of(bucket), room) else {
                // The next answer has room for it.
                return if told.packed.is_empty() { Err(ErrorCode::OutOfMemory) } else { Ok(told) };
            };
            for key in found.iter().filter(|key| key.position <= last) {
                let mut bytes = vec![0; key.bytes];
                own.read(key.record + RECORD_HEAD_BYTES as u64, &mut bytes)?;
                Keys::pack(&bytes, &mut told.packed);
            }
            told.next = last.wrapping_add(1);
            if told.next == 0 {
                break;
            }
        }
        Ok(told)
    }

    /// The keys of a bucket whose positions are `from` or behind it.
    fn keys_behind(&self, bucket: u64, from: u64, own: &mut Own<'_>) -> Result<Vec<Known>, ErrorCode> {
        let (entries, _) = self.read_chain(bucket, own)?;
        let known = |entry: Entry| {
            let record = entry.record();
            let head = RecordHead::read(record, own)?;
            Ok(Known { position: head.hash.reverse_bits(), record, bytes: u64::from(head.key_bytes).narrow_usize() })
        };
        let all: Result<Vec<Known>, ErrorCode> = entries.into_iter().map(known).collect();
        Ok(all?.into_iter().filter(|key| key.position >= from).collect())
    }
}

/// What is known of a key without reading it.
struct Known {
    position: u64,
    record: u64,
    bytes: usize,
}

/// The last position of the longest range that `from` is in, whose positions have at least `depth` bits in common, and
/// whose keys fit `room` bytes. `None` if there is none, for many keys with one hash.
fn last_that_fits(keys: &[Known], from: u64, depth: u32, room: usize) -> Option<u64> {
    (depth..=u64::BITS).find_map(|depth| {
        let last = from | u64::MAX.checked_shr(depth).unwrap_or(0);
        let told = keys.iter().filter(|key| key.position <= last);
        let bytes: usize = told.map(|key| KEY_HEAD_BYTES + key.bytes).sum();
        (bytes <= room).then_some(last)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::arena::Pool;
    use crate::fake_memory::FakeMemory;
    use crate::kv::PutMode;

    /// A table, and what it needs.
    struct Tried {
        table: Table,
        pool: Pool,
        memory: FakeMemory,
    }

    impl Tried {
        fn new() -> Self {
            Self { table: Table::new(5, u64::MAX), pool: Pool::default(), memory: FakeMemory::default() }
        }

        fn put(&mut self, key: &[u8]) {
            let own = &mut Own { pool: &mut self.pool, memory: &mut self.memory };
            self.table.put(key, &[], PutMode::Always, own).unwrap();
        }

        fn delete(&mut self, key: &[u8]) {
            let own = &mut Own { pool: &mut self.pool, memory: &mut self.memory };
            assert!(self.table.delete(key, own).unwrap());
        }

        /// All keys, each with how often it was told; `between` is called after each answer.
        fn all(&mut self, mut between: impl FnMut(&mut Self)) -> BTreeMap<Vec<u8>, usize> {
            let (mut from, mut all) = (0, BTreeMap::new());
            loop {
                let own = &mut Own { pool: &mut self.pool, memory: &mut self.memory };
                let told = self.table.keys(from, own).unwrap();
                let mut answer = Vec::new();
                told.answer().encode(&mut answer);
                assert!(answer.len() <= KEYS_BYTES_MAX + 16);
                let Ok(Answer::Keys { next, keys }) = Answer::decode(&answer) else { panic!("{answer:?}") };
                for key in keys.iter() {
                    *all.entry(key.to_vec()).or_default() += 1;
                }
                if next == 0 {
                    return all;
                }
                assert!(next > from);
                from = next;
                between(self);
            }
        }
    }

    fn key(number: u32) -> Vec<u8> {
        let mut key = number.to_le_bytes().to_vec();
        key.resize(4 + number as usize % 50, 1);
        key
    }

    #[test]
    fn every_key_is_told_once() {
        let mut tried = Tried::new();
        for count in 1..2000 {
            tried.put(&key(count));
            if count % 97 == 0 || count < 20 {
                let all = tried.all(|_| ());
                assert_eq!(all.len(), count as usize);
                assert!(all.values().all(|times| *times == 1));
            }
        }
    }

    #[test]
    fn keys_that_stay_are_told_once_while_the_table_grows_and_shrinks() {
        let mut tried = Tried::new();
        let stay: BTreeSet<Vec<u8>> = (0..3000).map(key).collect();
        stay.iter().for_each(|key| tried.put(key));
        let (mut next, mut there, mut turns) = (10_000, Vec::new(), 0);
        let all = tried.all(|tried| {
            turns += 1;
            for _ in 0..3000 {
                if turns % 2 == 1 {
                    tried.put(&key(next));
                    there.push(key(next));
                    next += 1;
                } else if let Some(key) = there.pop() {
                    tried.delete(&key);
                }
            }
        });
        assert!(turns > 5, "{turns}");
        assert!(stay.iter().all(|key| all.get(key) == Some(&1)));
        assert!(all.values().all(|times| *times == 1));
    }

    #[test]
    fn keys_that_do_not_fit_one_answer_are_told_in_several() {
        let mut tried = Tried::new();
        let large: BTreeSet<Vec<u8>> = (0..40u8).map(|number| vec![number; 4096]).collect();
        large.iter().for_each(|key| tried.put(key));
        let mut answers = 1;
        let all = tried.all(|_| answers += 1);
        assert!(answers > 40 / 4 && all.len() == 40 && all.keys().all(|key| large.contains(key)), "{answers}");
    }
}
