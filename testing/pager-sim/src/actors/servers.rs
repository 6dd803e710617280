//! The threads of the pager itself, a host, and another process of the node.

use std::collections::BTreeSet;

use yonder_pager::machine::Machine;
use yonder_pager::{Pager, ReclaimTurn, ReclaimTurns};
use yonder_units::Nanos;

use super::Common;
use crate::machine::Simulated;
use crate::world::{Step, below, park, step, violate, with};

/// How long the discarder sleeps at most: it has to see the end of the seed.
const SETTLER_SLEEP_MAX: Nanos = 10_000_000;

/// The reclaimer's thread.
pub(crate) fn reclaimer(pager: &Pager<Simulated>) {
    let mut turns = ReclaimTurns::default();
    while with(|world| world.busy) > 0 {
        match turns.take(pager) {
            ReclaimTurn::Again => step(Step::Effect(50)),
            ReclaimTurn::Yield => step(Step::Wait),
            ReclaimTurn::Sleep(time) => park(Simulated::now() + time.as_nanos() as Nanos),
        }
    }
}

/// The thread that confirms discards: asks again for discards that the node has not agreed to, and gives back what
/// could not be at once.
pub(crate) fn discarder(pager: &Pager<Simulated>) {
    while with(|world| world.busy) > 0 {
        let until = pager.discard_turn().map_or(Nanos::MAX, |pause| Simulated::now() + pause.as_nanos() as Nanos / 100);
        park(until.min(Simulated::now() + SETTLER_SLEEP_MAX));
    }
}

/// A dispatcher: it hosts reclaim, and makes the installs of the workers' ports, which come and go.
pub(crate) fn host(common: &Common) {
    let mut helped = BTreeSet::new();
    common.pager.begin_hosting();
    while with(|world| world.busy) > 0 {
        let ports = with(|world| BTreeSet::from_iter(world.ports.iter().copied()));
        ports.difference(&helped).for_each(|port| common.pager.help_port(*port, true));
        helped.difference(&ports).for_each(|port| common.pager.help_port(*port, false));
        helped = ports;
        let mut has_worked = common.pager.reclaim_as_host(Simulated::now());
        for port in &helped {
            has_worked |= common.pager.install_for(*port);
        }
        if !has_worked {
            step(Step::Wait);
        }
    }
    helped.iter().for_each(|port| common.pager.help_port(*port, false));
    common.pager.end_hosting();
}

/// Another process of the node, which has far memory that was given back: nobody else writes there.
pub(crate) fn neighbour() {
    while with(|world| world.busy) > 0 {
        if let Some(page) = with(|world| world.far.look_as_neighbour(world.now)) {
            violate(format!("far page {page} is written, which has been another process' since it was given back"));
        }
        park(Simulated::now() + 10_000 + below(200_000));
    }
}
