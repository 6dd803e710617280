//! [`Histogram`]: how values are spread, counted at the client.

use crate::frame::Values;

/// How many values lie in each of some bins of the same width; of texts, each has a bin of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    /// Where the first bin begins.
    pub low: f64,
    /// Where the last bin ends; values there belong to it.
    pub high: f64,
    /// Values in each bin.
    pub counts: Vec<u64>,
    /// Values that are not numbers, or not finite.
    pub missing: u64,
}

impl Histogram {
    /// The histogram of `values`, in `bins` bins from the least to the greatest.
    ///
    /// # Panics
    /// If there are no bins.
    #[must_use]
    pub fn of(values: &Values, bins: usize) -> Self {
        assert!(bins > 0, "a histogram has a bin");
        match values {
            Values::I64(values) => {
                Self::of_numbers(&values.iter().map(|value| *value as f64).collect::<Vec<_>>(), bins)
            }
            Values::F64(values) => Self::of_numbers(values, bins),
            Values::Text { codes, names } => {
                let mut counts = vec![0; names.len()];
                codes.iter().for_each(|code| counts[*code as usize] += 1);
                Self { low: 0.0, high: names.len() as f64, counts, missing: 0 }
            }
        }
    }

    fn of_numbers(values: &[f64], bins: usize) -> Self {
        let numbers = || values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = (numbers().fold(f64::NAN, f64::min), numbers().fold(f64::NAN, f64::max));
        let mut counts = vec![0; bins];
        for value in numbers() {
            let share = if high > low { (value - low) / (high - low) } else { 0.0 };
            counts[((share * bins as f64) as usize).min(bins - 1)] += 1;
        }
        Self { low, high, counts, missing: (values.len() - numbers().count()) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_one_bin() {
        let histogram = Histogram::of(&Values::F64(vec![0.0, 1.0, 2.4, 2.6, 10.0, f64::NAN]), 4);
        assert_eq!(histogram, Histogram { low: 0.0, high: 10.0, counts: vec![3, 1, 0, 1], missing: 1 });
        assert_eq!(Histogram::of(&Values::I64(vec![7; 5]), 3).counts, [5, 0, 0]);
        let none = Histogram::of(&Values::I64(Vec::new()), 2);
        assert!(none.low.is_nan() && none.counts == [0, 0]);
        let texts = Values::Text { codes: vec![1, 1, 0], names: vec!["a".into(), "b".into()] };
        assert_eq!(Histogram::of(&texts, 9).counts, [1, 2]);
    }
}
