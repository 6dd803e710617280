//! [`Refused`]: why an operation of the pager failed.

use yonder_pager::{ConfigError, PagingCause, PagingError, TooManyPorts};

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A page could not be had.
    Paging(PagingCause),
    /// The configuration is none.
    Config(ConfigError),
    /// All ports are in use.
    Ports,
    /// The node does not answer.
    Node,
    /// The kernel will not unmap a page.
    Busy,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Paging(cause) => write!(f, "{}", cause.text()),
            Self::Config(error) => write!(f, "{error}"),
            Self::Ports => write!(f, "there are no more ports"),
            Self::Node => write!(f, "the node does not answer"),
            Self::Busy => write!(f, "the kernel does not unmap a page"),
        }
    }
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
