//! The two hands of reclaim.
//!
//! First hand ([`Reclaimer::sweep`]): takes a block (installs wait), moves its resident pages to `Evicting`,
//! write-protects them (writers trap and wait, readers go on), copies and hashes each into a frame, unmaps them all, and
//! lets the block go. Two TLB flushes a block, whatever the number of pages. A sealed region's pages are unmapped
//! without a copy, several blocks with one flush.
//!
//! What the kernel will not write-protect or unmap stays (`unmap`). Which block: one that is not hot, by what was wanted back of it ([`Warmth`]).
//!
//! Second hand ([`Reclaimer::drain`], in `write_back`): takes the oldest standby pages; one whose hash is that of the node's
//! copy is forgotten, any other is written, and forgotten once the node has acknowledged it. What stands for long is written
//! before that, and stays.
//!
//! Quotas and advice, which take pages away though memory does not press, are in `tended`.
//!
//! The reclaimer is one thread behind one mutex; freeing ranges and sealing take the same mutex. It is the only writer
//! of remote hashes and the only one that posts writes, so two writes of a page are never in flight together.

mod tended;
#[cfg(test)]
mod tests;
mod unmap;
mod write_back;

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use yonder_fabric::{CleanDrop, Completion, QueuePair, ReadsAs, RemoteAddress, Vector};
use yonder_mapping::Run;
use yonder_pagetable::{Entry, Event, State};
use yonder_reclaim::{Action, Demand, Flusher, Policy, Standby, StandbyQueue, SweepHand, Usage, Visit, Warmth};
use yonder_trap::REGISTRATIONS_MAX;
use yonder_units::{BLOCK_PAGES, BlockIndex, FrameIndex, Nanos, PAGE_BYTES, PageIndex, Place};

use crate::budget::Account;
use crate::damage;
use crate::frames::Arrival;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::pager::Pager;
use crate::region::RegionCore;
use crate::stats::Counter;

use tended::Tended;
use write_back::Write;

/// Sealed pages dropped with one flush.
const DROP_PAGES_MAX: usize = 128;
/// Blocks they may come from.
const DROP_BLOCKS_MAX: usize = 16;
/// A sweep of so few pages is a meager one. Behind so many of them the next waits, unless somebody waits for room.
const MEAGER_PAGES: usize = 4;
const MEAGER_SWEEPS_MAX: usize = 32;
const MEAGER_PAUSE: Nanos = 1_000_000;
/// Shortest and longest sleep of a reclaimer with nothing to do. The longest bounds how late it sees a burst that starts
/// from rest; waiters wake it besides.
const SLEEP_MIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(5);
/// Time in which faults take one page of the margin, at the highest rate that is expected, in nanoseconds.
const PAGE_TAKEN_NS: u64 = 500;

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// There may be more to do at once.
    Worked,
    /// Only the node can make progress.
    Waiting,
    /// Nothing to do for this long.
    Idle(Duration),
}

/// Counters of reclaim, written by whoever holds the reclaimer and read by anyone.
#[derive(Debug, Default)]
pub(crate) struct ReclaimStats {
    pub(crate) swept_pages: Counter,
    pub(crate) swept_blocks: Counter,
    pub(crate) dropped_pages: Counter,
    pub(crate) clean_pages: Counter,
    pub(crate) dead_pages: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) saved_written_bytes: Counter,
    pub(crate) write_retries: Counter,
    pub(crate) flushed_by_age_pages: Counter,
    pub(crate) flushed_by_size_pages: Counter,
    pub(crate) quota_evicted_pages: Counter,
    pub(crate) advised_out_pages: Counter,
}

/// Far memory of a region that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FarRange {
    pub(crate) start: RemoteAddress,
    pub(crate) bytes: u64,
}

/// Local memory that was taken.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// By reads that leave pages in frames, since the demand was last looked at.
    in_frames_since: u64,
    /// What is mapped, and all that was mapped and has been taken away again.
    mapped: u64,
}

