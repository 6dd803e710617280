//! [`Refused`]: why an operation of the pager failed.

use yonder_pager::{ConfigError, PagingCause, PagingError, TooManyPorts};

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// A page could not be had.
    #[error("{}", .0.text())]
    Paging(PagingCause),
    /// The configuration is none.
    #[error("{0}")]
    Config(ConfigError),
    /// All ports are in use.
    #[error("there are no more ports")]
    Ports,
    /// The node does not answer.
    #[error("the node does not answer")]
    Node,
    /// The kernel will not unmap a page.
    #[error("the kernel does not unmap a page")]
    Busy,
}

impl From<PagingError> for Refused {
    fn from(error: PagingError) -> Self {
        Self::Paging(error.cause)
    }
}

impl From<ConfigError> for Refused {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<TooManyPorts> for Refused {
    fn from(_: TooManyPorts) -> Self {
        Self::Ports
    }
}
