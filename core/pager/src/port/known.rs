//! [`Known`]: a region that a port knows, with the references that it lends to whoever installs for it.

use std::sync::Arc;

use crate::delegation::HANDED_OVER_MAX;
use crate::machine::Machine;
use crate::port::Port;
use crate::region::RegionCore;

pub(super) struct Known<M: Machine> {
    pub(super) core: Option<Arc<RegionCore<M>>>,
    lendable: [Option<Arc<RegionCore<M>>>; HANDED_OVER_MAX],
}

impl<M: Machine> Port<M> {
    /// See [`Pager::let_go`](crate::pager::Pager::let_go).
    pub(crate) fn let_go(&self) {
        self.try_lock().into_iter().for_each(|mut inner| inner.regions.fill_with(Known::default));
    }
}

impl<M: Machine> Default for Known<M> {
    fn default() -> Self {
        Self { core: None, lendable: Default::default() }
    }
}

impl<M: Machine> Known<M> {
    pub(super) fn learn(&mut self, region: &Arc<RegionCore<M>>) {
        if let Some(known) = &self.core {
            assert!(Arc::ptr_eq(known, region), "a port takes a region for one that has ended");
            return;
        }
        self.core = Some(Arc::clone(region));
        self.lendable = std::array::from_fn(|_| Some(Arc::clone(region)));
    }

    pub(super) fn lend(&mut self) -> Arc<RegionCore<M>> {
        self.lendable.iter_mut().find_map(Option::take).expect("no more are lent than the window allows")
    }

    pub(super) fn regain(&mut self, region: Arc<RegionCore<M>>) {
        let place = self.lendable.iter_mut().find(|place| place.is_none()).expect("it was lent from here");
        *place = Some(region);
    }
}
