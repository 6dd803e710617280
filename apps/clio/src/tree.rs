//! A radix tree in far memory (Clio, section 6): keys are strings of bytes, and each byte goes one level down.
//!
//! The nodes of a level that have the same parent are a linked list, so a search compares its way along one list for
//! each byte. Clients insert with reads, writes and atomics alone. For searching there are three [`Way`]s: reading node
//! after node, as with plain remote memory; calling the node's pointer chase once for each level, as in the paper; or
//! once for the whole key.
//!
//! Key types: [`Tree`], and [`Words`] to fill it with; [`run`] compares the ways, behind `yonder bench tree`.
//! Neighbours: `core/offload` has the pointer chase, [`Meter`](crate::Meter) counts.
//!
//! Invariants: a pointer is set once, from 0 to a node whose bytes are already written, and never changes again. So any
//! number of clients may insert and search at the same time without a lock, and whoever finds a node finds it whole.

mod handle;
mod insert;
mod layout;
mod run;
mod search;
mod words;

pub use handle::{Tree, VALUE_MAX};
pub use layout::NODE_BYTES;
pub use run::{TreeResult, TreeSettings, run};
pub use search::Way;
pub use words::{WORDS_FILE, Words};
pub use yonder_offload::chase::KEY_BYTES_MAX;
