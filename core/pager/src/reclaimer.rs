//! The evictor and cleaner.
//!
//! Evictor ([`Reclaimer::sweep`], in `sweep`): takes a block (installs wait), moves the resident pages that are to go
//! to `Evicting`, write-protects them (writers trap and wait, readers go on), copies and hashes each into a frame,
//! unmaps them all, and lets the block go. Two TLB flushes a block, whatever the number of pages; on kernels before
//! 6.16 one more for each run, where some pages stay. A sealed region's pages are unmapped without a copy, several
//! blocks with one flush (`sealed`).
//!
//! What the kernel will not write-protect or unmap stays (`unmap`). Which pages: those that are on probation, while
//! they are many, else all of the next block ([`Probation`](crate::reclaim::Probation)).
//!
//! Cleaner ([`Reclaimer::drain`], in `write_back`): takes the oldest standby pages; one whose hash is that of the
//! node's copy is forgotten, any other is written, and forgotten once the node has acknowledged it. What stands for
//! long is written before that, and stays.
//!
//! Quotas and advice, which take pages away though memory does not press, are in `quotas`.
//!
//! The reclaimer is one thread behind one mutex; freeing ranges and sealing take the same mutex. It is the only writer
//! of remote hashes and the only one that posts writes, so two writes of a page are never in flight together.

mod loans;
mod quotas;
mod sealed;
mod sweep;
#[cfg(test)]
mod tests;
mod unmap;
mod write_back;

use std::sync::Arc;
use std::time::Duration;

use crate::pagetable::{Entry, State};
use crate::reclaim::{Action, Demand, Flusher, Margin, Policy, RESERVE_PAGES_MIN, Standby, StandbyQueue, Turns, Usage};
use yonder_units::{BLOCK_PAGES, BlockIndex, FrameIndex, Nanos, Narrow, PageId, PageIndex, Run};

use crate::frames::Arrival;
use crate::machine::Machine;
use crate::pager::{Pager, REGIONS_MAX};
use crate::queue_pair::{Completion, QueuePair, RemoteAddress};
use crate::region::RegionCore;

use loans::LoanHand;
use quotas::Enforced;
use sweep::Hands;
pub(crate) use sweep::{Victims, count_proven};
pub(crate) use write_back::Purpose;
use write_back::Write;

/// Sealed pages dropped with one flush.
const DROP_PAGES_MAX: usize = 128;
/// Blocks they may come from.
const DROP_BLOCKS_MAX: usize = 16;
/// A sweep of so few pages is a meager one. Behind so many of them the next waits, unless somebody waits for room.
const MEAGER_PAGES: usize = 4;
const MEAGER_SWEEPS_MAX: usize = 32;
const MEAGER_PAUSE: Nanos = 1_000_000;
/// Shortest and longest sleep of a reclaimer with nothing to do. The longest bounds how late it sees a burst that
/// starts from rest; waiters wake it besides.
const SLEEP_MIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(5);
/// Looks at memory of which nothing is taken until the sleep between them is the longest.
const QUIET_LOOKS_MAX: u32 = 7;
/// Time in which faults take one page of the margin, at the highest rate that is expected, in nanoseconds.
const PAGE_TAKEN_NS: u64 = 500;

/// What the reclaimer works with in one step: its pager, and the time when the step began.
pub(crate) struct Pass<'a, M: Machine> {
    pub(crate) pager: &'a Pager<M>,
    pub(crate) now: Nanos,
}

impl<M: Machine> Clone for Pass<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Pass<'_, M> {}

impl<M: Machine> Pager<M> {
    /// A step of the reclaimer that begins at `now`.
    pub(crate) fn pass(&self, now: Nanos) -> Pass<'_, M> {
        Pass { pager: self, now }
    }
}

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

