//! The array benchmark's load: [`Generator`] makes requests and checks replies, on the dispatcher thread.
//!
//! A run warms up, is measured, and drains. What counts is decided by a request's *intended* start: every request that
//! was meant to start in the measured time has its latency recorded from then, also when its answer comes in the drain,
//! so that a queue which has built up at the end is not left out. What is still in it after the drain counts as dropped,
//! with the time that it has waited as its latency. Only throughput counts answers by when they came.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder::sched::{Activity, Done, Frontend, Outcome, Timing};
use yonder::units::{Nanos, PAGE_BYTES};
use yonder_load::{KeyChooser, LatencyRecorder, PoissonArrivals, Rate};

use super::{ArraySettings, Counters, Index, LINES, OnProgress, Value, value_at};
use crate::parking;

/// Requests that arrived and wait for room, at most; later arrivals are dropped, as a full queue of a NIC would.
const BACKLOG_MAX: usize = 100_000;
/// Time between two reports of progress: seldom, for they are made by the thread whose work is measured.
const PROGRESS_EVERY_NS: Nanos = 500_000_000;
/// One in so many requests has its stages recorded.
const STAGES_EVERY: u64 = 16;

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

/// Makes requests and checks replies.
pub(super) struct Generator<'a> {
    counters: &'a dyn Fn() -> Counters,
    pages: KeyChooser,
    /// Chooses the word of a page.
    random: SmallRng,
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
    pub(super) rate: Option<f64>,
    pub(super) measured_ns: Nanos,
    pub(super) before: Counters,
    pub(super) after: Counters,
    pub(super) latency: LatencyRecorder,
    /// The latency of requests without a major fault.
    pub(super) hit_latency: LatencyRecorder,
    pub(super) queued: LatencyRecorder,
    pub(super) running: LatencyRecorder,
    pub(super) waiting: LatencyRecorder,
    /// Answers that came in the measured time.
    pub(super) answered: u64,
    pub(super) dropped: u64,
    pub(super) errors: u64,
    pub(super) wrong: u64,
}

impl<'a> Generator<'a> {
    /// A run that starts at `started`, over an array of `pages`. `counters` are asked when the measured time begins and ends.
    pub(super) fn new(
        settings: &ArraySettings,
        pages: u64,
        started: Nanos,
        counters: &'a dyn Fn() -> Counters,
        progress: OnProgress<'a>,
    ) -> Self {
        let duration = settings.duration.as_nanos() as Nanos;
        let rate = match settings.rate {
            Rate::Max => None,
            Rate::PerSecond(rate) => Some(rate),
        };
        let warm_up_ns = duration / 4;
        Self {
            counters,
            pages: KeyChooser::new(pages, settings.distribution, 0x5EED),
            random: SmallRng::seed_from_u64(0x00AD_1051),
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
            latency: LatencyRecorder::new(),
            hit_latency: LatencyRecorder::new(),
            queued: LatencyRecorder::new(),
            running: LatencyRecorder::new(),
            waiting: LatencyRecorder::new(),
            answered: 0,
            dropped: 0,
            errors: 0,
            wrong: 0,
        }
    }

    /// Moves from warm-up to measurement to drain to the end.
    fn advance(&mut self, now: Nanos) {
        match self.phase {
            Phase::WarmUp if now >= self.measure_from => {
                self.phase = Phase::Measured;
                self.before = (self.counters)();
                // From here, not from where it was planned: a machine that stood still must not shorten the measurement.
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
                self.latency.record(now - intended);
            }
        }
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

    fn request(&mut self, intended: Nanos) -> Index {
        let (page, line) = (self.pages.next_key(), self.random.random_range(0..LINES));
        Index { offset: page * PAGE_BYTES as u64 + line * 64, intended }
    }

    /// Counts a right answer.
    fn count(&mut self, now: Nanos, intended: Nanos, timing: &Timing) {
        self.answered += u64::from(self.phase == Phase::Measured);
        if self.measures(intended) {
            self.latency.record(now.saturating_sub(intended));
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

impl Frontend for Generator<'_> {
    type Request = Index;
    type Reply = Value;

    fn poll(&mut self, now: Nanos, room: usize, admit: &mut dyn FnMut(Index)) -> Activity {
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
            let request = self.request(intended);
            admit(request);
            activity = Activity::Busy;
        }
        activity
    }

    fn complete(&mut self, now: Nanos, done: Done<Value>) {
        self.replies += 1;
        let Outcome::Reply(reply) = done.outcome else {
            self.errors += 1;
            return;
        };
        match reply.value {
            Ok(value) if value == value_at(reply.offset) => self.count(now, reply.intended, &done.timing),
            Ok(_) => self.wrong += 1,
            Err(_) => self.errors += 1,
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
    use yonder::units::LocalSize;

    use super::*;

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
        let settings = ArraySettings {
            rate,
            duration: Duration::from_millis(100),
            ..ArraySettings::new("emu://".to_owned(), 64 << 20, LocalSize::Percent(20.0))
        };
        let (counters, mut progress) = (Counters::default, |_: &str, _: f64| {});
        let mut generator = Generator::new(&settings, 16, 0, &counters, &mut progress);
        let (mut now, mut served, mut in_window) = (0, 0, 0);
        while !generator.is_finished() {
            let mut admitted = None;
            generator.poll(now, 1, &mut |index| admitted = Some(index));
            now += service;
            let Some(Index { offset, intended }) = admitted else { continue };
            served += 1;
            in_window += u64::from(generator.measures(intended));
            let outcome = if served % fails == 0 {
                Outcome::Panicked
            } else {
                Outcome::Reply(Value { offset, intended, value: Ok(value_at(offset)) })
            };
            // Every other request faults.
            let timing = Timing { major_faults: served as u32 % 2, ..Timing::default() };
            generator.complete(now, Done { outcome, timing });
        }
        assert_eq!((generator.wrong, generator.measured_ns >= 100 * MS), (0, true));
        Seen {
            in_window,
            latencies: generator.latency.len(),
            hits: generator.hit_latency.len(),
            longest_us: generator.latency.max_us(),
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
