//! The memory node's virtual memory and its memory of requests (Clio, sections 4.2, 4.3 and 4.5).
//!
//! One [`PageTable`] for all address spaces of a node, of a size that depends on its physical memory and not on its
//! clients: a hash table whose buckets never overflow, because [`Allocator`] gives out only virtual ranges whose pages all
//! find room. So a translation looks at one bucket, always. A page gets memory at its first write.
//!
//! Files: `page_table` is the fast path, read and changed by any thread without a lock; `allocator` is the slow path, one
//! owner; `recent` keeps writes and atomics from being executed twice. `runtime/node` will give pages their memory and
//! their bytes; today it keeps memory by client.
//!
//! Invariants: a bucket holds at most [`SLOTS_PER_BUCKET`] pages; a page has at most one slot; a physical page is in at
//! most one entry, or free.

#![forbid(unsafe_code)]

mod address;
mod allocator;
mod page_table;
mod recent;

pub use address::{PageSize, Permission, PhysicalPage, Pid, VirtualPage};
pub use allocator::{AllocateError, Allocation, Allocator, FreeError, Freed, RETRIES_MAX};
pub use page_table::{Lookup, PageTable, SLOTS_PER_BUCKET, Slot};
pub use recent::{Admission, NodeTime, OperationKey, Recent};
