//! [`Model`]: what is on the screen, from one scrape after another. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use yonder::units::{PAGE_BYTES, format_bytes};

use super::quantity::{self, NONE};
use crate::names;
use crate::render;
use crate::scrape::Scrape;

/// Rates kept for the curves: more than a terminal is wide.
const HISTORY_MAX: usize = 512;

/// The state of the view.
#[derive(Debug)]
pub(super) struct Model {
    /// What is looked at, as it was typed.
    pub(super) address: String,
    /// Why the last scrape failed.
    pub(super) trouble: Option<String>,
    /// Requests over per second, oldest first.
    pub(super) requests: VecDeque<u64>,
    /// Major faults per second, oldest first.
    pub(super) faults: VecDeque<u64>,
    latest: Scrape,
    rates: BTreeMap<String, f64>,
    /// Of each of [`TENANT_COUNTERS`], by tenant.
    tenant_rates: BTreeMap<String, [f64; TENANT_COUNTERS.len()]>,
}

/// Counters of tenants that are shown as rates.
const TENANT_COUNTERS: [&str; 3] = [names::TENANT_REQUESTS, names::TENANT_BYTES, names::TENANT_SHED];

/// Local memory, in pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Memory {
    pub(super) limit: u64,
    pub(super) peak: u64,
    /// Of each of [`names::STATES`].
    pub(super) states: [u64; names::STATES.len()],
}

/// Percentiles of a stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StageRow {
    /// `fault` or `request`.
    pub(super) of: &'static str,
    pub(super) stage: &'static str,
    /// One for each of [`names::QUANTILES`].
    pub(super) times: [String; names::QUANTILES.len()],
}

/// Heads of the columns of a [`StageRow`].
pub(super) const STAGE_HEADS: [&str; names::QUANTILES.len()] = ["P50", "P90", "P99", "P99.9"];

/// What a tenant of a memory node has and does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TenantRow {
    pub(super) name: String,
    /// One for each of [`TENANT_HEADS`].
    pub(super) cells: [String; TENANT_HEADS.len()],
}

/// Heads of the columns of a [`TenantRow`].
pub(super) const TENANT_HEADS: [&str; 4] = ["requests", "bytes", "memory", "shed"];

/// The row of [`Model::common_rows`] that must be zero.
pub(super) const ERRORS_IN_ALL: &str = "errors in all";

/// A name and what to show for it.
pub(super) type Row = (String, String);

impl Model {
    /// Before there are rates.
    pub(super) fn new(address: &str, first: Scrape) -> Self {
        Self {
            address: address.to_owned(),
            trouble: None,
            requests: VecDeque::new(),
            faults: VecDeque::new(),
            latest: first,
            rates: BTreeMap::new(),
            tenant_rates: BTreeMap::new(),
        }
    }

    /// Takes a scrape, `elapsed` after the one before.
    pub(super) fn update(&mut self, scrape: Scrape, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let counters = scrape.plain().into_iter().filter(|(name, _)| is_counter(name));
        self.rates = counters
            .filter_map(|(name, now)| Some((name.to_owned(), increase(self.latest.value(name)?, now) / seconds)))
            .collect();
        self.tenant_rates = tenant_rates(&self.latest, &scrape, seconds);
        self.latest = scrape;
        self.trouble = None;
        let (requests, faults) = (self.rate(&[names::REQUESTS]), self.rate(&[names::MAJOR_FAULTS]));
        remember(&mut self.requests, requests);
        remember(&mut self.faults, faults);
    }

