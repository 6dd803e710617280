//! Numbers as `top` shows them: three digits and a unit.

use yonder::units::{PAGE_BYTES, format_bytes};

/// Shown where there is no number: nothing was measured, or the server does not have it.
pub(super) const NONE: &str = "-";

/// A rate: `12.3 k/s`.
pub(super) fn per_second(rate: f64) -> String {
    format!("{}/s", scaled(rate, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]))
}

/// A rate of bytes, in decimal megabytes as links are rated: `410 MB/s`.
pub(super) fn megabytes_per_second(bytes: f64) -> String {
    format!("{} MB/s", digits(bytes / 1e6))
}

/// A time, given in seconds: `2.30 us`.
pub(super) fn time(seconds: f64) -> String {
    if seconds.is_nan() {
        return NONE.to_owned();
    }
    scaled(seconds * 1e9, &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")])
}

/// A count of things that are there now: `12.3 k`.
pub(super) fn count(number: f64) -> String {
    scaled(number, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]).trim_end().to_owned()
}

/// The size of a number of pages: `51.2 MiB`.
pub(super) fn pages(pages: u64) -> String {
    format_bytes(pages.saturating_mul(PAGE_BYTES as u64))
}

/// The number in the largest unit that leaves at least 1 before the point, or else in the last one.
fn scaled(number: f64, units: &[(f64, &str)]) -> String {
    // What would round up to 1000 of a unit is shown as 1.00 of the next.
    let unit = units.iter().find(|(size, _)| number >= size * 0.9995).or(units.last());
    let (size, unit) = unit.copied().unwrap_or((1.0, ""));
    let value = number / size;
    if value.fract() == 0.0 && value < 1_000.0 && size == 1.0 {
        return format!("{value} {unit}");
    }
    format!("{} {unit}", digits(value))
}

/// Three digits.
fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        let rates = [0.0, 0.25, 7.0, 7.5, 999.4, 999.7, 1_234.0, 56_789.0, 999_600.0, 2_500_000.0, 3e9];
        let shown = ["0 /s", "0.25 /s", "7 /s", "7.50 /s", "999 /s", "1.00 k/s", "1.23 k/s", "56.8 k/s", "1.00 M/s"];
        let shown = shown.into_iter().chain(["2.50 M/s", "3.00 G/s"]);
        rates.into_iter().zip(shown).for_each(|(rate, shown)| assert_eq!(per_second(rate), shown));
        assert_eq!(count(7.0), "7");
        assert_eq!(count(12_345.0), "12.3 k");
        assert_eq!(megabytes_per_second(410_200_000.0), "410 MB/s");
        assert_eq!(megabytes_per_second(0.0), "0 MB/s");
    }

    #[test]
    fn times() {
        assert_eq!(time(2.304e-6), "2.30 us");
        assert_eq!(time(320e-9), "320 ns");
        assert_eq!(time(0.012), "12.0 ms");
        assert_eq!(time(2.0), "2.00 s");
        assert_eq!(time(f64::NAN), "-");
        assert_eq!(time(0.0), "0 ns");
    }

    #[test]
    fn sizes() {
        assert_eq!(pages(16_384), "64 MiB");
        assert_eq!(pages(10_000), "39.1 MiB");
        assert!(!pages(u64::MAX).is_empty());
    }
}
