//! The paging runtime: the pager (`core/pager`) on this machine, with threads.
//!
//! A [`FarMemory`] is one process's share of a memory node: a fabric, a limit of local memory, a frame pool and a
//! reclaimer thread. Its [`Region`]s are ranges of far memory that code reads and writes. A worker thread of
//! `runtime/sched` binds a [`WorkerPort`], so that faults on its unithreads yield; any other thread waits inline.
//!
//! Files: `kernel` is the machine that the pager runs on here; `far_memory`, `worker`, `region` and `install_delegate`
//! are the public types, with the threads they have; `advice` how advice comes to the pager, `forked` what a fork does
//! before and after, `monitor` faults that are not signals, `pin` where threads run, `error` why far memory cannot be
//! set up.
//!
//! What is decided, and every invariant of it, is in `core/pager`, whose words are public here too. Invariants of this
//! crate:
//! - A thread is bound to one far memory at a time, and faults of its unithreads yield to its own scheduler only.
//! - The threads of a far memory end before it does, and touch no far memory themselves.
//! - Nothing that the fault path calls here allocates or takes a lock.

#![forbid(unsafe_code)]

mod advice;
mod effort;
mod error;
pub mod far_heap;
mod far_memory;
mod forked;
mod install_delegate;
mod kernel;
mod monitor;
mod pin;
mod region;
#[cfg(test)]
mod tests;
mod worker;

pub use effort::{Effort, know_traps};
pub use error::FarError;
pub use far_memory::{FarMemory, ReclaimHost};
pub use forked::Forking;
pub use install_delegate::InstallDelegate;
pub use kernel::{Kernel, Tuning};
pub use pin::{Pinned, pin_this_thread};
pub use region::{Access, Hold, Region};
pub use worker::{WorkerPort, hold_back_for_workers};
pub use yonder_pager::{
    ADVISED_PAGES_MAX, Advice, AdviceError, Audit, COLD_BANDS, ColdBand, Config, ConfigError, Deadlines, Delivery,
    FaultCounts, FaultObserver, FaultPolicy, FaultStages, Installs, Liveness, Needed, PagingCause, PagingError,
    Posting, Prefetch, QUOTA_BYTES_MIN, Reads, RegionView, Residence, STAGE_BUCKETS, STANDBY_AGE_MIN, SeenFault,
    Shares, StageHistogram, StageRecorder, Stats, TooManyPorts, TuningCounts, TuningError, Verify,
};
pub use yonder_trap::scope::{Caught, attempt as try_far};
pub use yonder_unithread::no_yield;
