//! The paging runtime: what happens between a touch of a missing page and the retry that succeeds.
//!
//! A [`FarMemory`] is one process's share of a memory node: a fabric, a limit of local memory, a frame pool and a
//! reclaimer thread. Its [`Region`]s are ranges of far memory that code reads and writes. A worker thread of
//! `runtime/sched` binds a [`WorkerPort`], so that faults on its unithreads yield; any other thread waits inline.
//!
//! Files: `fault` is the fault path, `install` its end, `port` the fetches of one thread and their completions, `waiters` who waits for them,
//! `handover` what a port lets another thread install, `places` where a page is that somebody remembers, `reclaimer` the two hands and what they look after, `blocks` what is counted of a block, `limits` and `tuning` what can be
//! changed meanwhile, `advice` what programs say of ranges, `digest` what the node has
//! of each page and `liveness` who says what is live of it, `seclusion` pages that nobody can read, `release` the way back of freed ranges, `forked` children, `monitor`
//! faults that are not signals, `observer` who wants to know of faults, `damage` memory that has failed;
//! `machine` is what all of that runs on, the kernel's in `kernel` or a simulator's; `drive` is what threads call;
//! `far_memory`, `worker`, `region` and `tuning` are the public types, on the kernel's machine.
//! `budget`, `frames` and `gate` are the three small lock-free structures they share. `core/pagetable` and `core/reclaim`
//! decide; this crate performs.
//!
//! Invariants, each asserted where it could break:
//! - Local memory in use (mapped pages and backed frames) never exceeds the limit: every page is charged to the
//!   `budget` before the kernel backs it.
//! - A page is installed, or stays in the frame where it has arrived, only by whoever moved its entry to `Fetching` or
//!   `Installing`, or by whom that thread has handed it over to. An install is always inside its block's gate.
//! - What is read in a frame is the page that stood there all the time: see `frames`.
//! - A frame's content is forgotten only when the node is known to hold what is live of it, by its digest or by its
//!   acknowledgement.
//! - Nobody reads, to sweep it, what is secluded: it may be protected against reading.
//! - The fault path takes one lock, its port's. A unithread has it for moments and never across a switch; an ordinary thread
//!   has a guest port for as long as its fault takes, since nobody else needs that port meanwhile. Who finds a page that
//!   another port has fetched ahead tries that port's lock and never waits for it.
//! - The fault path allocates nothing, and makes no system call but the installs, and those with which a fabric sends.

#![forbid(unsafe_code)]

mod advice;
mod atomic;
mod audit;
mod blocks;
mod budget;
mod config;
mod damage;
mod digest;
mod drive;
mod error;
mod far_memory;
mod fault;
mod forked;
mod frames;
mod gate;
mod guests;
mod handover;
mod install;
mod kernel;
mod limits;
mod liveness;
pub mod machine;
mod monitor;
mod observer;
mod order;
mod pager;
mod pin;
mod places;
mod port;
mod reclaimer;
mod region;
mod release;
mod seclusion;
mod settle;
mod stats;
mod tuning;
mod waiters;
mod worker;

pub use advice::{ADVISED_PAGES_MAX, Advice, AdviceError};
pub use audit::Audit;
pub use config::{Config, ConfigError, Deadlines, FaultPolicy, Reads, Verify};
pub use drive::{ReclaimTurns, Turn};
pub use error::{FarError, PagingCause, PagingError, TooManyPorts};
pub use far_memory::{FarMemory, ReclaimHost};
pub use forked::Forking;
pub use handover::{InstallHelper, Installs};
pub use kernel::Kernel;
pub use liveness::Liveness;
pub use observer::{FaultObserver, Needed, SeenFault};
pub use pager::Pager;
pub use pin::{Pinned, pin_this_thread};
pub use region::{Access, HeldBlocks, Hold, Region, RegionCore};
pub use stats::{FaultStages, STAGE_BUCKETS, StageHistogram, StageRecorder, Stats};
pub use tuning::{
    COLD_BANDS, ColdBand, QUOTA_BYTES_MIN, RegionView, STANDBY_AGE_MIN, Tuning, TuningCounts, TuningError,
};
pub use worker::{FaultCounts, WorkerPort};
pub use yonder_fabric::Posting;
pub use yonder_predict::Residence;
pub use yonder_prefetch::Algorithm as Prefetch;
pub use yonder_reclaim::Shares;
pub use yonder_trap::scope::{Caught, attempt as try_far};
pub use yonder_uffd::Delivery;
pub use yonder_unithread::no_yield;
