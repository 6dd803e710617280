//! [`SchedConfig`]: one validated description of a server's threads and policies.

use std::time::Duration;

use yonder_dispatch::{DispatchPolicy, Order};
use yonder_paging::FaultPolicy;

/// Most worker threads.
pub(crate) const WORKERS_MAX: usize = 128;
/// Requests handed ahead of time to a worker that is one of several: few, so that the single queue stays single.
const WORKER_QUEUE: usize = 4;
/// Requests handed ahead of time to the only worker: nobody else could serve them, and a dispatcher that shares its CPU
/// with clients comes by rarely.
const ONLY_WORKER_QUEUE: usize = 64;

/// Who waits until a reply has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollingDelegation {
    /// The worker goes on; the dispatcher reaps the completion and recycles the buffer (Adios, section 3.4).
    On,
    /// The worker waits until each reply is transmitted before it does anything else, and for no more than that: the
    /// dispatcher looks for replies between all its steps, and tells the worker before it recycles the buffer.
    Off,
}

/// Who maps pages that have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstallDelegation {
    /// The dispatcher maps some for a worker that has other unithreads to run, when it has nothing else to do itself.
    On,
    /// Each worker maps its own.
    Off,
}

/// What threads do when there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// Spin: lowest latency, one CPU a thread.
    BusyPoll,
    /// Spin this long, then sleep until there is work.
    SleepAfter(Duration),
}

/// Threads and policies of [`serve`](crate::serve).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchedConfig {
    /// Worker threads.
    pub workers: usize,
    /// What a worker does while a page is on its way.
    pub faults: FaultPolicy,
    /// Which worker gets the next request.
    pub dispatch: DispatchPolicy,
    /// In which order a worker runs what waits. Where faults are predicted, the queues have an order of their own.
    pub order: Order,
    /// Run time after which a request gives way at its next checkpoint; `None` runs requests to completion.
    pub preempt: Option<Duration>,
    /// Unithreads that one worker has started and not finished, at most.
    pub max_inflight: usize,
    /// Requests handed to a worker ahead of time. Small where there are several, so that the single queue stays single.
    pub worker_queue: usize,
    /// Unithreads of all workers together: requests in the system, at most.
    pub unithreads: usize,
    /// Stack of a unithread in bytes.
    pub stack_bytes: usize,
    /// Who waits until a reply has left.
    pub delegation: PollingDelegation,
    /// Who maps pages that have arrived.
    pub installs: InstallDelegation,
    /// What threads do when there is nothing to do.
    pub idle: Idle,
    /// CPU of the dispatcher, then of each worker. Empty: threads are not pinned.
    pub cpus: Vec<usize>,
    /// Who reclaims local memory.
    pub reclaim: Reclaim,
}

/// Who makes the reclaimer's steps while a server runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// Its own thread, for machines with a CPU for it.
    Thread,
    /// The dispatcher, between its turns, for machines on which the two share a CPU.
    Dispatcher,
}

impl Default for SchedConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            faults: FaultPolicy::Yield,
            dispatch: DispatchPolicy::PageFaultAware,
            order: Order::Classes,
            preempt: None,
            max_inflight: 128,
            worker_queue: WORKER_QUEUE,
            unithreads: 1024,
            stack_bytes: yonder_unithread::STACK_BYTES_DEFAULT,
            delegation: PollingDelegation::On,
            installs: InstallDelegation::On,
            idle: Idle::SleepAfter(Duration::from_micros(100)),
            cpus: Vec::new(),
            reclaim: Reclaim::Thread,
        }
    }
}

/// A setting that cannot work, and what to set instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchedConfigError {
    /// No workers, or too many.
    #[error("{0} workers cannot be run: give between 1 and {WORKERS_MAX}")]
    Workers(usize),
    /// A bound that is zero.
    #[error("{0} is zero: give at least 1")]
    Zero(&'static str),
    /// An order that the queues of predictions do not have.
    #[error(
        "predicted requests queue by what was predicted, not first in, first out: give another policy or the order of classes"
    )]
    OrderOfPredicted,
    /// Fewer CPUs named than threads.
    #[error(
        "{given} CPUs are named for {threads} threads: name one for the dispatcher and one for each worker, or none"
    )]
    Cpus {
        /// CPUs named.
        given: usize,
        /// Threads to pin.
        threads: usize,
    },
}

impl SchedConfig {
    /// The defaults for `workers` worker threads.
    #[must_use]
    pub fn with_workers(workers: usize) -> Self {
        let worker_queue = if workers == 1 { ONLY_WORKER_QUEUE } else { WORKER_QUEUE };
        Self { workers, worker_queue, ..Self::default() }
    }

    /// Checks that the settings can work.
    pub fn validate(&self) -> Result<(), SchedConfigError> {
        if self.workers == 0 || self.workers > WORKERS_MAX {
            return Err(SchedConfigError::Workers(self.workers));
        }
        let bounds =
            [(self.max_inflight, "max_inflight"), (self.worker_queue, "worker_queue"), (self.unithreads, "unithreads")];
        if let Some((_, name)) = bounds.into_iter().find(|(bound, _)| *bound == 0) {
            return Err(SchedConfigError::Zero(name));
        }
        if self.dispatch == DispatchPolicy::Predicted && self.order != Order::Classes {
            return Err(SchedConfigError::OrderOfPredicted);
        }
        if !self.cpus.is_empty() && self.cpus.len() != self.workers + 1 {
            return Err(SchedConfigError::Cpus { given: self.cpus.len(), threads: self.workers + 1 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_settings_say_what_to_give() {
        let message = |config: SchedConfig| config.validate().unwrap_err().to_string();
        assert!(message(SchedConfig { workers: 0, ..Default::default() }).contains("between 1 and"));
        assert!(message(SchedConfig { max_inflight: 0, ..Default::default() }).contains("max_inflight"));
        assert!(message(SchedConfig { cpus: vec![0], ..Default::default() }).contains("1 CPUs are named for 2"));
        let (dispatch, order) = (DispatchPolicy::Predicted, Order::Fifo);
        assert!(message(SchedConfig { dispatch, order, ..Default::default() }).contains("order of classes"));
        assert_eq!(SchedConfig::default().validate(), Ok(()));
    }
}
