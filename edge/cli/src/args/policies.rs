//! The policies of a server's threads, as flags name them.

use std::time::Duration;

use clap::ValueEnum;
use yonder::sched::{DispatchPolicy, InstallDelegation, Order, PollingDelegation, Reclaim};
use yonder::{FaultPolicy, Reads};

/// How long a hybrid fault spins before it yields: a little more than a fetch over a fast network. The help says it too.
const HYBRID_SPIN: Duration = Duration::from_micros(4);

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FaultMode {
    /// Park the request and run others
    Yield,
    /// Spin until the page is there
    Busy,
    /// Spin until the page is there, which the dispatcher may map meanwhile
    BusyDelegated,
    /// Spin for 4 us, then park the request
    Hybrid,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Dispatch {
    /// First come, first served, by the worker with the fewest page fetches under way
    PfAware,
    /// First come, first served, by each worker in turn
    RoundRobin,
    /// As pf-aware, but requests that will probably fault, by the history of their keys, wait for those that will not
    Predicted,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RunOrder {
    /// Requests whose page has come, then new ones, then those that gave way
    Classes,
    /// As they became ready
    Fifo,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReclaimBy {
    /// A thread of its own where there is a CPU for it, else the dispatcher
    Auto,
    /// A thread of its own
    Thread,
    /// The dispatcher, between its turns
    Dispatcher,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReadsOf {
    /// In the frame in which it has arrived, until somebody writes to it
    Frames,
    /// Where a write or a trap would have it
    Mapped,
}

impl ReclaimBy {
    /// What was asked for; `None` leaves it to the placement on CPUs.
    pub(crate) fn wanted(self) -> Option<Reclaim> {
        match self {
            Self::Auto => None,
            Self::Thread => Some(Reclaim::Thread),
            Self::Dispatcher => Some(Reclaim::Dispatcher),
        }
    }
}

impl From<FaultMode> for FaultPolicy {
    fn from(mode: FaultMode) -> Self {
        match mode {
            FaultMode::Yield => Self::Yield,
            FaultMode::Busy => Self::Busy,
            FaultMode::BusyDelegated => Self::BusyDelegated,
            FaultMode::Hybrid => Self::Hybrid(HYBRID_SPIN.as_nanos() as u64),
        }
    }
}

impl From<Dispatch> for DispatchPolicy {
    fn from(dispatch: Dispatch) -> Self {
        match dispatch {
            Dispatch::PfAware => Self::PageFaultAware,
            Dispatch::RoundRobin => Self::RoundRobin,
            Dispatch::Predicted => Self::Predicted,
        }
    }
}

impl From<RunOrder> for Order {
    fn from(order: RunOrder) -> Self {
        match order {
            RunOrder::Classes => Self::Classes,
            RunOrder::Fifo => Self::Fifo,
        }
    }
}

impl From<ReadsOf> for Reads {
    fn from(reads: ReadsOf) -> Self {
        match reads {
            ReadsOf::Frames => Self::InFrames,
            ReadsOf::Mapped => Self::Mapped,
        }
    }
}

impl From<Switch> for PollingDelegation {
    fn from(switch: Switch) -> Self {
        match switch {
            Switch::On => Self::On,
            Switch::Off => Self::Off,
        }
    }
}

impl From<Switch> for InstallDelegation {
    fn from(switch: Switch) -> Self {
        match switch {
            Switch::On => Self::On,
            Switch::Off => Self::Off,
        }
    }
}
