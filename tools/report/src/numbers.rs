//! Numbers as people read them: at most four significant digits, and the unit beside them. Pure.

/// A rate in requests per second, such as `950`, `49.9 K` or `1.25 M`.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        _ if !per_second.is_finite() => "-".to_owned(),
        _ if per_second < 999.5 => format!("{per_second:.0}"),
        _ if per_second < 99_950.0 => format!("{} K", trimmed(per_second / 1e3, 1)),
        _ if per_second < 999_500.0 => format!("{:.0} K", per_second / 1e3),
        _ => format!("{} M", trimmed(per_second / 1e6, 2)),
    }
}

/// A count with its thousands apart, such as `12 345`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join("\u{2009}")
}

/// A latency with the unit that suits it, for an axis: `20 µs`, `5 ms`.
pub(crate) fn latency_tick(us: f64) -> String {
    match us {
        _ if us < 1e3 => format!("{} \u{b5}s", trimmed(us, 2)),
        _ if us < 1e6 => format!("{} ms", trimmed(us / 1e3, 2)),
        _ => format!("{} s", trimmed(us / 1e6, 2)),
    }
}

/// A size for an axis: `64 B`, `4 KiB`, `1.5 MiB`.
pub(crate) fn bytes_tick(bytes: f64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{} {}", trimmed(value, 1), UNITS[unit])
}

/// Any number: four significant digits, all of those before the point.
#[must_use]
pub fn significant(value: f64) -> String {
    const DIGITS: i32 = 4;
    const DECIMALS_MAX: i32 = 9;
    match value {
        _ if !value.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        _ => {
            let before = value.abs().log10().floor() as i32 + 1;
            trimmed(value, (DIGITS - before).clamp(0, DECIMALS_MAX) as usize)
        }
    }
}

/// A deviation, such as `+1.9 %`.
#[must_use]
pub fn percent(percent: f64) -> String {
    if percent.is_finite() { format!("{percent:+.1} %") } else { "-".to_owned() }
}

/// `value` with at most `decimals` decimals and no trailing zeros.
pub(crate) fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_well() {
        for (value, text) in [
            (0.0, "0"),
            (950.0, "950"),
            (999.7, "1 K"),
            (49_912.0, "49.9 K"),
            (120_000.0, "120 K"),
            (999_700.0, "1 M"),
            (1_250_000.0, "1.25 M"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(rate(value), text);
        }
    }

    #[test]
    fn counts_read_well() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1\u{2009}000", "1\u{2009}234\u{2009}567"]);
    }

    #[test]
    fn latencies_read_well() {
        assert_eq!([0.5, 20.0, 5_000.0, 2e6].map(latency_tick), ["0.5 \u{b5}s", "20 \u{b5}s", "5 ms", "2 s"]);
    }

    #[test]
    fn sizes_read_well() {
        let sizes = [0.0, 64.0, 4096.0, 1.5 * 1048576.0, 4e12].map(bytes_tick);
        assert_eq!(sizes, ["0 B", "64 B", "4 KiB", "1.5 MiB", "3725.3 GiB"]);
    }

    #[test]
    fn any_number_reads_well() {
        let numbers = [0.0, 1.58, 39.76, 5.0, 1234.56, 1_234_567.0, 0.012_345, -2.5, f64::NAN].map(significant);
        assert_eq!(numbers, ["0", "1.58", "39.76", "5", "1235", "1234567", "0.01235", "-2.5", "-"]);
        assert_eq!([1.94, -45.93, f64::INFINITY].map(percent), ["+1.9 %", "-45.9 %", "-"]);
    }
}
