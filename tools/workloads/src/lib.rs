//! The papers' workloads (DiLOS, section 6) as plain programs: one thread, ordinary vectors and boxes, nothing of
//! Yonder.
//!
//! `yonder run -- yonder workload NAME` makes their memory far without their knowledge, and the same command without
//! `yonder run` is what to compare it with. [`run`] makes up the input, times the [`Workload`] itself, checks its
//! result and returns a [`WorkloadResult`] with a checksum of it.
//!
//! Neighbours: `edge/cli` runs them; a file for each workload, `graph` for two of them. Invariant: equal workload, size
//! and seed give an equal checksum, with far memory or without it, on any machine: random numbers are ChaCha's, and
//! numbers with a fraction are added in one order.

#![forbid(unsafe_code)]

mod betweenness;
mod checksum;
mod frame;
mod graph;
mod k_means;
mod linked_list;
mod pagerank;
mod phases;
mod quicksort;
mod random;
mod result;
mod snappy;
mod workload;

pub use frame::FrameSeconds;
pub use result::{Details, Outcome, Settings, WorkloadError, WorkloadResult};
pub use workload::{UnknownWorkload, Workload, run};
