//! [`Data`]: what a server is filled with for a query, and whether it still has that.
//!
//! Keys are named as `redis-benchmark` names them, so that it asks for what is there. What a value or an element is
//! made of follows from its number, so nothing has to be kept to check it. Elements are pushed to lists in random
//! order, as by DiLOS (section 6.2): the nodes of a list then lie between those of others.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::Query;
use crate::BenchError;
use crate::redis_server::DEPTH;
use crate::stock::Client;

/// Sizes of `get-mixed`, which take turns.
const MIXED_BYTES: [usize; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// Elements of a list, on average.
const ELEMENTS_PER_LIST: usize = 200;
/// Bytes of an element.
const ELEMENT_BYTES: usize = 1100;
/// Values, or lists, that are compared with what was written, at most.
const SAMPLE: usize = 100;

/// What a server is filled with.
pub(super) enum Data {
    /// Strings, whose sizes take turns.
    Values { sizes: &'static [usize], keys: usize },
    /// Elements of lists.
    Lists {
        /// The list that each element is pushed to.
        of_element: Vec<usize>,
        /// The elements of each list.
        lists: Vec<Vec<usize>>,
    },
}

impl Data {
    /// About `bytes` bytes of values.
    pub(super) fn new(query: Query, bytes: u64) -> Self {
        let sizes: &[usize] = match query {
            Query::Get4k => &[4 << 10],
            Query::Get64k => &[64 << 10],
            Query::GetMixed => &MIXED_BYTES,
            Query::Lrange => return Self::lists(bytes as usize / ELEMENT_BYTES),
        };
        let turn_bytes: usize = sizes.iter().sum();
        Self::Values { sizes, keys: (bytes as usize / turn_bytes).max(1) * sizes.len() }
    }

    fn lists(elements: usize) -> Self {
        let mut random = SmallRng::seed_from_u64(7);
        let mut lists = vec![Vec::new(); (elements / ELEMENTS_PER_LIST).max(1)];
        let of_element: Vec<usize> = (0..elements).map(|_| random.random_range(0..lists.len())).collect();
        of_element.iter().enumerate().for_each(|(element, list)| lists[*list].push(element));
        Self::Lists { of_element, lists }
    }

    /// Keys that a query may name.
    pub(super) fn keys(&self) -> usize {
        match self {
            Self::Values { keys, .. } => *keys,
            Self::Lists { lists, .. } => lists.len(),
        }
    }

    /// What `redis-benchmark` is told to ask.
    pub(super) fn query(&self) -> &'static [&'static str] {
        match self {
            Self::Values { .. } => &["GET", "key:__rand_int__"],
            Self::Lists { .. } => &["LRANGE", "l:__rand_int__", "0", "99"],
        }
    }

    /// Writes all of it.
    pub(super) fn fill(&self, client: &mut Client) -> Result<(), BenchError> {
        match self {
            Self::Values { sizes, keys } => {
                let mut value = Vec::new();
                let set = |client: &mut Client, key: usize| {
                    write_content(key, sizes[key % sizes.len()], &mut value);
                    client.set(&value_name(key), value.len(), |to| to.extend_from_slice(&value));
                };
                client.all(DEPTH, 0..*keys, set, |client, _| client.is_stored())?
            }
            Self::Lists { of_element, .. } => {
                let mut value = Vec::new();
                let push = |client: &mut Client, element: usize| {
                    write_content(element, ELEMENT_BYTES, &mut value);
                    client.command(&[b"RPUSH", list_name(of_element[element]).as_bytes(), &value]);
                };
                client.all(DEPTH, 0..of_element.len(), push, |client, _| client.count().map(|_| true))?
            }
        };
        Ok(())
    }

    /// How many of a sample of values, or of whole lists, are not what was written. Another `turn` has another sample.
    pub(super) fn wrong(&self, client: &mut Client, turn: u64) -> Result<u64, BenchError> {
        let mut keys: Vec<usize> = (0..self.keys()).collect();
        let (sample, _) = keys.partial_shuffle(&mut SmallRng::seed_from_u64(turn), SAMPLE);
        let mut expected = Vec::new();
        match self {
            Self::Values { sizes, .. } => {
                let get = |client: &mut Client, key| client.get(&value_name(key));
                client.all(DEPTH, sample.iter().copied(), get, |client, key| {
                    write_content(key, sizes[key % sizes.len()], &mut expected);
                    client.is_value(|value| value == expected)
                })
            }
            Self::Lists { lists, .. } => {
                let range = |client: &mut Client, list| {
                    client.command(&[b"LRANGE", list_name(list).as_bytes(), b"0", b"-1"]);
                };
                client.all(DEPTH, sample.iter().copied(), range, |client, list| {
                    let count = client.count()?;
                    let mut is_right = count == lists[list].len();
                    for place in 0..count {
                        write_content(*lists[list].get(place).unwrap_or(&0), ELEMENT_BYTES, &mut expected);
                        is_right &= client.is_value(|value| value == expected)?;
                    }
                    Ok(is_right)
                })
            }
        }
    }
}

fn value_name(key: usize) -> String {
    format!("key:{key:012}")
}

fn list_name(list: usize) -> String {
    format!("l:{list:012}")
}

/// Puts what the value `number` is made of into `to`: words that are in no other place of any value.
fn write_content(number: usize, bytes: usize, to: &mut Vec<u8>) {
    const WORD: usize = size_of::<u64>();
    let word = |place: usize| ((number as u64) << 32 | place as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    to.clear();
    (0..bytes.div_ceil(WORD)).for_each(|place| to.extend_from_slice(&word(place).to_le_bytes()));
    to.truncate(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_as_much_as_was_asked_for() {
        for query in Query::ALL {
            let bytes = match Data::new(query, 8 << 20) {
                Data::Values { sizes, keys } => (0..keys).map(|key| sizes[key % sizes.len()]).sum(),
                Data::Lists { of_element, lists } => {
                    assert_eq!(lists.iter().map(Vec::len).sum::<usize>(), of_element.len());
                    assert!(lists.iter().all(|list| list.len() > 100 && list.is_sorted()));
                    // Elements of other lists come between those of a list.
                    assert!(of_element.windows(2).filter(|two| two[0] == two[1]).count() < of_element.len() / 10);
                    of_element.len() * ELEMENT_BYTES
                }
            };
            assert!((7 << 20..=8 << 20).contains(&bytes), "{query:?} has {bytes}");
            assert!(Data::new(query, 1).keys() > 0);
        }
    }

    #[test]
    fn contents_differ_and_have_no_page_twice() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        write_content(1, 8191, &mut one);
        write_content(2, 8191, &mut other);
        assert_eq!((one.len(), one == other, one[..4095] == one[4096..]), (8191, false, false));
    }
}
