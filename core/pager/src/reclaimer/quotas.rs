//! What the reclaimer looks after though memory does not press: quotas, advice, and the ages of blocks.
//!
//! A quota bounds how much of a region, or of all, is mapped. Faults never look at it and never wait for it: a fault
//! may map one page too many, and the reclaimer takes pages away until it holds again. It looks whenever it wakes,
//! which is the more often the closer a quota is, and at once when a quota is changed. How far a quota can be exceeded
//! is so bounded by what faults map while it sleeps ([`LOOK_MIN`]) and while it sweeps; what is held, or in flight,
//! goes later. What it takes away goes to standby like everything else, so a touch soon after needs no fetch.

use std::ops::Range;

use crate::reclaim::{Policy, quota};
use yonder_units::{BLOCK_PAGES, BLOCK_PAGES_U32, BlockIndex, Nanos, Narrow, PageIndex};

use super::sealed::drops;
use super::{DROP_PAGES_MAX, PAGE_TAKEN_NS, Pass, Reclaimer, SLEEP_MAX, Victims};
use crate::machine::Machine;
use crate::pager::{Pager, REGIONS_MAX};
use crate::region::RegionCore;

/// Time between two looks at the ages of blocks: their unit, a second.
const AGE_LOOK: Nanos = 1_000_000_000;
/// Shortest and longest time between two looks at quotas.
const LOOK_MIN: Nanos = 500_000;
#[expect(clippy::cast_possible_truncation, reason = "it is less than a second")]
const LOOK_MAX: Nanos = SLEEP_MAX.as_nanos() as Nanos;
/// Blocks that one step looks through for pages that were advised out.
const ADVISED_BLOCKS_MAX: usize = 64;
const _: () = assert!(REGIONS_MAX <= u64::BITS as usize, "a set of regions is one word");

/// What looking after things came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Enforced {
    /// There may be more to do at once.
    Worked,
    /// Nothing is to be done before this time.
    Until(Nanos),
}

/// How far quotas are from what is mapped.
struct Quotas {
    /// Whose quota is exceeded, a region's or that of all, and by how many pages it is to shrink.
    over: Vec<(Option<usize>, u64)>,
    /// The regions that are near a quota, theirs or that of all, a bit each.
    near: u64,
    /// Pages until the first quota is reached; the largest number without quotas.
    margin: u64,
}

impl<M: Machine> Reclaimer<M> {
    /// One bounded piece of work for quotas or advice.
    pub(super) fn enforce_quotas(&mut self, pass: Pass<'_, M>) -> Enforced {
        let pager = pass.pager;
        // First, so that what is changed from here on is looked at again.
        pager.reclaim.signals.begin_enforcing();
        let quotas = self.quotas(pager);
        let has_frames = pager.local.frames.spare() + pager.local.frames_to_back() > 0;
        let worked = self.sweep_over_quota(pager, usize::MAX) > 0
            || self.sweep_advised(pager, usize::MAX, |region| quotas.near >> region & 1 == 1) > 0
            || !quotas.over.is_empty() && !has_frames && self.drain_for_quota(pass);
        let until = if worked { 0 } else { self.next_look(&quotas, pass) };
        pager.reclaim.signals.end_enforcing(until);
        if worked { Enforced::Worked } else { Enforced::Until(until) }
    }

    /// Frames are what is missing: the oldest standby pages give theirs.
    fn drain_for_quota(&mut self, pass: Pass<'_, M>) -> bool {
        self.drain(Policy::DRAIN_PAGES, pass) == super::Step::Worked
    }

    /// When something is to be done, if nothing changes.
    fn next_look(&self, quotas: &Quotas, Pass { pager, now }: Pass<'_, M>) -> Nanos {
        let flush =
            self.flusher.due_at(&self.standby, pager.limits.flush()).map_or(Nanos::MAX, |at| at.max(now + LOOK_MIN));
        let quota = match quotas.margin {
            u64::MAX => Nanos::MAX,
            margin => now + (margin.saturating_mul(PAGE_TAKEN_NS)).clamp(LOOK_MIN, LOOK_MAX),
        };
        flush.min(quota).min(self.next_age_look)
    }

