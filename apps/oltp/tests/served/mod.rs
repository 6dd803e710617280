//! Servers for tests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use yonder::sched::{Activity, Done, Frontend, Handler, Outcome, SchedConfig, SchedStats, serve};
use yonder::units::Nanos;
use yonder::{FarMemory, FaultPolicy};
use yonder_oltp::STACK_BYTES;

/// Requests that a worker has begun, at most: where all want the same, more would only be in conflict more often.
const INFLIGHT: usize = 24;

/// How requests wait for pages, and after which time they give way.
pub(crate) const WAYS: [(FaultPolicy, Option<Duration>); 4] = [
    (FaultPolicy::Yield, None),
    (FaultPolicy::Yield, Some(Duration::from_micros(5))),
    (FaultPolicy::Busy, None),
    (FaultPolicy::Busy, Some(Duration::from_micros(5))),
];

/// Requests, and what they led to.
struct Script<Q, R> {
    to_come: VecDeque<Q>,
    under_way: usize,
    replies: Vec<R>,
}

impl<Q, R> Frontend for Script<Q, R> {
    type Request = Q;
    type Reply = R;

    fn poll(&mut self, _now: Nanos, room: usize, admit: &mut dyn FnMut(Q)) -> Activity {
        let next = room.min(self.to_come.len());
        self.under_way += next;
        self.to_come.drain(..next).for_each(admit);
        if next > 0 { Activity::Busy } else { Activity::Idle }
    }

    fn complete(&mut self, _now: Nanos, done: Done<R>) {
        self.under_way -= 1;
        match done.outcome {
            Outcome::Reply(reply) => self.replies.push(reply),
            Outcome::Panicked => panic!("a request has panicked"),
        }
    }

    fn wait(&mut self, timeout: Duration) {
        std::thread::park_timeout(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let thread = std::thread::current();
        Arc::new(move || thread.unpark())
    }

    fn is_finished(&self) -> bool {
        self.to_come.is_empty() && self.under_way == 0
    }
}

/// Serves all requests by two workers, and returns the replies in the order in which they came.
pub(crate) fn serve_all<H: Handler>(
    far: &FarMemory,
    handler: &Arc<H>,
    (faults, preempt): (FaultPolicy, Option<Duration>),
    requests: impl IntoIterator<Item = H::Request>,
) -> Vec<H::Reply> {
    let (stack_bytes, max_inflight) = (STACK_BYTES, INFLIGHT);
    let config = SchedConfig { faults, preempt, stack_bytes, max_inflight, ..SchedConfig::with_workers(2) };
    let mut script = Script { to_come: requests.into_iter().collect(), under_way: 0, replies: Vec::new() };
    serve(&config, far, handler, &mut script, &SchedStats::default()).unwrap();
    script.replies
}
