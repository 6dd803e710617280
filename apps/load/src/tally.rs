//! What a loading thread has seen: counters and latencies, handed to the coordinator in batches. Pure.

use yonder_units::Nanos;

use crate::latency::LatencyRecorder;
use crate::pipeline::{Outcome, Request};

/// Counters and latencies since the last batch, or merged over batches.
#[derive(Default)]
pub(crate) struct Tally {
    /// Of gets, sets, inserts, scans, and of read-modify-writes from the start of the get to the end of the set: in the
    /// order of [`crate::pipeline::Op::number`].
    pub(crate) latency: [LatencyRecorder; 5],
    /// Requests that were planned, whatever became of them.
    pub(crate) requests: u64,
    /// Replies that came before the end of the run; later ones are in the latencies only.
    pub(crate) in_time: u64,
    pub(crate) misses: u64,
    pub(crate) wrong_values: u64,
    /// Refused, unanswered, or lost with their connection.
    pub(crate) errors: u64,
    pub(crate) dropped: u64,
    /// When the last reply came, and the longest time without one until then, from the start of the run on.
    pub(crate) completed_at: Nanos,
    pub(crate) longest_gap: Nanos,
    /// When requests ended to start.
    pub(crate) ended_at: Nanos,
    pub(crate) first_wrong: Option<String>,
    pub(crate) first_error: Option<String>,
}

impl Tally {
    /// Takes what was counted out; the time since the last reply goes on.
    pub(crate) fn take(&mut self) -> Self {
        let next = Self { completed_at: self.completed_at, ..Self::default() };
        std::mem::replace(self, next)
    }

    /// There is, or will be, a reply at `now`, and none was between the last one and this.
    pub(crate) fn end_gap(&mut self, now: Nanos) {
        self.longest_gap = self.longest_gap.max(now.saturating_sub(self.completed_at));
        self.completed_at = now;
    }

    /// Counts the end of `request` at `now`; the run ends at `deadline`.
    pub(crate) fn count(&mut self, request: Request, outcome: Outcome, now: Nanos, deadline: Nanos) {
        match outcome {
            Outcome::Refused(line) => return self.count_errors(1, || line),
            Outcome::Wrong(why) => {
                self.wrong_values += 1;
                self.first_wrong.get_or_insert(why);
            }
            Outcome::Miss => self.misses += 1,
            Outcome::Hit | Outcome::Stored => {}
        }
        self.end_gap(now);
        self.in_time += u64::from(now <= deadline);
        self.latency[request.op.number()].record(now.saturating_sub(request.intended));
    }

    /// Counts `count` requests that failed, and keeps the text of the first.
    pub(crate) fn count_errors(&mut self, count: u64, text: impl FnOnce() -> String) {
        self.errors += count;
        if count > 0 && self.first_error.is_none() {
            self.first_error = Some(text());
        }
    }

    /// Requests that got a reply which was not an error.
    pub(crate) fn completed(&self) -> u64 {
        self.latency.iter().map(LatencyRecorder::len).sum()
    }

    /// Latencies of all requests.
    pub(crate) fn all(&self) -> LatencyRecorder {
        let mut all = LatencyRecorder::new();
        self.latency.iter().for_each(|latency| all.merge(latency));
        all
    }

    /// Adds another batch.
    pub(crate) fn merge(&mut self, other: Self) {
        self.latency.iter_mut().zip(&other.latency).for_each(|(all, its)| all.merge(its));
        self.requests += other.requests;
        self.in_time += other.in_time;
        self.misses += other.misses;
        self.wrong_values += other.wrong_values;
        self.errors += other.errors;
        self.dropped += other.dropped;
        self.completed_at = self.completed_at.max(other.completed_at);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.ended_at = self.ended_at.max(other.ended_at);
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Op;

    #[test]
    fn batches_add_up() {
        let get = Request { op: Op::Get, key: 1, intended: 1_000 };
        let set = Request { op: Op::Set, key: 1, intended: 10_000 };
        let (mut total, mut batch) = (Tally::default(), Tally::default());
        batch.count(get, Outcome::Hit, 3_000, 10_000);
        batch.count(get, Outcome::Miss, 3_000, 10_000);
        batch.count(set, Outcome::Stored, 11_000, 10_000);
        total.merge(batch);
        let mut batch = Tally::default();
        batch.count(get, Outcome::Wrong("damaged".into()), 3_000, 10_000);
        batch.count(set, Outcome::Refused("SERVER_ERROR".into()), 3_000, 10_000);
        batch.count_errors(0, || unreachable!("nothing failed"));
        total.merge(batch);
        assert_eq!((total.completed(), total.in_time, total.misses), (4, 3, 1));
        assert_eq!((total.wrong_values, total.first_wrong.as_deref()), (1, Some("damaged")));
        assert_eq!((total.errors, total.first_error.as_deref()), (1, Some("SERVER_ERROR")));
        assert_eq!((total.latency[0].max_us(), total.latency[1].max_us()), (2.0, 1.0));
        assert_eq!(total.all().len(), 4);
        let mut batch = Tally::default();
        for (op, latency) in [(Op::Insert, 5_000), (Op::Scan { keys: 9 }, 6_000), (Op::ReadModifyWrite, 7_000)] {
            batch.count(Request { op, key: 1, intended: 1_000 }, Outcome::Stored, 1_000 + latency, 10_000);
        }
        total.merge(batch);
        let longest: Vec<f64> = total.latency[2..].iter().map(|latency| latency.max_us().round()).collect();
        assert_eq!(longest, [5.0, 6.0, 7.0]);
        assert_eq!((total.completed(), total.all().len()), (7, 7));
    }

    #[test]
    fn a_gap_lasts_from_reply_to_reply_whatever_was_handed_over_or_refused_between() {
        let get = Request { op: Op::Get, key: 1, intended: 0 };
        let (mut total, mut now) = (Tally::default(), Tally::default());
        now.count(get, Outcome::Hit, 300, Nanos::MAX);
        now.count(get, Outcome::Hit, 310, Nanos::MAX);
        total.merge(now.take());
        // From the start of the run to the first reply.
        assert_eq!(total.longest_gap, 300);
        now.count(get, Outcome::Refused("SERVER_ERROR".into()), 700, Nanos::MAX);
        total.merge(now.take());
        assert_eq!(total.longest_gap, 300);
        now.count(get, Outcome::Hit, 1_310, Nanos::MAX);
        total.merge(now.take());
        assert_eq!(total.longest_gap, 1_000);
        now.end_gap(3_310);
        total.merge(now.take());
        assert_eq!(total.longest_gap, 2_000);
    }
}
