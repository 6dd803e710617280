//! Servers for tests.

use std::sync::Arc;
use std::time::Duration;

use yonder::sched::{self, Handler, Outcome, SchedConfig};
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

/// Serves all requests by two workers, and returns the replies in the order in which they came.
pub(crate) fn serve_all<H: Handler>(
    far: &FarMemory,
    handler: &Arc<H>,
    (faults, preempt): (FaultPolicy, Option<Duration>),
    requests: impl IntoIterator<Item = H::Request>,
) -> Vec<H::Reply> {
    let (stack_bytes, max_inflight) = (STACK_BYTES, INFLIGHT);
    let config = SchedConfig { faults, preempt, stack_bytes, max_inflight, ..SchedConfig::with_workers(2) };
    let reply = |outcome| match outcome {
        Outcome::Reply(reply) => reply,
        Outcome::Panicked => panic!("a request has panicked"),
    };
    sched::serve_all(&config, far, handler, requests).unwrap().into_iter().map(reply).collect()
}
