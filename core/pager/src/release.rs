//! The way back: freeing ranges, sealing and ending regions.
//!
//! All three take the reclaimer for one block at a time and give it back while they wait, so that a node
//! that stands still stops only them. What the node is asked for then is in `discards`.

use std::ops::Range;

use crate::pagetable::{Event, State};
use yonder_units::{BLOCK_PAGES_U32, BlockIndex, Nanos, Narrow, PAGE_BYTES, PageIndex};

use crate::error::{PagingCause, PagingError};
use crate::forked;
use crate::machine::Machine;
use crate::order::Discards;
use crate::pager::Pager;
use crate::reclaimer::{FarRange, Step, Victims, count_proven};
use crate::region::RegionCore;

/// A range of pages, block by block.
fn by_block(pages: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let blocks = pages.start / BLOCK_PAGES_U32..pages.end.div_ceil(BLOCK_PAGES_U32);
    blocks.map(move |block| {
        let first = block * BLOCK_PAGES_U32;
        pages.start.max(first)..pages.end.min(first + BLOCK_PAGES_U32)
    })
}

/// Lets a discard that holds one of `pages` hold all of them that are nowhere, so that the node is asked once. The
/// caller holds the reclaimer.
fn hold_gaps<M: Machine>(core: &RegionCore<M>, pages: Range<u32>) {
    if core.order.first_held(pages.clone()).is_none() {
        return;
    }
    for page in pages.map(PageIndex) {
        let seen = core.table.load(page);
        if seen.state() == State::Untouched && !seen.write_in_flight() {
            core.order.hold(page, core.table.pages());
        }
    }
}

/// What becomes of the writes of pages that are to be forgotten.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    /// They end first.
    Awaited,
    /// Nobody will read what they write: they are given up.
    Abandoned,
}

/// What one look at a page that is to be forgotten came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    Forgotten,
    /// It is mapped: its block has to be taken first.
    Mapped,
    /// Something is under way with it.
    Busy,
}

impl<M: Machine> Pager<M> {
    /// Forgets the content of a page-aligned range, here and on the node: it reads as zeros again. After an error the
    /// pages that the node has not agreed to forget stay held by the discard (`order`): they can be
    /// used, and leave local memory once it is confirmed.
    pub fn release(&self, core: &RegionCore<M>, offset: u64, bytes: u64) -> Result<(), M::Error> {
        if self.child.is_one() {
            return forked::release(core, offset, bytes);
        }
        let pages = PageIndex::containing(offset).0..PageIndex::containing(offset + bytes).0;
        let deadline = M::now() + self.node.fault_deadline();
        let release = |part| self.release_in_block(core, part, Writes::Awaited, deadline);
        let parts = by_block(pages.clone()).try_for_each(release);
        parts
            .map_err(M::Error::from)
            .and_then(|()| self.confirm_discards(core, pages))
            .inspect_err(|_| self.wake_discarder())
    }

    /// Forgets pages of one block here; a discard holds those that the node has had from then on. Writes and fetches of
    /// them have to end first; others use the reclaimer while this waits.
    fn release_in_block(
        &self,
        core: &RegionCore<M>,
        pages: Range<u32>,
        writes: Writes,
        deadline: Nanos,
    ) -> Result<(), PagingError> {
        loop {
            let now = M::now();
            let mut left = None;
            {
                let mut reclaimer = self.lock_reclaimer();
                reclaimer.poll_writes(self.pass(now));
                if writes == Writes::Abandoned {
                    // Each time, for the reclaimer may have posted them again since.
                    reclaimer.abandon_writes(self, core.number);
                }
                let mut mapped = false;
                for page in pages.clone().map(PageIndex) {
                    let is_written =
                        !core.digests.get(page).is_zeros() || core.table.load(page).state() == State::Remote;
                    M::preempt();
                    match self.try_release_page(core, page) {
                        Release::Forgotten if is_written => core.order.hold(page, core.table.pages()),
                        Release::Forgotten => {}
                        Release::Mapped => mapped = true,
                        Release::Busy => left = Some(page),
                    }
                }
                if mapped {
                    left = left.or(self.unmap_pages(core, pages.clone()));
                }
                if left.is_none() {
                    hold_gaps(core, pages.clone());
                }
            }
            let Some(page) = left else { return Ok(()) };
            self.poll_own_port(now);
            if now > deadline {
                return Err(core.error(page.offset(), PagingCause::NodeLost));
            }
            M::yield_now();
        }
    }

    /// Makes progress on the fetches of this thread, if it is a worker: what a wait that does not yield must do.
    fn poll_own_port(&self, now: Nanos) {
        if let Some(port) = M::bound_port(self.id) {
            let port = self.port(port);
            port.turn(self, now).poll(&mut port.lock());
        }
    }

