//! The atomic types of sleepers, inboxes and waits: the standard library's, or loom's in a build with
//! `--cfg yonder_loom`.
//!
//! With loom's, the models (`cargo xtask loom`) try every interleaving, and every value that a load may see.
//! Neighbours: `park`, `threads/inbox` and `threads/wait_word` are built on them, and the first two have the models;
//! everything else in this crate keeps the standard types. `threads/sync/lock_word` has a model too, and its atomic is
//! a parameter, because locks are made in constants.

#[cfg(yonder_loom)]
pub(crate) use loom::sync::Mutex;
#[cfg(yonder_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(yonder_loom))]
pub(crate) use std::sync::Mutex;
#[cfg(not(yonder_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
