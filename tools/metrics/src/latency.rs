//! Times of stages as histograms of Prometheus, from which a page or Grafana draws a heat map: since the start, in
//! buckets of powers of two, of which each has those below it too.

use yonder::StageHistogram;

use crate::names;
use crate::render::Exposition;

/// The exponents of the bounds: from 256 ns to 2.1 s. What takes longer is in the bucket without a bound alone.
const EXPONENTS: std::ops::RangeInclusive<usize> = 8..=31;

/// Writes a histogram for each stage.
pub(crate) fn write<'a>(
    text: &mut Exposition,
    name: &str,
    help: &str,
    stages: &[&str],
    times: &mut impl Iterator<Item = &'a StageHistogram>,
) {
    text.head(name, help, "histogram");
    let (of_stage, bound) = (names::STAGE, names::UPPER_BOUND);
    for (stage, times) in stages.iter().zip(times) {
        for exponent in EXPONENTS {
            let (seconds, count) = ((1u64 << exponent) as f64 / 1e9, below(times, exponent));
            text.line(format_args!("{name}_bucket{{{of_stage}=\"{stage}\",{bound}=\"{seconds}\"}} {count}"));
        }
        let (count, sum) = (times.count(), times.sum() as f64 / 1e9);
        text.line(format_args!("{name}_bucket{{{of_stage}=\"{stage}\",{bound}=\"+Inf\"}} {count}"));
        text.line(format_args!("{name}_sum{{{of_stage}=\"{stage}\"}} {sum}"));
        text.line(format_args!("{name}_count{{{of_stage}=\"{stage}\"}} {count}"));
    }
}

/// How many times were shorter than a power of two of nanoseconds: four buckets are between one and the next.
fn below(times: &StageHistogram, exponent: usize) -> u64 {
    times.buckets[..4 * (exponent - 1)].iter().sum()
}

#[cfg(test)]
mod tests {
    use yonder::sched::StageQuantiles;

    use crate::render::render;
    use crate::sample::{Requests, Sample};
    use crate::scrape::Scrape;

    #[test]
    fn buckets_are_powers_of_two_and_have_those_below_them() {
        let mut stages = StageQuantiles::default();
        // 2048 to 2559 ns, 3584 to 4095 ns, and longer than any bound.
        for (bucket, count) in [(40, 5), (43, 7), (127, 2)] {
            stages.total.buckets[bucket] = count;
        }
        let sample = Sample { requests: Some(Requests { stages, ..Requests::default() }), ..Sample::default() };
        let text = render(&sample, &sample.stages());
        let scrape = Scrape::parse(&text).unwrap();
        let name = "yonder_request_latency_seconds";
        let of = |end: &str, labels: &[(&str, &str)]| scrape.labelled(&format!("{name}{end}"), labels);
        let bucket = |bound| of("_bucket", &[("stage", "total"), ("le", bound)]);
        assert_eq!([bucket("0.000000256"), bucket("0.000002048")], [Some(0.0), Some(0.0)]);
        assert_eq!([bucket("0.000004096"), bucket("2.147483648")], [Some(12.0), Some(12.0)]);
        assert_eq!([bucket("+Inf"), of("_count", &[("stage", "total")])], [Some(14.0), Some(14.0)]);
        assert!(of("_sum", &[("stage", "total")]).unwrap() > 4.0);
        assert!(text.contains(&format!("# TYPE {name} histogram\n")), "{text}");
        assert!(text.len() < 16 << 10, "{} bytes for half of the stages", text.len());
    }
}
