//! Children of a process that pages: the far memory of a forked child is what its parent's was at the fork.
//!
//! The kernel copies what is mapped, and frames and page tables with it, when they are next written. What it does not
//! copy is the userfaultfd: a missing page of the child would read as zeros. So whoever forks first stops all changes
//! ([`Pager::stop`]), and the child makes a space of its own before it goes on ([`Stopped::go_on_as_child`]). A page
//! that the child misses comes from where the page table it has inherited says: a frame, or far memory that was in the
//! parent's process and was copied too. From a node that both share it cannot come, because the parent may have written
//! something newer there: that is a paging error.
//!
//! A child has no reclaimer, so what it touches stays. Its faults are served one at a time.
//!
//! Invariant: a child never uses its parent's space, which would change the parent's memory, nor its queue pairs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::pagetable::{Event, Source as LocalSource, State};
use yonder_units::{Narrow, PAGE_BYTES, PageIndex};

use crate::error::PagingCause;
use crate::install::InstallSource;
use crate::machine::{CopyOutcome, Machine, Rule};
use crate::pager::Pager;
use crate::port::{Port, PortInner};
use crate::reclaimer::Reclaimer;
use crate::region::RegionCore;

/// What a process has instead of its parent's userfaultfd, once it is a forked child.
pub(crate) struct Child<M: Machine> {
    is_one: AtomicBool,
    /// Its own, and locked for the length of a fault.
    space: Mutex<Option<M::Space>>,
}

impl<M: Machine> Default for Child<M> {
    fn default() -> Self {
        Self { is_one: AtomicBool::new(false), space: Mutex::new(None) }
    }
}

impl<M: Machine> Child<M> {
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        self.is_one.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<M::Space>> {
        M::lock(&self.space)
    }
}

/// No entry of a pager changes while this is there, but for touches of pages that need nothing but the kernel.
pub struct Stopped<'a, M: Machine> {
    pager: &'a Pager<M>,
    _ports: Vec<MutexGuard<'a, PortInner<M>>>,
    _reclaimer: Option<MutexGuard<'a, Reclaimer<M>>>,
    child: MutexGuard<'a, Option<M::Space>>,
}

impl<M: Machine> Pager<M> {
    /// Stops all changes: what a fork copies is consistent then.
    pub fn stop(&self) -> Stopped<'_, M> {
        let child = self.child.lock();
        // Whoever has a port may wait for the reclaimer, which waits for no port.
        let ports = self.ports().map(Port::lock).collect();
        let reclaimer = (!M::breaks(Rule::ForkStopsReclaim)).then(|| self.lock_reclaimer());
        Stopped { pager: self, _ports: ports, _reclaimer: reclaimer, child }
    }
}

impl<M: Machine> Stopped<'_, M> {
    /// From now on the pager is a forked child's, whose pages are mapped through `space`.
    pub fn go_on_as_child(mut self, space: M::Space) {
        // The child of a child closes its parent's, which goes on there.
        *self.child = Some(space);
        self.pager.child.is_one.store(true, Ordering::Relaxed);
    }
}

/// As [`crate::fault::bring`], in a forked child.
#[cold]
pub(crate) fn bring<M: Machine>(region: &Arc<RegionCore<M>>, page: PageIndex) -> Result<(), PagingCause> {
    let pager = &*region.pager;
    let space = pager.child.lock();
    let seen = region.table.load(page);
    let source = match seen.state() {
        State::Resident => return Ok(()),
        State::Poisoned(code) => return Err(PagingCause::of_page(code)),
        State::Untouched | State::Lent | State::Installing(LocalSource::Zeros) => None,
        State::Standby(frame) | State::Installing(LocalSource::Frame(frame)) => Some(InstallSource::Frame(frame)),
        State::Remote | State::Fetching { .. }
            if M::is_inherited(&pager.fabric) || M::breaks(Rule::ChildIsLeftAlone) =>
        {
            Some(InstallSource::Far(region.remote_address(page)))
        }
        State::Remote | State::Fetching { .. } => return Err(PagingCause::Forked),
        // The reclaimer does not sweep while a process forks, and a child has none.
        State::Evicting => return Err(PagingCause::Stuck),
    };
    match seen.state() {
        State::Untouched | State::Standby(_) => _ = region.table.advance_owned(page, Event::Install),
        State::Remote => _ = region.table.advance_owned(page, Event::Fetch { port: 0, slot: 0 }),
        _ => {}
    }
    let space = space.as_ref().expect("a child has a userfaultfd before it has faults");
    map(space, region, page, source)?;
    // What the parent had lent stays so: its entry is no account of what is mapped.
    if seen.state() != State::Lent {
        region.table.advance_owned(page, Event::Installed);
    }
    Ok(())
}

