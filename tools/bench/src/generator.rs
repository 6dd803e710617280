//! Load from within the process: [`Generator`] makes requests and checks replies, on the dispatcher thread. What is
//! asked is a benchmark's [`RequestSource`]; a reply is an answer, or the error with which the request has failed.
//!
//! A run warms up, is measured, and drains. What counts is decided by a request's *intended* start: every request that
//! was meant to start in the measured time has its latency recorded from then, also when its answer comes in the drain,
//! so that a queue which has built up at the end is not left out. What is still in it after the drain counts as
//! dropped, with the time that it has waited as its latency. Only throughput counts answers by when they came.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use yonder::sched::{
    Activity, DispatchPolicy, Done, Frontend, Handler, Idle, Outcome, Predictions, Reclaim, SchedConfig, SchedStats,
    Timing,
};
use yonder::units::Nanos;
use yonder::{FarMemory, Stats};
use yonder_load::{LatencyRecorder, PoissonArrivals, Rate, RequestSource};

use crate::{OnProgress, WireBytes, parking};

/// Requests that arrived and wait for room, at most; later arrivals are dropped, as a full queue of a NIC would.
const BACKLOG_MAX: usize = 100_000;
/// Time between two reports of progress: seldom, for they are made by the thread whose work is measured.
const PROGRESS_EVERY_NS: Nanos = 500_000_000;
/// One in so many requests has its stages recorded.
const STAGES_EVERY: u64 = 16;

/// Requests handed to a worker ahead of time: few, so that the single queue stays single.
const WORKER_QUEUE: usize = 8;
/// The same where the dispatcher reclaims: enough to keep a worker busy for one of its steps.
const WORKER_QUEUE_RECLAIMING: usize = 24;
/// Requests that are told apart ahead of time where faults are predicted: a request that waits with the generator
/// cannot be overtaken. Not in a closed loop, where it would only be a longer queue.
const PREDICTED_QUEUE: usize = 1024;
/// The threads and policies for a load that is made on the dispatcher thread: none sleeps, and queues are as long as
/// they are of use.
pub(crate) fn threads_of(wanted: &SchedConfig, rate: Rate) -> SchedConfig {
    let worker_queue = match wanted.reclaim {
        Reclaim::Dispatcher => WORKER_QUEUE_RECLAIMING,
        Reclaim::Thread => WORKER_QUEUE,
    };
    // A worker that busy-waits finishes each request before it starts the next, unless it is preempted.
    let one_at_a_time = wanted.faults.always_waits() && wanted.preempt.is_none();
    let is_open_loop = matches!(rate, Rate::PerSecond(_));
    let predicted = wanted.dispatch == DispatchPolicy::Predicted && is_open_loop;
    let ahead = worker_queue + 8 + if predicted { PREDICTED_QUEUE } else { 0 };
    SchedConfig {
        max_inflight: if one_at_a_time { 1 } else { wanted.max_inflight },
        unithreads: wanted.workers * (wanted.max_inflight + ahead),
        idle: Idle::BusyPoll,
        worker_queue,
        ..wanted.clone()
    }
}

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    WarmUp,
    Measured,
    /// No request arrives any more; what waits is served until this time.
    Drain {
        until: Nanos,
    },
    Over,
}

/// A request or a reply, with the time at which the request was meant to start.
pub(crate) struct Timed<T> {
    intended: Nanos,
    body: T,
}

/// Handles requests that travel with their times.
pub(crate) struct TimedHandler<H>(pub(crate) H);

impl<H: Handler> Handler for TimedHandler<H> {
    type Request = Timed<H::Request>;
    type Reply = Timed<H::Reply>;

    fn handle(&self, Timed { intended, body }: Self::Request) -> Self::Reply {
        Timed { intended, body: self.0.handle(body) }
    }

    fn key(&self, request: &Self::Request) -> Option<u64> {
        self.0.key(&request.body)
    }
}

/// What is counted while a run lasts.
#[derive(Clone, Default)]
pub(crate) struct Counters {
    pub(crate) paging: Stats,
    pub(crate) wire: WireBytes,
    pub(crate) predictions: Predictions,
}

