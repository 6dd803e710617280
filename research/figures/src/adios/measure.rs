//! What is kept of requests: where the time of each went, of a sample of them, and counts of all.

use yonder_units::Nanos;

use crate::costs::adios as costs;

/// Where the time of one request went, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Spent {
    /// Kind of request.
    pub(crate) kind: u8,
    /// From arrival until it runs, but for the dispatcher's own work on it; and the same once it has been preempted.
    pub(crate) queued: u32,
    /// Of that, how much workers were busy-waiting: their share of all, summed over the time.
    pub(crate) queued_busy: u32,
    /// From asking for pages until they came.
    pub(crate) fetching: u32,
    /// From a page's arrival until the worker had time for it.
    pub(crate) ready: u32,
    /// All else: software and computing.
    pub(crate) running: u32,
}

impl Spent {
    /// From arrival to reply.
    pub(crate) fn whole(&self) -> u32 {
        self.queued + self.fetching + self.ready + self.running
    }
}

/// The same as means, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Parts {
    pub(crate) queued: f64,
    pub(crate) queued_busy: f64,
    pub(crate) fetching: f64,
    pub(crate) ready: f64,
    pub(crate) running: f64,
}

/// A run's results.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Measured {
    /// Requests that arrived after the warm-up, and were answered, and were dropped.
    pub(crate) arrived: u64,
    pub(crate) answered: u64,
    pub(crate) dropped: u64,
    /// Pages fetched after the warm-up.
    pub(crate) fetched: u64,
    /// Time after the warm-up.
    pub(crate) span: Nanos,
    /// Share of the span in which links carried pages, in percent.
    pub(crate) link_percent: f64,
    /// Most faults that were under way at a time.
    pub(crate) faults_most: u32,
    /// A sample of requests, by their whole time.
    pub(crate) sample: Vec<Spent>,
}

impl Measured {
    /// Answers a second.
    pub(crate) fn ops_per_s(&self) -> f64 {
        self.answered as f64 * 1e9 / self.span.max(1) as f64
    }

    /// Whether no more than a thousandth was dropped.
    pub(crate) fn keeps_up(&self) -> bool {
        self.dropped * 1000 <= self.arrived
    }

    /// The request of a kind, or of any, below which `percent` of them are, by their whole time.
    pub(crate) fn at(&self, percent: f64, kind: Option<u8>) -> Spent {
        let of_kind = |spent: &&Spent| kind.is_none_or(|kind| spent.kind == kind);
        let count = self.sample.iter().filter(of_kind).count();
        let rank = ((count as f64 * percent / 100.0) as usize).min(count.saturating_sub(1));
        self.sample.iter().filter(of_kind).nth(rank).copied().unwrap_or_default()
    }

    /// Percentiles of [`Measured::latency_us`], of any kind.
    pub(crate) fn latencies_us<const N: usize>(&self, percents: [f64; N]) -> [f64; N] {
        percents.map(|percent| self.latency_us(percent, None))
    }

    /// From a client's sending to its receiving, in microseconds: a percentile of the requests of a kind, or of any.
    pub(crate) fn latency_us(&self, percent: f64, kind: Option<u8>) -> f64 {
        (f64::from(self.at(percent, kind).whole()) + costs::CLIENT_RTT.value) / 1e3
    }

    /// Where the time went of the requests around a percentile, a quarter of what is beyond it on each side; means, in
    /// microseconds.
    pub(crate) fn around(&self, percent: f64) -> Parts {
        let rank = |percent: f64| (self.sample.len() as f64 * percent / 100.0) as usize;
        let reach = (100.0 - percent).min(percent) / 4.0;
        let window = self.sample.get(rank(percent - reach)..rank(percent + reach)).unwrap_or_default();
        let mean = |part: fn(&Spent) -> u32| {
            window.iter().map(|spent| f64::from(part(spent))).sum::<f64>() / window.len() as f64 / 1e3
        };
        Parts {
            queued: mean(|spent| spent.queued),
            queued_busy: mean(|spent| spent.queued_busy),
            fetching: mean(|spent| spent.fetching),
            ready: mean(|spent| spent.ready),
            running: mean(|spent| spent.running),
        }
    }
}

/// Collects a run's results.
#[derive(Debug)]
pub(crate) struct Meter {
    every: u64,
    finished: u64,
    measured: Measured,
}

/// Requests whose parts are kept; of longer runs, each so-many-th.
const SAMPLE_MAX: u64 = 1 << 20;

impl Meter {
    /// For a run of so many requests.
    pub(crate) fn new(requests: u64) -> Self {
        Self { every: requests.div_ceil(SAMPLE_MAX).max(1), finished: 0, measured: Measured::default() }
    }

    /// The counts.
    pub(crate) fn counts(&mut self) -> &mut Measured {
        &mut self.measured
    }

    /// A request was answered.
    pub(crate) fn answered(&mut self, spent: Spent) {
        self.measured.answered += 1;
        self.finished += 1;
        if self.finished.is_multiple_of(self.every) {
            self.measured.sample.push(spent);
        }
    }

    /// The end of the run.
    pub(crate) fn end(mut self, span: Nanos, link_busy: Nanos, links: usize) -> Measured {
        self.measured.span = span;
        self.measured.link_percent = link_busy as f64 * 100.0 / (span.max(1) * links as u64) as f64;
        self.measured.sample.sort_by_key(Spent::whole);
        self.measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_the_whole_time_and_by_kind() {
        let mut meter = Meter::new(1_000);
        for index in (0..1_000).rev() {
            meter.answered(Spent { kind: u8::from(index >= 990), running: index, queued: 1, ..Spent::default() });
        }
        let measured = meter.end(1_000_000, 250_000, 1);
        assert_eq!((measured.at(50.0, None).running, measured.at(99.9, None).running), (500, 999));
        assert_eq!((measured.at(50.0, Some(1)).running, measured.at(0.0, Some(1)).running), (995, 990));
        assert_eq!(measured.at(99.0, None).whole(), 991);
        assert_eq!((measured.ops_per_s(), measured.link_percent), (1e6, 25.0));
        let parts = measured.around(50.0);
        assert_eq!((parts.queued, parts.running, parts.ready), (0.001, 0.4995, 0.0));
        assert_eq!(measured.latency_us(0.0, None), 2.001);
    }

    #[test]
    fn of_long_runs_a_sample_is_kept() {
        let mut meter = Meter::new(4 * SAMPLE_MAX);
        (0..4_000).for_each(|_| meter.answered(Spent::default()));
        let measured = meter.end(1, 0, 1);
        assert_eq!((measured.answered, measured.sample.len()), (4_000, 1_000));
    }
}
