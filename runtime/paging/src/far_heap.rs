//! The far heap of one region: what malloc under `yonder run`, the C interface and the Rust allocator have in common.
//!
//! [`FarHeap`] puts a `core/heap` under a lock and a region under its offsets, and speaks in addresses. Whoever uses it
//! keeps a [`Magazine`] for each thread, so that most calls take no lock; a [`Share`] is one that finds its own way
//! back.
//!
//! ```
//! use yonder_paging::far_heap::{FarHeap, Magazine};
//! use yonder_paging::{Config, FarMemory};
//!
//! # if yonder_uffd::probe().userfaultfd.is_err() { return Ok(()) }
//! let far = FarMemory::open("emu://?latency=1us", Config::with_local(2 << 20))?;
//! let heap = FarHeap::new(far.region(64 << 20)?);
//! heap.guide_paging();
//! let mut magazine = Magazine::new(); // of this thread
//! let address = heap.alloc(&mut magazine, 100, 16).expect("there is room");
//! assert_eq!(heap.size_of(address), Ok(112));
//! assert_eq!(heap.free(&mut magazine, address), Ok(()));
//! # Ok::<(), yonder_paging::FarError>(())
//! ```
//!
//! Neighbours: `preload/library`, `edge/capi` and `runtime/yonder` keep the magazines and know what to do with a
//! program that frees what it has not.
//!
//! Invariants:
//! - Far memory is never touched while the heap's lock is held: the lock is taken for moments, also by who has a fault.
//! - Nothing is allocated after a heap was made, so it can stand behind malloc. A [`Share`] allocates when it is made.
//! - Pages that were freed are given to nobody before they have been given back, and what is given out as zeros is
//!   zeros.

mod heap;
mod quarantine;
mod share;

pub use heap::{FarHeap, Frozen, GIVE_BACK_PAGES, Misuse, NoHandlers, Uninterrupted, Usage};
pub use share::Share;
pub use yonder_heap::Magazine;
