//! A small data frame whose columns lie in far memory (Clio-DF, section 6): select and aggregate run at the memory
//! node, so that only results cross the network; shuffle and histogram run at the client.
//!
//! A [`Table`] is read from a CSV file or made up, at the client. [`Frame`] is one that lies in far memory; it answers
//! queries at either [`Place`], with the same results. [`run`] compares the places, behind `yonder bench frame`.
//!
//! Neighbours: `core/offload` has select and aggregate, and their requests; [`Meter`](crate::Meter) counts. Invariant:
//! both places give the same answer bit by bit, sums of numbers with a fraction too, since both add in the same order.

mod columns;
mod condition;
mod generate;
mod histogram;
mod local;
mod node;
mod run;
mod shuffle;
mod table;

pub use columns::{Frame, Place};
pub use condition::Condition;
pub use generate::generate;
pub use histogram::Histogram;
pub use run::{FrameResult, FrameSettings, run};
pub use shuffle::shuffle;
pub use table::{Column, Table, Values};
pub use yonder_offload::Comparison;
pub use yonder_offload::frame::{Numbers, Summary};