    /// Notes that the server did not answer; the numbers stay as they are.
    pub(super) fn fail(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Local memory, if the server has far memory.
    pub(super) fn memory(&self) -> Option<Memory> {
        let pages = |name| self.latest.value(name).map(|pages| pages as u64);
        let of = |state| self.latest.labelled(names::LOCAL_PAGES, &[(names::STATE, state)]).unwrap_or(0.0) as u64;
        Some(Memory {
            limit: pages(names::LOCAL_LIMIT)?,
            peak: pages(names::LOCAL_PEAK)?,
            states: names::STATES.map(of),
        })
    }

    /// Size of page tables, hashes and lists, if the server has far memory.
    pub(super) fn metadata_bytes(&self) -> Option<u64> {
        self.latest.value(names::METADATA_BYTES).map(|bytes| bytes as u64)
    }

    /// Rates and what is going on, common to all servers.
    pub(super) fn common_rows(&self) -> Vec<Row> {
        let rate = |counters: &[&str], show: fn(f64) -> String| self.rate(counters).map_or(NONE.to_owned(), show);
        let now = |name: &str| self.latest.value(name).map_or(NONE.to_owned(), quantity::count);
        let rows = [
            ("requests", rate(&[names::REQUESTS], quantity::per_second)),
            ("in service", now(names::REQUESTS_IN_SERVICE)),
            ("major faults", rate(&[names::MAJOR_FAULTS], quantity::per_second)),
            ("minor faults", rate(&[names::MINOR_FAULTS], quantity::per_second)),
            ("in flight", now(names::FETCHES_IN_FLIGHT)),
            ("fetched", rate(&[names::FETCHED_BYTES], quantity::megabytes_per_second)),
            ("written", rate(&[names::WRITTEN_BYTES], quantity::megabytes_per_second)),
            ("retries", rate(&[names::FETCH_RETRIES, names::WRITE_RETRIES], quantity::per_second)),
            ("errors", rate(&[names::PAGING_ERRORS, names::REQUESTS_PANICKED], quantity::per_second)),
            (ERRORS_IN_ALL, quantity::count(self.errors())),
        ];
        rows.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Paging errors and panics since the server started.
    pub(super) fn errors(&self) -> f64 {
        let errors = [names::PAGING_ERRORS, names::REQUESTS_PANICKED];
        errors.iter().filter_map(|name| self.latest.value(name)).fold(0.0, |sum, count| sum + count)
    }

    /// Whether pages are at fewer places than they should be.
    pub(super) fn is_below_protection(&self) -> bool {
        self.latest.value(names::PAGES_BELOW).is_some_and(|pages| pages > 0.0)
    }

    /// How pages are protected, if they are on several nodes.
    pub(super) fn protection_rows(&self) -> Vec<Row> {
        let number = |name| self.latest.value(name).unwrap_or(0.0);
        let (wanted, needed) = (number(names::PLACES_WANTED), number(names::PLACES_NEEDED));
        if wanted == 0.0 {
            return Vec::new();
        }
        let (below, rate) = (number(names::PAGES_BELOW), number(names::MENDING_BYTES));
        let left = if below == 0.0 { 0.0 } else { below * PAGE_BYTES as f64 / rate };
        let hedged = self.rate(&[names::HEDGED_READS]).map_or(NONE.to_owned(), quantity::per_second);
        let late = self.latest.value(names::PAGES_LATE_MAX);
        let late =
            late.map(|most| format!("{} of {}", quantity::count(number(names::PAGES_LATE)), quantity::count(most)));
        let slow = match number(names::NODES_LEFT) {
            0.0 => quantity::count(number(names::NODES_SLOW)),
            left => format!("{}, {} left", quantity::count(number(names::NODES_SLOW)), quantity::count(left)),
        };
        let rows = [
            ("any of places", format!("{needed} of {wanted}")),
            ("pages below", quantity::count(below)),
            ("mended", quantity::megabytes_per_second(rate)),
            ("time left", if left.is_finite() { quantity::time(left) } else { NONE.to_owned() }),
            ("given up", quantity::count(number(names::PLACES_GIVEN_UP))),
            ("replaced", quantity::count(number(names::PLACES_REPLACED))),
            ("epoch", quantity::count(number(names::EPOCH))),
            ("slow", slow),
            ("hedged", hedged),
        ];
        let rows = rows.into_iter().chain(late.map(|late| ("late", late)));
        rows.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What only this kind of server has.
    pub(super) fn extra_rows(&self) -> Vec<Row> {
        let has_protection = self.latest.value(names::PLACES_WANTED).is_some();
        let is_elsewhere = |name: &str| has_protection && names::PROTECTION.contains(&name);
        let extras = self.latest.plain().into_iter().filter(|(name, _)| render::is_extra(name) && !is_elsewhere(name));
        let row = |(name, value): (&str, f64)| {
            let short = name.trim_start_matches(names::PREFIX).trim_end_matches("_total").replace('_', " ");
            let shown = match is_counter(name) {
                true => self.rate(&[name]).map_or(NONE.to_owned(), quantity::per_second),
                false => quantity::count(value),
            };
            (short, shown)
        };
        extras.map(row).collect()
    }

    /// Percentiles of all stages that the server has.
    pub(super) fn stage_rows(&self) -> Vec<StageRow> {
        let faults = names::FAULT_STAGES.map(|stage| ("fault", names::FAULT_STAGE, stage));
        // A terminal of 24 lines has room for the stages of all requests, and not for those of some.
        let of_all = names::REQUEST_STAGES.into_iter().filter(|stage| *stage != names::HIT);
        let requests = of_all.map(|stage| ("request", names::REQUEST_STAGE, stage));
        let row = |(of, name, stage)| {
            let times = names::QUANTILES
                .map(|(quantile, _)| self.latest.labelled(name, &[(names::STAGE, stage), (names::QUANTILE, quantile)]));
            let has_stage = times.iter().any(Option::is_some);
            has_stage.then(|| StageRow { of, stage, times: times.map(|time| quantity::time(time.unwrap_or(f64::NAN))) })
        };
        faults.into_iter().chain(requests).filter_map(row).collect()
    }

    /// The tenants that the server has, if it is a memory node: those with most requests first, then those with most
    /// memory.
    pub(super) fn tenant_rows(&self) -> Vec<TenantRow> {
        let memory = self.latest.by_label(names::TENANT_MEMORY, names::TENANT);
        let rates = |name: &str| self.tenant_rates.get(name).copied();
        let mut tenants: Vec<(&str, f64)> = memory.into_iter().collect();
        let requests = |name: &str| rates(name).map_or(0.0, |[requests, ..]| requests);
        tenants.sort_by(|(one, has), (other, other_has)| {
            requests(other).total_cmp(&requests(one)).then(other_has.total_cmp(has))
        });
        let row = |(name, bytes): (&str, f64)| {
            let memory = format_bytes(bytes as u64);
            let cells =
                rates(name).map_or([NONE, NONE, &memory, NONE].map(str::to_owned), |[requests, bytes, shed]| {
                    let [requests, shed] = [requests, shed].map(quantity::per_second);
                    [requests, quantity::megabytes_per_second(bytes), memory.clone(), shed]
                });
            TenantRow { name: name.to_owned(), cells }
        };
        tenants.into_iter().map(row).collect()
    }

    /// Sum of the rates of those of `counters` that the server has; None if it has none, or there was one scrape only.
    fn rate(&self, counters: &[&str]) -> Option<f64> {
        counters.iter().filter_map(|name| self.rates.get(*name).copied()).reduce(|sum, rate| sum + rate)
    }
}

/// Rates of each tenant that both scrapes have.
fn tenant_rates(earlier: &Scrape, later: &Scrape, seconds: f64) -> BTreeMap<String, [f64; TENANT_COUNTERS.len()]> {
    let [before, now] = [earlier, later].map(|scrape| TENANT_COUNTERS.map(|name| scrape.by_label(name, names::TENANT)));
    let rates = |tenant: &&str| {
        let mut rates = [0.0; TENANT_COUNTERS.len()];
        for ((rate, before), now) in rates.iter_mut().zip(&before).zip(&now) {
            *rate = increase(*before.get(tenant)?, *now.get(tenant)?) / seconds;
        }
        Some(((*tenant).to_owned(), rates))
    };
    now[0].keys().filter_map(rates).collect()
}

/// By the convention of Prometheus.
fn is_counter(name: &str) -> bool {
    name.ends_with("_total")
}

/// How much a counter has grown. One that is lower than before has started afresh from zero.
fn increase(earlier: f64, later: f64) -> f64 {
    if later < earlier { later } else { later - earlier }
}

fn remember(history: &mut VecDeque<u64>, rate: Option<f64>) {
    if history.len() == HISTORY_MAX {
        history.pop_front();
    }
    history.push_back(rate.unwrap_or(0.0).round() as u64);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::render::tests::full_sample;
    use crate::sample::{Extra, ExtraKind, Sample};
    use crate::tenants::Tenant;

    fn scrape(sample: &Sample) -> Scrape {
        Scrape::parse(&render::render(sample, &sample.stages())).unwrap()
    }

    /// Two scrapes, two seconds apart.
    pub(in crate::top) fn full_model() -> Model {
        let mut sample = full_sample();
        let mut model = Model::new("127.0.0.1:9185", scrape(&sample));
        let paging = sample.paging.as_mut().unwrap();
        paging.major_faults += 3_000;
        paging.minor_faults += 500;
        paging.fetched_bytes += 24_000_000;
        paging.written_bytes += 5_000_000;
        paging.fetch_retries += 1;
        paging.write_retries += 2;
        sample.requests.as_mut().unwrap().completed += 246_000;
        sample.extra[0].value += 200_000;
        model.update(scrape(&sample), Duration::from_secs(2));
        model
    }

    fn shown(rows: &[Row], name: &str) -> String {
        rows.iter().find(|row| row.0 == name).unwrap().1.clone()
    }

    #[test]
    fn rates_are_increases_over_time() {
        let model = full_model();
        let rows = model.common_rows();
        let expected = [
            ("requests", "123 k/s"),
            ("major faults", "1.50 k/s"),
            ("minor faults", "250 /s"),
            ("in flight", "7"),
            ("fetched", "12.0 MB/s"),
            ("written", "2.50 MB/s"),
            ("retries", "1.50 /s"),
            ("errors", "0 /s"),
            ("errors in all", "3"),
        ];
        expected.into_iter().for_each(|(name, value)| assert_eq!(shown(&rows, name), value, "{name}"));
        assert_eq!((model.requests.as_slices().0, model.faults.as_slices().0), (&[123_000][..], &[1_500][..]));
        let extras = [("kv get hits", "100 k/s"), ("kv items", "55")];
        assert_eq!(model.extra_rows(), extras.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn the_first_scrape_has_no_rates() {
        let model = Model::new("a:1", scrape(&full_sample()));
        assert_eq!(shown(&model.common_rows(), "requests"), "-");
        assert_eq!(shown(&model.extra_rows(), "kv get hits"), "-");
        assert!(model.requests.is_empty());
    }

    #[test]
    fn a_server_that_starts_afresh_counts_from_zero() {
        let mut model = full_model();
        model.fail("gone".to_owned());
        let mut sample = full_sample();
        sample.paging.as_mut().unwrap().major_faults = 30;
        model.update(scrape(&sample), Duration::from_secs(3));
        assert_eq!(shown(&model.common_rows(), "major faults"), "10 /s");
        assert_eq!(model.trouble, None);
    }

    #[test]
    fn parts_that_a_server_does_not_have_are_left_out() {
        let sample = Sample { extra: full_sample().extra, ..Sample::default() };
        let mut model = Model::new("a:1", scrape(&sample));
        model.update(scrape(&sample), Duration::from_secs(1));
        assert_eq!((model.memory(), model.stage_rows()), (None, Vec::new()));
        assert_eq!(shown(&model.common_rows(), "requests"), "-");
        assert_eq!(shown(&model.extra_rows(), "kv get hits"), "0 /s");
    }

    #[test]
    fn memory_and_stages() {
        let model = full_model();
        let memory = Memory { limit: 16_384, peak: 16_000, states: [10_000, 3_000, 400, 600, 2_384] };
        assert_eq!(model.memory(), Some(memory));
        let rows = model.stage_rows();
        assert_eq!(rows.len(), names::FAULT_STAGES.len() + names::REQUEST_STAGES.len() - 1);
        assert_eq!((rows[1].of, rows[1].stage, rows[1].times[2].as_str()), ("fault", "fetch", "2.30 us"));
        assert_eq!((rows[5].of, rows[5].stage, rows[5].times[2].as_str()), ("request", "queued", "-"));
    }

    /// A memory node, scraped twice, two seconds apart.
    pub(in crate::top) fn node_model() -> Model {
        let tenant = |name: &str, requests, shed, memory_bytes| Tenant {
            name: name.to_owned(),
            requests,
            bytes: requests * 4096,
            shed,
            memory_bytes,
            ..Tenant::default()
        };
        let node = |tenants| {
            let mut extra = vec![Extra::new("yonder_node_spaces", ExtraKind::Gauge, 3, "Address spaces now.")];
            extra.extend(Tenant::node_metrics(tenants));
            scrape(&Sample { extra, ..Sample::default() })
        };
        let mut model = Model::new("127.0.0.1:9186", node(vec![tenant("app", 1000, 0, 1 << 20), tenant("b", 7, 1, 0)]));
        let later = vec![tenant("app", 3000, 5, 3 << 20), tenant("b", 250_007, 1, 0), tenant("10.0.0.9", 9, 9, 4096)];
        model.update(node(later), Duration::from_secs(2));
        model
    }

    /// A server with pages on several nodes, one of which has just ended.
    pub(in crate::top) fn spread_model() -> Model {
        let values = [5, 4, 2_000, 300, 16_384, 8_192_000, 1, 0, 40, 6, 2];
        let extra = |(name, value): (&&'static str, u64)| {
            let kind = if is_counter(name) { ExtraKind::Counter } else { ExtraKind::Gauge };
            Extra::new(name, kind, value, "Of pages.")
        };
        let sample = |hedged| {
            let mut extra: Vec<Extra> = names::PROTECTION.iter().zip(values).map(extra).collect();
            extra.push(Extra::new("yonder_kv_items", ExtraKind::Gauge, 55, "Items."));
            extra[8].value += hedged;
            scrape(&Sample { extra, ..full_sample() })
        };
        let mut model = Model::new("127.0.0.1:9187", sample(0));
        model.update(sample(30), Duration::from_secs(2));
        model
    }

    #[test]
    fn protection_is_shown_apart_with_the_time_that_is_left() {
        let model = spread_model();
        let rows = model.protection_rows();
        assert!(model.is_below_protection() && !full_model().is_below_protection());
        let shown: Vec<&str> = rows.iter().map(|row| row.1.as_str()).collect();
        assert_eq!(shown, ["4 of 5", "2.00 k", "8.19 MB/s", "1.00 s", "1", "0", "6", "2", "15 /s", "300 of 16.4 k"]);
        assert_eq!(model.extra_rows(), [("kv items".to_owned(), "55".to_owned())]);
        assert!(full_model().protection_rows().is_empty());
    }

    #[test]
    fn tenants_are_rows_the_busiest_first() {
        let rows: Vec<String> =
            node_model().tenant_rows().into_iter().map(|row| row.name + ": " + &row.cells.join(", ")).collect();
        let expected =
            ["b: 125 k/s, 512 MB/s, 0 B, 0 /s", "app: 1.00 k/s, 4.10 MB/s, 3 MiB, 2.50 /s", "10.0.0.9: -, -, 4 KiB, -"];
        assert_eq!(rows, expected, "one that came between has no rates yet");
        assert_eq!(full_model().tenant_rows(), []);
    }

    #[test]
    fn history_is_bounded_and_time_may_stand_still() {
        let mut model = full_model();
        (0..2 * HISTORY_MAX).for_each(|_| {
            model.update(scrape(&Sample { extra: full_sample().extra, ..Sample::default() }), Duration::ZERO)
        });
        assert_eq!(model.requests.len(), HISTORY_MAX);
    }
}
