//! A port's side of the [handover](crate::handover).

use yonder_units::Nanos;

use super::{Phase, Port, PortInner};
use crate::handover::{Answer, Installs, Order};
use crate::machine::Machine;
use crate::pager::Pager;

impl<M: Machine> PortInner<M> {
    /// Lets the port's helper settle the page of an arrived fetch.
    pub(super) fn hand_over(&mut self, slot: u16, port: &Port<M>, pager: &Pager<M>, now: Nanos) {
        let source = self.source(slot, pager);
        let fetch = &mut self.fetches[usize::from(slot)];
        fetch.phase = Phase::HandedOver;
        let (page, room, region) = (fetch.page, fetch.room, self.regions[fetch.region as usize].lend());
        self.window.handed_over(now);
        port.handover.hand_over(Order { slot, page, source, room, region });
    }

    /// Ends the fetches whose pages the helper has settled; settles the others itself if the helper is late, or if
    /// there is nothing better to do.
    #[inline]
    pub(super) fn see_to_handed_over(&mut self, port: &Port<M>, pager: &Pager<M>, now: Nanos, installs: Installs) {
        while let Some(Answer { order, is_settled, at }) = port.handover.answer() {
            self.window.answered(now);
            let slot = self.regain(order);
            if is_settled {
                port.stats.helped_installs.add(1);
                self.settled(slot, at, port, pager);
            } else {
                self.deferred.push(slot);
            }
        }
        let is_late = self.window.is_late(now);
        if !is_late && installs == Installs::HandOver {
            return;
        }
        while let Some(order) = port.handover.take_back() {
            self.window.taken_back();
            let slot = self.regain(order);
            self.settle_or_defer(slot, port, pager);
        }
        if is_late {
            self.window.close(now);
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