pub(crate) struct Reclaimer<M: Machine = Kernel> {
    pub(crate) regions: Vec<Option<Arc<RegionCore<M>>>>,
    queue_pair: Box<dyn QueuePair>,
    standby: StandbyQueue,
    /// Looks through `standby` for what to write back.
    flusher: Flusher,
    demand: Demand,
    /// What the demand is made of.
    taken_of_late: Taken,
    /// Pages that the second hand has taken since the first last swept.
    drained: u64,
    hand: SweepHand,
    /// The hand within each region, for its quota.
    region_hands: Vec<SweepHand>,
    warmth: Warmth,
    writes: Box<[Option<Write>]>,
    /// Far memory of regions that have ended, which writes that were given up may still reach.
    pub(crate) ended: Vec<FarRange>,
    free_writes: Vec<u16>,
    completions: Vec<Completion>,
    next_scan: Nanos,
    /// When the ages of blocks are looked at again.
    next_age_look: Nanos,
    /// Whether reclaim has started and not reached the upper watermark.
    working: bool,
    /// Sweeps since one took more than a few pages.
    meager_sweeps: usize,
    next_sweep: Nanos,
    taken: Vec<(PageIndex, FrameIndex)>,
    dead: Vec<PageIndex>,
    damaged: Vec<PageIndex>,
    /// Pages that were taken and stay, because the kernel does not write-protect them.
    kept: Vec<PageIndex>,
    runs: Vec<Run>,
    dropped: Vec<PageIndex>,
    swept: Vec<BlockIndex>,
}

impl<M: Machine> Reclaimer<M> {
    pub(crate) fn new(queue_pair: Box<dyn QueuePair>) -> Self {
        let depth = queue_pair.depth().min(usize::from(u16::MAX));
        Self {
            regions: Vec::new(),
            standby: StandbyQueue::default(),
            flusher: Flusher::default(),
            demand: Demand::default(),
            taken_of_late: Taken::default(),
            drained: 0,
            hand: SweepHand::default(),
            region_hands: vec![SweepHand::default(); REGISTRATIONS_MAX],
            warmth: Warmth::default(),
            next_age_look: 0,
            writes: (0..depth).map(|_| None).collect(),
            ended: Vec::new(),
            free_writes: (0..depth as u16).rev().collect(),
            completions: Vec::with_capacity(depth),
            queue_pair,
            next_scan: 0,
            working: false,
            meager_sweeps: 0,
            next_sweep: 0,
            taken: Vec::with_capacity(BLOCK_PAGES),
            dead: Vec::with_capacity(BLOCK_PAGES),
            damaged: Vec::with_capacity(BLOCK_PAGES),
            kept: Vec::with_capacity(BLOCK_PAGES),
            runs: Vec::with_capacity(BLOCK_PAGES),
            dropped: Vec::with_capacity(DROP_PAGES_MAX),
            swept: Vec::with_capacity(DROP_BLOCKS_MAX),
        }
    }

    /// One bounded piece of work.
    pub(crate) fn step(&mut self, pager: &Pager<M>, now: Nanos) -> Step {
        let step = self.take_step(pager, now);
        pager.signals.at_work.store(self.working || pager.writing.load(Ordering::Acquire) > 0, Ordering::Relaxed);
        step
    }

