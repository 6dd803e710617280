//! The pager: what happens between a touch of a missing page and the retry that succeeds, and between a page's stay in
//! local memory and its way back.
//!
//! Pure code. A [`Pager`] decides and keeps the state; what it cannot do itself it asks of a
//! [`Machine`](machine::Machine), its type parameter: time, how a thread waits, memory and how the kernel maps it, and
//! the way to far memory. `runtime/paging` has the machine that programs page on, and the threads; `testing/pager-sim`
//! a machine that models the kernel and chooses who runs next. Both run this code.
//!
//! Who calls what, in which order and from where, stands on [`Pager`].
//!
//! Files: `pager` is what all share, `fault` the fault path, `range_fetch`
//! what fetches several pages for one touch, `install` its end, `loans` what is left to the kernel,
//! `port` the fetches of one thread and their completions, `turn` what a port works with at one time, `waiters` and
//! `guests` who waits for them, `delegation` what a port lets another thread install, `region_table` where a page is
//! that is remembered by its number, `reclaimer` evictor, cleaner and what they look after, `blocks` what is counted of
//! a block, `limits` and `tuning` what can be changed meanwhile, `advice` what programs say of ranges, `digest` what
//! the node has of each page and `liveness` who says what is live of it, `unreadable` pages that nobody can read,
//! `release` the way back of freed ranges, `order` and `discards` what the node may be asked for at once, `forked`
//! children, `observer` who wants to know of faults, `event` what is told of what holds them up, `damage` memory that
//! has failed; `region` is what is known of a region; `drive` is what threads call, `audit` whether the accounts agree;
//! `machine`, `queue_pair` and `clean_drop` are the seams to what is below. `budget`, `frames` and `gate` are the three
//! small lock-free structures that all share.
//!
//! Invariants, each asserted where it could break:
//! - Local memory in use (mapped pages and backed frames) never exceeds the limit: every page is charged to the
//!   `budget` before the kernel backs it.
//! - A page is installed, or stays in the frame where it has arrived, only by whoever moved its entry to `Fetching` or
//!   `Installing`, or by whom that thread has handed it over to. An install is always inside its block's gate.
//! - What is read in a frame is the page that stood there all the time: see `frames`.
//! - A frame's content is forgotten only when the node is known to hold what is live of it, by its digest or by its
//!   acknowledgement.
//! - Nobody reads, to sweep it, what is unreadable: it may be protected against reading.
//! - The fault path takes one lock, its port's. A unithread has it for moments and never across a switch; an ordinary
//!   thread has a guest port for as long as its fault takes, since nobody else needs that port meanwhile. Who finds a
//!   page that another port has fetched ahead tries that port's lock and never waits for it.
//! - The fault path allocates nothing, and makes no system call but the installs, and those with which a fabric sends.

#![forbid(unsafe_code)]

mod advice;
mod atomic;
mod audit;
mod blocks;
mod budget;
mod clean_drop;
mod config;
mod damage;
mod delegation;
mod digest;
mod discards;
mod drive;
mod error;
mod event;
#[cfg(test)]
mod fake;
mod fault;
mod forked;
mod frames;
mod gate;
mod guests;
mod install;
mod limits;
mod liveness;
mod loans;
pub mod machine;
mod observer;
mod order;
mod pager;
pub mod pagetable;
mod port;
pub mod prefetch;
mod queue_pair;
mod range_fetch;
pub mod reclaim;
mod reclaimer;
mod region;
mod region_table;
mod release;
mod stalls;
mod stats;
#[cfg(all(test, yonder_loom))]
mod together;
mod tuning;
mod turn;
mod unreadable;
mod waiters;

pub use crate::prefetch::Algorithm as Prefetch;
pub use crate::reclaim::Shares;
pub use advice::{ADVISED_PAGES_MAX, Advice, AdviceError};
pub use audit::Audit;
pub use clean_drop::{CleanDrop, ReadsAs};
pub use config::{Config, ConfigError, Deadlines, Delivery, FaultPolicy, Reads, Verify};
pub use delegation::Installs;
pub use drive::{ReclaimTurn, ReclaimTurns};
pub use error::{PagingCause, PagingError, TooManyPorts};
pub use forked::Stopped;
pub use liveness::Liveness;
pub use observer::{FaultObserver, Needed, SeenFault};
pub use pager::{Pager, REGIONS_MAX};
pub use port::PollMode;
pub use queue_pair::{
    ALONE_AGE_MAX, Completion, GATHERED_MAX, Module, PageRead, PageWrite, PostError, Posting, QUEUE_DEPTH_MAX,
    QueuePair, ReadInto, RemoteAddress, Status, TOGETHER_AGE_MAX, WorkId,
};
pub use region::{HeldBlocks, RegionCore};
pub use stats::{FaultStages, STAGE_BUCKETS, StageHistogram, StageRecorder, Stats};
pub use tuning::{
    COLD_BANDS, ColdBand, QUOTA_BYTES_MIN, RegionView, STANDBY_AGE_MIN, Tuning, TuningCounts, TuningError,
};
pub use waiters::FaultCounts;
pub use yonder_units::{GRANULE_BYTES, Residence, SEGMENTS_MAX, Vector};
