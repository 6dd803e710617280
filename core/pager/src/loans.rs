//! [`Loans`]: blocks that are lent to the kernel while local memory has room for all of them.
//!
//! A fault of ours costs many times one of the kernel's. So a block that nobody has touched is taken out of the
//! userfaultfd's range when it is first touched, and the kernel maps its pages as it does for any program. All of its
//! pages are charged at once, so the limit holds though nobody sees what is touched. When room runs short, blocks are
//! recalled before anything is swept: their range is registered again, and the kernel is asked what it has mapped of
//! them. Those pages are resident from then on, as if they had been installed, and all others untouched again, and no
//! longer charged.
//!
//! Each loan may cut the kernel's mapping of the region in two more places, and the kernel has room for 65,530 mappings
//! of a process. They become one again when a block is recalled, but not of a forked child, so loans are counted, and
//! after a number that no program needs which stays within its memory there are no more.
//!
//! Loans grow with what is lent already, so that a program is interrupted less and less often. Once room has run short,
//! a block is lent only where there is room for several: who touches a few pages here and there near the limit would
//! see each block lent and recalled.
//!
//! Who may do what: any thread lends in a fault, and recalls, each with the block's gate closed; a lent block is swept,
//! released and poisoned only once it is recalled, but for what is dropped of it, which stays the kernel's.
//!
//! Invariants:
//! - All pages of a block are `Lent`, or none is, but while its gate is closed.
//! - Entries say `Lent` before the kernel may map the pages, and until it may no longer: nobody takes a page for
//!   untouched that the kernel has mapped.
//! - The pages of lent blocks are charged.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::machine::{Machine, Rule};
use crate::pager::Pager;
use crate::pagetable::{Event, State};
use crate::reclaim::quota;
use crate::region::RegionCore;
use yonder_units::{BLOCK_PAGES, BlockIndex, Narrow, PageIndex};

/// Most blocks that are lent at a time.
const BLOCKS_MAX: u64 = 16;
/// Of what is lent already, the share that is lent at a time.
const SHARE: u64 = 8;
/// Once room has run short, for how many times as many pages there has to be room.
const ROOM: u64 = 8;
/// Loans in the life of a pager.
const LOANS_MAX: u64 = 8_192;

/// What is lent of all regions.
#[derive(Debug)]
pub(crate) struct Loans {
    is_possible: AtomicBool,
    /// Whether room has run short.
    were_recalled: AtomicBool,
    blocks: AtomicU64,
    /// Loans there were, each of some blocks.
    made: AtomicU64,
}

impl Loans {
    pub(crate) fn new(is_possible: bool) -> Self {
        Self {
            is_possible: AtomicBool::new(is_possible),
            were_recalled: AtomicBool::new(false),
            blocks: AtomicU64::new(0),
            made: AtomicU64::new(0),
        }
    }

    /// Blocks that are lent.
    #[inline]
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// Room runs short.
    pub(crate) fn press(&self) {
        self.were_recalled.store(true, Ordering::Relaxed);
    }
}

impl<M: Machine> Pager<M> {
    /// Lends the block of `page`, and blocks behind it, to the kernel, if nobody has touched them and there is room for
    /// all of their pages. Whether that block is lent now.
    #[inline]
    pub(crate) fn lend(&self, region: &RegionCore<M>, page: PageIndex) -> bool {
        self.loans.is_possible.load(Ordering::Relaxed) && self.lend_from(region, page.block())
    }

    fn lend_from(&self, region: &RegionCore<M>, first: BlockIndex) -> bool {
        // Of a sealed region nothing is new, and what is dropped is not looked at.
        if region.is_sealed() {
            return false;
        }
        // Who has been short of room touches a few pages here and there, perhaps: no more than what is asked for.
        let was_short = self.loans.were_recalled.load(Ordering::Relaxed);
        let most = if was_short { 1 } else { (1 + self.loans.blocks() / SHARE).min(BLOCKS_MAX).narrow_u32() };
        let end = (first.0 + most).min(region.blocks().narrow_u32());
        let is_taken = |block: &u32| self.take_untouched(region, BlockIndex(*block));
        let blocks = first.0..first.0 + (first.0..end).take_while(is_taken).count().narrow_u32();
        if blocks.is_empty() {
            return false;
        }
        M::preempt();
        let pages = pages_of(region, blocks.clone());
        let is_lent = M::lend(&self.space, &region.mapping, PageIndex(pages.start).offset(), pages.len()).is_ok();
        // If not, its mappings are of different kinds, or too many for it: that does not get better.
        if !is_lent || self.loans.made.fetch_add(1, Ordering::Relaxed) + 1 >= LOANS_MAX {
            self.loans.is_possible.store(false, Ordering::Relaxed);
        }
        for block in blocks.map(BlockIndex) {
            self.loans.blocks.fetch_add(1, Ordering::AcqRel);
            if !is_lent && M::breaks(Rule::RefusedLoanIsRecalled) {
                self.forget_loan(region, block);
            } else if !is_lent {
                // A part may have been lent for a moment, and touched. If the block stays lent, all of it is.
                let _ = self.recall(region, block);
            }
            region.block_gate(block).end_sweep();
        }
        is_lent
    }

