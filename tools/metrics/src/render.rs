//! A [`Sample`] as Prometheus text.
//!
//! The format is three kinds of lines, which [`Exposition`] writes: help, type and value. What the server counts stays
//! the server's.

use std::fmt::Write as _;

use yonder::sched::Predictions;
use yonder::{StageHistogram, Stats};

use crate::latency;
use crate::names;
use crate::sample::{Extra, ExtraKind, Requests, Sample};

/// Name, help and value of what `S` counts.
type Metric<S> = (&'static str, &'static str, fn(&S) -> u64);

const PAGING_COUNTERS: [Metric<Stats>; 22] = [
    (names::MAJOR_FAULTS, "Page faults that needed a fetch.", |stats| stats.major_faults),
    (names::MINOR_FAULTS, "Page faults that needed no fetch of their own.", |stats| stats.minor_faults),
    ("yonder_zero_faults_total", "Minor faults that were first touches.", |stats| stats.zero_faults),
    ("yonder_rescues_total", "Minor faults that brought a page back from standby.", |stats| stats.rescues),
    ("yonder_kept_in_frames_total", "Major faults of reads whose page stayed in its frame.", |stats| {
        stats.kept_in_frames
    }),
    (
        "yonder_helped_installs_total",
        "Fetched pages that another thread than their worker mapped or copied.",
        |stats| stats.delegated_installs,
    ),
    ("yonder_joins_total", "Minor faults that waited for a fetch on its way.", |stats| stats.joins),
    (names::PAGING_ERRORS, "Accesses that ended in a paging error.", |stats| stats.paging_errors),
    (names::FETCH_RETRIES, "Reads that were posted again.", |stats| stats.fetch_retries),
    (names::WRITE_RETRIES, "Writes that were posted again.", |stats| stats.write_retries),
    (names::FETCHED_BYTES, "Bytes read from the memory node.", |stats| stats.fetched_bytes),
    (names::WRITTEN_BYTES, "Bytes that the memory node has acknowledged.", |stats| stats.written_bytes),
    ("yonder_swept_pages_total", "Pages that reclaim put on standby.", |stats| stats.swept_pages),
    ("yonder_swept_blocks_total", "Blocks that reclaim swept.", |stats| stats.swept_blocks),
    ("yonder_dropped_pages_total", "Sealed pages dropped without a copy.", |stats| stats.dropped_pages),
    ("yonder_clean_pages_total", "Standby pages that needed no write.", |stats| stats.clean_pages),
    ("yonder_flushed_by_age_pages_total", "Standby pages written back because of their age.", |stats| {
        stats.flushed_by_age_pages
    }),
    ("yonder_flushed_by_size_pages_total", "Standby pages written back because there were many.", |stats| {
        stats.flushed_by_size_pages
    }),
    ("yonder_quota_evicted_pages_total", "Pages taken away because of a quota.", |stats| stats.quota_evicted_pages),
    ("yonder_advised_out_pages_total", "Pages taken away that had been advised out.", |stats| stats.advised_out_pages),
    ("yonder_advised_ahead_pages_total", "Pages fetched because they had been advised ahead.", |stats| {
        stats.advised_ahead_pages
    }),
    ("yonder_reclaim_cpu_nanoseconds_total", "CPU time of the reclaimer thread.", |stats| stats.reclaim_cpu_ns),
];

const PAGING_GAUGES: [Metric<Stats>; 5] = [
    (names::FETCHES_IN_FLIGHT, "Fetches on their way now.", |stats| stats.in_flight),
    (names::LOCAL_LIMIT, "Most pages of local memory that may be in use.", |stats| stats.limit_pages),
    (names::LOCAL_PEAK, "Most pages of local memory ever in use.", |stats| stats.peak_pages),
    (names::TOUCHED_PAGES, "Pages of far memory that were touched and not given back.", |stats| stats.touched_pages),
    (names::METADATA_BYTES, "Local page tables, hashes and lists, beside the limit.", |stats| stats.metadata_bytes),
];

const REQUEST_COUNTERS: [Metric<Requests>; 3] = [
    ("yonder_requests_admitted_total", "Requests admitted.", |requests| requests.admitted),
    (names::REQUESTS, "Requests over, panics included.", |requests| requests.completed),
    (names::REQUESTS_PANICKED, "Requests whose handler panicked.", |requests| requests.panicked),
];

