//! [`Words`]: what clients saw of words that are written whole, each time with another value, and whether one order of
//! all writes and reads explains it.
//!
//! It knows nothing of the node. All operations of one value form a *cluster*: its write and the reads that returned
//! it. They must stand together in any order that explains the history. If the first end in a cluster lies before the
//! last start, everything between is the cluster's own (a *forward* zone, in Gibbons and Korach, "Testing shared
//! memories", 1997); else the cluster fits at some point between last start and first end (a *backward* zone). The
//! history is linearizable if no two forward zones overlap and no backward zone lies inside a forward one.

use std::collections::BTreeMap;

/// When something began or ended: the number of a step, unique in a run.
pub(crate) type Tick = u64;

/// A word: the life of an allocation, and the address.
pub(crate) type WordName = (u32, u64);

/// Histories of all words.
#[derive(Default, Debug)]
pub(crate) struct Words {
    words: BTreeMap<WordName, BTreeMap<u64, Cluster>>,
}

#[derive(Clone, Copy, Debug)]
struct Cluster {
    /// When its write began, if anybody wrote it.
    write_start: Option<Tick>,
    first_end: Tick,
    last_start: Tick,
    was_seen: bool,
}

impl Words {
    /// `value` was to be written from `start`; until `end`, or nobody knows when or whether.
    pub(crate) fn write(&mut self, name: WordName, value: u64, start: Tick, end: Option<Tick>) {
        let cluster = self.cluster(name, value);
        cluster.write_start = Some(start);
        cluster.first_end = cluster.first_end.min(end.unwrap_or(Tick::MAX));
        cluster.last_start = cluster.last_start.max(start);
        cluster.was_seen |= end.is_some();
    }

    /// A read that lasted from `start` to `end` returned `value`.
    pub(crate) fn read(&mut self, name: WordName, value: u64, start: Tick, end: Tick) {
        let cluster = self.cluster(name, value);
        cluster.first_end = cluster.first_end.min(end);
        cluster.last_start = cluster.last_start.max(start);
        cluster.was_seen = true;
    }

    /// Words that were touched.
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.words.len()
    }

    /// Whether every word has an order. The error names a word that has none.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, clusters) in &self.words {
            check_word(clusters).map_err(|cause| format!("word {:#x} of allocation {}: {cause}", name.1, name.0))?;
        }
        Ok(())
    }

    /// The cluster of `value`. A new word is 0 from before the beginning.
    fn cluster(&mut self, name: WordName, value: u64) -> &mut Cluster {
        let zero = Cluster { write_start: Some(0), first_end: 0, last_start: 0, was_seen: true };
        let clusters = self.words.entry(name).or_insert_with(|| BTreeMap::from([(0, zero)]));
        let empty = Cluster { write_start: None, first_end: Tick::MAX, last_start: 0, was_seen: false };
        clusters.entry(value).or_insert(empty)
    }
}

