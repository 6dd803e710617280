//! [`NodeError`]: why a node does not start, and what to type instead.

use std::io;

use yonder_controller::LinkError;
use yonder_mapping::MapError;
use yonder_units::format_bytes;
use yonder_wire::ADOPT_PAGES_MAX;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// There is nothing to listen on.
    #[error("no address to listen on: type --listen tcp://127.0.0.1:7000")]
    NoAddress,
    /// A socket whose clients have all of the memory, beside addresses of members who are to be kept apart.
    #[error(
        "{shared} hands all of the node's memory to programs of its user, that of members of the cluster among it: \
         start another node for it, without --identity and --key, or leave the other addresses out"
    )]
    SharedWithMembers {
        /// The socket.
        shared: String,
    },
    /// The node would have no memory.
    #[error("a node of 0 bytes keeps nothing: type --memory 4GiB")]
    NoMemory,
    /// No such pages.
    #[error(
        "pages of {} are not possible: type --page-size with a power of two from 4KiB to 1GiB, such as 4MiB",
        format_bytes(*.0)
    )]
    PageSize(u64),
    /// A CPU that is not there, or that the node may not use.
    #[error("there is no CPU {cpu} that the node may use: type others for --data-cpus (nproc counts them)")]
    NoCpu {
        /// Its number.
        cpu: usize,
    },
    /// All CPUs for data threads.
    #[error("--data-cpus {typed} leaves none for the node's other threads: type fewer, or leave it out")]
    AllCpus {
        /// As it was typed.
        typed: String,
    },
    /// More pages than can be numbered.
    #[error("{0} pages are more than a node can have: type a larger --page-size or a smaller --memory")]
    TooManyPages(u64),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}; choose another address with --listen")]
    Listen {
        /// The address as a URL.
        address: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The machine does not give the address space.
    #[error("cannot reserve the node's memory: {0}; type a smaller --memory")]
    Memory(#[from] MapError),
    /// The machine refused a thread, a descriptor or the memory file.
    #[error("the operating system refused the node {what}: {cause}")]
    System {
        /// What was refused.
        what: &'static str,
        /// What the operating system said.
        cause: io::Error,
    },
    /// Regions that are not made of pages.
    #[error(
        "regions of {} with pages of {} are not possible: type a power of two that is at least a page, such as 1GiB, the \
         same as the controller's",
        format_bytes(*.region_bytes),
        format_bytes(*.page_bytes)
    )]
    RegionSize {
        /// Bytes of a region.
        region_bytes: u64,
        /// Bytes of a page.
        page_bytes: u64,
    },
    /// Regions of more pages than can move together.
    #[error(
        "regions of {} have {} pages, and at most {ADOPT_PAGES_MAX} can move together: type --page-size {} or more",
        format_bytes(*.region_bytes),
        region_bytes / page_bytes,
        format_bytes(*.page_bytes_min).replace(' ', "")
    )]
    RegionPages {
        /// Bytes of a region.
        region_bytes: u64,
        /// Bytes of a page.
        page_bytes: u64,
        /// Bytes of the smallest pages that would do.
        page_bytes_min: u64,
    },
    /// Other machines cannot reach the node.
    #[error(
        "a node with a controller is used by other machines: add an address such as --listen udp://0.0.0.0:7000, and --open"
    )]
    NoNetwork,
    /// The controller is not there, or does not want the node.
    #[error(transparent)]
    Controller(#[from] LinkError),
}
