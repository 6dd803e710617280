//! The evictor's calls of the kernel, which may refuse pages that a program has done something with: it has locked
//! them, or cut their block into mappings of different kinds. Such a page stays resident, with its content, and the
//! others go.
//!
//! Invariant: a page is not unmapped unless it was write-protected before it was copied.

use std::ops::Range;

use crate::pagetable::Event;
use yonder_units::{Narrow, PAGE_BYTES, PageIndex};

use super::Reclaimer;
use crate::machine::Machine;
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

    /// Unmaps `pages`, of which all that were taken are copied: how many of those. What the kernel does not unmap is
    /// resident again.
    pub(super) fn unmap_taken(&mut self, core: &RegionCore<M>, pages: Range<u32>) -> usize {
        let pager = &*core.pager;
        if !self.unmap_around_kept(core, pages) {
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

    /// Unmaps `pages` but those that are kept; whether the kernel has unmapped all of them.
    fn unmap_around_kept(&self, core: &RegionCore<M>, pages: Range<u32>) -> bool {
        let mut start = pages.start;
        let kept = self.kept.iter().map(|page| page.0).filter(|page| pages.contains(page));
        for end in kept.chain([pages.end]) {
            let bytes = (end - start) as usize * PAGE_BYTES;
            if bytes > 0 && M::discard(&core.mapping, PageIndex(start).offset(), bytes).is_err() {
                return false;
            }
            start = end + 1;
        }
        true
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
