//! [`Axis`]: where a value stands on a plot, and which values are named beside it. Pure.
//!
//! Ticks are chosen here and not by the library that draws, so that they are round in the unit that is shown. On a
//! logarithmic axis a value's place is its logarithm; on the others it is the value itself.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Decades above which a logarithmic axis has a tick a decade; below, it has three.
const DENSE_DECADES_MAX: f64 = 2.2;
/// Most ticks of a linear axis.
const LINEAR_TICKS_MAX: f64 = 10.0;
/// What a linear axis reaches beyond its largest value, so that a marker there is whole.
const BEYOND: f64 = 1.06;
/// Least share of an axis between two measured values that both have a tick.
const TICK_SHARE_MIN: f64 = 0.09;
/// What an axis of measured values reaches beyond the first and the last, as a share of its length.
const MARGIN_SHARE: f64 = 0.06;

/// How values become places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spacing {
    Linear,
    Logarithmic,
}

/// One axis of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// What is written beside it.
    pub(crate) name: String,
    /// The values from its beginning to its end.
    pub(crate) range: Range<f64>,
    spacing: Spacing,
    ticks: Vec<f64>,
    tick: fn(f64) -> String,
}

impl Axis {
    /// From zero to a little more than `most`, with round ticks.
    pub(crate) fn linear(name: &str, most: f64, tick: fn(f64) -> String) -> Self {
        Self::linear_in(name, most, 1.0, tick)
    }

    /// The same with ticks that are round in multiples of `unit`.
    pub(crate) fn linear_in(name: &str, most: f64, unit: f64, tick: fn(f64) -> String) -> Self {
        let end = if most > 0.0 { most * BEYOND } else { unit };
        let step = round_up(end / unit / LINEAR_TICKS_MAX) * unit;
        let ticks = (0..).map(|index| f64::from(index) * step).take_while(|value| *value <= end).collect();
        Self { name: name.to_owned(), range: 0.0..end, spacing: Spacing::Linear, ticks, tick }
    }

    /// Logarithmic over `range`, whose ends are positive, with ticks at 1, 10, 100 ..., and 2 and 5 between them if
    /// there is room.
    pub(crate) fn decades(name: &str, range: Range<f64>, tick: fn(f64) -> String) -> Self {
        let ticks = decade_ticks(&range);
        Self { name: name.to_owned(), range, spacing: Spacing::Logarithmic, ticks, tick }
    }

    /// Logarithmic, with ticks at the measured values themselves as far as there is room. All are positive.
    pub(crate) fn measured(name: &str, values: &[f64], tick: fn(f64) -> String) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let (first, last) = (values.first().copied().unwrap_or(1.0), values.last().copied().unwrap_or(1.0));
        // A single value stands in the middle.
        let margin = if last > first { (last / first).powf(MARGIN_SHARE) } else { 2.0 };
        let range = first / margin..last * margin;
        let gap = (range.end / range.start).log10() * TICK_SHARE_MIN;
        let mut ticks: Vec<f64> = Vec::new();
        for value in values {
            if ticks.last().is_none_or(|before| (value / before).log10() >= gap) {
                ticks.push(value);
            }
        }
        Self { name: name.to_owned(), range, spacing: Spacing::Logarithmic, ticks, tick }
    }

    /// Where `value` stands.
    pub(crate) fn place(&self, value: f64) -> f64 {
        match self.spacing {
            Spacing::Linear => value,
            Spacing::Logarithmic => value.log10(),
        }
    }

    /// The name of the tick at `place`.
    pub(crate) fn label(&self, place: f64) -> String {
        // The value is looked up: made of its logarithm again it would not be round.
        let distance = |value: &f64| (self.place(*value) - place).abs();
        let tick = self.ticks.iter().copied().min_by(|one, other| distance(one).total_cmp(&distance(other)));
        tick.map_or_else(String::new, self.tick)
    }

    /// Whether `value` has a place on axes of this kind.
    pub(crate) fn takes(&self, value: f64) -> bool {
        value.is_finite() && (self.spacing == Spacing::Linear || value > 0.0)
    }

    /// The axis as it is drawn.
    pub(crate) fn coordinate(&self) -> Places {
        let ticks = self.ticks.iter().map(|value| self.place(*value)).collect();
        Places { range: self.place(self.range.start)..self.place(self.range.end), ticks }
    }
}

