//! Dispatcher and workers: requests run on unithreads that yield on page faults.
//!
//! [`serve`] runs a [`Frontend`] (sockets, or a generator of load) on the calling thread, the dispatcher, and a
//! [`Handler`] on worker threads. A request is put into a unithread's buffer by the dispatcher, travels to a worker and
//! back as one pointer, and is never copied (Adios, sections 3.2 and 3.4).
//!
//! Files: `batch` serves requests that are known beforehand, `dispatcher` owns the single queue, `predictor` splits it
//! in two where faults are predicted, `worker` the loop of LightSwap's priorities (completions, resumed unithreads, new
//! requests, yielded work), `task` what travels, `sync` the locks that yield.
//!
//! Programs that are not servers spawn light threads of their own: [`threads`] has its own worker loop on the same
//! parts, with locks, conditions, semaphores and channels whose waiters park.
//!
//! Invariants: a unithread never leaves the worker that started it; a worker parks at most `max_inflight` unithreads;
//! neither side ever blocks on a full ring, because rings hold as many entries as there are unithreads.

#![forbid(unsafe_code)]

mod atomic;
mod batch;
mod config;
mod dispatcher;
mod fault_predictor;
mod frontend;
mod park;
pub mod sync;
mod task;
pub mod threads;
mod worker;

pub use batch::serve_all;
pub use config::{Idle, InstallDelegation, PollingDelegation, Reclaim, SchedConfig, SchedConfigError};
pub use dispatcher::{SchedError, serve};
pub use frontend::{Activity, Done, Frontend, Handler, Outcome, Timing};
pub use task::{Predictions, SchedStats, StageQuantiles};
pub use worker::{checkpoint, sleep_until, yield_now};
pub use yonder_dispatch::{DispatchPolicy, Order};
