//! Errors: why a page cannot be had ([`PagingError`]).

use std::num::NonZeroU32;
use std::sync::Arc;

/// Why a page cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PagingCause {
    /// The node was not connected when the deadline passed.
    NodeLost,
    /// The node did not answer before the deadline.
    TimedOut,
    /// The node answered with errors until the deadline.
    NodeFailed,
    /// Local memory stayed full until the deadline, usually because a lost node takes no writes.
    LocalMemoryFull,
    /// The page stayed under reclaim until the deadline.
    Stuck,
    /// The page is lost for good.
    Poisoned,
    /// The memory under the page is damaged (an uncorrectable error).
    HardwareError,
    /// The process is a forked child, and the page is where only its parent can fetch it.
    Forked,
}

impl PagingCause {
    /// Every cause.
    pub const ALL: [Self; 8] = [
        Self::NodeLost,
        Self::TimedOut,
        Self::NodeFailed,
        Self::LocalMemoryFull,
        Self::Stuck,
        Self::Poisoned,
        Self::HardwareError,
        Self::Forked,
    ];

    /// The code by which the fault handler reports the cause, from 1 on. Codes of released versions do not change.
    #[inline]
    pub fn code(self) -> NonZeroU32 {
        NonZeroU32::new(self as u32 + 1).expect("one is added")
    }

    /// Why a touch has failed, of whose failure something with the cause's code was caught.
    #[must_use]
    pub fn of(caught: impl Into<NonZeroU32>) -> Self {
        Self::from_code(caught.into())
    }

    /// Why a page is poisoned, by the payload of its entry.
    #[inline]
    pub(crate) fn of_page(code: u32) -> Self {
        Self::from_code(NonZeroU32::new(code).expect("a page is poisoned by a cause"))
    }

    /// The cause with this [`PagingCause::code`].
    ///
    /// # Panics
    /// If it is no code.
    #[must_use]
    #[inline]
    pub fn from_code(code: NonZeroU32) -> Self {
        Self::ALL[code.get() as usize - 1]
    }

    /// What happened, as the end of a sentence.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NodeLost => "the connection to the node is lost",
            Self::TimedOut => "the node does not answer",
            Self::NodeFailed => "the node reports errors",
            Self::LocalMemoryFull => "local memory stays full, because the node takes no writes",
            Self::Stuck => "the page stays under reclaim",
            Self::Poisoned => "the page is lost",
            Self::HardwareError => "the memory is damaged",
            Self::Forked => {
                "a forked process has only those of its parent's pages that were local or in the parent's process"
            }
        }
    }
}

/// A touch of far memory that failed: the page could not be had before the deadline.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("far memory at address {address:#x} (node {node}) cannot be had: {}", .cause.text())]
pub struct PagingError {
    /// The touched address.
    pub address: usize,
    /// URL of the node that holds the page.
    pub node: Arc<str>,
    /// Why.
    pub cause: PagingCause,
}

/// All ports are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all {0} ports are in use: use fewer workers")]
pub struct TooManyPorts(pub usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_name_their_causes() {
        for cause in PagingCause::ALL {
            assert_eq!(PagingCause::from_code(cause.code()), cause);
        }
    }
}
