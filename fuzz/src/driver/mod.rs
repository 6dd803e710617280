//! The driver: invents inputs for a target, keeps those that reach something new, and makes those that fail small.
//!
//! `campaign` is the search, `mutate` how an input becomes another, `shrink` how one that fails becomes small,
//! `execution` one run of a target, `folder` where inputs lie, `watch` what sees a run that does not end. The search is
//! the same for the same seed, corpus and number of executions; only when it ends is told by a clock.

mod campaign;
mod execution;
mod folder;
mod mutate;
mod shrink;
mod watch;

pub use campaign::{Campaign, Found, Limits};
pub use execution::{Fault, execute};
pub use folder::{corpus_of, read_corpus, save};
pub use watch::Watch;
