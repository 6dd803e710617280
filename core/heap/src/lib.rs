//! An allocator for far memory that keeps nothing inside it.
//!
//! A page of far memory may be anywhere but here, so freeing an object must not touch it: there are no headers and no
//! lists in the memory that is given out, and all that the allocator knows is local. It deals in byte offsets of a
//! range and never touches memory itself.
//!
//! [`Heap`] gives out and takes back, under its caller's lock. A [`Magazine`] a thread makes most of that need no lock.
//! [`PageMap`] says what an offset is, so that any thread can free it, and which bytes of a page are live, so that
//! write-back leaves out the rest (guided paging, DiLOS, section 4.4).
//!
//! ```
//! use yonder_heap::{Allocated, Class, Heap, Magazine};
//!
//! let mut heap = Heap::new(1 << 30); // behind a lock
//! let map = heap.map().clone(); // for every thread
//! let mut magazine = Magazine::new(); // of this thread
//!
//! let class = Class::fitting(100, 16).expect("100 bytes are small");
//! let offset = magazine.alloc(class).or_else(|| {
//!     heap.refill(&mut magazine, class);
//!     magazine.alloc(class)
//! });
//! let offset = offset.expect("the heap is not full");
//! let Allocated::Object(class) = map.look_up(offset)? else { panic!("it is small") };
//! if magazine.free(class, offset).is_err() {
//!     heap.flush(&mut magazine, class)?;
//!     magazine.free(class, offset).expect("there is room after a flush");
//! }
//! # Ok::<(), yonder_heap::NotAllocated>(())
//! ```
//!
//! Neighbours: the runtime holds the lock and the magazines, gives retired pages back to the memory node, and asks for
//! live bytes at write-back.
//!
//! Invariants:
//! - Nothing is allocated after [`Heap::new`], so a heap can stand behind `malloc`; [`Magazine::new`] is the exception.
//! - A table's memory is backed by the kernel where it is used: a heap of any size is made at once.
//! - What is handed out was said to be live before.
//! - Freeing what is not live is an error and changes nothing. One case is seen late: what is freed a second time while
//!   it lies in a magazine. [`Magazine::contains`] and [`Magazine::contains_run`] find it in the thread's own; in
//!   another's, the flush does.

#![forbid(unsafe_code)]

mod bits;
mod class;
mod heap;
mod live;
mod magazine;
mod page_map;
mod page_set;
mod runs;
mod slabs;

pub use class::{CLASSES, Class, GRANULE_BYTES, OBJECT_BYTES_MAX};
pub use heap::{Freed, Heap, Resized, Retired, START_BYTES, Stats};
pub use live::SAVING_BYTES_MIN;
pub use magazine::{Full, MAGAZINE_BYTES_MAX, MAGAZINE_OBJECTS_MAX, MAGAZINE_RUN_PAGES_MAX, Magazine, ReadyRun};
pub use page_map::{Allocated, PageMap};

/// Largest heap: 8 TiB.
pub const HEAP_BYTES_MAX: u64 = 8 << 40;

/// Nothing is allocated at this offset: it was freed already, or nothing that was given out begins there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("nothing is allocated at offset {offset:#x} of far memory: it was freed before, or never given out")]
pub struct NotAllocated {
    /// The offset, in bytes.
    pub offset: u64,
}