    fn take_step(&mut self, pager: &Pager<M>, now: Nanos) -> Step {
        self.poll_writes(pager, now);
        self.take_arrivals(pager, now);
        self.flush(pager, now);
        self.look_at_ages(pager, now);
        let policy = pager.policy();
        let usage = self.usage(pager, &policy);
        M::preempt();
        let starved = pager.signals.starved.swap(false, Ordering::AcqRel);
        if starved {
            pager.drop_ahead(now);
        }
        self.working |= starved || policy.is_low(&usage);
        if !self.working {
            return self.rest(&policy, pager, now);
        }
        match policy.decide(&usage) {
            Action::Rest => {
                self.working = false;
                self.rest(&policy, pager, now)
            }
            Action::Drain(pages) => self.drain(pager, pages, now),
            Action::Sweep(room) => {
                // What else is mapped is held: only what has just been mapped could be taken, and would be wanted back at once.
                if self.meager_sweeps > MEAGER_SWEEPS_MAX && now < self.next_sweep && !starved {
                    self.working = policy.is_low(&usage);
                    return self.rest(&policy, pager, now);
                }
                self.drained = 0;
                let made = self.make_room(pager, room as usize);
                self.meager_sweeps = if made > MEAGER_PAGES { 0 } else { self.meager_sweeps + 1 };
                self.next_sweep = now + MEAGER_PAUSE;
                if made > 0 {
                    return Step::Worked;
                }
                // Every block is held or being installed into, or nothing is mapped: standby pages are what is left, and then the
                // frames that are there for sweeps.
                match self.drain(pager, Policy::DRAIN_PAGES, now) {
                    Step::Waiting if policy.is_full(&usage) && usage.spare_frames > 0 => {
                        self.trim(pager, usage.spare_frames)
                    }
                    step => step,
                }
            }
            Action::Trim(pages) => self.trim(pager, pages),
            Action::AwaitWrites => Step::Waiting,
        }
    }

    /// Gives spare frames back.
    fn trim(&mut self, pager: &Pager<M>, frames: u64) -> Step {
        let trimmed = pager.frames.trim(frames, &pager.budget, &mut self.runs);
        trimmed.expect("frames can always be given back");
        Step::Worked
    }

    /// Local memory as it is now, and who takes it.
    fn usage(&mut self, pager: &Pager<M>, policy: &Policy) -> Usage {
        let usage = pager.usage();
        let reclaimed = &pager.reclaimed;
        let taken_away = reclaimed.swept_pages.get() + reclaimed.dead_pages.get() + reclaimed.dropped_pages.get();
        let mapped = usage.resident + taken_away;
        // What its owner has given back is not counted, so there may be less now.
        self.demand.observe(self.taken_of_late.in_frames_since, mapped.saturating_sub(self.taken_of_late.mapped));
        self.taken_of_late = Taken { in_frames_since: 0, mapped };
        let usage = Usage { reads: self.demand.reads(), drained: self.drained, ..usage };
        pager.spare_for_reads.store(policy.spare_for_reads(usage.reads), Ordering::Relaxed);
        usage
    }

    /// Queues the pages that have stayed in their frames. Of those that stay there again it may have an entry already.
    fn take_arrivals(&mut self, pager: &Pager<M>, now: Nanos) {
        let mut arrivals = 0;
        while let Some(Arrival { frame, place: Place { region, page }, restands }) = pager.frames.next_arrival() {
            arrivals += 1;
            self.taken_of_late.in_frames_since += u64::from(!restands);
            let Some(core) = self.regions.get(region as usize).and_then(Option::as_ref) else { continue };
            let seen = core.table.load(page);
            if seen.state() == State::Standby(frame) {
                let is_dirty = restands && is_dirty(pager, core, page, frame, seen);
                self.standby.push(Standby { region, page, frame, since: now, is_dirty });
            }
        }
        if arrivals > 0 {
            self.compact_standby(pager);
        }
    }

    /// Memory does not press: looks after quotas and advice, then waits.
    fn rest(&mut self, policy: &Policy, pager: &Pager<M>, now: Nanos) -> Step {
        let Tended::Until(next_look) = self.tend(pager, now) else { return Step::Worked };
        if pager.writing.load(Ordering::Acquire) > 0 {
            return self.await_writes(now);
        }
        let margin = policy.margin(&pager.usage());
        let sleep = (margin * PAGE_TAKEN_NS).min(next_look.saturating_sub(now));
        Step::Idle(Duration::from_nanos(sleep).clamp(SLEEP_MIN, SLEEP_MAX))
    }

