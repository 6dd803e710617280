//! Processes that end, and others that begin in their place: nothing of what a process knew of its operations is left,
//! its datagrams are still on their way, and its names are drawn anew.
//!
//! Some know the address spaces and capabilities of the process before, and open these a second time; the others claim
//! new ones, and what was theirs is left to its lease.

use rand::Rng;
use yonder_client::{Client, Config, Transport, WindowConfig};

use crate::counts::Count;
use crate::homes::Home;
use crate::world::{Event, World};

impl World {
    /// A process ends, and another one begins in its place.
    pub(crate) fn restart_process(&mut self, process: usize) -> Result<(), String> {
        let remembers = self.rng.random_bool(0.5);
        self.trace.say(self.events.now(), || format!("process {process} begins anew, and remembers: {remembers}"));
        self.counts.add(Count::ProcessRestarts, 1);
        self.disconnect(|lane| lane.process == process);
        let lanes: Vec<usize> = (0..self.lanes.len()).filter(|lane| self.lanes[*lane].process == process).collect();
        for lane in lanes {
            self.lanes[lane].client.abandon();
            self.take_completions(lane)?;
            self.history.lane_begins(lane);
            let transport = if self.lanes[lane].stream.is_some() { Transport::Stream } else { Transport::Datagram };
            self.lanes[lane].client = self.new_client(transport);
            // Another socket comes to another data thread.
            self.lanes[lane].thread = self.rng.random_range(0..self.settings.threads);
            self.events.after(0, Event::Wake { lane });
        }
        if !remembers {
            let homes = process * self.settings.nodes..(process + 1) * self.settings.nodes;
            self.homes[homes].fill(Home::default());
        }
        // Nobody inherits a session.
        (0..self.settings.nodes).try_for_each(|node| self.begin_line(process, node))
    }

    /// The client of a lane, with names of its own.
    pub(crate) fn new_client(&mut self, transport: Transport) -> Client {
        let first_id = self.rng.random_range(1..1 << 63);
        let settings = &self.settings;
        Client::new(Config {
            operations_max: settings.depth + 4,
            fragments_max: settings.fragments,
            fragment_bytes: settings.fragment_bytes,
            dependency_page_bytes: settings.dependency_page_bytes,
            timeout_min: settings.timeouts.0,
            timeout_max: settings.timeouts.1,
            window: WindowConfig { delay_target: settings.delay_target, ..WindowConfig::default() },
            incast_bytes: settings.incast_bytes,
            ..Config::new(transport, first_id)
        })
    }
}
