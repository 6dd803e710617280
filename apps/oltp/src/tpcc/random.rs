//! What TPC-C calls random (clauses 2.1.6 and 4.3.2): numbers that prefer some, names, texts.

use std::ops::RangeInclusive;

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::schema::Address;

const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Last names.
pub(crate) const NAMES: u32 = 1000;

/// How a number prefers some: the `A` of NURand, and a constant of the run.
#[derive(Clone, Copy)]
pub(crate) struct Preference {
    spread: u32,
    constant: u32,
}

/// Of last names while loading and while running: clause 2.1.6.1 says how far apart the two constants are.
pub(crate) const LAST_NAMES_LOADED: Preference = Preference { spread: 255, constant: 157 };
pub(crate) const LAST_NAMES_ASKED: Preference = Preference { spread: 255, constant: 223 };
pub(crate) const CUSTOMERS: Preference = Preference { spread: 1023, constant: 259 };
pub(crate) const ITEMS: Preference = Preference { spread: 8191, constant: 7911 };

/// NURand: a number of the range, some more often than others.
pub(crate) fn uneven(random: &mut impl Rng, preference: Preference, range: RangeInclusive<u32>) -> u32 {
    let (low, high) = range.clone().into_inner();
    let mixed = random.random_range(0..=preference.spread) | random.random_range(range);
    (mixed + preference.constant) % (high - low + 1) + low
}

/// A customer's last name: one of a thousand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct LastName(u16);

impl TryFrom<u16> for LastName {
    type Error = String;

    fn try_from(number: u16) -> Result<Self, String> {
        if u32::from(number) < NAMES { Ok(Self(number)) } else { Err(format!("there is no last name {number}")) }
    }
}

impl From<LastName> for u16 {
    fn from(name: LastName) -> Self {
        name.0
    }
}

impl LastName {
    /// The name of a number below 1000.
    #[must_use]
    pub fn new(number: u32) -> Self {
        assert!(number < NAMES, "there is no last name {number}");
        Self(number as u16)
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    /// As it is written: three syllables.
    #[must_use]
    pub fn text(self) -> [u8; 16] {
        let digits = [self.0 / 100, self.0 / 10 % 10, self.0 % 10];
        padded(digits.iter().flat_map(|digit| SYLLABLES[usize::from(*digit)].bytes()))
    }
}

/// A text, with blanks behind it.
pub(crate) fn padded<const BYTES: usize>(text: impl IntoIterator<Item = u8>) -> [u8; BYTES] {
    let mut field = [b' '; BYTES];
    field.iter_mut().zip(text).for_each(|(to, letter)| *to = letter);
    field
}

/// Letters and digits, at least `least` of them.
pub(crate) fn text<const BYTES: usize>(random: &mut impl Rng, least: usize) -> [u8; BYTES] {
    let length = random.random_range(least..=BYTES);
    padded((0..length).map(|_| LETTERS[random.random_range(0..LETTERS.len())]))
}

/// Digits.
pub(crate) fn digits<const BYTES: usize>(random: &mut impl Rng) -> [u8; BYTES] {
    std::array::from_fn(|_| random.random_range(b'0'..=b'9'))
}

/// A text, in a tenth of all cases with `ORIGINAL` in it.
pub(crate) fn data(random: &mut impl Rng) -> [u8; 50] {
    const ORIGINAL: &[u8; 8] = b"ORIGINAL";
    let mut data: [u8; 50] = text(random, 26);
    if random.random_ratio(1, 10) {
        let at = random.random_range(0..=26 - ORIGINAL.len());
        data[at..][..ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    data
}

pub(crate) fn address(random: &mut impl Rng) -> Address {
    let [a, b, c, d] = digits(random);
    Address {
        street_1: text(random, 10),
        street_2: text(random, 10),
        city: text(random, 10),
        state: text(random, 2),
        zip: [a, b, c, d, b'1', b'1', b'1', b'1', b'1'],
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn last_names_are_three_syllables() {
        assert_eq!(&LastName::new(0).text(), b"BARBARBAR       ");
        assert_eq!(&LastName::new(371).text(), b"PRICALLYOUGHT   ");
        assert_eq!(&LastName::new(777).text(), b"CALLYCALLYCALLY ");
    }

    #[test]
    fn uneven_numbers_are_in_their_range_and_prefer_some() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut counts = [0_u32; 3001];
        for _ in 0..300_000 {
            counts[uneven(&mut random, CUSTOMERS, 1..=3000) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        let most = counts.iter().max().unwrap();
        assert!(*most > 300, "even numbers come a hundred times each, and this one {most}");
        assert!((0..1000).all(|_| (1..=7).contains(&uneven(&mut random, ITEMS, 1..=7))));
    }

    #[test]
    fn a_tenth_of_data_is_original() {
        let mut random = SmallRng::seed_from_u64(2);
        let is_original = |data: [u8; 50]| data.windows(8).any(|part| part == b"ORIGINAL");
        let originals = (0..10_000).filter(|_| is_original(data(&mut random))).count();
        assert!((800..1200).contains(&originals), "{originals}");
    }
}
