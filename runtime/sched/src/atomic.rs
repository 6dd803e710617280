//! The atomic types of the sleeper: the standard library's, or loom's in a build with `--cfg yonder_loom`.
//!
//! With loom's, the models (`cargo xtask loom`) try every interleaving, and every value that a load may see.
//! Neighbours: `park` is built on them and has the models; everything else in this crate keeps the standard types.

#[cfg(yonder_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(yonder_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
