//! [`CleanDrop`]: a page that is forgotten without a write, for a machine that checks those.
//!
//! The pager says which pages it drops because far memory is known to hold them; a machine that keeps a second copy of
//! far memory compares ([`Machine::compares_clean_drops`](crate::machine::Machine::compares_clean_drops)).

use yonder_units::PageId;

use crate::queue_pair::RemoteAddress;
use yonder_units::Vector;

/// A page that is about to be forgotten without a write.
#[derive(Clone, Copy, Debug)]
pub struct CleanDrop {
    /// Which page it is, for messages.
    pub page_id: PageId,
    /// Where far memory has it.
    pub address: RemoteAddress,
    /// The bytes that count.
    pub vector: Vector,
    /// What the next touch finds.
    pub reads_as: ReadsAs,
}

/// Where the next touch of a forgotten page has its content from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadsAs {
    /// From far memory.
    Fetched,
    /// From nowhere: it is zeros.
    Zeros,
}
