//! Page table entries and the one function that changes them; the hash by which a page is known to be what the node
//! has.
//!
//! A region has one [`PageTable`]: a flat array with one atomic 64-bit word a page. A word is an [`Entry`]; what it can
//! be is [`State`], what can happen to it is [`Event`], and [`Entry::on`] is the only place where one becomes the
//! other. Every change is a compare-and-swap ([`PageTable::advance`]), so two threads never both win.
//!
//! Beside the table stands [`PageHasher`], which knows nothing of it.
//!
//! Neighbours: the rest of the crate performs what the states promise (installs, fetches, sweeps).
//!
//! Invariants:
//! - Whoever moves an entry into `Fetching`, `Installing` or `Evicting` owns the page until it moves it on.
//! - A page is mapped in the region exactly while it is `Resident` or `Evicting`, or while its owner installs it.
//! - A page with a write in flight is never given a second write, and its content is never forgotten before the write
//!   has been acknowledged.

mod entry;
mod page_hash;
mod table;

pub use entry::{Entry, Event, Source, State};
pub use page_hash::{HASH_GRANULE_BYTES, HASH_KEY_BYTES, PageHash, PageHasher};
pub use table::PageTable;