fn map<M: Machine>(
    space: &M::Space,
    region: &RegionCore<M>,
    page: PageIndex,
    source: Option<InstallSource>,
) -> Result<(), PagingCause> {
    loop {
        let outcome = match source {
            None => M::zero_page(space, &region.mapping, page.offset()),
            Some(source) => {
                let (mapping, offset) = region.pager.resolve(source);
                M::copy_page(space, &region.mapping, page.offset(), mapping, offset)
            }
        };
        match outcome {
            Ok(CopyOutcome::Installed | CopyOutcome::Exists) => return Ok(()),
            Ok(CopyOutcome::Again) => M::relax(),
            Ok(CopyOutcome::NoMemory) | Err(_) => return Err(PagingCause::LocalMemoryFull),
        }
    }
}

/// As [`Pager::release`], in a forked child: the parent's copy and the node's stay.
#[cold]
pub(crate) fn release<M: Machine>(region: &RegionCore<M>, offset: u64, bytes: u64) -> Result<(), M::Error> {
    let _no_faults = region.pager.child.lock();
    M::discard(&region.mapping, offset, bytes.narrow_usize())?;
    for page in 0..(bytes / PAGE_BYTES as u64).narrow_u32() {
        let page = PageIndex(PageIndex::containing(offset).0 + page);
        if region.table.load(page).write_in_flight() {
            region.table.advance_owned(page, Event::WriteEnded);
        }
        match region.table.load(page).state() {
            State::Untouched | State::Lent => continue,
            State::Resident => _ = region.table.advance_owned(page, Event::Evict),
            State::Fetching { .. } => _ = region.table.advance_owned(page, Event::FetchFailed),
            State::Installing(_) => _ = region.table.advance_owned(page, Event::InstallFailed),
            State::Remote | State::Standby(_) | State::Poisoned(_) | State::Evicting => {}
        }
        if region.table.load(page).state() != State::Untouched {
            region.table.advance_owned(page, Event::Free);
        }
    }
    Ok(())
}

/// As [`Pager::end_region`], in a forked child: what was under way at the fork is the parent's, and ends there. The
/// region's memory goes with the mapping; its frames stay, for nobody takes any here.
#[cold]
pub(crate) fn end_region<M: Machine>(region: &RegionCore<M>) {
    let pager = &*region.pager;
    let _no_faults = pager.child.lock();
    pager.region_table.leave(region.number);
    pager.lock_reclaimer().regions[region.number as usize] = None;
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;
    use crate::fake::{self, Fake};

    const PAGE: PageIndex = PageIndex(3);

    fn become_child(region: &RegionCore<Fake>) {
        region.pager.stop().go_on_as_child(());
    }

    /// The simulator found it: what a child maps is counted nowhere, and cannot be counted out.
    #[test]
    fn damage_of_a_page_that_a_child_has_mapped_is_found() {
        let region = fake::region(8);
        region.pager.release(&region, 0, 8 * PAGE_BYTES as u64).expect("the far side always agrees");
        become_child(&region);
        assert_eq!(region.bring(PAGE.offset()), Ok(()));
        assert_eq!(region.find_damage(PAGE), Err(PagingCause::HardwareError));
        assert_eq!(region.bring(PAGE.offset()), Err(PagingCause::HardwareError));
    }

    /// The simulator found it: what was under way for the parent never ends in its child, and is not asked for.
    #[test]
    fn a_child_ends_a_region_of_which_something_was_under_way() {
        let region = fake::region(8);
        for event in [Event::Evict, Event::Dropped, Event::Fetch { port: 0, slot: 0 }] {
            region.table.advance_owned(PAGE, event);
        }
        become_child(&region);
        region.pager.end_region(&region);
        assert!(region.pager.lock_reclaimer().regions.iter().flatten().next().is_none());
    }

    /// A thread that finds damage has a block to itself for a moment, in which another may fork.
    #[test]
    fn a_child_holds_pages_of_a_block_that_was_taken() {
        let region = fake::region(8);
        assert!(region.gate(PAGE).try_sweep());
        become_child(&region);
        assert!(region.try_hold(PAGE.offset(), 1).is_some());
        let held = region.hold(PAGE.offset(), 1).expect("the page is mapped");
        region.unhold(held);
    }
}
