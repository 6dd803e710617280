//! Micro-benchmarks of the fast paths that need no far memory: what a fault, a request, a sweep and a message cost
//! apart from the kernel and the network.
//!
//! `cargo bench -p yonder-microbench` measures, and compares with the run before; `cargo bench -p yonder-microbench --
//! --test` runs each once, as `cargo test` does. One file for each part of the journey: `pages`, `reclaim`, `hashes`,
//! `requests`, `messages`. What a whole fault or request costs is measured by `yonder bench`.

#![forbid(unsafe_code)]

pub mod hashes;
pub mod index;
pub mod messages;
pub mod pages;
pub mod reclaim;
pub mod requests;
