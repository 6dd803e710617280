//! The interface as C sees it: the header, and programs that are built with it and run against a node.
//!
//! One program, so that cargo builds the shared library once beside it; `toolchain` finds it there.

mod far;
mod header;
mod programs;
mod threads;
mod toolchain;