    /// Forgets one page if nothing is under way with it and it is not mapped. The caller holds the reclaimer.
    fn try_release_page(&self, core: &RegionCore<M>, page: PageIndex) -> Release {
        let seen = core.table.load(page);
        let forgotten = match seen.state() {
            _ if seen.write_in_flight() => false,
            State::Untouched => true,
            State::Remote | State::Poisoned(_) => core.table.advance(page, seen, Event::Free).is_ok(),
            State::Standby(frame) if core.table.advance(page, seen, Event::Free).is_ok() => {
                self.local.counts.leave();
                self.local.frames.release(frame);
                true
            }
            State::Resident | State::Lent => return Release::Mapped,
            State::Fetching { port, slot } => {
                self.drop_ahead_of(core, page, port, slot);
                false
            }
            State::Standby(_) | State::Installing(_) | State::Evicting => false,
        };
        if !forgotten {
            return Release::Busy;
        }
        core.probation.forget(page);
        Release::Forgotten
    }

    /// Unmaps the resident pages among `pages` of one block without keeping their content, neighbours with one call.
    /// The first that has to be looked at again. Other pages of the block may be held, some of them for good, as the
    /// kernel's stacks for signal handlers are. The caller holds the reclaimer.
    fn unmap_pages(&self, core: &RegionCore<M>, pages: Range<u32>) -> Option<PageIndex> {
        let (first, block) = (PageIndex(pages.start), PageIndex(pages.start).block());
        let gate = core.gate(first);
        if !gate.try_close() {
            return Some(first);
        }
        M::preempt();
        if core.is_lent(block) {
            // It stays the kernel's.
            M::discard(&core.mapping, first.offset(), pages.len() * PAGE_BYTES).expect("lent pages can be dropped");
            gate.open();
            return None;
        }
        let (mut left, mut run) = (None, pages.start..pages.start);
        for page in pages.map(PageIndex) {
            let seen = core.table.load(page);
            if seen.state() == State::Resident && !seen.write_in_flight() {
                core.table.advance_owned(page, Event::Evict);
                if run.end != page.0 {
                    self.forget_run(core, block, std::mem::replace(&mut run, page.0..page.0));
                }
                run.end = page.0 + 1;
            } else if seen.state() != State::Untouched {
                left = left.or(Some(page));
            }
        }
        self.forget_run(core, block, run);
        count_proven(core, block);
        gate.open();
        left
    }

    /// Unmaps pages of a block that are `Evicting`.
    fn forget_run(&self, core: &RegionCore<M>, block: BlockIndex, run: Range<u32>) {
        if run.is_empty() {
            return;
        }
        let (offset, pages) = (PageIndex(run.start).offset(), run.len());
        M::discard(&core.mapping, offset, pages * PAGE_BYTES).expect("mapped pages can be dropped");
        for page in run.map(PageIndex) {
            if !core.digests.get(page).is_zeros() {
                core.order.hold(page, core.table.pages());
            }
            core.table.advance_owned(page, Event::Free);
            core.probation.forget(page);
        }
        core.counts.uncount(block, pages.narrow_u32());
        self.local.budget.uncharge(pages as u64);
    }

    /// Writes everything local of a region to the node and lets go of it, then marks the region read-only. Nobody
    /// writes to it meanwhile; who has its address may read.
    ///
    /// Each page is seen away once before the region is sealed. What is local of it afterwards was fetched since, and
    /// is what the node has; what only left its mapping could be back from its frame, and be dropped without ever
    /// having been written.
    pub fn seal(&self, core: &RegionCore<M>) -> Result<(), M::Error> {
        let pages = core.table.pages().narrow_u32();
        assert!(core.unreadable.of(0..pages).next().is_none(), "what is unreadable can be neither read nor sealed");
        let mut deadline = M::now() + self.node.fault_deadline();
        // A page that a discard holds reads as zeros here, and may still be something else on the node.
        self.confirm_discards(core, 0..pages)?;
        for block in (0..core.blocks().narrow_u32()).map(BlockIndex) {
            while core.counts.resident_in(block) > 0 {
                let progress = self.sweep_some(core, block) || self.drain_some();
                self.extend(&mut deadline, progress, core)?;
            }
        }
        // Page by page: others may put theirs on standby meanwhile, for as long as they like.
        for page in (0..pages).map(PageIndex) {
            loop {
                let progress = match core.table.load(page).state() {
                    State::Untouched | State::Remote | State::Fetching { .. } | State::Poisoned(_) => break,
                    State::Standby(_) => self.drain_some(),
                    State::Resident | State::Lent | State::Evicting | State::Installing(_) => {
                        self.sweep_some(core, page.block())
                    }
                };
                self.extend(&mut deadline, progress, core)?;
            }
        }
        M::preempt();
        core.set_sealed();
        Ok(())
    }