impl Counters {
    /// Those of `far`, and of a server on it.
    pub(crate) fn of(far: &FarMemory, requests: &SchedStats) -> Self {
        Self { paging: far.stats(), wire: WireBytes::of(far), predictions: requests.predictions() }
    }
}

/// Makes requests and checks replies, of which those that have failed are an `E`.
pub(crate) struct Generator<'a, Q, E> {
    counters: &'a dyn Fn() -> Counters,
    source: Q,
    arrivals: Option<std::iter::Peekable<PoissonArrivals>>,
    /// Intended starts of requests that have arrived and were not admitted.
    backlog: VecDeque<Nanos>,
    phase: Phase,
    warm_up_ns: Nanos,
    /// Measured time: planned while it has not come.
    measure_from: Nanos,
    end: Nanos,
    progress: OnProgress<'a>,
    next_progress: Nanos,
    started: Nanos,
    replies: u64,
    /// Offered load, in requests per second; `None` in a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) measured_ns: Nanos,
    pub(crate) before: Counters,
    pub(crate) after: Counters,
    /// By kinds. What was dropped counts as of the first.
    pub(crate) latency: Vec<LatencyRecorder>,
    /// The latency of requests without a major fault.
    pub(crate) hit_latency: LatencyRecorder,
    pub(crate) queued: LatencyRecorder,
    pub(crate) running: LatencyRecorder,
    pub(crate) waiting: LatencyRecorder,
    /// Answers that came in the measured time.
    pub(crate) answered: u64,
    pub(crate) dropped: u64,
    pub(crate) errors: u64,
    pub(crate) wrong: u64,
    errors_are: PhantomData<fn(E)>,
}

impl<'a, Q: RequestSource, E> Generator<'a, Q, E> {
    /// A run of `duration` that starts at `started`. `counters` are asked when the measured time begins and ends.
    pub(crate) fn new(
        source: Q,
        (rate, duration): (Rate, Duration),
        started: Nanos,
        counters: &'a dyn Fn() -> Counters,
        progress: OnProgress<'a>,
    ) -> Self {
        let duration = duration.as_nanos() as Nanos;
        let rate = rate.per_second();
        let warm_up_ns = duration / 4;
        Self {
            counters,
            source,
            arrivals: rate.map(|rate| PoissonArrivals::new(rate, started, 7).peekable()),
            backlog: VecDeque::with_capacity(BACKLOG_MAX),
            phase: Phase::WarmUp,
            warm_up_ns,
            measure_from: started + warm_up_ns,
            end: started + warm_up_ns + duration,
            progress,
            next_progress: started,
            started,
            replies: 0,
            rate,
            measured_ns: 0,
            before: Counters::default(),
            after: Counters::default(),
            latency: Q::KINDS.iter().map(|_| LatencyRecorder::new()).collect(),
            hit_latency: LatencyRecorder::new(),
            queued: LatencyRecorder::new(),
            running: LatencyRecorder::new(),
            waiting: LatencyRecorder::new(),
            answered: 0,
            dropped: 0,
            errors: 0,
            wrong: 0,
            errors_are: PhantomData,
        }
    }

    /// Moves from warm-up to measurement to drain to the end.
    fn advance(&mut self, now: Nanos) {
        match self.phase {
            Phase::WarmUp if now >= self.measure_from => {
                self.phase = Phase::Measured;
                self.before = (self.counters)();
                // From here, not from where it was planned: a machine that stood still must not shorten the
                // measurement.
                self.end = now + (self.end - self.measure_from);
                self.measure_from = now;
            }
            Phase::Measured if now >= self.end => {
                self.after = (self.counters)();
                self.measured_ns = now - self.measure_from;
                self.phase = Phase::Drain { until: now + self.warm_up_ns };
            }
            Phase::Drain { until } if now >= until || self.backlog.is_empty() => {
                self.phase = Phase::Over;
                self.give_up(now);
            }
            _ => {}
        }
        if now >= self.next_progress {
            self.next_progress = now + PROGRESS_EVERY_NS;
            (self.progress)("running", (now - self.started) as f64 / (self.end - self.started) as f64);
        }
    }

