//! [`RegionCore`]: what the fault path, the reclaimer and the region's owner share of a region.

mod access;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::pagetable::{PageHasher, PageTable, State};
use yonder_units::{BLOCK_PAGES, BLOCK_PAGES_U32, BlockIndex, Narrow, PAGE_BYTES, PageId, PageIndex};

use crate::advice::AdvisedRanges;
use crate::blocks::{BLOCK_COUNTS_BYTES, Blocks};
use crate::digest::Digests;
use crate::error::{PagingCause, PagingError};
use crate::gate::BlockGate;
use crate::limits::Quota;
use crate::liveness::Owner;
use crate::machine::Machine;
use crate::observer::Observer;
use crate::order::Order;
use crate::pager::Pager;
use crate::queue_pair::RemoteAddress;
use crate::reclaim::Probation;
use crate::unreadable::UnreadablePages;

pub use access::HeldBlocks;

/// What is known of a region. See the head of this file.
pub struct RegionCore<M: Machine> {
    pub(crate) number: u32,
    pub(crate) mapping: M::Memory,
    pub(crate) table: PageTable,
    pub(crate) pager: Arc<Pager<M>>,
    gates: Box<[BlockGate]>,
    /// What is mapped of each block, and since when.
    pub(crate) counts: Blocks,
    /// Which pages go first.
    pub(crate) probation: Probation,
    /// What is fetched together.
    pub(crate) ahead: AdvisedRanges,
    /// What is fetched page by page.
    pub(crate) random: AdvisedRanges,
    /// How many pages should be mapped at most.
    pub(crate) quota: Quota,
    /// What the node has of each page.
    pub(crate) digests: Digests,
    /// What may be under way on the node at once.
    pub(crate) order: Order,
    pub(crate) owner: Owner,
    pub(crate) unreadable: UnreadablePages,
    observer: Observer,
    remote: RemoteAddress,
    sealed: AtomicBool,
}

impl<M: Machine> RegionCore<M> {
    pub(crate) fn new(
        pager: Arc<Pager<M>>,
        number: u32,
        mapping: M::Memory,
        remote: RemoteAddress,
        hasher: PageHasher,
    ) -> Self {
        let pages = M::len(&mapping) / PAGE_BYTES;
        let blocks = pages.div_ceil(BLOCK_PAGES);
        Self {
            number,
            mapping,
            table: PageTable::new(pages),
            pager,
            gates: (0..blocks).map(|_| BlockGate::default()).collect(),
            counts: Blocks::new(blocks),
            probation: Probation::new(pages, blocks),
            ahead: AdvisedRanges::default(),
            random: AdvisedRanges::default(),
            quota: Quota::default(),
            digests: Digests::new(pages, hasher),
            order: Order::default(),
            owner: Owner::default(),
            unreadable: UnreadablePages::default(),
            observer: Observer::default(),
            remote,
            sealed: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn gate(&self, page: PageIndex) -> &BlockGate {
        &self.gates[page.block().index()]
    }

    pub(crate) fn block_gate(&self, block: BlockIndex) -> &BlockGate {
        &self.gates[block.index()]
    }

    /// The pages of a block; the last block of a region may be short.
    pub(crate) fn pages_of(&self, block: BlockIndex) -> Range<u32> {
        let first = block.first_page().0;
        first..(first + BLOCK_PAGES_U32).min(self.table.pages().narrow_u32())
    }

    pub(crate) fn blocks(&self) -> usize {
        self.gates.len()
    }

    /// Mapped pages of the blocks that are held now, which nothing can take away.
    pub(crate) fn held_pages(&self) -> u64 {
        let blocks = (0..self.blocks().narrow_u32()).map(BlockIndex);
        let held = blocks.filter(|block| self.block_gate(*block).is_held());
        held.map(|block| u64::from(self.counts.resident_in(block))).sum()
    }

    /// Whether the block is lent to the kernel: all of its pages are, or none. Nobody else lends or recalls it
    /// meanwhile.
    pub(crate) fn is_lent(&self, block: BlockIndex) -> bool {
        self.table.load(block.first_page()).state() == State::Lent
    }

    /// Where the node has the page.
    #[inline]
    pub fn remote_address(&self, page: PageIndex) -> RemoteAddress {
        RemoteAddress(self.remote.0 + page.offset())
    }

    #[inline]
    pub(crate) fn place(&self, page: PageIndex) -> PageId {
        PageId { region: self.number, page }
    }

    /// Whether the region is sealed.
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    pub(crate) fn set_sealed(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    pub(crate) fn metadata_bytes(&self) -> u64 {
        const ENTRY_BYTES: u64 = 8;
        const GATE_BYTES: u64 = 4;
        self.table.pages() as u64 * (ENTRY_BYTES + self.digests.bytes_per_page())
            + self.gates.len() as u64 * (GATE_BYTES + BLOCK_COUNTS_BYTES)
            + self.probation.bytes()
    }

    /// The error of an access at `offset` that ended by `cause`.
    pub fn error(&self, offset: u64, cause: PagingCause) -> PagingError {
        PagingError {
            address: M::address(&self.mapping) + offset.narrow_usize(),
            node: Arc::clone(self.pager.node.name()),
            cause,
        }
    }
}
