//! Faiss, of which the inverted lists can lie in far memory.
//!
//! [`Index`] is an `IndexIVFFlat`: vectors in lists, each list around a centroid. It is trained and filled in local
//! memory; [`Index::place`] moves the lists to a [`Memory`], which Faiss then reads by pointer wherever it reads them
//! (Adios, section 5.2). The centroids stay local. Unithreads may search: see `yonder_library` for how thread-locals
//! and locks stay right when they are parked in the middle.
//!
//! ```text
//!   Index::search --- call ---> glue.cpp ---> libfaiss.a: centroids (local)
//!      ^    |                                     |
//!      |    +-- between() every few vectors       +---> codes and ids of lists: Memory, faults yield
//!      +------- nearest vectors
//! ```
//!
//! Debian has Faiss as a static library in C++, so a few functions in C++ stand between: compiled on the machine where
//! they are first wanted, so that nothing of Faiss is needed to build, and a machine without it says which packages to
//! install (ADR 0017). OpenMP is opted out of there: a search is one unithread's.
//!
//! Files: `glue.cpp` what calls Faiss, `glue` how it is compiled, `functions` what it has; `index` indexes.
//!
//! Neighbours: `sys/library` loads it and has the calls; the rest of the crate searches.
//!
//! UNSAFETY: the contracts of the functions in `glue.cpp`.

mod functions;
mod glue;
mod index;

use std::path::PathBuf;

use yonder_library::LibraryError;
use yonder_trap::scope::Caught;

pub use glue::Toolchain;
pub use index::{Index, K_MAX, Memory, Neighbour};

/// Why Faiss has refused something. The text says what to type.
#[derive(Debug, thiserror::Error)]
pub enum FaissError {
    /// It is not on this machine, or no compiler is.
    #[error("cannot use Faiss: {0}; type: sudo apt-get install {packages}, and then the same again", packages = functions::PACKAGES)]
    Missing(String),
    /// The compiler has refused.
    #[error("cannot compile what calls Faiss: {0}; type: sudo apt-get install --reinstall {packages}", packages = functions::PACKAGES)]
    Refused(String),
    /// What was compiled cannot be kept.
    #[error("cannot keep what calls Faiss in {}: {cause}; set XDG_CACHE_HOME to a folder that may be written", folder.display())]
    Folder {
        /// Where.
        folder: PathBuf,
        /// What the operating system said.
        cause: std::io::Error,
    },
    /// What was compiled cannot be loaded.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// What it said.
    #[error("Faiss: {0}")]
    Said(String),
    /// The memory for inverted lists is too small.
    #[error("{0} bytes of inverted lists find no room: give more far memory")]
    NoRoom(usize),
    /// Inverted lists cannot be moved to their memory.
    #[error("cannot move inverted lists: {0}")]
    Unwritten(std::io::Error),
    /// A touch of far memory that a list lies in has failed. What the search had allocated is lost, a few kilobytes;
    /// the index is as it was, and searches go on.
    #[error("an inverted list cannot be read at {:#x}", .0.address)]
    Lost(Caught),
    /// A query of another length than the vectors.
    #[error("a query of {given} numbers among vectors of {dimension}: give {dimension}")]
    Dimension {
        /// Numbers of the query.
        given: usize,
        /// Numbers of a vector.
        dimension: usize,
    },
    /// No neighbours or too many are asked for.
    #[error("{0} neighbours of a query: ask for 1 to {K_MAX}")]
    Neighbours(usize),
    /// No list is to be looked at.
    #[error("a search of no list finds nothing: look at 1 or more")]
    NoProbe,
}

impl FaissError {
    /// Whether this machine has no Faiss, or no compiler, so that nothing can be done with any index.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}
