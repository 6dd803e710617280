//! The atomic types of what is lock-free: the standard library's, or loom's in a build with `--cfg yonder_loom`, whose
//! models try every interleaving, and every value that a load may see. Neighbours: `page_table` and `lives`
//! are built on them and have the models.

#[cfg(yonder_loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(yonder_loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
