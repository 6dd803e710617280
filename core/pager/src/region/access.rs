//! What a region's owner and its users do with it: accesses that look at its page table first, faults, holds.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use crate::pagetable::State;
use crate::prefetch::WINDOW_PAGES_MAX;
use yonder_units::{BlockIndex, PAGE_BYTES, PageIndex};

use super::RegionCore;
use crate::damage;
use crate::error::PagingCause;
use crate::fault::{self, FaultTouch, Wants};
use crate::machine::{Machine, Rule};
use crate::observer::FaultObserver;
use crate::pager::Pager;
use crate::range_fetch;

/// Blocks that are not swept. Ended by [`RegionCore::unhold`].
pub type HeldBlocks = Range<u32>;

/// Whether a block that is being recalled is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recalls {
    AreAwaited,
    AreNotAwaited,
}

/// How often a page is brought for one look at it. Where local memory is very short, others may take it away each time.
const ROUNDS_MAX: u32 = 8;

impl<M: Machine> RegionCore<M> {
    /// The region's number among those of its pager.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The memory that its pages are mapped in.
    pub fn memory(&self) -> &M::Memory {
        &self.mapping
    }

    /// The pager that it is a region of.
    pub fn pager(&self) -> &Pager<M> {
        &self.pager
    }

    /// Whether a page is mapped now, or lent to the kernel, which maps it when it is touched.
    #[inline]
    pub fn is_resident(&self, page: PageIndex) -> bool {
        self.is_had(page)
    }

    /// Whether an access of the page needs nothing of the pager. In a forked child what was lent is not the kernel's
    /// any more.
    #[inline]
    fn is_had(&self, page: PageIndex) -> bool {
        let seen = self.table.load(page);
        seen.is_resident() || seen.is_accessible() && !self.pager.child.is_one() && !self.gate(page).is_closed()
    }

    /// Where a page is.
    pub fn state(&self, page: PageIndex) -> State {
        self.table.load(page).state()
    }

    /// Sets how many pages should be mapped at most.
    pub fn set_quota(&self, pages: Option<u64>) {
        self.quota.set(pages.map(|pages| pages * PAGE_BYTES as u64));
        self.pager.enforce_quotas_now();
    }

    /// What a touch of a page does whose memory is damaged.
    pub fn find_damage(&self, page: PageIndex) -> Result<(), PagingCause> {
        damage::found(self, page)
    }

    /// From now on `observer` is told of every fault. False if there is an observer already.
    pub fn observe_faults(&self, observer: Arc<dyn FaultObserver>) -> bool {
        self.observer.set(observer)
    }

    /// Whether no discard of one of `pages` is left whose end at the node is not known.
    pub fn is_discard_confirmed(&self, pages: Range<u32>) -> bool {
        self.order.first_held(pages).is_none()
    }

    /// Pages that can be read again.
    pub fn mark_readable(&self, pages: Range<u32>) {
        self.unreadable.mark_readable(pages.clone());
        // They were spared because they could not be taken, and not because they were wanted.
        pages.for_each(|page| self.probation.forget(PageIndex(page)));
    }

    /// What a fault at `offset` does: makes the page resident. It may be taken away again at any time.
    #[inline]
    pub fn bring(self: &Arc<Self>, offset: u64) -> Result<(), PagingCause> {
        fault::bring(&FaultTouch::of(self, offset, Wants::Mapping))
    }

    /// As [`RegionCore::bring`], where only the page is known that was touched, and not which object of those in it.
    pub fn bring_page(self: &Arc<Self>, page: PageIndex) -> Result<(), PagingCause> {
        fault::bring(&FaultTouch { knows_byte: false, ..FaultTouch::of(self, page.offset(), Wants::Mapping) })
    }

