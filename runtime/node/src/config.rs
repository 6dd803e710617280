//! [`NodeConfig`]: what a node serves, and where, and what is chosen where nothing is said.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use yonder_board::{PageSize, SpaceLimits, TenantLimits};
use yonder_identity::Credential;
use yonder_units::Narrow;
use yonder_wire::LEASE_MS_MAX;

use crate::controller::ControllerConfig;
use crate::cpus::CpuList;
use crate::error::NodeError;
use crate::listen::Listen;
use crate::polling::Polling;

/// Most connections at a time by default.
const CONNECTIONS_DEFAULT_MAX: usize = 1024;
/// Connections that have not greeted: one to so many that have.
pub(crate) const SILENT_DIVISOR: usize = 8;
/// Most data threads of a kind that a node chooses by itself.
const DATA_THREADS_DEFAULT_MAX: usize = 8;
/// A node has at least so many pages by default: a small one has smaller pages.
const PAGES_DEFAULT_MIN: u64 = 64;
/// Smallest page.
const PAGE_BYTES_MIN: u64 = 4 << 10;
/// Most address spaces of clients.
const SPACES_MAX: usize = 1 << 16;

// A controller takes the registration of a node that has all of them, and is ending as many.
const _: () = assert!(2 * SPACES_MAX <= yonder_placement::NODE_SPACES_MAX);

/// What a node serves, and where.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Where clients connect; at least one address.
    pub listen: Vec<Listen>,
    /// Bytes of memory, rounded up to whole pages.
    pub memory_bytes: u64,
    /// Bytes of a page, a power of two from 4 KiB to 1 GiB; `None` takes 4 MiB, or less for a small memory.
    pub page_bytes: Option<u64>,
    /// Data threads for datagrams, and as many for streams; `None` takes half of the CPUs, at least one and at most
    /// eight.
    pub data_threads: Option<NonZeroUsize>,
    /// CPUs that data threads run on, and no other threads of the node do; `None` leaves it to the kernel.
    pub data_cpus: Option<CpuList>,
    /// What data threads do while there is nothing to do.
    pub polling: Polling,
    /// The controller that the node serves, if it is one of several.
    pub controller: Option<ControllerConfig>,
    /// Who the node is, and by which it knows others; `None` where there are no strangers.
    pub credential: Option<Arc<Credential>>,
    /// Connections at a time, not 0; the limit of open files may lower it. One source has half of them at most.
    pub connections_max: usize,
    /// Lease of an address space whose client asks for none.
    pub lease_default: Duration,
    /// Longest lease that a client may ask for.
    pub lease_max: Duration,
    /// What each tenant may have and do whose identity says nothing of it; without names, each host.
    pub tenant_limits: TenantLimits,
}

impl NodeConfig {
    /// A node of `memory_bytes` at `listen`, with as many data threads as fit the machine, which sleep when idle for
    /// long.
    #[must_use]
    pub fn new(listen: Vec<Listen>, memory_bytes: u64) -> Self {
        Self {
            listen,
            memory_bytes,
            page_bytes: None,
            data_threads: None,
            data_cpus: None,
            polling: Polling::default(),
            controller: None,
            credential: None,
            connections_max: CONNECTIONS_DEFAULT_MAX,
            lease_default: Duration::from_millis(LEASE_MS_MAX.into()),
            lease_max: Duration::from_millis(LEASE_MS_MAX.into()),
            tenant_limits: TenantLimits::default(),
        }
    }

    /// As many connections as are wanted, and as the limit of open files allows beside silent ones and what the process
    /// itself needs.
    pub(crate) fn connections_max(&self) -> usize {
        const OWN_FILES: u64 = 64;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = limit.saturating_sub(OWN_FILES).min(u64::from(u32::MAX)).narrow_usize();
        self.connections_max.min(most - most / SILENT_DIVISOR).max(1)
    }

    pub(crate) fn space_limits(&self) -> SpaceLimits {
        let ms = |lease: Duration| u32::try_from(lease.as_millis()).unwrap_or(u32::MAX).max(1);
        let (lease_default_ms, lease_max_ms) = (ms(self.lease_default.min(self.lease_max)), ms(self.lease_max));
        SpaceLimits { spaces_max: SPACES_MAX, lease_default_ms, lease_max_ms }
    }

    pub(crate) fn data_threads(&self) -> usize {
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.data_threads.map_or((cpus / 2).clamp(1, DATA_THREADS_DEFAULT_MAX), NonZeroUsize::get)
    }

    pub(crate) fn page_size(&self) -> Result<PageSize, NodeError> {
        let fitting = || {
            let bytes = (self.memory_bytes / PAGES_DEFAULT_MIN).clamp(PAGE_BYTES_MIN, PageSize::DEFAULT.bytes());
            1 << bytes.ilog2()
        };
        let bytes = self.page_bytes.unwrap_or_else(fitting);
        PageSize::new(bytes).ok_or(NodeError::PageSize(bytes))
    }
}
