//! [`RegionTable`]: where a page is now, for whoever remembers pages by [`PageId`] instead of by region.
//!
//! A place may outlive its region, so the regions are found by number here, under a lock that their beginning and end
//! take. Only dispatchers look, never the fault path, and a look does not wait: who finds the lock taken is told
//! nothing.
//!
//! Invariant: a region is here from before its first fault until it ends.

use std::sync::{Arc, RwLock};

use crate::pagetable::State;
use yonder_units::Residence;
use yonder_units::{Narrow, PageId};

use crate::machine::Machine;
use crate::pager::REGIONS_MAX;
use crate::region::RegionCore;

/// The regions of one far memory by number.
pub(crate) struct RegionTable<M: Machine>(Box<[RwLock<RegionIfAny<M>>]>);

type RegionIfAny<M> = Option<Arc<RegionCore<M>>>;

impl<M: Machine> RegionTable<M> {
    pub(crate) fn new() -> Self {
        Self((0..REGIONS_MAX).map(|_| RwLock::default()).collect())
    }

    /// A region begins.
    pub(crate) fn enter(&self, core: &Arc<RegionCore<M>>) {
        self.set(core.number, Some(Arc::clone(core)));
    }

    /// A region ends.
    pub(crate) fn leave(&self, number: u32) {
        self.set(number, None);
    }

    /// Whether the page at `place` can be had without a fetch, at the moment.
    pub(crate) fn residence(&self, page_id: PageId) -> Residence {
        let Some(region) = self.0.get(page_id.region as usize) else { return Residence::Unknown };
        let Ok(region) = region.try_read() else { return Residence::Unknown };
        let Some(core) = region.as_ref().filter(|core| page_id.page.index() < core.table.pages()) else {
            return Residence::Unknown;
        };
        match core.table.load(page_id.page).state() {
            State::Remote => Residence::Far,
            // What is swept from a sealed region is far at once, and not on standby first.
            State::Evicting if core.is_sealed() => Residence::Far,
            State::Fetching { .. } => Residence::Coming,
            State::Untouched
            | State::Installing(_)
            | State::Resident
            | State::Lent
            | State::Evicting
            | State::Standby(_)
            | State::Poisoned(_) => Residence::Local,
        }
    }

    /// The numbers that regions can have.
    pub(crate) fn numbers(&self) -> std::ops::Range<u32> {
        0..self.0.len().narrow_u32()
    }

    /// Looks at the region with number `number`, which cannot end meanwhile; `None` if there is none. May wait for a
    /// moment.
    pub(crate) fn with<T>(&self, number: u32, look: impl FnOnce(&RegionCore<M>) -> T) -> Option<T> {
        let region = self.0.get(number as usize)?.read().expect("no code panics while it holds a page_id");
        region.as_deref().map(look)
    }

    fn set(&self, number: u32, core: Option<Arc<RegionCore<M>>>) {
        *self.0[number as usize].write().expect("no code panics while it holds a page_id") = core;
    }
}
