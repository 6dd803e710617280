//! How long a program would take with less local memory, from one run in which a sample of its pages was watched.
//!
//! [`is_sampled`] says which pages are watched and [`Seen`] what is written down of them. A sample is unfolded to a
//! [`Trace`] of all pages, each page of a sample standing for its neighbours. [`replay`] is a model of Yonder's local
//! memory, built from the parts of the pager that decide: what a trace would have missed with so much of it, and what
//! of that lies in sequences, which are fetched ahead. [`Costs`] make time of it, and [`Curve`] the answer to how much
//! is enough.
//!
//! [`Auto`] finds out while the program runs, by what it misses, and takes no more than it could be paid for (`risk`).
//!
//! As miniature simulations (Waldspurger et al., USENIX ATC '17), a sample is replayed by the policy itself, for each
//! size. But no policy is made smaller, since its constants are for whole memories: what is sampled is made larger.
//!
//! Neighbours: `preload/library` watches, `yonder size` in `edge/cli` asks, `bench victims` compares policies.

#![forbid(unsafe_code)]

mod auto;
mod curve;
mod divide;
mod governor;
mod model;
mod risk;
mod sample;
mod sequences;
mod trace;
mod turns;

pub use auto::{Auto, Moment};
pub use curve::{Costs, Curve, Point};
pub use divide::{Claim, divide};
pub use governor::{Governor, Order, Seen as SeenProgram, Terms};
pub use model::{PAGES_MIN, Replayed, replay};
pub use sample::{CHUNK_PAGES, COARSENESS_MAX, Coarseness, Sample, Seen, Unfolded, Weight, chunk_of, is_sampled};
pub use trace::{Touch, Trace};
