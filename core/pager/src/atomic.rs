//! The atomic types of the gate, the budget and the frames' words: the standard library's, or loom's in a build with
//! `--cfg yonder_loom`.
//!
//! With loom's, the models (`cargo xtask loom`) try every interleaving, and every value that a load may see.
//! Neighbours: `gate`, `budget` and `frames` are built on them and have the models; everything else in this crate keeps
//! the standard types.

#[cfg(yonder_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(yonder_loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
