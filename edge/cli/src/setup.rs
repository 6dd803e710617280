//! What the paging flags of `kv` and `bench` mean: [`Setup`], the settings of far memory and of the threads on it.
//!
//! The one place where flags and the placement of threads on this machine's CPUs come together. A command changes what
//! is its own: a benchmark its queues, a server how it idles.

use yonder::sched::SchedConfig;
use yonder::{Config, Deadlines, Shares};

use crate::args::{MemoryArgs, PagingArgs};

/// Settings of far memory and of a server's threads.
pub(crate) struct Setup {
    pub(crate) paging: Config,
    /// With every thread pinned to a CPU of its own, where there are enough.
    pub(crate) sched: SchedConfig,
}

impl From<&PagingArgs> for Setup {
    fn from(args: &PagingArgs) -> Self {
        let PagingArgs { memory: MemoryArgs { size, local, .. }, threads } = args;
        let placement = yonder::place(threads.workers);
        let paging = Config {
            shares: Shares {
                start_percent: threads.reclaim_start,
                end_percent: threads.reclaim_end,
                ..Shares::default()
            },
            deadlines: Deadlines { fault: threads.deadline, ..Deadlines::default() },
            reclaimer_cpu: placement.reclaimer,
            prefetch: threads.prefetch,
            reads: threads.reads,
            ..Config::with_local(local.resolve(*size))
        };
        let sched = SchedConfig {
            faults: threads.faults,
            dispatch: threads.dispatch,
            order: threads.order,
            preempt: threads.preempt,
            max_inflight: threads.max_inflight,
            delegation: threads.delegation,
            installs: threads.install_delegation,
            reclaim: threads.reclaim.wanted().unwrap_or_else(|| placement.reclaim()),
            cpus: placement.cpus,
            ..SchedConfig::with_workers(threads.workers)
        };
        Self { paging, sched }
    }
}
