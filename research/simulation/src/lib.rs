//! What simulations share: the order of time, runs by seeds, and a memory node's memory.
//!
//! `time` has the events to come and the clocks of machines, `seeds` what a run of a seed is and how it fails, `pages`
//! the physical memory of a node whose board is the real one.
//!
//! Neighbours: `testing/sim` simulates the protocol with it, `testing/pager-sim` the pager, `research/figures` the
//! papers' experiments; `fuzz` has its memory.

#![forbid(unsafe_code)]

mod pages;
mod seeds;
mod time;

pub use pages::{Janitor, Pages, encoded, parts};
pub use seeds::{Counts, Failure, Trace, caught};
pub use time::{Clock, EventQueue};
