//! The atomic types of [`QuiescentState`](crate::quiescence::QuiescentState): the standard library's, or loom's in a
//! build with `--cfg yonder_loom`, whose model tries every interleaving, and every value that a load may see.

#[cfg(yonder_loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(yonder_loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};