    /// Takes pages away under pressure: what was advised out, then what is over its quota, then what is cold. How many.
    fn make_room(&mut self, pager: &Pager<M>, room: usize) -> usize {
        match self.sweep_advised(pager, room, |_| true) {
            0 => match self.sweep_over_quota(pager, room) {
                0 => self.sweep(pager, room, None),
                swept => swept,
            },
            swept => swept,
        }
    }

    /// First hand: puts the resident pages of the next block on standby, or as many as `room` allows: of any region, or of
    /// region `only`. Returns how many pages were taken.
    fn sweep(&mut self, pager: &Pager<M>, room: usize, only: Option<usize>) -> usize {
        let blocks_of = |(number, region): (usize, &Option<Arc<RegionCore<M>>>)| match region {
            Some(core) if only.is_none_or(|only| only == number) => core.blocks(),
            _ => 0,
        };
        let blocks: Vec<usize> = self.regions.iter().enumerate().map(blocks_of).collect();
        let (regions, warmth) = (&self.regions, &mut self.warmth);
        let hand = match only {
            Some(number) => &mut self.region_hands[number],
            None => &mut self.hand,
        };
        let found = hand.advance(&blocks, |region, block| {
            let core = regions[region].as_ref().expect("only regions that are there have blocks");
            let block = BlockIndex(block as u32);
            if core.counts.resident_in(block) == 0 {
                Visit::Skip
            } else if core.counts.passes_over(block, warmth) {
                Visit::PassOver
            } else if core.block_gate(block).try_sweep() {
                Visit::Take
            } else {
                Visit::Skip
            }
        });
        let Some((region, block)) = found else { return 0 };
        let core = Arc::clone(self.regions[region].as_ref().expect("found"));
        let block = BlockIndex(block as u32);
        if drops(&core) {
            self.drop_sealed(pager, &core, block, room)
        } else {
            let swept = self.sweep_pages(pager, &core, core.pages_of(block), room);
            core.block_gate(block).end_sweep();
            swept
        }
    }

    /// Sweeps pages of a block whose gate the caller has taken, up to the first that stays because it is secluded, or
    /// because a discard holds it and it could not leave standby. Returns the number of pages that were put on standby
    /// or forgotten.
    pub(crate) fn sweep_pages(
        &mut self,
        pager: &Pager<M>,
        core: &RegionCore<M>,
        pages: Range<u32>,
        room: usize,
    ) -> usize {
        self.taken.clear();
        for page in pages.map(PageIndex) {
            let seen = core.table.load(page);
            if self.taken.len() == room || seen.state() != State::Resident {
                continue;
            }
            if core.secluded.contains(page) || core.order.holds(page) {
                // It stays, and what is unmapped is one range.
                if self.taken.is_empty() {
                    continue;
                }
                break;
            }
            let Some(frame) = pager.frames.take(&pager.budget, Account::Reclaim) else { break };
            core.table.advance_owned(page, Event::Evict);
            self.taken.push((page, frame));
        }
        self.protect_taken(pager, core);
        let (Some((first, _)), Some((last, _))) = (self.taken.first(), self.taken.last()) else { return 0 };
        let (block, pages) = (first.block(), first.0..last.0 + 1);
        self.copy_taken(pager, core);
        let unmapped = self.unmap_taken(pager, core, pages);
        core.counts.uncount(block, unmapped as u32);
        core.counts.swept(block, unmapped as u32, &mut self.warmth);
        pager.standby.fetch_add(self.taken.len() as u64, Ordering::AcqRel);
        pager.budget.uncharge(unmapped as u64);
        self.settle_taken(pager, core);
        unmapped
    }

    /// Copies what was taken and is write-protected into its frames; keeps apart what is dead or damaged.
    fn copy_taken(&mut self, pager: &Pager<M>, core: &RegionCore<M>) {
        let (taken, dead, damaged) = (&mut self.taken, &mut self.dead, &mut self.damaged);
        dead.clear();
        damaged.clear();
        taken.retain(|(page, frame)| {
            match copy_live(pager, core, *page, *frame) {
                Ok(Copied::Live) => return true,
                Ok(Copied::Dead) => dead.push(*page),
                Err(_) => damaged.push(*page),
            }
            pager.frames.release(*frame);
            false
        });
    }