    /// Charges the pages of a block of which all are untouched, closes its gate and says that they are lent. Changes
    /// nothing if that is not so, or if there is no room.
    fn take_untouched(&self, region: &RegionCore<M>, block: BlockIndex) -> bool {
        let (pages, gate) = (region.pages_of(block), region.block_gate(block));
        let is_untouched = |page| {
            let seen = region.table.load(PageIndex(page));
            seen.state() == State::Untouched && !seen.write_in_flight()
        };
        if region.counts.resident_in(block) > 0 || !pages.clone().all(is_untouched) {
            return false;
        }
        let count = pages.len() as u64;
        // Of what is over its quota blocks would be lent and recalled in turn.
        let is_over = |resident: u64, quota: u64| quota::is_near(resident + count, quota);
        if is_over(region.counts.resident(), region.quota.pages())
            || is_over(self.local.budget.charged(), self.limits.process.pages())
        {
            return false;
        }
        if !M::breaks(Rule::LoanIsCharged) && !self.local.budget.charge_many(count, self.most_with_loan(count)) {
            return false;
        }
        let is_taken = gate.try_sweep();
        if is_taken && pages.clone().all(is_untouched) {
            pages.clone().for_each(|page| _ = region.table.advance_owned(PageIndex(page), Event::Lend));
            if region.counts.count_lent(block, pages.len().narrow_u32()) {
                self.touches_more();
            }
            return true;
        }
        if is_taken {
            gate.end_sweep();
        }
        self.local.budget.uncharge(count);
        false
    }

    /// Up to how many pages may be charged with so many that are lent.
    fn most_with_loan(&self, pages: u64) -> u64 {
        let start_above = self.watermarks.start_above();
        let was_short = self.loans.were_recalled.load(Ordering::Relaxed);
        if was_short { start_above.saturating_sub((ROOM - 1) * pages) } else { start_above }
    }

    /// Takes back a lent block, whose gate the caller has closed: how many of its pages the kernel has not mapped.
    /// `None` if the kernel refuses, and all is as before.
    pub(crate) fn recall(&self, region: &RegionCore<M>, block: BlockIndex) -> Option<u32> {
        let pages = region.pages_of(block);
        let mut here = [M::breaks(Rule::RecallLooks); BLOCK_PAGES];
        let (offset, is_here) = (PageIndex(pages.start).offset(), &mut |place| here[place] = true);
        M::recall(&self.space, &region.mapping, offset, pages.len(), is_here).ok()?;
        M::preempt();
        self.loans.blocks.fetch_sub(1, Ordering::AcqRel);
        Some(self.take_back(region, block, |place| if here[place] { Event::Recall } else { Event::RecallUntouched }))
    }

    /// A lent block of a region that has ended, of which nothing is mapped, is lent no longer. The caller holds the
    /// reclaimer.
    pub(crate) fn forget_loan(&self, region: &RegionCore<M>, block: BlockIndex) {
        self.loans.blocks.fetch_sub(1, Ordering::AcqRel);
        self.take_back(region, block, |_| Event::RecallUntouched);
    }

    /// The pages of a lent block are what `becomes` says of each, by its place in the block. How many are untouched.
    fn take_back(&self, region: &RegionCore<M>, block: BlockIndex, becomes: impl Fn(usize) -> Event) -> u32 {
        let mut untouched = 0;
        for (place, page) in region.pages_of(block).enumerate() {
            let event = becomes(place);
            region.table.advance_owned(PageIndex(page), event);
            untouched += u32::from(event == Event::RecallUntouched);
        }
        region.counts.uncount(block, untouched);
        if untouched as usize == region.pages_of(block).len() {
            // It was lent ahead, and asks for no room.
            region.counts.forget(block);
        }
        self.local.budget.uncharge(u64::from(untouched));
        untouched
    }
}

