//! [`Task`]: what travels in a unithread's buffer, and the counters of all tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use yonder_dispatch::predict::Prediction;
use yonder_paging::{StageHistogram, StageRecorder};
use yonder_units::{Nanos, PageId};

use crate::fault_predictor::PredictedRequest;
use crate::frontend::{Handler, Outcome, Timing};

/// A request with its handler, its reply and its clock.
pub(crate) struct Task<H: Handler> {
    pub(crate) request: Option<H::Request>,
    pub(crate) reply: Option<H::Reply>,
    /// Lent by the worker while the task runs.
    pub(crate) handler: Option<Arc<H>>,
    pub(crate) timing: Timing,
    pub(crate) started: Nanos,
    /// What the dispatcher foresaw.
    pub(crate) prediction: Option<PredictedRequest>,
    /// The page of its last fault.
    pub(crate) page_id: Option<PageId>,
}

impl<H: Handler> Task<H> {
    pub(crate) fn new(request: H::Request, admitted: Nanos, prediction: Option<PredictedRequest>) -> Self {
        let timing = Timing { admitted, ..Timing::default() };
        Self { request: Some(request), reply: None, handler: None, timing, started: 0, prediction, page_id: None }
    }

    /// A unithread's first instruction.
    pub(crate) fn run(&mut self) {
        let request = self.request.take().expect("a task is run once");
        let handler = self.handler.as_ref().expect("the worker gives the task its handler");
        self.reply = Some(handler.handle(request));
    }

    pub(crate) fn outcome(&mut self) -> Outcome<H::Reply> {
        self.reply.take().map_or(Outcome::Panicked, Outcome::Reply)
    }
}

/// Counters of a server, readable from any thread while it runs.
#[derive(Debug, Default)]
pub struct SchedStats {
    admitted: AtomicU64,
    completed: AtomicU64,
    panicked: AtomicU64,
    queued: StageRecorder,
    running: StageRecorder,
    waiting: StageRecorder,
    total: StageRecorder,
    hit: StageRecorder,
    predicted_hits_right: AtomicU64,
    predicted_hits_wrong: AtomicU64,
    predicted_faults_right: AtomicU64,
    predicted_faults_wrong: AtomicU64,
    predictor_bytes: AtomicU64,
}

/// What was predicted of the requests that are over, and what became of them. All are zero where nothing is predicted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Predictions {
    /// Predicted to hit, and had no major fault.
    pub hits_right: u64,
    /// Predicted to hit, and had a major fault.
    pub hits_wrong: u64,
    /// Predicted to fault, and had a major fault.
    pub faults_right: u64,
    /// Predicted to fault, and had no major fault.
    pub faults_wrong: u64,
}

impl Predictions {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            hits_right: self.hits_right - earlier.hits_right,
            hits_wrong: self.hits_wrong - earlier.hits_wrong,
            faults_right: self.faults_right - earlier.faults_right,
            faults_wrong: self.faults_wrong - earlier.faults_wrong,
        }
    }
}

/// Times of requests by stage.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StageQuantiles {
    /// From admission to the first instruction.
    pub queued: StageHistogram,
    /// On the CPU.
    pub running: StageHistogram,
    /// Parked.
    pub waiting: StageHistogram,
    /// From admission to the reply.
    pub total: StageHistogram,
    /// The same, of requests without a major fault.
    pub hit: StageHistogram,
}

impl SchedStats {
    /// Requests admitted so far.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Requests over so far, panics included.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Requests whose handler panicked.
    #[must_use]
    pub fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Times of all requests that are over.
    #[must_use]
    pub fn stages(&self) -> StageQuantiles {
        StageQuantiles {
            queued: self.queued.snapshot(),
            running: self.running.snapshot(),
            waiting: self.waiting.snapshot(),
            total: self.total.snapshot(),
            hit: self.hit.snapshot(),
        }
    }

    /// What was predicted of the requests that are over.
    #[must_use]
    pub fn predictions(&self) -> Predictions {
        Predictions {
            hits_right: self.predicted_hits_right.load(Ordering::Relaxed),
            hits_wrong: self.predicted_hits_wrong.load(Ordering::Relaxed),
            faults_right: self.predicted_faults_right.load(Ordering::Relaxed),
            faults_wrong: self.predicted_faults_wrong.load(Ordering::Relaxed),
        }
    }

    /// Local memory of the predictor, in bytes: zero where nothing is predicted.
    #[must_use]
    pub fn predictor_bytes(&self) -> u64 {
        self.predictor_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_predictor_bytes(&self, bytes: u64) {
        self.predictor_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts what became of a prediction. Called by the dispatcher only.
    pub(crate) fn count_prediction(&self, prediction: Prediction, major_faults: u32) {
        let counter = match (prediction, major_faults) {
            (Prediction::Hit, 0) => &self.predicted_hits_right,
            (Prediction::Hit, _) => &self.predicted_hits_wrong,
            (Prediction::Fault, 0) => &self.predicted_faults_wrong,
            (Prediction::Fault, _) => &self.predicted_faults_right,
        };
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn count_admitted(&self) {
        self.admitted.store(self.admitted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts a finished request. Called by the dispatcher only.
    pub(crate) fn count_done(&self, timing: &Timing, panicked: u64) {
        self.completed.store(self.completed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.panicked.store(self.panicked.load(Ordering::Relaxed) + panicked, Ordering::Relaxed);
        self.queued.record(timing.queued_ns);
        self.running.record(timing.running_ns);
        self.waiting.record(timing.waiting_ns);
        let total = timing.queued_ns + timing.running_ns + timing.waiting_ns;
        self.total.record(total);
        if timing.major_faults == 0 {
            self.hit.record(total);
        }
    }
}