    /// What was taken is unmapped: its entries say where it is now.
    fn settle_taken(&mut self, pager: &Pager<M>, core: &RegionCore<M>) {
        for page in &self.dead {
            core.table.advance_owned(*page, Event::Free);
        }
        for page in &self.damaged {
            damage::poison(core, *page);
        }
        let since = M::now();
        M::preempt();
        for (page, frame) in &self.taken {
            let (page, frame) = (*page, *frame);
            let seen = core.table.advance_owned(page, Event::Evicted(frame));
            let is_dirty = is_dirty(pager, core, page, frame, seen);
            self.standby.push(Standby { region: core.number, page, frame, since, is_dirty });
        }
        pager.reclaimed.swept_pages.add(self.taken.len() as u64);
        pager.reclaimed.dead_pages.add(self.dead.len() as u64);
        pager.reclaimed.swept_blocks.add(1);
        self.compact_standby(pager);
    }

    /// Drops from the queue what has left standby, and all but the oldest entry of a page that has several, if that is much.
    fn compact_standby(&mut self, pager: &Pager<M>) {
        let regions = &self.regions;
        // A bit for each frame.
        let mut seen: Vec<u64> = Vec::new();
        self.standby.compact(pager.standby.load(Ordering::Acquire) as usize, |entry| {
            let core = regions[entry.region as usize].as_ref();
            let stands = core.is_some_and(|core| core.table.load(entry.page).state() == State::Standby(entry.frame));
            if !stands {
                return false;
            }
            seen.resize(pager.frames.count().div_ceil(64), 0);
            let (word, bit) = (&mut seen[entry.frame.index() / 64], 1 << (entry.frame.index() % 64));
            let is_first = *word & bit == 0;
            *word |= bit;
            is_first
        });
    }

    /// Unmaps resident pages of a sealed region with one flush: those of `block`, whose gate the caller has taken, and of
    /// the blocks behind it that are not hot, until there are enough. Returns how many there were.
    fn drop_sealed(&mut self, pager: &Pager<M>, core: &RegionCore<M>, block: BlockIndex, room: usize) -> usize {
        self.begin_drop();
        let blocks = core.blocks() as u32;
        for step in 0..blocks {
            let block = BlockIndex((block.0 + step) % blocks);
            let is_wanted = core.counts.resident_in(block) > 0 && !core.counts.is_hot(block);
            if step == 0 || (is_wanted && core.block_gate(block).try_sweep()) {
                self.swept.push(block);
                self.take_sealed_pages(core, core.pages_of(block), room);
            }
            if self.dropped.len() >= room.min(DROP_PAGES_MAX) || self.swept.len() == self.swept.capacity() {
                break;
            }
        }
        self.end_drop(pager, core)
    }

    fn begin_drop(&mut self) {
        self.dropped.clear();
        self.runs.clear();
        self.swept.clear();
    }

    /// Unmaps what was taken of the blocks that were swept, and lets them go.
    fn end_drop(&mut self, pager: &Pager<M>, core: &RegionCore<M>) -> usize {
        compare_sealed(pager, core, &self.dropped);
        self.unmap_dropped(core);
        for page in &self.dropped {
            core.table.advance_owned(*page, Event::Dropped);
        }
        for pages in self.dropped.chunk_by(|one, next| one.block() == next.block()) {
            core.counts.uncount(pages[0].block(), pages.len() as u32);
            core.counts.swept(pages[0].block(), pages.len() as u32, &mut self.warmth);
        }
        self.swept.iter().for_each(|block| core.block_gate(*block).end_sweep());
        pager.budget.uncharge(self.dropped.len() as u64);
        pager.reclaimed.dropped_pages.add(self.dropped.len() as u64);
        self.dropped.len()
    }