    /// One turn of the evictor on a block; whether anything moved.
    fn sweep_some(&self, core: &RegionCore<M>, block: BlockIndex) -> bool {
        let mut reclaimer = self.lock_reclaimer();
        if !core.block_gate(block).try_sweep() {
            return false;
        }
        let swept = reclaimer.sweep_pages(core, core.pages_of(block), usize::MAX, Victims::All);
        core.block_gate(block).end_sweep();
        swept > 0
    }

    /// Takes what is local of `pages` away, as far as that is possible in time, and keeps sweeps off them.
    pub fn mark_unreadable(&self, core: &RegionCore<M>, pages: Range<u32>) {
        // A child sweeps nothing.
        if self.child.is_one() {
            return;
        }
        let mut deadline = M::now() + self.node.fault_deadline();
        for part in by_block(pages) {
            let gate = core.gate(PageIndex(part.start));
            let mut in_time = true;
            loop {
                let mut reclaimer = self.lock_reclaimer();
                let is_taken = gate.try_sweep();
                let swept =
                    if is_taken { reclaimer.sweep_pages(core, part.clone(), usize::MAX, Victims::All) } else { 0 };
                let is_left = |page| core.table.load(page).is_accessible() && !core.unreadable.contains(page);
                let has_left = is_taken && !part.clone().map(PageIndex).any(is_left);
                // What somebody holds stays, for perhaps as long as the unreadable. Whoever is inside for a moment
                // leaves first: it may be a guide that reads.
                let is_closed = !is_taken && gate.is_held() && gate.try_close();
                let is_over = has_left || is_closed || !in_time;
                if is_over {
                    // While nothing can be installed: whoever touches the pages all the time does not make this go on
                    // for ever.
                    core.unreadable.mark_unreadable(part.clone(), core.table.pages());
                }
                if is_taken {
                    gate.end_sweep();
                } else if is_closed {
                    gate.open();
                }
                if is_over {
                    break;
                }
                drop(reclaimer);
                let progress = swept > 0 || self.drain_some();
                in_time = self.extend(&mut deadline, progress, core).is_ok();
            }
        }
    }

    /// One turn of the cleaner; whether anything moved.
    fn drain_some(&self) -> bool {
        let now = M::now();
        let mut reclaimer = self.lock_reclaimer();
        let before = self.local.counts.standby();
        reclaimer.poll_writes(self.pass(now));
        let step = reclaimer.drain(crate::reclaim::Policy::DRAIN_PAGES, self.pass(now));
        step == Step::Worked || self.local.counts.standby() < before
    }

    /// Moves a deadline that is measured from the last progress.
    fn extend(&self, deadline: &mut Nanos, progress: bool, core: &RegionCore<M>) -> Result<(), M::Error> {
        let now = M::now();
        if progress {
            *deadline = now + self.node.fault_deadline();
        } else if now > *deadline {
            return Err(core.error(0, PagingCause::NodeLost).into());
        } else {
            M::yield_now();
        }
        Ok(())
    }

    /// Lets go of everything of a region whose owner is gone, and gives its far memory back: nobody can touch it any
    /// more.
    pub fn end_region(&self, core: &RegionCore<M>) {
        if self.child.is_one() {
            forked::end_region(core);
        } else {
            self.end_region_here_and_far(core);
        }
        self.local.take_metadata_away(core.metadata_bytes());
    }

    fn end_region_here_and_far(&self, core: &RegionCore<M>) {
        // From here on nobody asks the node to discard what may be another region's soon.
        *core.order.discards::<M>() = Discards::Over;
        for block in (0..core.blocks().narrow_u32()).map(BlockIndex) {
            self.abandon_block(core, block);
        }
        // Before the number is free for another region, or a port would take that one for this.
        for port in self.ports() {
            port.lock().forget_region(core.number, self);
        }
        self.region_table.leave(core.number);
        self.lock_reclaimer().remove_region(self, core.number);
        self.await_discarder();
        self.give_back(FarRange { start: core.remote_address(PageIndex(0)), bytes: M::len(&core.mapping) as u64 });
    }

    /// As [`Pager::release_in_block`] for a whole block, but a lost node cannot keep its pages: their writes are
    /// abandoned, since nobody will read them.
    fn abandon_block(&self, core: &RegionCore<M>, block: BlockIndex) {
        let first = block.first_page().0;
        let pages = first..(first + BLOCK_PAGES_U32).min(core.table.pages().narrow_u32());
        if self.release_in_block(core, pages.clone(), Writes::Awaited, M::now() + self.node.patience()).is_err() {
            let result = self.release_in_block(core, pages, Writes::Abandoned, M::now() + self.node.fault_deadline());
            result.expect("pages without a write are released");
        }
        let _no_sweep = self.lock_reclaimer();
        if core.is_lent(block) {
            self.forget_loan(core, block);
        }
    }
}
