//! Damaged memory: pages whose local memory the hardware cannot read any more (LightSwap, section 4.4).
//!
//! The kernel tells of it by SIGBUS at the touch (`BUS_MCEERR_AR`), or ahead of it. A mapped page is the only copy that
//! is known to be good, because nobody knows whether it was written since it came: it is lost, its entry is poisoned
//! and every touch of it a paging error, until its range is freed. Only a sealed page is fetched again. The damaged
//! memory itself is given back to the kernel, which does not use it again, and the page's share of local memory is
//! free.
//!
//! A page that is being swept is left to the reclaimer, which meets the damage as it copies. If its block is in use,
//! this touch fails and the page is left to the next touch or sweep. Memory that is not a region's (frames, metadata,
//! the program's own) is not mended here: `sys/trap` ends the process with a message.

use crate::pagetable::{Entry, Event, State};
use yonder_units::{PAGE_BYTES, PageIndex};

use crate::error::PagingCause;
use crate::machine::Machine;
use crate::region::RegionCore;

/// What a touch of `page`, whose memory is damaged, comes to: it may be tried again, or it fails. Called in the SIGBUS
/// handler of any thread, also of one that sweeps the page itself: it waits for nobody.
pub(crate) fn found<M: Machine>(core: &RegionCore<M>, page: PageIndex) -> Result<(), PagingCause> {
    let seen = core.table.load(page);
    match seen.state() {
        // It has been taken away since; what was swept is judged by the sweep.
        State::Untouched | State::Remote | State::Standby(_) => Ok(()),
        State::Poisoned(code) => Err(PagingCause::of_page(code)),
        State::Evicting | State::Installing(_) | State::Fetching { .. } => Err(PagingCause::HardwareError),
        State::Lent if recall(core, page, seen) => found(core, page),
        State::Lent => Err(PagingCause::HardwareError),
        State::Resident => {
            let gate = core.gate(page);
            M::preempt();
            // As a sweep, with nobody else inside: who has just mapped the page may not have counted it yet.
            if !gate.try_sweep() {
                return Err(PagingCause::HardwareError);
            }
            let result = match core.table.advance(page, seen, Event::Evict) {
                Ok(_) => give_up(core, page),
                // It has changed since it was looked at.
                Err(_) => Err(PagingCause::HardwareError),
            };
            gate.end_sweep();
            result
        }
    }
}

/// Takes the page back with its block, or by itself in a forked child, where nothing is lent: whether that was
/// possible.
fn recall<M: Machine>(core: &RegionCore<M>, page: PageIndex, seen: Entry) -> bool {
    if core.pager.child.is_one() {
        return core.table.advance(page, seen, Event::Recall).is_ok();
    }
    let gate = core.gate(page);
    if !gate.try_sweep() {
        return false;
    }
    let is_recalled = core.is_lent(page.block()) && core.pager.recall(core, page.block()).is_some();
    gate.end_sweep();
    is_recalled
}

/// Unmaps a page that the caller has moved to `Evicting`, with its block to itself.
fn give_up<M: Machine>(core: &RegionCore<M>, page: PageIndex) -> Result<(), PagingCause> {
    M::discard(&core.mapping, page.offset(), PAGE_BYTES).expect("mapped pages can be dropped");
    // What a forked child maps is not counted there.
    if !core.pager.child.is_one() {
        core.counts.uncount(page.block(), 1);
        core.pager.local.budget.uncharge(1);
    }
    if core.is_sealed() && !core.owner.is_set() {
        core.table.advance_owned(page, Event::Dropped);
        return Ok(());
    }
    poison(core, page);
    Err(PagingCause::HardwareError)
}

/// Marks an unmapped page, which the caller has moved to `Evicting`, as lost.
pub(crate) fn poison<M: Machine>(core: &RegionCore<M>, page: PageIndex) {
    core.table.advance_owned(page, Event::Poison(PagingCause::HardwareError.code().get()));
    core.pager.local.count_damaged_page();
}
