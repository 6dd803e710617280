//! [`Code`]: a page in shares, any `data` of which are enough to have all of it.
//!
//! The share of each slot is another one, and always the same: the first `data` slots have the parts of the page, as it
//! is, and the slots behind have sums of them with factors. So whichever slots a group uses, and whichever place comes
//! after another, no two places have the same share. The factors are a Cauchy matrix over the field of 256 elements,
//! scaled so that each sum has the first part as it is, and the first slot behind the parts the plain sum of them: with
//! one parity nothing is multiplied, until a place was replaced in another slot.
//!
//! Every share is a sum of any `data` others: [`Code::factors`] says of which, with what factors, for a part that is
//! missing at a read, for a share that is mended, and for those that are written alike.
//!
//! Neighbours: `group` counts shares as it counts copies; `runtime/fabric` moves them.

use std::ops::Range;

use yonder_units::PAGE_BYTES;

use crate::slots::{SLOTS_MAX, Slot, SlotSet};

/// Shares begin at multiples of this, so that none shares a line of memory with another.
const SHARE_ALIGNMENT: usize = 64;
/// What x^8 is in the field, as a polynomial.
const REDUCTION: u8 = 0x1d;
/// Powers of x, twice over so that sums of logarithms are no larger, and their logarithms.
const POWERS: ([u8; 510], [u8; 256]) = powers();

/// Factors of shares, by their slots.
pub type Factors = [u8; SLOTS_MAX];

/// How pages are cut and summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    data: u8,
}

impl Code {
    /// A page in `data` parts. With one, all shares are copies.
    ///
    /// # Panics
    /// If there are none, or no slot is left for a sum.
    #[must_use]
    pub const fn new(data: u8) -> Self {
        assert!(data > 0 && (data as usize) < SLOTS_MAX, "a page has parts, and a slot for their sum");
        Self { data }
    }

    /// Bytes of a share.
    #[must_use]
    pub const fn share_bytes(self) -> usize {
        PAGE_BYTES.div_ceil(self.data as usize).next_multiple_of(SHARE_ALIGNMENT)
    }

    /// Slots whose shares are parts of the page.
    #[must_use]
    pub fn parts(self) -> SlotSet {
        Slot::all().take(self.data.into()).collect()
    }

    /// The bytes of the page that a slot's share is; none if it is a sum.
    #[must_use]
    pub fn part(self, slot: Slot) -> Range<usize> {
        let start = (slot.index() * self.share_bytes()).min(PAGE_BYTES);
        let end = (start + self.share_bytes()).min(PAGE_BYTES);
        if slot.number() < self.data { start..end } else { PAGE_BYTES..PAGE_BYTES }
    }

    /// The factors with which the shares `from` add up to that of another slot.
    ///
    /// # Panics
    /// If there are not as many as the page has parts.
    #[must_use]
    pub fn factors(self, from: SlotSet, wanted: Slot) -> Factors {
        assert!(from.count() == self.data, "as many shares as there are parts");
        let size = usize::from(self.data);
        // A row for each part: what each share has of it, and what the wanted one has.
        let mut rows = [[0; SLOTS_MAX + 1]; SLOTS_MAX];
        for (column, slot) in from.iter().chain([wanted]).enumerate() {
            (0..size).for_each(|part| rows[part][column] = self.factor(slot, part));
        }
        for column in 0..size {
            let pivot = (column..size).find(|row| rows[*row][column] != 0).expect("any shares are enough");
            rows.swap(column, pivot);
            let inverse = divide(1, rows[column][column]);
            rows[column] = rows[column].map(|value| multiply(value, inverse));
            let reduced = rows[column];
            for row in (0..size).filter(|row| *row != column) {
                let factor = rows[row][column];
                rows[row].iter_mut().zip(reduced).for_each(|(value, by)| *value ^= multiply(by, factor));
            }
        }
        let mut factors = [0; SLOTS_MAX];
        from.iter().zip(rows).for_each(|(slot, row)| factors[slot.index()] = row[size]);
        factors
    }

    /// What a slot's share has of a part.
    fn factor(self, slot: Slot, part: usize) -> u8 {
        let [slot, part] = [slot.number(), Slot::all().nth(part).expect("a part has a slot").number()];
        match slot < self.data {
            true => u8::from(slot == part),
            false => multiply(divide(self.data ^ part, slot ^ part), divide(slot, self.data)),
        }
    }
}

/// Adds a share, times a factor, to a sum.
///
/// # Panics
/// If they are not equally long.
pub fn add_scaled(sum: &mut [u8], share: &[u8], factor: u8) {
    assert_eq!(sum.len(), share.len(), "shares are equally long");
    if factor == 1 {
        return sum.iter_mut().zip(share).for_each(|(sum, byte)| *sum ^= byte);
    }
    let (sums, rest) = sum.as_chunks_mut::<SHARE_ALIGNMENT>();
    let (blocks, rest_of_share) = share.as_chunks::<SHARE_ALIGNMENT>();
    sums.iter_mut().zip(blocks).for_each(|(sum, block)| add_block(sum, *block, factor));
    rest.iter_mut().zip(rest_of_share).for_each(|(sum, byte)| *sum ^= multiply(*byte, factor));
}