    /// Takes resident pages of a swept block, and one run that covers them: whatever else the run covers is not mapped.
    fn take_sealed_pages(&mut self, core: &RegionCore<M>, pages: Range<u32>, room: usize) {
        let before = self.dropped.len();
        for page in pages.map(PageIndex) {
            if self.dropped.len() >= room.min(DROP_PAGES_MAX) {
                break;
            }
            if core.table.load(page).is_resident() {
                core.table.advance_owned(page, Event::Evict);
                self.dropped.push(page);
            }
        }
        if let (Some(first), Some(last)) = (self.dropped.get(before), self.dropped.last()) {
            self.runs.push(Run { first_page: first.0, pages: last.0 - first.0 + 1 });
        }
    }

    /// Region, page and frame of each page in the queue.
    pub(crate) fn queued_standby(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        self.standby.iter().map(|standby| (standby.region, standby.page.0, standby.frame.0))
    }

    /// Forgets a region that ends and has neither local pages nor writes.
    pub(crate) fn remove_region(&mut self, pager: &Pager<M>, number: u32) {
        assert!(
            self.writes.iter().flatten().all(|write| write.region != number),
            "a region ended with a write in flight"
        );
        // What is announced has a place in this region, perhaps, and not in the next one with this number.
        self.take_arrivals(pager, M::now());
        self.standby.remove_region(number);
        self.regions[number as usize] = None;
    }
}

/// Whether the node's copy is not known to be what stands in `frame`.
fn is_dirty<M: Machine>(
    pager: &Pager<M>,
    core: &RegionCore<M>,
    page: PageIndex,
    frame: FrameIndex,
    seen: Entry,
) -> bool {
    seen.write_in_flight() || pager.frames.digest(frame) != core.digests.get(page)
}

/// What the first hand has found in a page.
enum Copied {
    /// Something that is kept, which is in the frame now.
    Live,
    /// Nothing that anybody needs.
    Dead,
}

/// Copies a write-protected page into a frame, with the digest of what is live of it. Fails if the memory is damaged.
fn copy_live<M: Machine>(
    pager: &Pager<M>,
    core: &RegionCore<M>,
    page: PageIndex,
    frame: FrameIndex,
) -> Result<Copied, NonZeroU32> {
    let live = match core.owner.live(page) {
        // A page whose write has not ended is not forgotten, whatever becomes of its content.
        None if core.table.load(page).write_in_flight() => Vector::WHOLE,
        None => return Ok(Copied::Dead),
        Some(live) => live,
    };
    M::try_copy(pager.frames.mapping(), frame.offset(), &core.mapping, page.offset())?;
    M::with_page(pager.frames.mapping(), frame.offset(), |content| {
        let digest = core.digests.of(live, content);
        core.digests.narrow(page, digest, content);
        pager.frames.set_digest(frame, digest);
    });
    Ok(Copied::Live)
}

/// Compares pages that are dropped without a copy, and are still mapped, with the second copy of a fabric that keeps
/// one.
fn compare_sealed<M: Machine>(pager: &Pager<M>, core: &RegionCore<M>, pages: &[PageIndex]) {
    let Some(copies) = M::second_copy(&pager.fabric) else { return };
    for page in pages {
        let mut content = [0; PAGE_BYTES];
        // What is damaged is found so by the next touch.
        if M::try_read(&core.mapping, page.offset(), &mut content).is_ok() {
            let (place, address) = (core.place(*page), core.remote_address(*page));
            let dropped = CleanDrop { place, address, vector: Vector::WHOLE, reads_as: ReadsAs::Fetched };
            copies.compare(&dropped, &content);
        }
    }
}

/// Whether pages of the region are dropped without a copy: the node has them.
fn drops<M: Machine>(core: &RegionCore<M>) -> bool {
    core.is_sealed() && !core.owner.is_set()
}