const PREDICTION_COUNTERS: [Metric<Predictions>; 4] = [
    (names::PREDICTED_HITS_RIGHT, "Requests predicted to hit that had no major fault.", |made| made.hits_right),
    (names::PREDICTED_HITS_WRONG, "Requests predicted to hit that had a major fault.", |made| made.hits_wrong),
    (names::PREDICTED_FAULTS_RIGHT, "Requests predicted to fault that had a major fault.", |made| made.faults_right),
    (names::PREDICTED_FAULTS_WRONG, "Requests predicted to fault that had no major fault.", |made| made.faults_wrong),
];

const REQUEST_GAUGES: [Metric<Requests>; 1] =
    [(names::REQUESTS_IN_SERVICE, "Requests admitted and not over.", |requests| {
        requests.admitted.saturating_sub(requests.completed)
    })];

/// Whether a metric without labels is an [`Extra`]: none of those that every server has.
pub(crate) fn is_extra(name: &str) -> bool {
    let paging = PAGING_COUNTERS.iter().chain(&PAGING_GAUGES).map(|metric| metric.0);
    let requests = REQUEST_COUNTERS.iter().chain(&REQUEST_GAUGES).map(|metric| metric.0);
    let predictions = PREDICTION_COUNTERS.iter().map(|metric| metric.0);
    !paging.chain(requests).chain(predictions).any(|known| known == name)
}

/// The sample as text; `recent` are the histograms of [`Sample::stages`] to take percentiles of.
pub(crate) fn render(sample: &Sample, recent: &[StageHistogram]) -> String {
    let mut text = Exposition::default();
    let (all, mut recent) = (sample.stages(), recent.iter());
    let mut all = all.iter();
    if let Some(stats) = &sample.paging {
        write_paging(&mut text, stats);
        let help = "Time of major faults by stage, over the last seconds.";
        write_stages(&mut text, names::FAULT_STAGE, help, &names::FAULT_STAGES, &mut recent);
        let help = "Time of major faults by stage, since the start.";
        latency::write(&mut text, names::FAULT_LATENCY, help, &names::FAULT_STAGES, &mut all);
    }
    if let Some(requests) = &sample.requests {
        write_requests(&mut text, requests);
        let help = "Time of requests by stage, over the last seconds.";
        write_stages(&mut text, names::REQUEST_STAGE, help, &names::REQUEST_STAGES, &mut recent);
        let help = "Time of requests by stage, since the start.";
        latency::write(&mut text, names::REQUEST_LATENCY, help, &names::REQUEST_STAGES, &mut all);
    }
    let mut begun = "";
    for extra in &sample.extra {
        if begun != extra.name {
            text.begin(extra.name, extra.help, extra.kind);
            begun = extra.name;
        }
        text.extra(extra);
    }
    text.0
}

/// Metrics in the text format of Prometheus. Names and helps are constants of this house, in which nothing is to be
/// escaped; so are labels but for those of an [`Extra`].
#[derive(Default)]
pub(crate) struct Exposition(String);

impl Exposition {
    /// Begins a metric: its values follow.
    fn begin(&mut self, name: &str, help: &str, kind: ExtraKind) {
        let kind = match kind {
            ExtraKind::Counter | ExtraKind::NanosCounter => "counter",
            ExtraKind::Gauge => "gauge",
        };
        self.head(name, help, kind);
    }

    /// The head of a metric of this type, as the format calls it.
    pub(crate) fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    /// A metric of one value, without labels.
    fn metric(&mut self, name: &str, help: &str, kind: ExtraKind, value: u64) {
        self.begin(name, help, kind);
        self.line(format_args!("{name} {value}"));
    }

    /// A value of a metric of one kind of server.
    fn extra(&mut self, Extra { name, kind, value, labels, .. }: &Extra) {
        let labels: Vec<String> = labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        match kind {
            ExtraKind::NanosCounter => self.line(format_args!("{name}{labels} {}", *value as f64 / 1e9)),
            ExtraKind::Counter | ExtraKind::Gauge => self.line(format_args!("{name}{labels} {value}")),
        }
    }