    /// Makes the pages of `bytes` at `offset` resident, and fetches those that are far together: for a copy that is
    /// about to be made. Each may be taken away again at any time. An error says which page cannot be had.
    pub fn bring_all(self: &Arc<Self>, offset: u64, bytes: usize) -> Result<(), (u64, PagingCause)> {
        let (first, last) = (PageIndex::containing(offset), PageIndex::containing(offset + bytes as u64 - 1));
        for page in (first.0..=last.0).map(PageIndex).filter(|page| !self.is_had(*page)) {
            // Also if there was no room for it when those before it were fetched.
            let is_in_range_fetch = self.state(page) == State::Remote
                && range_fetch::fetch_range(self, page.0..(last.0 + 1).min(page.0 + WINDOW_PAGES_MAX));
            let is_in_range_fetch = Cell::new(is_in_range_fetch);
            let touch = FaultTouch {
                is_in_range_fetch,
                is_untrapped: true,
                ..FaultTouch::of(self, page.offset().max(offset), Wants::Mapping)
            };
            fault::bring(&touch).map_err(|cause| (page.offset(), cause))?;
        }
        Ok(())
    }

    /// Whether somebody is told of its faults.
    pub fn is_observed(&self) -> bool {
        self.observer.is_set()
    }

    /// As [`RegionCore::bring`], in the handler of a fault that `instruction` has had: whoever observes the region is
    /// told of it.
    #[inline]
    pub fn bring_for_fault<'a>(
        self: &'a Arc<Self>,
        offset: u64,
        instruction: usize,
        registers: M::Registers<'a>,
    ) -> Result<(), PagingCause> {
        let seeing = self.observer.begin::<M>(&self.table, offset, instruction);
        fault::bring(&FaultTouch { registers: Some(registers), ..FaultTouch::of(self, offset, Wants::Mapping) })?;
        if let Some(seeing) = seeing {
            seeing.end::<M>();
        }
        Ok(())
    }

    /// Reads from the page at `offset` without a trap, where it is: `read` from the memory and the offset that it is
    /// given, or `zeros` if nothing was ever written there. Each may be called several times, and the last call counts.
    #[inline]
    pub fn look<T: ?Sized>(
        self: &Arc<Self>,
        offset: u64,
        into: &mut T,
        read: impl Fn(&mut T, &M::Memory, u64) -> Result<(), NonZeroU32>,
        zeros: impl Fn(&mut T),
    ) -> Result<(), PagingCause> {
        let page = PageIndex::containing(offset);
        let (mut was_here, mut rounds) = (true, 0);
        loop {
            let seen = self.table.load(page);
            M::preempt();
            if seen.is_accessible() {
                return read(into, &self.mapping, offset).map_err(PagingCause::from_code);
            }
            let pager = &*self.pager;
            let wants = if pager.keeps_reads_in_frames() { Wants::Bytes } else { Wants::Mapping };
            match seen.state() {
                State::Untouched if wants == Wants::Bytes => {
                    zeros(into);
                    return Ok(());
                }
                State::Standby(frame) if wants == Wants::Bytes => {
                    let stands = || self.table.load(page).state() == State::Standby(frame);
                    let at = frame.offset() + offset % PAGE_BYTES as u64;
                    if let Some(found) = pager.local.frames.read(frame, stands, |frames| read(into, frames, at)) {
                        if was_here {
                            pager.local.frames.note_read(frame);
                        }
                        return found.map_err(PagingCause::from_code);
                    }
                }
                _ if rounds == ROUNDS_MAX => return self.look_held(offset, |memory| read(into, memory, offset)),
                _ => {
                    fault::bring(&FaultTouch::of(self, offset, wants))?;
                    (was_here, rounds) = (false, rounds + 1);
                }
            }
        }
    }

    /// Reads from a page that was taken away again each time, while it is held.
    #[cold]
    fn look_held(
        self: &Arc<Self>,
        offset: u64,
        read: impl FnOnce(&M::Memory) -> Result<(), NonZeroU32>,
    ) -> Result<(), PagingCause> {
        let held = self.hold(offset, 1).map_err(|(_, cause)| cause)?;
        let found = read(&self.mapping).map_err(PagingCause::from_code);
        self.unhold(held);
        found
    }

    /// Makes the pages of `bytes` at `offset` resident, and keeps their blocks from being swept. On an error, with the
    /// offset of the page that cannot be had, nothing is held.
    pub fn hold(self: &Arc<Self>, offset: u64, bytes: usize) -> Result<HeldBlocks, (u64, PagingCause)> {
        let (first, last) = (PageIndex::containing(offset), PageIndex::containing(offset + bytes as u64 - 1));
        let blocks = first.block().0..last.block().0 + 1;
        let deadline = M::now() + self.pager.node.fault_timeout();
        for block in blocks.clone() {
            while !self.hold_block(BlockIndex(block)) {
                if M::now() > deadline {
                    self.unhold(blocks.start..block);
                    return Err((offset, PagingCause::Stuck));
                }
                M::yield_now();
            }
        }
        let missing = (first.0..=last.0).map(PageIndex).filter(|page| !self.is_had(*page));
        self.observer.bring(&self.table, missing);
        self.populate_lent(first, last, Recalls::AreAwaited);
        for page in (first.0..=last.0).map(PageIndex) {
            // Also if there was no room for it when those before it were fetched.
            if self.state(page) == State::Remote {
                range_fetch::fetch_range(self, page.0..(last.0 + 1).min(page.0 + WINDOW_PAGES_MAX));
            }
            if let Err(cause) = self.bring(page.offset().max(offset)) {
                self.unhold(blocks);
                return Err((page.offset(), cause));
            }
        }
        Ok(blocks)
    }

    /// Has the kernel map those pages that are lent, which the caller holds: they stay when their block is recalled,
    /// and a forked child has a copy. False if that cannot be said of all of them: the program has protected one, or,
    /// if nobody is to wait, one is being recalled.
    fn populate_lent(&self, first: PageIndex, last: PageIndex, recalls: Recalls) -> bool {
        if M::breaks(Rule::HeldIsPopulated) {
            return true;
        }
        let of_block = |block: u32| {
            let all = self.pages_of(BlockIndex(block));
            self.populate(&(all.start.max(first.0)..all.end.min(last.0 + 1)), recalls)
        };
        // All blocks, though one may fail.
        (first.block().0..=last.block().0).map(of_block).filter(|is_here| !is_here).count() == 0
    }

    /// As [`RegionCore::populate_lent`], for pages of a block.
    ///
    /// A block is never recalled here: the system calls of that have arguments on the stack of the caller, which may be
    /// far, and in the same block.
    fn populate(&self, pages: &Range<u32>, recalls: Recalls) -> bool {
        let first = PageIndex(pages.start);
        while self.is_lent(first.block()) && !M::populate(&self.mapping, first.offset(), pages.len()) {
            if self.pager.child.is_one() {
                // What is not mapped there is brought, page by page.
                return true;
            }
            if !self.gate(first).is_closed() {
                // One of them is protected, and nobody can touch that one.
                let alone = pages.clone().map(|page| pages.len() > 1 && self.populate(&(page..page + 1), recalls));
                return alone.filter(|is_here| !is_here).count() == 0;
            }
            if recalls == Recalls::AreNotAwaited {
                return false;
            }
            M::yield_now();
        }
        true
    }

    /// Keeps a block from being swept; false while it is. In a forked child nothing is, and a block may stay as a
    /// thread has left it that is not there.
    fn hold_block(&self, block: BlockIndex) -> bool {
        self.pager.child.is_one() || self.block_gate(block).hold()
    }

    /// As [`RegionCore::hold`], if there is nothing to wait for.
    pub fn try_hold(&self, offset: u64, bytes: usize) -> Option<HeldBlocks> {
        let (first, last) = (PageIndex::containing(offset), PageIndex::containing(offset + bytes as u64 - 1));
        let mut held = first.block().0..first.block().0;
        for block in first.block().0..=last.block().0 {
            if !self.hold_block(BlockIndex(block)) {
                self.unhold(held);
                return None;
            }
            held.end += 1;
        }
        if self.populate_lent(first, last, Recalls::AreNotAwaited)
            && (first.0..=last.0).all(|page| self.is_had(PageIndex(page)))
        {
            return Some(held);
        }
        self.unhold(held);
        None
    }

    /// Ends a hold.
    pub fn unhold(&self, blocks: HeldBlocks) {
        if self.pager.child.is_one() {
            return;
        }
        for block in blocks {
            self.block_gate(BlockIndex(block)).unhold();
        }
    }
}
