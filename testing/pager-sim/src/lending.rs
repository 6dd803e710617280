//! Parts of a region that are left to the kernel for a time, and taken back.
//!
//! Of a range that programs have cut by changes of its protection a call does piece by piece, and may be refused behind
//! any of them; faults of the other pieces go on meanwhile.

use std::ops::Range;

use yonder_units::PageIndex;

use crate::machine::{CALL, PART_PAGES, is_refused};
use crate::memory::Memory;
use crate::world::{Step, say, step, violate};

/// Pages of the kernel's mappings that a call does one after the other.
const PIECE_PAGES: usize = PART_PAGES;

/// The kernel had too many mappings.
struct TooMany;

/// Does something to each of the pages, with time for others between the pieces; it may stop before any of them.
fn in_pieces(pages: Range<usize>, mut change: impl FnMut(usize)) -> Result<(), TooMany> {
    for first in pages.clone().step_by(PIECE_PAGES) {
        step(Step::Effect(CALL / 4));
        if is_refused() {
            return Err(TooMany);
        }
        (first..pages.end.min(first + PIECE_PAGES)).for_each(&mut change);
    }
    step(Step::Point);
    Ok(())
}

/// The pages are the kernel's to map, or some of them if it refuses the rest.
pub(crate) fn lend(region: &Memory, offset: u64, pages: usize) -> Result<(), String> {
    let first = PageIndex::containing(offset).index();
    say(|| format!("lends pages {first}..{} of {:#x}", first + pages, region.address));
    let lend = |page| {
        if region.lend(page, true) {
            violate(format!("page {page} is lent and mapped"));
        }
    };
    in_pieces(first..first + pages, lend).map_err(|TooMany| "refused".into())
}

/// The pages are the pager's again, and those that are mapped are named, by their place among them.
pub(crate) fn recall(region: &Memory, offset: u64, pages: usize, is_here: &mut dyn FnMut(usize)) -> Result<(), String> {
    let first = PageIndex::containing(offset).index();
    say(|| format!("recalls pages {first}..{} of {:#x}", first + pages, region.address));
    if in_pieces(first..first + pages, |page| _ = region.lend(page, false)).is_err() {
        step(Step::Effect(CALL));
        (first..first + pages).for_each(|page| _ = region.lend(page, true));
        return Err("refused".into());
    }
    for place in 0..pages {
        if place % PART_PAGES == 0 {
            step(Step::Effect(CALL / 4));
        }
        if region.is_mapped(first + place) {
            is_here(place);
        }
    }
    Ok(())
}

/// The kernel maps what it may of the pages. Whether all of them are mapped.
pub(crate) fn populate(region: &Memory, offset: u64, pages: usize) -> bool {
    let first = PageIndex::containing(offset).index();
    (first..first + pages).all(|page| {
        step(Step::Effect(CALL / 4));
        region.touch(page);
        region.is_mapped(page)
    })
}
