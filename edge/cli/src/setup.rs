//! What the paging flags of `kv` and `bench` mean: [`Setup`], the settings of far memory and of the threads on it.
//!
//! The one place where flags and the placement of threads on this machine's CPUs come together. A command changes what
//! is its own: a benchmark its queues. Servers have their own idling in common ([`Setup::of_server`]).

use std::time::Duration;

use yonder::sched::{Idle, SchedConfig};
use yonder::{Config, Deadlines, Shares};
use yonder_fabric::page_deadline;

use crate::args::{MemoryArgs, PagingArgs};

/// How long idle threads of a server spin before they sleep.
const IDLE_SPIN: Duration = Duration::from_micros(50);

/// Settings of far memory and of a server's threads.
pub(crate) struct Setup {
    pub(crate) paging: Config,
    /// With every thread pinned to a CPU of its own, where there are enough.
    pub(crate) sched: SchedConfig,
}

impl From<&PagingArgs> for Setup {
    fn from(args: &PagingArgs) -> Self {
        let PagingArgs { memory: MemoryArgs { far, size, local }, threads, .. } = args;
        let deadline = threads.deadline.unwrap_or_else(|| page_deadline(far));
        let placement = yonder::place(threads.workers);
        let paging = Config {
            shares: Shares {
                start_percent: threads.reclaim_start,
                least_percent: Shares::default().least_percent.min(threads.reclaim_start),
                end_percent: threads.reclaim_end,
                ..Shares::default()
            },
            deadlines: Deadlines { fault: deadline, ..Deadlines::default() },
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

impl Setup {
    /// The same for a server, checked. Its clients may run on the same CPUs, so the kernel decides where its threads
    /// do.
    pub(crate) fn of_server(args: &PagingArgs, busy_poll: bool) -> anyhow::Result<Self> {
        let Self { paging, sched } = Self::from(args);
        let idle = if busy_poll { Idle::BusyPoll } else { Idle::SleepAfter(IDLE_SPIN) };
        let sched = SchedConfig { idle, cpus: Vec::new(), ..sched };
        sched.validate()?;
        Ok(Self { paging, sched })
    }
}