/// The same, in a shape that compilers make wide instructions of: bit for bit of the factor.
#[inline]
fn add_block(sum: &mut [u8; SHARE_ALIGNMENT], mut block: [u8; SHARE_ALIGNMENT], factor: u8) {
    let mut rest = factor;
    while rest != 0 {
        if rest & 1 == 1 {
            sum.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
        }
        rest >>= 1;
        block = block.map(times_x);
    }
}

const fn times_x(value: u8) -> u8 {
    value << 1 ^ if value & 0x80 == 0 { 0 } else { REDUCTION }
}

const fn powers() -> ([u8; 510], [u8; 256]) {
    let (mut powers, mut logarithms) = ([0; 510], [0; 256]);
    let (mut power, mut at) = (1, 0_u8);
    while at < 255 {
        powers[at as usize] = power;
        powers[at as usize + 255] = power;
        logarithms[power as usize] = at;
        power = times_x(power);
        at += 1;
    }
    (powers, logarithms)
}

fn multiply(one: u8, two: u8) -> u8 {
    let [one_log, two_log] = [one, two].map(|value| usize::from(POWERS.1[usize::from(value)]));
    if one == 0 || two == 0 { 0 } else { POWERS.0[one_log + two_log] }
}

fn divide(one: u8, two: u8) -> u8 {
    assert!(two != 0, "a division by zero");
    let [one_log, two_log] = [one, two].map(|value| usize::from(POWERS.1[usize::from(value)]));
    if one == 0 { 0 } else { POWERS.0[one_log + 255 - two_log] }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The shares of all slots.
    fn shares(code: Code, page: &[u8; PAGE_BYTES]) -> Vec<Vec<u8>> {
        let mut shares = vec![vec![0; code.share_bytes()]; SLOTS_MAX];
        for slot in code.parts().iter() {
            let part = code.part(slot);
            shares[slot.index()][..part.len()].copy_from_slice(&page[part]);
        }
        for slot in (SlotSet::ALL - code.parts()).iter() {
            shares[slot.index()] = sum(code, code.parts(), slot, &shares);
        }
        shares
    }

    fn sum(code: Code, from: SlotSet, wanted: Slot, shares: &[Vec<u8>]) -> Vec<u8> {
        let (factors, mut sum) = (code.factors(from, wanted), vec![0; code.share_bytes()]);
        from.iter().for_each(|slot| add_scaled(&mut sum, &shares[slot.index()], factors[slot.index()]));
        sum
    }

    #[test]
    fn any_shares_have_all_of_the_page_and_of_all_others() {
        let page = std::array::from_fn(|at| (at * 31 % 251).to_le_bytes()[0]);
        for code in (1..8).map(Code::new) {
            let shares = shares(code, &page);
            let enough = (1..=u8::MAX).map(SlotSet::from_bits).filter(|slots| slots.count() == code.data);
            for (from, wanted) in enough.flat_map(|from| Slot::all().map(move |wanted| (from, wanted))) {
                assert_eq!(sum(code, from, wanted, &shares), shares[wanted.index()], "{code:?} {from:?} {wanted:?}");
            }
        }
    }

    #[test]
    fn parts_are_all_of_the_page_in_its_order() {
        for code in (1..8).map(Code::new) {
            let bytes: Vec<usize> = code.parts().iter().flat_map(|slot| code.part(slot)).collect();
            assert_eq!(bytes, (0..PAGE_BYTES).collect::<Vec<_>>(), "{code:?}");
            assert!((SlotSet::ALL - code.parts()).iter().all(|slot| code.part(slot).is_empty()));
        }
        assert_eq!([1, 2, 3, 4, 7].map(|data| Code::new(data).share_bytes()), [4096, 2048, 1408, 1024, 640]);
    }

    #[test]
    fn the_first_sum_has_no_factors_and_one_part_is_copied() {
        for code in (1..8).map(Code::new) {
            let first = Slot::new(code.data);
            assert!(code.parts().iter().all(|slot| code.factors(code.parts(), first)[slot.index()] == 1));
        }
        assert!(Slot::all().all(|slot| Code::new(1).factors(Slot::new(3).into(), slot)[3] == 1));
    }

    #[test]
    #[should_panic(expected = "as many shares as there are parts")]
    fn too_few_shares_are_not_enough() {
        let _ = Code::new(4).factors(SlotSet::from_bits(0b111), Slot::new(3));
    }

    proptest! {
        #[test]
        fn blocks_are_multiplied_byte_by_byte(bytes in prop::collection::vec(any::<u8>(), 0..200), factor: u8) {
            let mut sum: Vec<u8> = bytes.iter().map(|byte| byte.wrapping_mul(3)).collect();
            let expected: Vec<u8> = sum.iter().zip(&bytes).map(|(sum, byte)| sum ^ multiply(*byte, factor)).collect();
            add_scaled(&mut sum, &bytes, factor);
            prop_assert_eq!(sum, expected);
        }

        #[test]
        fn the_field_is_one(a: u8, b: u8, c: u8) {
            prop_assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
            prop_assert_eq!(multiply(a, multiply(b, c)), multiply(multiply(a, b), c));
            prop_assert_eq!(multiply(a, 2), times_x(a));
            prop_assert!(b == 0 || multiply(divide(a, b), b) == a);
        }
    }
}
