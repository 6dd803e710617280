//! `quicksort` (DiLOS, figure 7a): `size` bytes of random numbers, sorted in place.
//!
//! Each call divides its slice around the median of three of its numbers; short slices, at the end, are sorted by
//! insertion.

use rand::Rng as _;

use crate::checksum::{Checksum, multiset};
use crate::random::{Use, generator};
use crate::result::{Details, Outcome, Settings, WorkloadError, require, timed};

/// Longest slice that is sorted by insertion.
const INSERTION_MAX: usize = 24;
const _: () = assert!(INSERTION_MAX >= 2, "a median of three needs three");

pub(crate) fn run(settings: &Settings) -> Result<Outcome, WorkloadError> {
    let count = settings.count_of(size_of::<u64>() as u64, 1)?;
    let (mut numbers, setup_seconds) = timed(|| {
        let mut random = generator(settings.seed, Use::Values);
        (0..count).map(|_| random.random()).collect::<Vec<u64>>()
    });
    let before = multiset(numbers.iter().copied());
    let ((), seconds) = timed(|| sort(&mut numbers));
    require(|| numbers.is_sorted(), "the numbers are not sorted")?;
    require(|| multiset(numbers.iter().copied()) == before, "the numbers are not those that were to be sorted")?;
    Ok(Outcome {
        bytes: size_of_val(numbers.as_slice()) as u64,
        seconds,
        setup_seconds,
        check: Checksum::of(numbers.iter().copied()).text(),
        details: Details::Quicksort { numbers: count },
    })
}

/// Recurses into the shorter part, so that the depth is logarithmic.
fn sort(mut numbers: &mut [u64]) {
    while numbers.len() > INSERTION_MAX {
        let middle = partition(numbers);
        let (left, right) = numbers.split_at_mut(middle);
        let (shorter, longer) = if left.len() < right.len() { (left, right) } else { (right, left) };
        sort(shorter);
        numbers = longer;
    }
    insert(numbers);
}

/// Moves the smaller numbers to the front, and returns how many they are: at least one, and not all.
fn partition(numbers: &mut [u64]) -> usize {
    let last = numbers.len() - 1;
    let pivot = median(numbers[0], numbers[last / 2], numbers[last]);
    let (mut low, mut high) = (0, last);
    loop {
        while numbers[low] < pivot {
            low += 1;
        }
        while numbers[high] > pivot {
            high -= 1;
        }
        if low >= high {
            return high + 1;
        }
        numbers.swap(low, high);
        low += 1;
        high -= 1;
    }
}

fn median(a: u64, b: u64, c: u64) -> u64 {
    a.min(b).max(a.max(b).min(c))
}

fn insert(numbers: &mut [u64]) {
    for sorted in 1..numbers.len() {
        let number = numbers[sorted];
        let mut place = sorted;
        while place > 0 && numbers[place - 1] > number {
            numbers[place] = numbers[place - 1];
            place -= 1;
        }
        numbers[place] = number;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(mut numbers: Vec<u64>) -> (Vec<u64>, Vec<u64>) {
        let mut model = numbers.clone();
        model.sort_unstable();
        sort(&mut numbers);
        (numbers, model)
    }

    proptest! {
        #[test]
        fn sorts_as_the_standard_library_does(numbers in prop::collection::vec(any::<u64>(), 0..400)) {
            let (numbers, model) = sorted(numbers);
            prop_assert_eq!(numbers, model);
        }

        #[test]
        fn sorts_many_equal_numbers(numbers in prop::collection::vec(0_u64..5, 0..400)) {
            let (numbers, model) = sorted(numbers);
            prop_assert_eq!(numbers, model);
        }
    }

    #[test]
    fn sorts_what_is_in_order_in_either_direction_or_all_equal() {
        for numbers in [(0..1000).collect(), (0..1000).rev().collect(), vec![7; 1000]] {
            let (numbers, model) = sorted(numbers);
            assert_eq!(numbers, model);
        }
    }

    #[test]
    fn a_median_is_between_the_others() {
        for three in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1], [2, 2, 1], [2, 3, 2]] {
            assert_eq!(median(three[0], three[1], three[2]), 2);
        }
    }
}
