//! [`Sample`]: what a server counts, at one moment; [`Source`]: where it comes from.

use yonder::sched::{Predictions, SchedStats, StageQuantiles};
use yonder::{StageHistogram, Stats};

/// What a server shows. Called on the metrics thread, once per scrape, while the server runs.
pub trait Source: Send + Sync {
    /// The counters now. Counters only grow while the server lives.
    fn sample(&self) -> Sample;
}

impl<F: Fn() -> Sample + Send + Sync> Source for F {
    fn sample(&self) -> Sample {
        self()
    }
}

/// Everything that a server counts. A part that a server does not have is left out, not shown as zero.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sample {
    /// Far memory of the process.
    pub paging: Option<Stats>,
    /// Requests of a scheduled server.
    pub requests: Option<Requests>,
    /// What only this server counts.
    pub extra: Vec<Extra>,
}

/// What has become of the requests so far.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Requests {
    /// Requests admitted.
    pub admitted: u64,
    /// Requests over, panics included.
    pub completed: u64,
    /// Requests whose handler panicked.
    pub panicked: u64,
    /// Times of the requests that are over.
    pub stages: StageQuantiles,
    /// What was predicted of them, if anything is.
    pub predictions: Option<Predictions>,
}

impl From<&SchedStats> for Requests {
    fn from(stats: &SchedStats) -> Self {
        // Completions are read first, so that no request seems to be over before it was admitted.
        let (completed, panicked, stages) = (stats.completed(), stats.panicked(), stats.stages());
        let predictions = (stats.predictor_bytes() > 0).then(|| stats.predictions());
        Self { admitted: stats.admitted(), completed, panicked, stages, predictions }
    }
}

/// A counter or a gauge of one kind of server. Those of one name, with different labels, stand behind one another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extra {
    /// Full name, such as `yonder_kv_get_hits_total`; counters end in `_total`.
    pub name: &'static str,
    /// One sentence for the `HELP` line.
    pub help: &'static str,
    /// How the value moves.
    pub kind: ExtraKind,
    /// The value now.
    pub value: u64,
    /// What tells it from others of its name: names, which are constants, and what they are, which may be any text.
    pub labels: Vec<(&'static str, String)>,
}

impl Extra {
    /// One without labels.
    #[must_use]
    pub const fn new(name: &'static str, kind: ExtraKind, value: u64, help: &'static str) -> Self {
        Self { name, help, kind, value, labels: Vec::new() }
    }
}

/// How the value of an [`Extra`] moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtraKind {
    /// It only grows: shown as a rate.
    Counter,
    /// It only grows, and is a time in nanoseconds: shown in seconds.
    NanosCounter,
    /// It goes up and down: shown as it is.
    Gauge,
}

impl Sample {
    /// Histograms of all stages: those of `names::FAULT_STAGES`, then those of `names::REQUEST_STAGES`, as far as the
    /// server has them.
    pub(crate) fn stages(&self) -> Vec<StageHistogram> {
        let faults = self.paging.iter().flat_map(|paging| {
            let stages = &paging.stages;
            [&stages.post, &stages.fetch, &stages.install, &stages.resume, &stages.total]
        });
        let requests = self.requests.iter().flat_map(|requests| {
            let stages = &requests.stages;
            [&stages.queued, &stages.running, &stages.waiting, &stages.total, &stages.hit]
        });
        faults.chain(requests).cloned().collect()
    }
}
