//! [`Task`]: what travels in a unithread's buffer, and the counters of all tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use yonder_paging::{StageHistogram, StageRecorder};
use yonder_units::Nanos;

use crate::frontend::{Handler, Outcome, Timing};

/// A request with its handler, its reply and its clock.
pub(crate) struct Task<H: Handler> {
    pub(crate) request: Option<H::Request>,
    pub(crate) reply: Option<H::Reply>,
    /// Lent by the worker while the task runs.
    pub(crate) handler: Option<Arc<H>>,
    pub(crate) timing: Timing,
    pub(crate) started: Nanos,
}

impl<H: Handler> Task<H> {
    pub(crate) fn new(request: H::Request, admitted: Nanos) -> Self {
        let timing = Timing { admitted, ..Timing::default() };
        Self { request: Some(request), reply: None, handler: None, timing, started: 0 }
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
        }
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
        self.total.record(timing.queued_ns + timing.running_ns + timing.waiting_ns);
    }
}
