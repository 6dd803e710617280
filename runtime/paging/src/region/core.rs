//! [`RegionCore`]: what is known of a region, and its side of the SIGBUS handler.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use yonder_fabric::RemoteAddress;
use yonder_pagetable::{PageHasher, PageTable};
use yonder_trap::{Fault, FaultHandler, FaultKind, Verdict};
use yonder_units::{BLOCK_PAGES, BlockIndex, PAGE_BYTES, PageIndex, Place};

use crate::advice::Ahead;
use crate::blocks::{BLOCK_COUNTS_BYTES, Blocks};
use crate::damage;
use crate::digest::Digests;
use crate::error::{PagingCause, PagingError};
use crate::fault::{self, Touch, Wants};
use crate::gate::BlockGate;
use crate::kernel::Kernel;
use crate::limits::Quota;
use crate::liveness::Owner;
use crate::machine::Machine;
use crate::observer::Observer;
use crate::order::Order;
use crate::pager::Pager;
use crate::seclusion::Secluded;

/// What the fault path, the reclaimer and the region's owner share.
pub struct RegionCore<M: Machine = Kernel> {
    pub(crate) number: u32,
    pub(crate) mapping: M::Memory,
    pub(crate) table: PageTable,
    pub(crate) pager: Arc<Pager<M>>,
    gates: Box<[BlockGate]>,
    /// What is mapped of each block, and how hot it is.
    pub(crate) counts: Blocks,
    /// What is fetched together.
    pub(crate) ahead: Ahead,
    /// How many pages should be mapped at most.
    pub(crate) quota: Quota,
    /// What the node has of each page.
    pub(crate) digests: Digests,
    /// What may be under way on the node at once.
    pub(crate) order: Order,
    pub(crate) owner: Owner,
    pub(crate) secluded: Secluded,
    pub(super) observer: Observer,
    pub(super) remote: RemoteAddress,
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
            ahead: Ahead::default(),
            quota: Quota::default(),
            digests: Digests::new(pages, hasher),
            order: Order::default(),
            owner: Owner::default(),
            secluded: Secluded::default(),
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
        first..(first + BLOCK_PAGES as u32).min(self.table.pages() as u32)
    }

    pub(crate) fn blocks(&self) -> usize {
        self.gates.len()
    }

    /// Where the node has the page.
    #[inline]
    pub fn remote_address(&self, page: PageIndex) -> RemoteAddress {
        RemoteAddress(self.remote.0 + page.offset())
    }

    #[inline]
    pub(crate) fn place(&self, page: PageIndex) -> Place {
        Place { region: self.number, page }
    }

    pub(crate) fn is_sealed(&self) -> bool {
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
    }

    pub(crate) fn error(&self, offset: u64, cause: PagingCause) -> PagingError {
        PagingError { address: M::address(&self.mapping) + offset as usize, node: self.pager.node(), cause }
    }
}

/// The region's side of the SIGBUS handler.
pub(super) struct RegionFaults(pub(super) Arc<RegionCore>);

impl FaultHandler for RegionFaults {
    fn on_fault(&self, fault: &Fault<'_>) -> Verdict {
        if matches!(fault.kind, FaultKind::Damaged | FaultKind::FoundDamaged) {
            return match damage::found(&self.0, PageIndex::containing(fault.offset)) {
                Ok(()) => Verdict::Retry,
                Err(cause) => Verdict::Fail(cause.code()),
            };
        }
        let seeing = self.0.observer.begin(&self.0.table, fault.offset, fault.registers.instruction());
        let touch = Touch { offset: fault.offset, registers: Some(fault.registers), wants: Wants::Mapping };
        match fault::bring(&self.0, touch) {
            Ok(()) => {
                if let Some(seeing) = seeing {
                    seeing.end();
                }
                Verdict::Retry
            }
            Err(cause) => Verdict::Fail(cause.code()),
        }
    }

    fn describe(&self, _fault: &Fault<'_>, code: NonZeroU32, out: &mut dyn std::fmt::Write) {
        let cause = PagingCause::from_code(code).text();
        // Nothing can be done about a message that does not fit.
        let _ = write!(out, "node {}: {cause}", self.0.pager.fabric.url());
    }
}
