//! The atomic types of the free list: the standard library's, or loom's in a build with `--cfg yonder_loom`.
//!
//! With loom's, the models (`cargo xtask loom`) try every interleaving, and every value that a load may see.
//! Neighbours: `free_list` is built on them and has the models; nothing else in this crate uses them.

#[cfg(yonder_loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
#[cfg(not(yonder_loom))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
