//! The evictor's calls of the kernel, which may refuse pages that a program has done something with: it has locked
//! them, or cut their block into mappings of different kinds. Such a page stays resident, with its content, and the
//! others go.
//!
//! Invariant: a page is not unmapped unless it was write-protected before it was copied.

use std::ops::Range;

use crate::pagetable::Event;
use yonder_units::{Narrow, PAGE_BYTES, PageIndex, Run};

use super::Reclaimer;
use crate::machine::{Machine, Rule};
use crate::region::RegionCore;

impl<M: Machine> Reclaimer<M> {
    /// Write-protects what was taken. What cannot be protected is resident again.
    pub(super) fn protect_taken(&mut self, core: &RegionCore<M>) {
        let pager = &*core.pager;
        let kept = &mut self.kept;
        kept.clear();
        let (Some((first, _)), Some((last, _))) = (self.taken.first(), self.taken.last()) else { return };
        let (first, pages) = (*first, (last.0 - first.0 + 1) as usize);
        let mut refused = |place: usize| kept.push(PageIndex(first.0 + place.narrow_u32()));
        M::preempt();
        M::write_protect(&pager.space, &core.mapping, first.offset(), pages, &mut refused)
            .expect("a range can be protected, or its parts are refused");
        if !kept.is_empty() {
            self.taken.retain(|(page, frame)| {
                let is_kept = kept.binary_search(page).is_ok();
                if is_kept {
                    core.table.advance_owned(*page, Event::EvictFailed);
                    pager.local.frames.release(*frame);
                }
                !is_kept
            });
        }
    }

    /// Finds the runs of `pages` that are to be unmapped: what was taken, and between that what is not mapped. What is
    /// mapped and stays was spared, or the kernel keeps it.
    pub(super) fn find_runs(&mut self, core: &RegionCore<M>, pages: Range<u32>) {
        self.runs.clear();
        self.spared.clear();
        let mut start = pages.start;
        let kept = &self.kept;
        let is_mapped = |page| core.table.load(page).is_resident() && !M::breaks(Rule::SparedStay);
        // What the kernel keeps may be somebody else's, though nothing of the region is mapped there.
        let stays = |page: &u32| is_mapped(PageIndex(*page)) || kept.binary_search(&PageIndex(*page)).is_ok();
        let stay = pages.clone().filter(stays);
        for end in stay.chain([pages.end]) {
            if end > start {
                self.runs.push(Run { first_page: start, pages: end - start });
            }
            if end < pages.end && self.kept.binary_search(&PageIndex(end)).is_err() {
                self.spared.push(PageIndex(end));
            }
            start = end + 1;
        }
    }

    /// Unmaps the runs that were found, of which all that were taken are copied: how many of those. What the kernel
    /// does not unmap is resident again.
    pub(super) fn unmap_taken(&mut self, core: &RegionCore<M>) -> usize {
        let pager = &*core.pager;
        let are_unmapped = match &*self.runs {
            [] => true,
            [run] => {
                M::discard(&core.mapping, PageIndex(run.first_page).offset(), run.pages as usize * PAGE_BYTES).is_ok()
            }
            runs => M::drop_runs(&core.mapping, runs).is_ok(),
        };
        if !are_unmapped {
            // Something of it may be unmapped already, so each page is looked at by itself.
            let unmap = |page: PageIndex| {
                let is_unmapped = M::discard(&core.mapping, page.offset(), PAGE_BYTES).is_ok();
                if !is_unmapped {
                    M::unprotect(&pager.space, &core.mapping, page.offset(), 1)
                        .expect("what was protected can be unprotected");
                    core.table.advance_owned(page, Event::EvictFailed);
                }
                is_unmapped
            };
            self.taken.retain(|(page, frame)| {
                let is_unmapped = unmap(*page);
                if !is_unmapped {
                    pager.local.frames.release(*frame);
                }
                is_unmapped
            });
            self.dead.retain(|page| unmap(*page));
            self.damaged.retain(|page| unmap(*page));
        }
        self.taken.len() + self.dead.len() + self.damaged.len()
    }

    /// Takes the write protection of what was spared among `pages` away again. Whoever has written to it meanwhile
    /// waits at the gate.
    pub(super) fn unprotect_spared(&mut self, core: &RegionCore<M>, pages: Range<u32>) {
        let unprotect = |first: PageIndex, pages| M::unprotect(&core.pager.space, &core.mapping, first.offset(), pages);
        if self.spared.is_empty() || M::breaks(Rule::SparedAreWritable) {
            return;
        }
        // What is not mapped is not protected. Only what the kernel keeps may be in the way of one call.
        if !self.kept.is_empty() || unprotect(PageIndex(pages.start), pages.len()).is_err() {
            for page in &self.spared {
                unprotect(*page, 1).expect("what was protected can be unprotected");
            }
        }
    }

    /// Unmaps the pages of a sealed region that were taken. What the kernel does not unmap is resident again.
    pub(super) fn unmap_dropped(&mut self, core: &RegionCore<M>) {
        if M::drop_runs(&core.mapping, &self.runs).is_err() {
            self.dropped.retain(|page| {
                let is_unmapped = M::discard(&core.mapping, page.offset(), PAGE_BYTES).is_ok();
                if !is_unmapped {
                    core.table.advance_owned(*page, Event::EvictFailed);
                }
                is_unmapped
            });
        }
    }
}
