//! How nodes and lanes begin.

use rand::Rng;
use yonder_simulation::Clock;

use crate::history::Life;
use crate::lane::Lane;
use crate::node::{Birth, Node};
use crate::sabotage::Sabotage;
use crate::settings::MILLISECOND;
use crate::world::World;

/// Clocks drift by at most this many millionths. Two of them drift apart by less than a client allows for, 1 in 1024.
const DRIFT_PPM_MAX: i64 = 400;

impl World {
    /// A node that begins, with clock and key of its own.
    pub(crate) fn new_node(&mut self, node: usize, number: u32) -> Node {
        if let Some(planned) = self.slow_is_planned.get_mut(node) {
            *planned = false;
        }
        if let Some(planned) = self.refill_is_planned.get_mut(node) {
            *planned = false;
        }
        let secret = match self.sabotage {
            Some(Sabotage::KeptSecret) => [node as u8; 32],
            _ => self.guard_rng.random(),
        };
        let birth = Birth { clock: self.new_clock(), seed: self.rng.random(), key: self.rng.random(), secret };
        Node::new(Life { node, number }, birth, &self.settings, self.sabotage, self.events.now())
    }

    fn new_clock(&mut self) -> Clock {
        let offset = self.rng.random_range(1..1_000_000) * MILLISECOND;
        Clock::new(offset, self.rng.random_range(-DRIFT_PPM_MAX..=DRIFT_PPM_MAX))
    }

    pub(crate) fn new_lane(&mut self, index: usize) -> Lane {
        let (transport, stream) = self.draw_stream();
        let client = self.new_client(transport);
        let settings = &self.settings;
        let process = index / (settings.nodes * settings.lanes);
        let life = self.nodes[index / settings.lanes % settings.nodes].life();
        let budget = settings.operations;
        let thread = self.rng.random_range(0..self.settings.threads);
        // All lanes of a process have one clock.
        let clock = match index % (self.settings.nodes * self.settings.lanes) {
            0 => self.new_clock(),
            _ => self.last_clock,
        };
        self.last_clock = clock;
        let mut lane = Lane::new(process, life, thread, clock, client, budget);
        lane.stream = stream;
        lane.has_sessions = self.settings.sessions().is_some();
        lane
    }

    /// Makes the first sessions of all processes, and plans to look after them.
    pub(crate) fn begin_sessions(&mut self) -> Result<(), String> {
        if self.settings.sessions().is_some() {
            for process in 0..self.settings.processes {
                self.renew_sessions(process)?;
            }
        }
        Ok(())
    }
}
