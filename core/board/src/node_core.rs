//! [`NodeCore`]: what all threads of a node share; [`Config`]; and what the shell gives: [`Memory`], [`PageSource`],
//! [`Upkeep`].
//!
//! Who touches what: the page table is changed as it says; the slow path alone changes which ranges have moved; the key
//! never changes; any thread counts pages that get or lose memory, and accesses. Nothing here is locked.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use yonder_wire::{AtomicOperation, ErrorCode, Header, Rights};

use crate::access::Access;
use crate::accounts::{Account, AccountNumber, Accounts};
use crate::address::{PageSize, PhysicalPage, Pid};
use crate::capability::{Capabilities, NodeKey};
use crate::extend_path::ExtendPath;
use crate::fast_path::FastPath;
use crate::heat::Heat;
use crate::limits::TenantLimits;
use crate::lives::{Life, Lives};
use crate::moved::{ClosedRanges, MovedRanges};
use crate::page_table::PageTable;
use crate::recent::NodeTime;
use crate::returned::Returned;
use crate::slow_path::SlowPath;
use crate::spaces::SpaceLimits;

/// Bytes of a region on a node that no controller has told otherwise.
const REGION_BYTES_DEFAULT: u64 = 1 << 30;

/// Settings of a node's memory.
#[derive(Clone, Debug)]
pub struct Config {
    /// Pages of physical memory that are in use at most. Their numbers are below [`NUMBERS_PER_PAGE`] times as many;
    /// all of them read as zeros when the board is made.
    ///
    /// [`NUMBERS_PER_PAGE`]: crate::NUMBERS_PER_PAGE
    pub pages: u32,
    /// Bytes of a page.
    pub page_size: PageSize,
    /// A random number: makes collisions in the page table unpredictable.
    pub seed: u64,
    /// A random number that only this node knows: capabilities are made with it.
    pub key: NodeKey,
    /// Operations that a data thread remembers, and as many for the slow path; each takes about 60 bytes (slow path:
    /// 140), because half as many are kept once more for each party's sake. Of what needs no capability, a sixteenth as
    /// many are remembered, apart.
    pub recent_max: usize,
    /// Address spaces that there may be at a time, and for how long.
    pub spaces: SpaceLimits,
    /// Pages that one piece of a free or of the end of an address space takes out of the page table, not 0:
    /// [`PIECE_PAGES_MAX`](crate::PIECE_PAGES_MAX) on a node.
    pub piece_pages_max: u32,
    /// Longest time between two looks at the clock for which leases run, in nanoseconds:
    /// [`LEASE_STEP_MAX`](crate::LEASE_STEP_MAX) on a node, which looks more often.
    pub lease_step_max: NodeTime,
    /// What each tenant may have and do for whom nothing else is set.
    pub tenants: TenantLimits,
}

/// The bytes of the node's pages. Any thread may call it at any time; no page that is used is outside of the memory.
pub trait Memory {
    /// Copies bytes of a page from `offset`.
    fn read(&self, page: PhysicalPage, offset: u64, into: &mut [u8]);

    /// Stores bytes into a page at `offset`.
    fn write(&self, page: PhysicalPage, offset: u64, from: &[u8]);

    /// Changes the little-endian word of 8 bytes at `offset`, a multiple of 8, and returns what it was. Atomic against
    /// all other accesses of that word.
    fn atomic(&self, page: PhysicalPage, offset: u64, operation: AtomicOperation) -> u64;
}

/// Pages that are ready to be written for the first time: free, and zero. The slow path fills it from
/// [`SlowPath::take_free_page`].
pub trait PageSource {
    /// A page, if there is one.
    fn take(&self) -> Option<PhysicalPage>;

    /// Takes a page back that was not used. There is room for every page that was taken.
    fn give_back(&self, page: PhysicalPage);
}

/// What the slow path needs from the shell to use memory again.
pub trait Upkeep {
    /// Returns when every data thread, and every other user of [`Access`], has passed a point since the call at which
    /// it held no page: it was between two messages.
    fn wait_until_quiet(&mut self);

    /// Makes a page read as zeros. Whoever still uses it finds bytes as they were, or zeros.
    fn zero(&mut self, page: PhysicalPage);
}

/// What all threads of a node share.
#[derive(Debug)]
pub struct NodeCore {
    pub(crate) config: Config,
    pub(crate) table: Arc<PageTable>,
    pub(crate) moved: Arc<MovedRanges>,
    pub(crate) returned: Returned,
    pub(crate) capabilities: Capabilities,
    pub(crate) lives: Arc<Lives>,
    pub(crate) heat: Heat,
    pub(crate) accounts: Accounts,
    /// Bytes of the ranges by which use is counted and memory moves.
    pub(crate) region_bytes: u64,
    /// Pages that have memory. Counted after the fact, so it may be off by those that change just now, and for a moment
    /// be below 0.
    mapped: AtomicI64,
    /// Pages that may not have memory, because clients of ended address spaces hold too much of it.
    lacking: AtomicU32,
}

impl NodeCore {
    /// A node's memory, without address spaces, and the one slow path to it. Its regions have a gibibyte.
    ///
    /// # Panics
    /// If there are more pages than can be numbered, or `recent_max` or `piece_pages_max` is 0.
    #[must_use]
    pub fn new(config: &Config) -> (Arc<Self>, SlowPath) {
        Self::with_regions(config, REGION_BYTES_DEFAULT)
    }