/// The places of an axis, for the library that draws.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (place - self.range.start) / (self.range.end - self.range.start);
        first + (f64::from(last - first) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// The ticks within `range`.
fn decade_ticks(range: &Range<f64>) -> Vec<f64> {
    let dense = (range.end / range.start).log10() <= DENSE_DECADES_MAX;
    let steps: &[f64] = if dense { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    ticks.filter(|tick| (range.start..=range.end).contains(tick)).collect()
}

/// The largest of 1, 2 and 5 times a power of ten that is not above `value`.
pub(crate) fn round_down(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|step| step * decade).find(|round| *round <= value).unwrap_or(decade)
}

/// The smallest of 1, 2, 5 and 10 times a power of ten that is not below `value`.
pub(crate) fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|step| step * decade).find(|round| *round >= value).unwrap_or(decade * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::trimmed;

    fn plain(value: f64) -> String {
        trimmed(value, 1)
    }

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|value| axis.label(axis.place(*value))).collect()
    }

    #[test]
    fn ranges_are_round() {
        assert_eq!([7.0, 5.0, 4.9, 1.0].map(round_down), [5.0, 5.0, 2.0, 1.0]);
        assert_eq!([7.0, 5.0, 5.1, 1.0].map(round_up), [10.0, 5.0, 10.0, 1.0]);
        assert!((round_down(0.3) - 0.2).abs() < 1e-12);
    }

    #[test]
    fn ticks_are_round_and_neither_crowded_nor_missing() {
        assert_eq!(decade_ticks(&(1.0..100.0)), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(decade_ticks(&(5.0..20_000.0)), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(labels(&Axis::linear("", 4.1, plain)), ["0", "0.5", "1", "1.5", "2", "2.5", "3", "3.5", "4"]);
        let mebibytes = Axis::linear_in("", 31.0 * 1048576.0, 1048576.0, |bytes| plain(bytes / 1048576.0));
        assert_eq!(labels(&mebibytes), ["0", "5", "10", "15", "20", "25", "30"]);
        assert_eq!(labels(&Axis::linear("", 0.0, plain)).first().map(String::as_str), Some("0"));
    }

    #[test]
    fn measured_values_have_ticks_where_there_is_room() {
        let sizes = [4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0];
        let axis = Axis::measured("", &sizes, plain);
        assert_eq!(axis.ticks, sizes);
        assert!(axis.range.start < 4.0 && axis.range.end > 65536.0);
        assert_eq!(Axis::measured("", &[1000.0, 1.0, 990.0, 1.0], plain).ticks, [1.0, 990.0]);
        let single = Axis::measured("", &[5.0], plain);
        assert_eq!((single.range.clone(), single.ticks), (2.5..10.0, vec![5.0]));
        assert!(Axis::measured("", &[], plain).ticks.is_empty());
    }

    #[test]
    fn places_are_where_values_stand() {
        let axis = Axis::decades("", 1.0..100.0, plain);
        assert_eq!((axis.place(10.0), axis.label(1.0)), (1.0, "10".to_owned()));
        assert!(axis.takes(0.1) && !axis.takes(0.0) && !axis.takes(f64::INFINITY));
        let axis = Axis::linear("", 10.0, plain);
        assert_eq!((axis.place(10.0), axis.label(6.0)), (10.0, "6".to_owned()));
        let sizes = Axis::measured("", &[1e6, 1073741824.0], |value| format!("{value}"));
        assert_eq!(sizes.label(sizes.place(1073741824.0)), "1073741824", "as it was measured");
        assert!(axis.takes(0.0) && !axis.takes(f64::NAN));
    }
}