    /// Counts what is never served as dropped, and the time that it has waited as its latency, which is at least that.
    fn give_up(&mut self, now: Nanos) {
        for intended in std::mem::take(&mut self.backlog) {
            if self.measures(intended) {
                self.dropped += 1;
                self.latency[0].record(now - intended);
            }
        }
    }

    /// The latency of all requests.
    pub(crate) fn all_latency(&self) -> LatencyRecorder {
        let mut all = LatencyRecorder::new();
        self.latency.iter().for_each(|kind| all.merge(kind));
        all
    }

    /// Whether a request with this intended start counts.
    fn measures(&self, intended: Nanos) -> bool {
        self.measure_from <= intended && intended < self.end
    }

    /// Moves arrivals whose time has come to the backlog.
    fn arrive(&mut self, now: Nanos) {
        let until = now.min(self.end);
        while let Some(intended) =
            self.arrivals.as_mut().and_then(|arrivals| arrivals.next_if(|intended| *intended <= until))
        {
            if self.backlog.len() < BACKLOG_MAX {
                self.backlog.push_back(intended);
            } else if self.measures(intended) {
                self.dropped += 1;
            }
        }
    }

    /// Counts a right answer.
    fn count(&mut self, now: Nanos, intended: Nanos, kind: usize, timing: &Timing) {
        self.answered += u64::from(self.phase == Phase::Measured);
        if self.measures(intended) {
            self.latency[kind].record(now.saturating_sub(intended));
            if timing.major_faults == 0 {
                self.hit_latency.record(now.saturating_sub(intended));
            }
            if self.replies.is_multiple_of(STAGES_EVERY) {
                self.queued.record(timing.queued_ns);
                self.running.record(timing.running_ns);
                self.waiting.record(timing.waiting_ns);
            }
        }
    }
}