    /// The same with regions of `region_bytes`, a power of two and at least a page.
    ///
    /// # Panics
    /// As [`NodeCore::new`], and if regions cannot be like this.
    #[must_use]
    pub fn with_regions(config: &Config, region_bytes: u64) -> (Arc<Self>, SlowPath) {
        assert!(
            region_bytes.is_power_of_two() && region_bytes >= config.page_size.bytes(),
            "regions of {region_bytes} bytes"
        );
        assert!(config.piece_pages_max > 0, "pieces of no pages");
        let (closed, moved) = ClosedRanges::new();
        let board = Arc::new(Self {
            config: config.clone(),
            table: Arc::new(PageTable::new(config.pages, config.seed)),
            moved,
            returned: Returned::new(region_bytes.ilog2(), config.seed),
            capabilities: Capabilities::new(config.key.clone()),
            // Of clients, and as many of the shell.
            lives: Arc::new(Lives::new(config.spaces.spaces_max.saturating_mul(2))),
            heat: Heat::new(region_bytes.ilog2()),
            accounts: Accounts::new(config.tenants),
            region_bytes,
            mapped: AtomicI64::new(0),
            lacking: AtomicU32::new(0),
        });
        let slow_path = SlowPath::new(Arc::clone(&board), closed);
        (board, slow_path)
    }

    /// A data thread's part.
    #[must_use]
    pub fn fast_path(self: &Arc<Self>) -> FastPath {
        FastPath::new(Arc::clone(self))
    }

    /// The part that calls of offloads go through.
    #[must_use]
    pub fn extend_path(self: &Arc<Self>) -> ExtendPath {
        ExtendPath::new(Arc::clone(self))
    }

    /// Address spaces as offloads use them. Whoever holds this is a data thread to [`Upkeep::wait_until_quiet`], or is
    /// the slow path's thread.
    #[must_use]
    pub fn access<'a, M: Memory, P: PageSource>(&'a self, memory: &'a M, pages: &'a P) -> Access<'a, M, P> {
        Access::new(self, memory, pages)
    }

    /// Settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What each tenant has and does, and how much of that it may.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The account that pays for an address space.
    pub(crate) fn account(&self, number: AccountNumber) -> &Account {
        self.accounts.get(number)
    }

    /// Pages that belong to no address space now.
    #[must_use]
    pub fn free_pages(&self) -> u32 {
        let most = self.pages_max();
        let mapped = u32::try_from(self.mapped.load(Ordering::Relaxed).max(0)).unwrap_or(most);
        most.saturating_sub(mapped)
    }

    /// Pages that may have memory at one time.
    fn pages_max(&self) -> u32 {
        self.config.pages.saturating_sub(self.lacking.load(Ordering::Relaxed))
    }

    /// Notes how many pages may not have memory now.
    pub(crate) fn set_lacking(&self, pages: usize) {
        self.lacking.store(u32::try_from(pages).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Bytes of the page table and of what else does not grow with the number of clients.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let of_regions = self.moved.bytes() + self.returned.bytes() + self.heat.bytes();
        self.table.bytes() + of_regions + self.lives.bytes() + self.accounts.bytes()
    }

    /// Which address space, in which of its lives, a request has the right to use as it `needs`: nothing was done in it
    /// yet, and it may be over.
    #[inline]
    pub(crate) fn check(&self, header: &Header, needed: Rights, now: NodeTime) -> Result<(Pid, Life), ErrorCode> {
        self.capabilities.check(header, needed, now)
    }

    /// The address space, if this life is its present one.
    #[inline]
    pub(crate) fn present(&self, (pid, life): (Pid, Life)) -> Result<Pid, ErrorCode> {
        if self.lives.is_present(pid, life) { Ok(pid) } else { Err(ErrorCode::BadCapability) }
    }

    /// Whether a request with this capability could change anything, now or later: a life that is over stays so.
    pub(crate) fn may_change(&self, header: &Header, now: NodeTime) -> bool {
        self.check(header, Rights::ReadWrite, now).and_then(|space| self.present(space)).is_ok()
    }

    /// Counts pages that get memory, for which `payer` pays.
    ///
    /// # Errors
    /// `OutOfMemory` if that one would have more than it may: then nothing is counted.
    pub(crate) fn count_mapped(&self, payer: AccountNumber, pages: usize) -> Result<(), ErrorCode> {
        self.account(payer).take_memory(self.bytes_of(pages))?;
        self.mapped.fetch_add(pages.cast_signed() as i64, Ordering::Relaxed);
        Ok(())
    }

    /// Counts pages that have lost their memory.
    pub(crate) fn count_unmapped(&self, payer: AccountNumber, pages: usize) {
        self.account(payer).give_memory_back(self.bytes_of(pages));
        self.mapped.fetch_sub(pages.cast_signed() as i64, Ordering::Relaxed);
    }

    fn bytes_of(&self, pages: usize) -> u64 {
        pages as u64 * self.config.page_size.bytes()
    }

    /// Why a page cannot get memory when the source of pages is empty: every page is in use, or the slow path has not
    /// refilled it yet.
    pub(crate) fn why_no_page(&self) -> ErrorCode {
        if self.mapped.load(Ordering::Relaxed) >= i64::from(self.pages_max()) {
            ErrorCode::OutOfMemory
        } else {
            ErrorCode::Busy
        }
    }
}
