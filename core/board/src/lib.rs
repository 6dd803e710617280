//! The memory node, without its threads and sockets: address spaces, their memory, and requests that are executed once
//! (Clio, sections 4.2, 4.3 and 4.5 to 4.7).
//!
//! A [`NodeCore`] is what all threads of a node share. Each data thread has a [`FastPath`], which reads, writes and
//! changes words; one thread has the [`SlowPath`], which makes address spaces, allocates, frees, and moves ranges to
//! other nodes. Both take whole messages and compose the answers. Offloads use address spaces through [`Access`],
//! without messages. The shell gives what only it can: [`Memory`] for bytes, [`PageSource`] for pages ready to be
//! written, [`Upkeep`] to know when no data thread holds an old page, and the time.
//!
//! There is one page table for all address spaces of a node, of a size that depends on its physical memory and not on
//! its clients: a hash table whose buckets never overflow, because the allocator gives out only virtual ranges whose
//! pages all find room. So a translation looks at one bucket, always. A page gets memory at its first write.
//!
//! Files: `address` has the numbers; `page_table`, `moved`, `returned`, `lives` and `capability` are what the fast path
//! reads, any thread without a lock, and `heat` what it counts; `board` joins them and `access` uses them; `recent`
//! keeps operations from being executed twice; `fast_path`, `slow_path` with `messages`, and `extend_path` execute
//! requests, and `reply` composes answers; `allocation` with `allocator`, `range`, `pool` with `quarantine`, `spaces`
//! with `lease_clock`, `unlinking`, `migration`, `adoption`, `transfers` and `usage` are parts of the slow path, with
//! one owner. `source` says who shares what is bounded, `accounts` what each has and does, and `limits` how much it
//! may.
//!
//! Invariants: a page has at most one slot, and a physical page is in at most one entry, or free; memory is given to
//! another page only after every data thread has let go of it, and zeroed; a request that is refused has changed
//! nothing.

#![forbid(unsafe_code)]

mod access;
mod accounts;
mod address;
mod adoption;
mod allocation;
mod allocator;
mod atomic;
mod capability;
mod extend_path;
mod fast_path;
mod heat;
mod lease_clock;
mod limits;
mod lives;
mod messages;
mod migration;
mod moved;
mod node_core;
mod page_table;
mod pool;
mod quarantine;
mod range;
mod recent;
mod reply;
mod returned;
mod slow_path;
mod source;
mod spaces;
mod transfers;
mod unlinking;
mod usage;

pub use access::Access;
pub use accounts::{Account, AccountNumber, Accounts, Admission, TenantUse, may_be_put_off};
pub use address::{PageSize, PhysicalPage, Pid, Piece, Pieces, VirtualPage};
pub use capability::{NodeKey, is_for_tenant, needs_capability};
pub use extend_path::{CALL_RESULT_BYTES_MAX, CallEffect, ExtendPath, Path, path_of};
pub use fast_path::FastPath;
pub use lease_clock::LEASE_STEP_MAX;
pub use limits::{LimitsError, TenantLimits};
pub use migration::{Departure, MovedAllocation, Moving};
pub use moved::MOVED_RANGES_MAX;
pub use node_core::{Config, Memory, NodeCore, PageSource, Upkeep};
pub use quarantine::NUMBERS_PER_PAGE;
pub use recent::NodeTime;
pub use reply::Handled;
pub use slow_path::{Shell, SlowPath};
pub use source::{Share, Source};
pub use spaces::SpaceLimits;
pub use unlinking::PIECE_PAGES_MAX;
pub use usage::RegionUse;
