//! [`FarError`]: why far memory cannot be set up, or a control operation failed. Why a page cannot be had is the
//! pager's to say ([`PagingError`]).

use yonder_fabric::FabricError;
use yonder_mapping::MapError;
use yonder_pager::{ConfigError, PagingError, TooManyPorts};
use yonder_uffd::{OpenError, UffdError};

/// Far memory could not be set up, or a control operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FarError {
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The machine or the user lacks userfaultfd.
    #[error(transparent)]
    Userfaultfd(#[from] OpenError),
    /// The kernel refused an operation on a region.
    #[error(transparent)]
    Region(#[from] UffdError),
    /// The kernel refused memory.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The memory node refused, or cannot be reached.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A page cannot be had.
    #[error(transparent)]
    Paging(#[from] PagingError),
    /// The SIGBUS handler or the region table has no room.
    #[error("{0}")]
    Regions(String),
    /// The reclaimer thread could not be started or pinned.
    #[error("the reclaimer thread: {0}")]
    Thread(std::io::Error),
    /// No more worker ports.
    #[error("all {0} ports are in use: use fewer workers")]
    Ports(usize),
    /// The limit could not be reached in time.
    #[error("local memory did not shrink to the new limit in time: {0}")]
    Limit(&'static str),
}

impl From<TooManyPorts> for FarError {
    fn from(TooManyPorts(ports): TooManyPorts) -> Self {
        Self::Ports(ports)
    }
}
