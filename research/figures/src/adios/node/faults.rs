//! From a fault to the page's arrival: who waits meanwhile, and who runs.

use rand::Rng as _;
use yonder_units::{Nanos, PageIndex};

use super::Node;
use crate::adios::memory::Found;
use crate::adios::state::{Doing, Event};
use crate::costs::adios as costs;

impl Node<'_> {
    /// A request has trapped at a page.
    pub(super) fn fault(&mut self, index: usize, slot: u32) {
        let (now, profile) = (self.events.now(), self.setup.profile);
        let request = &mut self.requests[slot as usize];
        let page = request.page.expect("it touches a page");
        request.since = now;
        let found = self.memory.find(page);
        let room = self.workers[index].outstanding < costs::QP_DEPTH.value as u32;
        match found {
            // It came while the fault was on its way: the rest of the fault's work is done as if it had been fetched.
            Found::Local if profile.spins == 0 => {
                return self.go_on(index, slot, profile.at_return());
            }
            Found::Local => return self.go_on(index, slot, profile.after_fetch),
            Found::Coming => self.joined.push((page, slot)),
            Found::Remote if room && self.memory.fetch(page, index) => {
                let at = self.fabric.post(index, now, self.touches.random());
                self.events.at(at, Event::Sent { worker: index as u16, page: page.0, request: slot });
            }
            Found::Remote => {
                self.starved.push(index as u16);
                return self.wait(index, slot);
            }
        }
        self.workers[index].outstanding += 1;
        self.faults += 1;
        let (faults, warm) = (self.faults, self.warm());
        let counts = self.meter.counts();
        counts.faults_most = counts.faults_most.max(faults);
        counts.fetched += u64::from(warm && found == Found::Remote);
        self.wake_reclaimer();
        if profile.yields && profile.spins == 0 {
            return self.idle(index);
        }
        self.wait(index, slot);
        if profile.yields {
            self.events.after(profile.spins, Event::SpunOut { worker: index as u16, request: slot, since: now });
        }
    }

    /// A reclaimer that rests is woken once little is free. It also rests where all pages are on their way, so that it
    /// is woken by their arrival too.
    pub(super) fn wake_reclaimer(&mut self) {
        if self.memory.is_low() && !self.reclaiming {
            self.reclaiming = true;
            let wake = if self.setup.profile.pinned_reclaimer { 0 } else { costs::RECLAIM_WAKE.ns() };
            self.events.after(wake, Event::Reclaim);
        }
    }

    pub(super) fn wait(&mut self, index: usize, slot: u32) {
        self.workers[index].doing = Doing::Waiting(slot);
        self.count_busy(1);
    }

    /// A page has not come in time: the worker leaves the request that it has waited with since then, if it still does.
    pub(super) fn spun_out(&mut self, index: usize, slot: u32, since: Nanos) {
        if self.workers[index].doing == Doing::Waiting(slot) && self.requests[slot as usize].since == since {
            self.count_busy(-1);
            self.workers[index].doing = Doing::Leaving;
            self.events.after(self.setup.profile.away, Event::Ran(index as u16));
        }
    }

    /// A page is here: who waited for it goes on.
    pub(super) fn came(&mut self, index: usize, page: PageIndex, slot: u32) {
        self.memory.installed(page);
        self.wake_reclaimer();
        self.page_for(index, slot);
        while let Some(place) = self.joined.iter().position(|(other, _)| *other == page) {
            let (_, joined) = self.joined.remove(place);
            self.page_for(usize::from(self.requests[joined as usize].worker), joined);
        }
        self.feed_starved();
    }

    pub(super) fn page_for(&mut self, index: usize, slot: u32) {
        let now = self.events.now();
        self.faults -= 1;
        self.workers[index].outstanding -= 1;
        let request = &mut self.requests[slot as usize];
        let waited = now - request.since;
        request.spent.fetching += waited as u32;
        request.since = now;
        if self.setup.profile.yields && self.workers[index].doing != Doing::Waiting(slot) {
            self.workers[index].ready.push_back(slot);
            self.look(index);
        } else {
            assert_eq!(self.workers[index].doing, Doing::Waiting(slot), "worker {index} waits for another page");
            request.slice += waited;
            self.count_busy(-1);
            self.go_on(index, slot, self.setup.profile.after_fetch);
        }
    }

    /// Workers that found no room for their faults try again.
    pub(super) fn feed_starved(&mut self) {
        for index in std::mem::take(&mut self.starved) {
            let index = usize::from(index);
            let Doing::Waiting(slot) = self.workers[index].doing else { unreachable!("worker {index} does not wait") };
            self.count_busy(-1);
            let (now, request) = (self.events.now(), &mut self.requests[slot as usize]);
            request.spent.fetching += (now - request.since) as u32;
            self.fault(index, slot);
        }
    }
}
