//! [`Audit`]: whether the accounts of local memory agree with the page tables.
//!
//! Exact only while nothing is under way: no fault, no fetch, no sweep and no write. A simulator asks at the end of
//! each run, and tests may.

use std::collections::HashSet;
use std::sync::Arc;

use crate::pagetable::State;
use yonder_units::{Narrow, PageIndex};

use crate::machine::Machine;
use crate::pager::Pager;
use crate::port::Port;
use crate::region::RegionCore;

/// Local memory as the page tables have it, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Audit {
    /// Pages that are mapped, or lent.
    pub resident: u64,
    /// Pages that stand in frames.
    pub standby: u64,
    /// Pages that are charged.
    pub charged: u64,
    /// Frames that the kernel backs.
    pub backed: u64,
    /// Backed frames that nothing uses.
    pub spare: u64,
    /// Writes that have not ended.
    pub writing: u64,
}

impl<M: Machine> Pager<M> {
    /// The accounts, or the first that does not agree with the page tables.
    pub fn audit(&self) -> Result<Audit, String> {
        let reclaimer = self.lock_reclaimer();
        let mut audit = Audit {
            charged: self.local.budget.charged(),
            backed: self.local.frames.backed(),
            spare: self.local.frames.spare(),
            writing: self.local.counts.writing(),
            ..Audit::default()
        };
        let queued: HashSet<(u32, u32, u32)> = reclaimer.queued_standby().collect();
        for core in reclaimer.regions.iter().flatten() {
            let in_blocks = core.counts.resident();
            let mapped = self.audit_region(core, &queued, &mut audit)?;
            if mapped != in_blocks {
                return Err(format!("{mapped} pages of region {} are mapped, {in_blocks} are counted", core.number));
            }
        }
        let standby = self.local.counts.standby();
        if audit.standby != standby {
            return Err(format!("{} pages are on standby, {standby} are counted", audit.standby));
        }
        let held = audit.backed - audit.spare;
        let fetched_ahead: u64 = self.ports().map(|port| port.lock().pages_held()).sum();
        let frames_ahead = if self.fetches_into_frames() { fetched_ahead } else { 0 };
        if audit.writing == 0 && held != audit.standby + frames_ahead {
            return Err(format!("{held} frames are held by {} standby pages and {frames_ahead} others", audit.standby));
        }
        if audit.charged != audit.resident + fetched_ahead + audit.backed {
            return Err(format!(
                "{} pages are charged: {} mapped, {fetched_ahead} fetched ahead, {} frames",
                audit.charged, audit.resident, audit.backed
            ));
        }
        Ok(audit)
    }

    /// Lets go of all regions as they are, which would keep the pager: for a simulator, whose processes do not end with
    /// their memory.
    pub fn let_go(&self) {
        self.region_table.numbers().for_each(|number| self.region_table.leave(number));
        self.ports().for_each(Port::let_go);
        self.lock_reclaimer().regions.fill(None);
    }

    /// Adds up the pages of a region; how many are mapped.
    fn audit_region(
        &self,
        core: &Arc<RegionCore<M>>,
        queued: &HashSet<(u32, u32, u32)>,
        audit: &mut Audit,
    ) -> Result<u64, String> {
        let (mut mapped, mut touched) = (0, 0);
        for page in (0..core.table.pages().narrow_u32()).map(PageIndex) {
            let entry = core.table.load(page);
            touched += u64::from(!entry.is_untouched());
            match entry.state() {
                State::Resident | State::Lent => mapped += 1,
                State::Standby(frame) => {
                    audit.standby += 1;
                    // What is written leaves with the end of its write.
                    let is_seen_to = entry.write_in_flight()
                        || queued.contains(&(core.number, page.0, frame.0))
                        || self.local.frames.is_announced(frame);
                    if !is_seen_to {
                        return Err(format!(
                            "page {} of region {} stands in frame {} and is in no queue",
                            page.0, core.number, frame.0
                        ));
                    }
                }
                State::Installing(_) | State::Evicting => {
                    return Err(format!("page {} of region {} is under way", page.0, core.number));
                }
                State::Untouched | State::Remote | State::Fetching { .. } | State::Poisoned(_) => {}
            }
        }
        if touched != core.table.touched_pages() {
            let counted = core.table.touched_pages();
            return Err(format!("{touched} pages of region {} are touched, and {counted} are counted", core.number));
        }
        audit.resident += mapped;
        Ok(mapped)
    }
}
