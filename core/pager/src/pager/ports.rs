//! [`Ports`]: the ports of a pager, by their numbers.
//!
//! A port is made where a thread is bound that finds none to take over, and stays from then on, so a fault finds it
//! without a lock. Numbers are given out and taken back under one lock, which no fault takes.

use std::sync::{Mutex, MutexGuard, OnceLock};

use yonder_units::{Narrow, PageIndex};

use super::Pager;
use crate::error::TooManyPorts;
use crate::machine::Machine;
use crate::pagetable::State;
use crate::port::{GuideOf, Port, Prefetch};
use crate::prefetch::Algorithm;
use crate::queue_pair::Module;
use crate::region::RegionCore;
use yonder_units::Nanos;

/// Ports at one time: of workers, and those that guests share.
const PORTS_MAX: usize = 256;
/// Ports that ordinary threads share, each of them [`GUEST_TOKENS`](crate::guests::GUEST_TOKENS) at a time.
pub(crate) const GUEST_PORTS: usize = 8;
const _: () = assert!(GUEST_PORTS < PORTS_MAX && PORTS_MAX <= u16::MAX as usize);

/// See the head of this file.
pub(crate) struct Ports<M: Machine> {
    ports: Box<[OnceLock<Port<M>>]>,
    numbers: Mutex<Numbers>,
}

/// Numbers of ports that no thread has.
struct Numbers {
    /// Ports that were made for threads that are gone.
    returned: Vec<u16>,
    /// Numbers without a port.
    unmade: Vec<u16>,
}

impl<M: Machine> Ports<M> {
    pub(crate) fn new() -> Self {
        Self {
            ports: (0..PORTS_MAX).map(|_| OnceLock::new()).collect(),
            numbers: Mutex::new(Numbers { returned: Vec::new(), unmade: (0..PORTS_MAX.narrow_u16()).rev().collect() }),
        }
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().expect("no code panics while it holds the numbers of ports")
    }
}

impl<M: Machine> Pager<M> {
    /// A port for `tokens` waiters, until [`Pager::return_port`]: one that a thread has given back, or a new one.
    pub fn add_port(&self, tokens: usize) -> Result<u16, M::Error> {
        // Taken before the port's lock is waited for: others give ports back meanwhile.
        let returned = self.ports.numbers().returned.pop();
        if let Some(id) = returned {
            self.port(id).begin(tokens);
            return Ok(id);
        }
        let unmade = self.ports.numbers().unmade.pop();
        let Some(id) = unmade else { return Err(TooManyPorts(PORTS_MAX - GUEST_PORTS).into()) };
        let port = self.make_port(id, tokens).inspect_err(|_| self.ports.numbers().unmade.push(id))?;
        assert!(self.ports.ports[usize::from(id)].set(port).is_ok(), "port {id} was given out twice");
        Ok(id)
    }

    fn make_port(&self, id: u16, tokens: usize) -> Result<Port<M>, M::Error> {
        let queue = |module| M::queue_pair(&self.fabric, module, self.local.frames.mapping());
        let prefetch = match self.config.prefetch {
            Algorithm::None if self.make_guide.is_none() => None,
            algorithm => Some(Prefetch { algorithm, queue: queue(Module::Prefetch)? }),
        };
        let guide = match &self.make_guide {
            Some(make) => Some(GuideOf { guide: make(), queue: queue(Module::Guide)? }),
            None => None,
        };
        Ok(Port::new(id, queue(Module::Fault)?, prefetch, guide, tokens))
    }

    /// Takes the port of a thread back, with its queue pairs: the next thread that is bound has them.
    pub fn return_port(&self, id: u16) {
        // A forked child never uses queue pairs, which are its parent's.
        if self.child.is_one() {
            return;
        }
        self.port(id).end(self);
        self.ports.numbers().returned.push(id);
    }

    pub(crate) fn port(&self, id: u16) -> &Port<M> {
        self.ports.ports[usize::from(id)].get().expect("a port is set before its number is known")
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = &Port<M>> {
        self.ports.ports.iter().filter_map(OnceLock::get)
    }

    /// Fetches in flight on a port.
    pub fn outstanding(&self, port: u16) -> u32 {
        self.port(port).outstanding()
    }

    /// Gives up what was fetched ahead and nobody has touched, of every port that nobody uses now.
    pub(crate) fn drop_ahead(&self, now: Nanos) {
        if self.config.prefetch != Algorithm::None || self.make_guide.is_some() {
            for port in self.ports() {
                if let Some(mut inner) = port.try_lock() {
                    inner.drop_windows(port.turn(self, now));
                }
            }
        }
    }

    /// Gives up the fetch ahead of `page`, whose entry says that `slot` of port `port` has it.
    pub(crate) fn drop_ahead_of(&self, region: &RegionCore<M>, page: PageIndex, port: u16, slot: u16) {
        let own = self.port(port);
        if let Some(mut inner) = own.try_lock()
            && inner.is_ahead(slot)
            && region.table.load(page).state() == (State::Fetching { port, slot })
        {
            inner.drop_unwanted(slot, own.turn(self, M::now()));
        }
    }
}