    /// All metrics of a table.
    fn metrics<S>(&mut self, metrics: &[Metric<S>], kind: ExtraKind, of: &S) {
        metrics.iter().for_each(|(name, help, value)| self.metric(name, help, kind, value(of)));
    }

    pub(crate) fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes everything");
    }
}

/// What a label is, between its quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn write_paging(text: &mut Exposition, stats: &Stats) {
    text.metrics(&PAGING_COUNTERS, ExtraKind::Counter, stats);
    text.metrics(&PAGING_GAUGES, ExtraKind::Gauge, stats);
    let help = "Pages of local memory by state; writing pages are dirty, buffer pages are spare or being fetched into.";
    let (name, label) = (names::LOCAL_PAGES, names::STATE);
    text.begin(name, help, ExtraKind::Gauge);
    for (state, pages) in names::STATES.into_iter().zip(pages_by_state(stats)) {
        text.line(format_args!("{name}{{{label}=\"{state}\"}} {pages}"));
    }
}

/// Pages of each of [`names::STATES`]. The counters are read one after another while they move, so what is left over
/// for the last two stops at zero.
fn pages_by_state(stats: &Stats) -> [u64; 5] {
    let (resident, standby, writing) = (stats.resident_pages, stats.standby_pages, stats.writing_pages);
    let buffer = stats.charged_pages.saturating_sub(resident + standby + writing);
    let free = stats.limit_pages.saturating_sub(stats.charged_pages);
    [resident, standby, writing, buffer, free]
}

fn write_requests(text: &mut Exposition, requests: &Requests) {
    text.metrics(&REQUEST_COUNTERS, ExtraKind::Counter, requests);
    text.metrics(&REQUEST_GAUGES, ExtraKind::Gauge, requests);
    if let Some(predictions) = &requests.predictions {
        text.metrics(&PREDICTION_COUNTERS, ExtraKind::Counter, predictions);
    }
}

