//! A page store in a log: which page lies where on a disk, and what is cleaned.
//!
//! Keys are pages of the store's own address space, values are their contents (LightSwap, sections 4.1 and 5.1: one
//! interface for every store, and the space of an SSD in a log). Nothing is overwritten where it lies: what is written
//! goes, many pages at a time, to the end of an open segment, and a segment most of which is dead is *cleaned*: what
//! lives in it is moved.
//!
//! - [`Index`] says where a page is and what its checksum is, to any number of readers at once.
//! - [`Log`] says what of each segment is used, under its owner's lock.
//! - [`Reader`], [`Writer`] and [`Cleaner`] are what a thread has of its own: they take posts and completions, and have
//!   a [`Disk`] read and write buffers.
//!
//! The disk is not believed: what it reads is compared with the checksum that the index has in memory, so that a write
//! that was torn, lost or went elsewhere is an error and never a wrong page. The same check lets readers go on without
//! a lock while the cleaner moves what they read: who reads a segment that was used again sees that the page has moved,
//! and reads again.
//!
//! Nothing of the log is found again by a later process, whose page table knows nothing of it either: a store begins
//! empty.
//!
//! Neighbours: `runtime/fabric` has the real disk, and makes a fabric of this.
//!
//! Invariants:
//! - The index has a location only after the disk has said that the write is done.
//! - A segment is used again only when no page of the index lies in it and nothing is being written to it.
//! - A page is written by one writer at a time, and not while it is read; cleaning may do both at any time.
//! - Reading allocates nothing and takes no lock.

#![forbid(unsafe_code)]

mod cleaner;
mod disk;
mod index;
mod log;
mod reader;
mod writer;

pub use cleaner::Cleaner;
pub use disk::{BufferIndex, Disk};
pub use index::{Index, Location, Shape};
pub use log::{Geometry, Head, Log, Occupancy};
pub use reader::{Posted, Read, Reader};
pub use writer::{Full, Write, Writer, Written};

/// Unit of space on a disk, and the smallest that direct access can move on most.
pub const GRAIN_BYTES: usize = 512;
/// Grains of the largest content: a whole page.
pub const PAGE_GRAINS: usize = yonder_units::PAGE_BYTES / GRAIN_BYTES;
