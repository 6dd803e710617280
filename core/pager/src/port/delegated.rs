//! A port's side of the [delegation](crate::delegation).

use super::{Phase, PortInner};
use crate::delegation::{Answer, Installs, Order};
use crate::machine::Machine;
use crate::turn::Turn;

impl<M: Machine> PortInner<M> {
    /// Lets the port's helper install the page of an arrived fetch.
    pub(super) fn delegate(&mut self, slot: u16, turn: Turn<'_, M>) {
        let source = self.source(slot, turn.pager);
        let fetch = &mut self.fetches[usize::from(slot)];
        fetch.phase = Phase::HandedOver;
        let (page, reservation, region) = (fetch.page, fetch.reservation, self.regions[fetch.region as usize].lend());
        self.window.delegated(turn.now);
        turn.port.delegation.delegate(Order { slot, page, source, reservation, region });
    }

    /// Ends the fetches whose pages the helper has installed; installs the others itself if the helper is late, or if
    /// there is nothing better to do.
    #[inline]
    pub(super) fn process_delegated(&mut self, turn: Turn<'_, M>, installs: Installs) {
        while let Some(Answer { order, is_installed, at }) = turn.port.delegation.answer() {
            self.window.answered(turn.now);
            let slot = self.regain(order);
            if is_installed {
                turn.port.stats.delegated_installs.add(1);
                self.fetch_finished(slot, at, turn);
            } else {
                self.deferred.push(slot);
            }
        }
        let is_late = self.window.is_late(turn.now);
        if !is_late && installs == Installs::Delegated {
            return;
        }
        while let Some(order) = turn.port.delegation.take_back() {
            self.window.taken_back();
            let slot = self.regain(order);
            self.finish_or_defer(slot, turn);
        }
        if is_late {
            self.window.close(turn.now);
        }
    }

    /// The fetch of an order that is no longer handed over.
    fn regain(&mut self, order: Order<M>) -> u16 {
        let fetch = &mut self.fetches[usize::from(order.slot)];
        assert!(fetch.phase == Phase::HandedOver && fetch.page == order.page, "an order for a fetch that is over");
        fetch.phase = Phase::Arrived;
        self.regions[fetch.region as usize].regain(order.region);
        order.slot
    }
}