    /// Ages are statistics: nothing is picked by them.
    pub(super) fn look_at_ages(&mut self, Pass { pager, now }: Pass<'_, M>) {
        if now < self.next_age_look {
            return;
        }
        // Looks that were missed count too.
        let missed = if self.next_age_look == 0 { 0 } else { (now - self.next_age_look) / AGE_LOOK };
        self.next_age_look = now + AGE_LOOK;
        let look = pager.reclaim.signals.count_looks(1 + missed.narrow_u32()) + missed.narrow_u32();
        self.regions.iter().flatten().for_each(|core| core.counts.look_at_ages(look));
    }

    fn quotas(&self, pager: &Pager<M>) -> Quotas {
        let mut quotas = Quotas { over: Vec::new(), near: 0, margin: u64::MAX };
        let mut of_all = 0;
        for (number, core) in self.regions.iter().enumerate() {
            let Some(core) = core else { continue };
            let resident = core.counts.resident();
            of_all += resident;
            quotas.see(Some(number), resident, core.quota.pages());
        }
        quotas.see(None, of_all, pager.limits.process.pages());
        quotas
    }

    /// Takes at most `room` pages of the first that is over a quota and has some that can be taken: what was advised
    /// out, else what is cold. How many.
    pub(super) fn sweep_over_quota(&mut self, pager: &Pager<M>, room: usize) -> usize {
        for (only, excess) in self.quotas(pager).over {
            let room = room.min(excess.narrow_usize());
            let recalled = self.recall_some(pager, room, only);
            if recalled > 0 {
                return recalled;
            }
            let mut taken = self.sweep_advised(pager, room, |region| only.is_none_or(|only| only == region as usize));
            if taken == 0 {
                taken = self.sweep(pager, room, only);
            }
            if taken > 0 {
                pager.reclaim.stats.quota_evicted_pages.add(taken as u64);
                return taken;
            }
        }
        0
    }

    /// Takes at most `room` pages that were advised out, of one block of a region that is `wanted`. How many.
    pub(super) fn sweep_advised(&mut self, pager: &Pager<M>, room: usize, wanted: impl Fn(u32) -> bool) -> usize {
        for _ in 0..ADVISED_BLOCKS_MAX {
            let Some(mut range) = pager.advised_out.take(&wanted) else { return 0 };
            let Some(core) = self.regions[range.region as usize].clone() else { continue };
            let block = PageIndex(range.pages.start).block();
            let most = if drops(&core) { DROP_PAGES_MAX } else { BLOCK_PAGES };
            let most = most.min(room).narrow_u32();
            let end = range.pages.end.min((block.0 + 1) * BLOCK_PAGES_U32).min(range.pages.start.saturating_add(most));
            let here = std::mem::replace(&mut range.pages.start, end)..end;
            let taken = if core.counts.resident_in(block) == 0 {
                0
            } else if core.block_gate(block).try_sweep() {
                self.sweep_range(&core, block, here.clone())
            } else {
                // Somebody is inside: others first.
                range.pages.start = here.start;
                pager.advised_out.put_back(range, false);
                return 0;
            };
            let is_here = |page: &u32| core.table.load(PageIndex(*page)).is_resident();
            if let Some(first) = here.clone().find(|page| taken > 0 && is_here(page)) {
                // There was no frame for the rest: it is next.
                range.pages.start = first;
            }
            if !range.pages.is_empty() {
                pager.advised_out.put_back(range, true);
            }
            pager.reclaim.stats.advised_out_pages.add(taken as u64);
            if taken > 0 {
                return taken;
            }
        }
        0
    }

    /// Takes pages of a block whose gate the caller has taken, and lets it go.
    pub(crate) fn sweep_range(&mut self, core: &RegionCore<M>, block: BlockIndex, pages: Range<u32>) -> usize {
        if drops(core) {
            self.begin_drop();
            self.swept.push(block);
            self.take_sealed_pages(core, pages, DROP_PAGES_MAX, Victims::All);
            return self.end_drop(core);
        }
        let swept = self.sweep_pages(core, pages, usize::MAX, Victims::All);
        core.block_gate(block).end_sweep();
        swept
    }
}

impl Quotas {
    /// What has `resident` pages mapped may have `most`.
    fn see(&mut self, region: Option<usize>, resident: u64, most: u64) {
        let excess = quota::excess(resident, most);
        if excess > 0 {
            self.over.push((region, excess));
        }
        if most < u64::MAX {
            self.margin = self.margin.min(most.saturating_sub(resident));
        }
        if quota::is_near(resident, most) {
            self.near |= region.map_or(u64::MAX, |region| 1 << region);
        }
    }
}