/// The pages of blocks behind one another.
fn pages_of<M: Machine>(region: &RegionCore<M>, blocks: Range<u32>) -> Range<u32> {
    region.pages_of(BlockIndex(blocks.start)).start..region.pages_of(BlockIndex(blocks.end - 1)).end
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::config::Config;
    use crate::drive::{ReclaimTurn, ReclaimTurns};
    use crate::error::PagingCause;
    use crate::fake::{self, Fake};

    const BLOCK: BlockIndex = BlockIndex(0);
    const PAGES: u32 = BLOCK_PAGES as u32;
    const PAGE_BYTES: u64 = yonder_units::PAGE_BYTES as u64;

    fn state(region: &Arc<RegionCore<Fake>>, page: u32) -> State {
        region.table.load(PageIndex(page)).state()
    }

    fn recall(region: &Arc<RegionCore<Fake>>) -> Option<u32> {
        assert!(region.block_gate(BLOCK).try_sweep());
        let untouched = region.pager.recall(region, BLOCK);
        region.block_gate(BLOCK).end_sweep();
        untouched
    }

    /// The program and the kernel store to a page that is lent.
    fn store(region: &Arc<RegionCore<Fake>>, page: u32) {
        region.memory().write(PageIndex(page).offset(), &u64::from(page + 1).to_le_bytes());
    }

    #[test]
    fn what_was_touched_of_a_lent_block_is_resident_once_it_is_recalled() {
        let region = fake::lending_region(3 * PAGES);
        assert_eq!(region.bring(5 * PAGE_BYTES), Ok(()));
        assert_eq!(
            [0, 5, 511, 512].map(|page| state(&region, page)),
            [State::Lent, State::Lent, State::Lent, State::Untouched]
        );
        assert_eq!((region.pager.local.budget.charged(), region.counts.resident()), (512, 512));
        assert!(region.is_resident(PageIndex(9)), "an access needs nothing of the pager");
        store(&region, 7);
        assert_eq!(fake::word(&region, 7), 8);
        assert_eq!(recall(&region), Some(511));
        assert_eq!([5, 7, 511].map(|page| state(&region, page)), [State::Untouched, State::Resident, State::Untouched]);
        assert_eq!((region.pager.local.budget.charged(), region.counts.resident()), (1, 1));
        assert_eq!((fake::word(&region, 7), fake::word(&region, 5)), (8, 0));
        region.pager.audit().unwrap();
    }

    /// Or reclaim would keep room for pages that nobody has asked for.
    #[test]
    fn a_block_that_was_lent_for_nothing_counts_as_untouched_once_it_is_recalled() {
        let region = fake::lending_region(3 * PAGES);
        assert_eq!(region.bring(5 * PAGE_BYTES), Ok(()));
        assert_eq!(region.table.touched_pages(), u64::from(PAGES));
        assert_eq!(recall(&region), Some(512));
        assert_eq!(region.table.touched_pages(), 0);
        assert_eq!(region.bring(5 * PAGE_BYTES), Ok(()));
        store(&region, 5);
        assert_eq!(recall(&region), Some(511));
        assert_eq!(region.table.touched_pages(), 1);
        region.pager.audit().unwrap();
    }

    #[test]
    fn a_last_block_that_is_short_is_forgotten_too() {
        let region = fake::lending_region(100);
        assert_eq!(region.bring(5 * PAGE_BYTES), Ok(()));
        assert_eq!(recall(&region), Some(100));
        assert_eq!(region.table.touched_pages(), 0);
    }

    #[test]
    fn a_lent_block_that_is_swept_is_recalled_first() {
        let region = fake::lending_region(PAGES);
        assert_eq!(region.bring(0), Ok(()));
        (10..20).for_each(|page| store(&region, page));
        assert_eq!(region.pager.sweep_block(&region, BLOCK), 10);
        assert!(matches!(state(&region, 10), State::Standby(_)) && state(&region, 9) == State::Untouched);
        assert_eq!(fake::word(&region, 19), 20);
        region.pager.audit().unwrap();
    }

    #[test]
    fn what_is_released_of_a_lent_block_stays_lent_and_reads_as_zeros() {
        let region = fake::lending_region(PAGES);
        assert_eq!(region.bring(0), Ok(()));
        (0..20).for_each(|page| store(&region, page));
        region.pager.release(&region, 0, 10 * PAGE_BYTES).unwrap();
        assert_eq!(
            [0, 10].map(|page| (state(&region, page), fake::word(&region, page))),
            [(State::Lent, 0), (State::Lent, 11)]
        );
        assert_eq!(recall(&region), Some(512 - 10));
    }

    #[test]
    fn a_block_of_which_something_was_touched_is_not_lent() {
        let region = fake::lending_region(2 * PAGES);
        let held = region.hold(PAGE_BYTES, 1).unwrap();
        assert_eq!(state(&region, 1), State::Resident, "a block that is held is not lent");
        region.unhold(held);
        assert_eq!(region.bring(0), Ok(()));
        assert_eq!([0, 2].map(|page| state(&region, page)), [State::Resident, State::Untouched]);
        assert_eq!(region.bring(PAGE_BYTES * 600), Ok(()));
        assert_eq!(state(&region, 1023), State::Lent);
    }

    #[test]
    fn what_is_held_of_a_lent_block_stays_when_it_is_recalled() {
        let region = fake::lending_region(PAGES);
        assert_eq!(region.bring(0), Ok(()));
        let held = region.hold(7 * PAGE_BYTES, 1).unwrap();
        assert!(region.block_gate(BLOCK).try_close());
        assert_eq!(region.pager.recall(&region, BLOCK), Some(511));
        region.block_gate(BLOCK).open();
        assert_eq!([6, 7].map(|page| state(&region, page)), [State::Untouched, State::Resident]);
        region.unhold(held);
        region.pager.audit().unwrap();
    }

    #[test]
    fn nothing_is_lent_beyond_a_quota() {
        let region = fake::lending_region(3 * PAGES);
        region.set_quota(Some(u64::from(PAGES) * 2));
        let pages = [0, PAGES];
        pages.iter().for_each(|page| assert_eq!(region.bring(PageIndex(*page).offset()), Ok(())));
        assert_eq!(pages.map(|page| state(&region, page)), [State::Lent, State::Resident]);
    }

    #[test]
    fn no_more_is_lent_than_there_is_room_for() {
        // 4,096 pages are local at most.
        let region = fake::lending_region(40 * PAGES);
        let (pager, mut turns) = (&*region.pager, ReclaimTurns::default());
        let touched = || (0..40 * PAGES).step_by(37);
        for page in touched() {
            // Its thread sleeps for moments only.
            while turns.take(pager) == ReclaimTurn::Again {}
            assert_eq!(region.bring(PageIndex(page).offset()), Ok(()));
            store(&region, page);
        }
        assert!(pager.loans.were_recalled.load(Ordering::Relaxed) && pager.local.budget.peak() <= pager.limit());
        for page in touched() {
            assert_eq!(fake::word(&region, page), u64::from(page + 1), "page {page}");
        }
        pager.audit().unwrap();
    }

    #[test]
    fn loans_grow_with_what_is_lent() {
        let region = fake::untouched_region(Config { lends: true, ..Config::with_local(256 << 20) }, 40 * PAGES, None);
        let lent: Vec<u64> = (0..30)
            .map(|block| {
                assert_eq!(region.bring(BlockIndex(block).first_page().offset()), Ok(()));
                region.pager.loans.blocks()
            })
            .collect();
        assert_eq!((&lent[..9], lent[29]), (&[1, 2, 3, 4, 5, 6, 7, 8, 10][..], 33));
    }

    #[test]
    fn a_touch_waits_while_the_block_is_recalled() {
        let mut config = Config { lends: true, ..Config::with_local(16 << 20) };
        config.deadlines.fault = Duration::from_millis(1);
        let region = fake::untouched_region(config, PAGES, None);
        assert_eq!(region.bring(0), Ok(()));
        assert!(region.block_gate(BLOCK).try_sweep());
        assert_eq!(region.bring(0), Err(PagingCause::Stuck), "nobody maps it");
        region.block_gate(BLOCK).end_sweep();
        assert_eq!(region.bring(0), Ok(()));
    }

    #[test]
    fn loans_come_to_an_end() {
        let region = fake::lending_region(PAGES);
        region.pager.loans.made.store(LOANS_MAX - 1, Ordering::Relaxed);
        assert_eq!(region.bring(0), Ok(()));
        assert_eq!((state(&region, 1), recall(&region)), (State::Lent, Some(512)));
        assert_eq!(region.bring(0), Ok(()));
        assert_eq!([0, 1].map(|page| state(&region, page)), [State::Resident, State::Untouched]);
    }

    #[test]
    fn a_region_that_ends_gives_its_loans_back() {
        let region = fake::lending_region(2 * PAGES);
        assert_eq!(region.bring(0), Ok(()));
        store(&region, 3);
        region.pager.end_region(&region);
        assert_eq!((region.pager.local.budget.charged(), region.pager.loans.blocks()), (0, 0));
        assert_eq!(region.memory().backed(), 0);
    }

    #[test]
    fn damage_of_a_lent_page_is_found_and_its_neighbours_are_resident() {
        let region = fake::lending_region(PAGES);
        assert_eq!(region.bring(0), Ok(()));
        (3..5).for_each(|page| store(&region, page));
        assert!(region.find_damage(PageIndex(3)).is_err());
        assert!(matches!(state(&region, 3), State::Poisoned(_)) && state(&region, 4) == State::Resident);
        region.pager.audit().unwrap();
    }
}
