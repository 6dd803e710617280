//! Owned memory mappings: far regions, the local frame pool, and memory shared with a node.
//!
//! Memory that a peer, a device or the reclaimer can change is never behind `&` or `&mut`: a [`Mapping`] is read and
//! written by bounds-checked copies. The `try_` accessors are for far regions, where a touch can end in a paging error;
//! the others are for memory that is always there. The pages of a [`Protected`] appear at their first touch without
//! userfaultfd. Secrets have a [`LockedBox`], and what a child must not use a [`ForkMark`].
//!
//! Neighbours: `sys/trap` has the copy routines that can fail; `sys/uffd` registers mappings; `runtime/paging` owns
//! regions and frames.
//!
//! UNSAFETY: mmap, madvise and raw copies within bounds that are checked here.

mod advice;
pub mod allocator;
mod damage;
mod fork_mark;
mod locked;
mod mapping;
mod memfd;
mod ours;
mod protected;
mod waiting;

pub use advice::{DropMethod, drop_method};
pub use fork_mark::ForkMark;
pub use locked::LockedBox;
pub use mapping::{Inherited, MapError, Mapping};
pub use memfd::create_memfd;
pub use ours::ranges;
pub use protected::{OnTouch, Protected};
pub use yonder_units::Run;