/// Percentiles of each stage, in seconds. A stage without times has none: NaN, as Prometheus has it for summaries.
fn write_stages<'a>(
    text: &mut Exposition,
    name: &str,
    help: &str,
    stages: &[&str],
    recent: &mut impl Iterator<Item = &'a StageHistogram>,
) {
    text.begin(name, help, ExtraKind::Gauge);
    let (of_stage, of_quantile) = (names::STAGE, names::QUANTILE);
    for (stage, times) in stages.iter().zip(recent) {
        for (label, quantile) in names::QUANTILES {
            let seconds = if times.count() == 0 { f64::NAN } else { times.quantile(quantile) as f64 / 1e9 };
            text.line(format_args!("{name}{{{of_stage}=\"{stage}\",{of_quantile}=\"{label}\"}} {seconds}"));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scrape::Scrape;

    /// A sample in which every value differs from every other.
    pub(crate) fn full_sample() -> Sample {
        let mut paging = Stats {
            major_faults: 1_000,
            minor_faults: 500,
            fetched_bytes: 4_096_000,
            written_bytes: 2_048_000,
            fetch_retries: 3,
            write_retries: 4,
            paging_errors: 2,
            limit_pages: 16_384,
            charged_pages: 14_000,
            peak_pages: 16_000,
            resident_pages: 10_000,
            standby_pages: 3_000,
            writing_pages: 400,
            in_flight: 7,
            metadata_bytes: 65_536,
            ..Stats::default()
        };
        // Bucket 40 has its middle at 2304 ns.
        paging.stages.fetch.buckets[40] = 1_000;
        paging.stages.total.buckets[41] = 1_000;
        let predictions = Predictions { hits_right: 8_001, hits_wrong: 102, faults_right: 803, faults_wrong: 94 };
        let mut requests = Requests {
            admitted: 9_010,
            completed: 9_000,
            panicked: 1,
            predictions: Some(predictions),
            ..Requests::default()
        };
        requests.stages.total.buckets[60] = 9_000;
        let extra = vec![
            Extra::new("yonder_kv_get_hits_total", ExtraKind::Counter, 77, "Keys that were found."),
            Extra::new("yonder_kv_items", ExtraKind::Gauge, 55, "Items stored now."),
        ];
        Sample { paging: Some(paging), requests: Some(requests), extra }
    }

    #[test]
    fn what_is_rendered_is_read_back() {
        let sample = full_sample();
        let scrape = Scrape::parse(&render(&sample, &sample.stages())).unwrap();
        let paging = sample.paging.as_ref().unwrap();
        for (name, _, value) in PAGING_COUNTERS {
            assert_eq!(scrape.value(name), Some(value(paging) as f64), "{name}");
        }
        for (state, pages) in names::STATES.into_iter().zip([10_000.0, 3_000.0, 400.0, 600.0, 2_384.0]) {
            assert_eq!(scrape.labelled(names::LOCAL_PAGES, &[(names::STATE, state)]), Some(pages), "{state}");
        }
        assert_eq!(scrape.value(names::LOCAL_LIMIT), Some(16_384.0));
        assert_eq!(scrape.value(names::FETCHES_IN_FLIGHT), Some(7.0));
        assert_eq!(scrape.value(names::REQUESTS), Some(9_000.0));
        assert_eq!(scrape.value(names::REQUESTS_IN_SERVICE), Some(10.0));
        let counters = PREDICTION_COUNTERS.map(|(name, ..)| scrape.value(name));
        assert_eq!(counters, [8_001.0, 102.0, 803.0, 94.0].map(Some));
        assert_eq!(scrape.value("yonder_kv_get_hits_total"), Some(77.0));
        assert_eq!(scrape.value("yonder_kv_items"), Some(55.0));
        let fetch = [(names::STAGE, "fetch"), (names::QUANTILE, "0.99")];
        assert_eq!(scrape.labelled(names::FAULT_STAGE, &fetch), Some(2.304e-6));
        let queued = [(names::STAGE, "queued"), (names::QUANTILE, "0.5")];
        assert!(scrape.labelled(names::REQUEST_STAGE, &queued).unwrap().is_nan(), "nothing was recorded");
    }

    #[test]
    fn every_metric_has_help_and_type() {
        let sample = full_sample();
        let text = render(&sample, &sample.stages());
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(text.contains(&format!("# HELP {name} ")) && text.contains(&format!("# TYPE {name} ")), "{line}");
        }
        assert!(text.contains("# TYPE yonder_kv_get_hits_total counter\n"));
        assert!(text.contains("# TYPE yonder_kv_items gauge\n"));
    }

    #[test]
    fn help_and_type_come_once_for_a_name_and_labels_are_escaped() {
        let labelled = |text: &str| Extra {
            labels: vec![("tenant", text.to_owned()), ("of", "b".to_owned())],
            ..Extra::new("yonder_a_total", ExtraKind::NanosCounter, 1_500_000_000, "What.")
        };
        let extra = vec![labelled("app"), labelled("\"\\\n"), Extra::new("yonder_b", ExtraKind::Gauge, 1, "Other.")];
        let expected = "# HELP yonder_a_total What.\n# TYPE yonder_a_total counter\n\
                        yonder_a_total{tenant=\"app\",of=\"b\"} 1.5\n\
                        yonder_a_total{tenant=\"\\\"\\\\\\n\",of=\"b\"} 1.5\n\
                        # HELP yonder_b Other.\n# TYPE yonder_b gauge\nyonder_b 1\n";
        assert_eq!(render(&Sample { extra, ..Sample::default() }, &[]), expected);
    }

    #[test]
    fn a_part_that_is_missing_is_not_shown() {
        let text = render(&Sample::default(), &[]);
        assert_eq!(text, "");
        let sample = Sample { requests: Some(Requests::default()), ..Sample::default() };
        let text = render(&sample, &sample.stages());
        assert!(text.contains("yonder_request_stage_seconds{") && !text.contains("fault"), "{text}");
        assert!(!text.contains("predicted"), "{text}");
    }

    #[test]
    fn counters_that_moved_while_they_were_read_do_not_underflow() {
        let stats = Stats { charged_pages: 10, limit_pages: 8, resident_pages: 12, ..Stats::default() };
        assert_eq!(pages_by_state(&stats), [12, 0, 0, 0, 0]);
    }
}