impl<Q: RequestSource, E> Frontend for Generator<'_, Q, E> {
    type Request = Timed<Q::Request>;
    type Reply = Timed<Result<Q::Answer, E>>;

    fn poll(&mut self, now: Nanos, room: usize, admit: &mut dyn FnMut(Self::Request)) -> Activity {
        self.arrive(now);
        self.advance(now);
        if self.phase == Phase::Over {
            return Activity::Idle;
        }
        let mut activity = Activity::Idle;
        for _ in 0..room {
            let intended = match (&self.arrivals, self.phase) {
                (Some(_), _) => self.backlog.pop_front(),
                (None, Phase::Drain { .. }) => None,
                (None, _) => Some(now),
            };
            let Some(intended) = intended else { break };
            admit(Timed { intended, body: self.source.next_request() });
            activity = Activity::Busy;
        }
        activity
    }

    fn complete(&mut self, now: Nanos, done: Done<Self::Reply>) {
        self.replies += 1;
        let Outcome::Reply(Timed { intended, body: Ok(answer) }) = done.outcome else {
            self.errors += 1;
            return;
        };
        match self.source.verify(&answer) {
            Some(kind) => self.count(now, intended, kind, &done.timing),
            None => self.wrong += 1,
        }
    }

    fn wait(&mut self, timeout: Duration) {
        parking::park(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        parking::waker_of_this_thread()
    }

    fn is_finished(&self) -> bool {
        self.phase == Phase::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RequestSource that are all alike.
    struct Alike;

    impl RequestSource for Alike {
        type Request = ();
        type Answer = ();
        const KINDS: &'static [&'static str] = &["alike"];

        fn next_request(&mut self) {}

        fn verify(&self, (): &()) -> Option<usize> {
            Some(0)
        }
    }

    const MS: Nanos = 1_000_000;

    /// What a run of 100 ms, after a warm-up of 25 ms, made of its requests.
    struct Seen {
        in_window: u64,
        latencies: u64,
        hits: u64,
        longest_us: f64,
        answered: u64,
        dropped: u64,
        errors: u64,
    }

    /// Runs a server on a clock of its own that takes one request every `service` and ends every `fails`th in a panic.
    fn run(rate: Rate, service: Nanos, fails: u64) -> Seen {
        let (counters, mut progress) = (Counters::default, |_: &str, _: f64| {});
        let mut generator =
            Generator::<_, ()>::new(Alike, (rate, Duration::from_millis(100)), 0, &counters, &mut progress);
        let (mut now, mut served, mut in_window) = (0, 0, 0);
        while !generator.is_finished() {
            let mut admitted = None;
            generator.poll(now, 1, &mut |request| admitted = Some(request));
            now += service;
            let Some(Timed { intended, body: () }) = admitted else { continue };
            served += 1;
            in_window += u64::from(generator.measures(intended));
            let outcome =
                if served % fails == 0 { Outcome::Panicked } else { Outcome::Reply(Timed { intended, body: Ok(()) }) };
            // Every other request faults.
            let timing = Timing { major_faults: served as u32 % 2, ..Timing::default() };
            generator.complete(now, Done { outcome, timing });
        }
        assert_eq!((generator.wrong, generator.measured_ns >= 100 * MS), (0, true));
        Seen {
            in_window,
            latencies: generator.latency[0].len(),
            hits: generator.hit_latency.len(),
            longest_us: generator.latency[0].max_us(),
            answered: generator.answered,
            dropped: generator.dropped,
            errors: generator.errors,
        }
    }

    #[test]
    fn a_server_that_keeps_up_answers_every_arrival_of_the_measured_time() {
        let seen = run(Rate::PerSecond(100_000.0), 1_000, u64::MAX);
        assert!((9_000..11_000).contains(&seen.latencies), "{} latencies", seen.latencies);
        assert_eq!((seen.latencies, seen.dropped, seen.errors), (seen.in_window, 0, 0));
        assert!(seen.hits.abs_diff(seen.latencies / 2) <= 1, "{} hits", seen.hits);
        assert!(seen.longest_us < 100.0 && seen.answered.abs_diff(seen.latencies) < 10);
    }

    #[test]
    fn what_waits_at_the_end_is_served_and_counts_from_its_intended_start() {
        // One request in 11 us at one arrival in 10 us: after 125 ms the queue is 11 ms long, and the drain clears it.
        let seen = run(Rate::PerSecond(100_000.0), 11_000, u64::MAX);
        assert_eq!((seen.latencies, seen.dropped), (seen.in_window, 0));
        assert!((9_000..20_000).contains(&(seen.longest_us as u64)), "longest {} us", seen.longest_us);
        assert!(seen.latencies > seen.answered, "the queue at the end was left out");
    }

    #[test]
    fn what_is_never_served_is_counted_as_dropped() {
        // Half of the arrivals can be served; the drain is too short for the rest.
        let seen = run(Rate::PerSecond(100_000.0), 20_000, u64::MAX);
        assert!((1_000..6_000).contains(&seen.dropped), "{} dropped", seen.dropped);
        assert!((9_000..11_000).contains(&(seen.in_window + seen.dropped)), "some arrivals are nowhere");
        // After 125 ms of arrivals and 25 ms of drain, 75 ms of them were served.
        assert_eq!(seen.latencies, seen.in_window + seen.dropped);
        assert!((65_000..80_000).contains(&(seen.longest_us as u64)), "longest {} us", seen.longest_us);
    }

    #[test]
    fn failures_are_counted_and_have_no_latency() {
        let seen = run(Rate::PerSecond(100_000.0), 1_000, 10);
        assert!(seen.errors > 1_000, "{} errors", seen.errors);
        assert!(seen.latencies < seen.in_window - 900 && seen.answered < seen.in_window - 900);
    }

    #[test]
    fn a_closed_loop_starts_requests_when_there_is_room_and_excludes_the_warm_up() {
        let seen = run(Rate::Max, 1_000, u64::MAX);
        assert_eq!((seen.latencies, seen.dropped), (seen.in_window, 0));
        assert!(seen.answered.abs_diff(100_000) <= 1, "{} answers in 100 ms of 1 us each", seen.answered);
        assert!((0.9..1.1).contains(&seen.longest_us), "{} us", seen.longest_us);
    }
}