fn check_word(clusters: &BTreeMap<u64, Cluster>) -> Result<(), String> {
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    // A write that may not have happened, and that nobody saw, need not have happened.
    for (value, cluster) in clusters.iter().filter(|(_, cluster)| cluster.was_seen) {
        match cluster.write_start {
            None => return Err(format!("{value:#x} was read and never written")),
            Some(start) if cluster.first_end < start => {
                return Err(format!("{value:#x} was read before it was written"));
            }
            Some(_) if cluster.first_end < cluster.last_start => {
                forward.push((cluster.first_end, cluster.last_start, *value));
            }
            Some(_) => backward.push((cluster.last_start, cluster.first_end, *value)),
        }
    }
    forward.sort_unstable();
    if let Some(pair) = forward.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        return Err(format!("{:#x} and {:#x} were each seen before and after the other", pair[0].2, pair[1].2));
    }
    for (start, end, value) in backward {
        let after = forward.partition_point(|zone| zone.0 <= start);
        if let Some(zone) = after.checked_sub(1).map(|index| forward[index]).filter(|zone| end < zone.1) {
            return Err(format!("{value:#x} was there while only {:#x} can have been", zone.2));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: WordName = (1, 64);

    #[derive(Clone, Copy)]
    enum Seen {
        Write(u64, Tick, Tick),
        Unknown(u64, Tick),
        Read(u64, Tick, Tick),
    }
    use Seen::{Read, Unknown, Write};

    fn check(history: &[Seen]) -> Result<(), String> {
        let mut words = Words::default();
        for seen in history {
            match *seen {
                Write(value, start, end) => words.write(WORD, value, start, Some(end)),
                Unknown(value, start) => words.write(WORD, value, start, None),
                Read(value, start, end) => words.read(WORD, value, start, end),
            }
        }
        words.check()
    }

    #[test]
    fn what_one_order_explains_is_right() {
        let right: [&[Seen]; 7] = [
            &[Read(0, 1, 2), Write(7, 3, 4), Read(7, 5, 6)],
            &[Write(7, 1, 9), Read(0, 2, 3), Read(7, 4, 5), Read(7, 6, 7)],
            &[Write(7, 1, 9), Write(8, 2, 8), Read(8, 10, 11)],
            &[Write(7, 1, 9), Write(8, 2, 8), Read(7, 10, 11)],
            &[Unknown(7, 1), Write(8, 2, 3), Read(8, 4, 5), Read(7, 6, 7)],
            &[Unknown(7, 1), Write(8, 2, 3), Read(8, 4, 5)],
            &[Write(7, 1, 2), Write(8, 3, 6), Read(7, 4, 5), Read(8, 4, 7)],
        ];
        for history in right {
            assert_eq!(check(history), Ok(()));
        }
    }

    #[test]
    fn what_no_order_explains_is_wrong() {
        let wrong: [(&str, &[Seen]); 8] = [
            ("lost", &[Write(7, 1, 2), Read(0, 3, 4)]),
            ("from nowhere", &[Read(7, 3, 4)]),
            ("from the future", &[Read(7, 1, 2), Write(7, 3, 4)]),
            ("old", &[Write(7, 1, 2), Write(8, 3, 4), Read(7, 5, 6)]),
            ("new, then old", &[Write(7, 1, 20), Read(7, 2, 3), Read(0, 4, 5)]),
            ("back again", &[Unknown(7, 1), Write(8, 2, 3), Read(7, 4, 5), Read(8, 6, 7), Read(7, 8, 9)]),
            ("two orders", &[Write(7, 1, 20), Write(8, 2, 19), Read(7, 21, 22), Read(8, 23, 24)]),
            ("inside", &[Write(7, 1, 2), Write(8, 3, 4), Read(7, 5, 6)]),
        ];
        for (name, history) in wrong {
            assert!(check(history).is_err(), "{name}");
        }
    }

    /// Against all orders, for many small histories.
    #[test]
    fn it_agrees_with_trying_every_order() {
        use rand::rngs::SmallRng;
        use rand::seq::SliceRandom;
        use rand::{Rng, SeedableRng};
        let mut rng = SmallRng::seed_from_u64(5);
        let mut verdicts = [0, 0];
        for _ in 0..4000 {
            let count = rng.random_range(2..6);
            let mut ticks: Vec<Tick> = (1..=2 * count).collect();
            ticks.shuffle(&mut rng);
            let history: Vec<Seen> = (1..=count)
                .map(|number| {
                    let (a, b) = (ticks.pop().unwrap(), ticks.pop().unwrap());
                    match rng.random_range(0..2) {
                        0 => Write(number, a.min(b), a.max(b)),
                        _ => Read(rng.random_range(0..=count), a.min(b), a.max(b)),
                    }
                })
                .collect();
            let right = any_order(&history, &mut vec![false; history.len()], 0);
            verdicts[usize::from(right)] += 1;
            assert_eq!(check(&history).is_ok(), right);
        }
        assert!(verdicts.iter().all(|count| *count > 100), "{verdicts:?}");
    }

    fn any_order(history: &[Seen], done: &mut Vec<bool>, value: u64) -> bool {
        let times = |seen: &Seen| match *seen {
            Write(value, start, end) | Read(value, start, end) => (value, start, end),
            Unknown(value, start) => (value, start, Tick::MAX),
        };
        if done.iter().all(|done| *done) {
            return true;
        }
        (0..history.len()).any(|index| {
            let (word, start, _) = times(&history[index]);
            let first =
                (0..history.len()).all(|other| done[other] || other == index || times(&history[other]).2 > start);
            let is_read = matches!(history[index], Read(..));
            if done[index] || !first || (is_read && word != value) {
                return false;
            }
            done[index] = true;
            let right = any_order(history, done, word);
            done[index] = false;
            right
        })
    }
}