pub(crate) struct Reclaimer<M: Machine> {
    pub(crate) regions: Vec<Option<Arc<RegionCore<M>>>>,
    queue_pair: Box<dyn QueuePair>,
    standby: StandbyQueue,
    /// Looks through `standby` for what to write back.
    flusher: Flusher,
    margin: Margin,
    demand: Demand,
    /// What the demand is made of.
    taken_of_late: Taken,
    /// Pages that the cleaner has taken since the first last swept.
    drained: u64,
    hands: Hands,
    turns: Turns,
    loan_hand: LoanHand,
    /// The hands within each region, for its quota.
    region_hands: Vec<Hands>,
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
    /// What was charged when there was last nothing to do, and for how many looks it has been the same.
    charged_at_rest: u64,
    quiet_looks: u32,
    taken: Vec<(PageIndex, FrameIndex)>,
    dead: Vec<PageIndex>,
    damaged: Vec<PageIndex>,
    /// Pages that were taken and stay, because the kernel does not write-protect them.
    kept: Vec<PageIndex>,
    /// Pages between those that were taken, which are write-protected with them and stay.
    spared: Vec<PageIndex>,
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
            margin: Margin::default(),
            demand: Demand::default(),
            taken_of_late: Taken::default(),
            drained: 0,
            hands: Hands::default(),
            turns: Turns::default(),
            loan_hand: LoanHand::default(),
            region_hands: vec![Hands::default(); REGIONS_MAX],
            next_age_look: 0,
            writes: (0..depth).map(|_| None).collect(),
            ended: Vec::new(),
            free_writes: (0..depth.narrow_u16()).rev().collect(),
            completions: Vec::with_capacity(depth),
            queue_pair,
            next_scan: 0,
            working: false,
            meager_sweeps: 0,
            next_sweep: 0,
            charged_at_rest: 0,
            quiet_looks: 0,
            taken: Vec::with_capacity(BLOCK_PAGES),
            dead: Vec::with_capacity(BLOCK_PAGES),
            damaged: Vec::with_capacity(BLOCK_PAGES),
            kept: Vec::with_capacity(BLOCK_PAGES),
            spared: Vec::with_capacity(BLOCK_PAGES),
            runs: Vec::with_capacity(BLOCK_PAGES),
            dropped: Vec::with_capacity(DROP_PAGES_MAX),
            swept: Vec::with_capacity(DROP_BLOCKS_MAX),
        }
    }

    /// One bounded piece of work.
    pub(crate) fn step(&mut self, pass: Pass<'_, M>) -> Step {
        let (step, pager) = (self.take_step(pass), pass.pager);
        pager.reclaim.signals.set_at_work(self.working || pager.local.counts.writing() > 0);
        step
    }

    fn take_step(&mut self, pass: Pass<'_, M>) -> Step {
        let Pass { pager, now } = pass;
        self.poll_writes(pass);
        self.take_arrivals(pass);
        self.flush(pass);
        self.look_at_ages(pass);
        if pager.local.budget.most() > pager.local.budget.limit() {
            // A limit was lowered: once it is reached, it holds for the reclaimer too.
            pager.local.budget.has_reached(&pager.watermarks.of_limit());
        }
        let policy =
            pager.watermarks.cover(self.pages_to_cover(pager.watermarks.limit()), &self.margin, &pager.local.budget);
        let usage = self.usage(pager, &policy);
        M::preempt();
        let starved = pager.reclaim.signals.take_starved();
        self.margin.saw(policy.depth(&usage), policy.margin_max());
        if starved {
            self.margin.was_too_small(policy.margin_max());
            pager.drop_ahead(now);
        }
        self.working |= starved || policy.is_low(&usage);
        if !self.working {
            return self.rest(&policy, pass);
        }
        // There is room, and no frame to fetch into.
        if starved && usage.spare_frames + usage.headroom == 0 && usage.standby > 0 {
            return self.drain(Policy::DRAIN_PAGES.min(usage.standby), pass);
        }
        // What is lent and not there costs nothing to give.
        if pager.loans.blocks() > 0 {
            pager.loans.press();
            if self.recall_some(pager, policy.wanted(&usage).narrow_usize(), None) > 0 {
                return Step::Worked;
            }
        }
        match policy.decide(&usage) {
            Action::Rest => {
                self.working = false;
                self.rest(&policy, pass)
            }
            Action::Drain(pages) => self.drain(pages, pass),
            Action::Sweep(room) => {
                // What else is mapped is held: only what has just been mapped could be taken, and would be wanted back
                // at once.
                if self.meager_sweeps > MEAGER_SWEEPS_MAX && now < self.next_sweep && !starved {
                    self.working = policy.is_low(&usage);
                    return self.rest(&policy, pass);
                }
                self.drained = 0;
                let made = self.make_room(pager, room.narrow_usize());
                self.margin.swept(made as u64, policy.limit());
                self.meager_sweeps = if made > MEAGER_PAGES { 0 } else { self.meager_sweeps + 1 };
                self.next_sweep = now + MEAGER_PAUSE;
                if made > 0 {
                    return Step::Worked;
                }
                // Every block is held or being installed into, or nothing is mapped: standby pages are what is left,
                // and then the frames that are there for sweeps.
                match self.drain(Policy::DRAIN_PAGES, pass) {
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

    /// Pages that may ask for room before the next look: those that were ever touched, and the [`ahead`] of them.
    fn pages_to_cover(&self, limit: u64) -> u64 {
        let regions = || self.regions.iter().flatten();
        let sum = |pages: fn(&RegionCore<M>) -> u64| regions().map(|core| pages(core)).sum::<u64>();
        let (all, touched) = (sum(|core| core.table.pages() as u64), sum(|core| core.table.touched_pages()));
        let ahead = ahead(limit.saturating_sub(touched));
        // However they divide it among themselves.
        let each = ahead / regions().count().max(1) as u64;
        regions().for_each(|core| core.counts.tell_when_more(each.max(1)));
        all.min(touched + ahead)
    }

    /// Gives spare frames back.
    fn trim(&mut self, pager: &Pager<M>, frames: u64) -> Step {
        let trimmed = pager.local.frames.trim(frames, &pager.local.budget, &mut self.runs);
        trimmed.expect("frames can always be given back");
        Step::Worked
    }

    /// Local memory as it is now, and who takes it.
    fn usage(&mut self, pager: &Pager<M>, policy: &Policy) -> Usage {
        let usage = pager.local.usage();
        let reclaimed = &pager.reclaim.stats;
        let taken_away = reclaimed.swept_pages.get() + reclaimed.dead_pages.get() + reclaimed.dropped_pages.get();
        let mapped = usage.resident + taken_away;
        // What its owner has given back is not counted, so there may be less now.
        self.demand.observe(self.taken_of_late.in_frames_since, mapped.saturating_sub(self.taken_of_late.mapped));
        self.taken_of_late = Taken { in_frames_since: 0, mapped };
        let usage = Usage { reads: self.demand.reads(), drained: self.drained, ..usage };
        pager.reclaim.signals.set_spare_for_reads(policy.spare_for_reads(usage.reads));
        usage
    }

    /// Queues the pages that have stayed in their frames. Of those that stay there again it may have an entry already.
    fn take_arrivals(&mut self, Pass { pager, now }: Pass<'_, M>) {
        let mut arrivals = 0;
        while let Some(Arrival { frame, page_id: PageId { region, page }, restands }) =
            pager.local.frames.next_arrival()
        {
            arrivals += 1;
            self.taken_of_late.in_frames_since += u64::from(!restands);
            let Some(core) = self.regions.get(region as usize).and_then(Option::as_ref) else { continue };
            let seen = core.table.load(page);
            if seen.state() == State::Standby(frame) {
                let is_dirty = restands && is_dirty(core, page, frame, seen);
                self.standby.push(Standby { region, page, frame, since: now, is_dirty });
            }
        }
        if arrivals > 0 {
            self.compact_standby(pager);
        }
    }

    /// Memory does not press: looks after quotas and advice, then waits.
    fn rest(&mut self, policy: &Policy, pass: Pass<'_, M>) -> Step {
        let Pass { pager, now } = pass;
        let Enforced::Until(next_look) = self.enforce_quotas(pass) else { return Step::Worked };
        if pager.local.counts.writing() > 0 {
            return self.await_writes(now);
        }
        let usage = pager.local.usage();
        // Where nothing has been taken since the last look, there is less and less to be in time for.
        let is_quiet = std::mem::replace(&mut self.charged_at_rest, usage.charged) == usage.charged;
        self.quiet_looks = if is_quiet { self.quiet_looks + 1 } else { 0 };
        let least = SLEEP_MIN * (1 << self.quiet_looks.min(QUIET_LOOKS_MAX));
        let margin = Duration::from_nanos(policy.margin(&usage) * PAGE_TAKEN_NS).max(least);
        let next_look = Duration::from_nanos(next_look.saturating_sub(now));
        Step::Idle(margin.min(next_look).clamp(SLEEP_MIN, SLEEP_MAX))
    }

    /// Makes room under pressure: by what was advised out, else by what is over its quota, then by what is cold. How
    /// many pages.
    fn make_room(&mut self, pager: &Pager<M>, room: usize) -> usize {
        match self.sweep_advised(pager, room, |_| true) {
            0 => match self.sweep_over_quota(pager, room) {
                0 => self.sweep(pager, room, None),
                swept => swept,
            },
            swept => swept,
        }
    }

    /// Drops from the queue what has left standby, and all but the oldest entry of a page that has several, if that is
    /// much.
    fn compact_standby(&mut self, pager: &Pager<M>) {
        let regions = &self.regions;
        // A bit for each frame.
        let mut seen: Vec<u64> = Vec::new();
        self.standby.compact(pager.local.counts.standby().narrow_usize(), |entry| {
            let core = regions[entry.region as usize].as_ref();
            let stands = core.is_some_and(|core| core.table.load(entry.page).state() == State::Standby(entry.frame));
            if !stands {
                return false;
            }
            seen.resize(pager.local.frames.count().div_ceil(64), 0);
            let (word, bit) = (&mut seen[entry.frame.index() / 64], 1 << (entry.frame.index() % 64));
            let is_first = *word & bit == 0;
            *word |= bit;
            is_first
        });
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
        self.take_arrivals(pager.pass(M::now()));
        self.standby.remove_region(number);
        // Here, where nobody can put back what was taken: the advice would be the next region's with this number.
        pager.advised_out.forget_region(number);
        self.regions[number as usize] = None;
    }
}

/// How many pages may be touched before this is looked at again, where so many more fit: fewer the fewer those are, for
/// what might be touched is kept free. Where none fit, reclaim is at work and hears of them by that.
fn ahead(fit: u64) -> u64 {
    let a_block = BLOCK_PAGES as u64;
    if fit == 0 { a_block } else { (fit / 2).clamp(RESERVE_PAGES_MIN, a_block) }
}

/// Whether the node's copy is not known to be what stands in `frame`.
fn is_dirty<M: Machine>(core: &RegionCore<M>, page: PageIndex, frame: FrameIndex, seen: Entry) -> bool {
    seen.write_in_flight() || core.pager.local.frames.digest(frame) != core.digests.get(page)
}
