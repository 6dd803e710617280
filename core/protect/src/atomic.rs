//! The atomic types of groups and of nodes' health: the standard library's, or loom's in a build with
//! `--cfg yonder_loom`.
//!
//! With loom's, the models (`cargo xtask loom`) try every interleaving, and every value that a load may see.
//! Neighbours: `group`, `page`, `sweep`, `evacuate`, `counts` and `health` are built on them; `group` and `health` have
//! the models.

#[cfg(yonder_loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
#[cfg(not(yonder_loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// `len` words that are zero. The kernel backs their memory where it is used, not before.
///
/// # Panics
/// If the address space cannot hold them.
#[cfg(not(yonder_loom))]
pub(crate) fn zeros(len: usize) -> Box<[AtomicU64]> {
    use zerocopy::FromZeros;
    <[AtomicU64]>::new_box_zeroed_with_elems(len).expect("a word a page is 1/512 of its group")
}

/// `len` words that are zero. A word of a model is more than its bits.
#[cfg(yonder_loom)]
pub(crate) fn zeros(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}
