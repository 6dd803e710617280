//! Clio's five applications (section 6): each keeps its data in an address space of a memory node, and lets the node
//! compute.
//!
//! [`image`] keeps photos, [`tree`] a radix tree, [`objects`] a key-value and a multi-version store, [`frame`] a data
//! frame. What they have in common counts, times and checks operations: a [`Meter`] is a thread of an address space
//! that counts round trips and bytes; a [`Tally`] adds up what operations took, for [`Costs`], the part that all
//! results have in common; [`together`] runs clients at the same time.
//!
//! Neighbours: `runtime/yonder` has the address spaces, `core/offload` what the node computes. Invariant: what is
//! counted is what the application asked for, without headers and retries.

#![forbid(unsafe_code)]

mod costs;
pub mod frame;
pub mod image;
mod meter;
pub mod objects;
mod together;
pub mod tree;

pub use costs::{Costs, Tally};
pub use meter::{Meter, Traffic};
pub use together::together;

use yonder::clib::ClibError;
use yonder_offload::Malformed;

/// Why an application could not go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The memory node or the way to it.
    #[error(transparent)]
    Node(#[from] ClibError),
    /// The node answers in a format that is not ours.
    #[error(transparent)]
    Format(#[from] Malformed),
    /// The settings cannot work. Says what to type.
    #[error("{0}")]
    Settings(String),
    /// A file cannot be read, or is not what it should be.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it, and what to do.
        cause: String,
    },
    /// What came back from far memory is not what was put there.
    #[error("{0} values were wrong: far memory is damaged; please report this with the command that was run")]
    WrongValues(u64),
    /// The node answered something that does not belong to the question.
    #[error("the memory node answered a call of {0} with something else: use the same release on both sides")]
    WrongAnswer(&'static str),
}
