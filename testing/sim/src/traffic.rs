//! How messages go over the network, from lanes to nodes and back.

use yonder_session::Wrap;

use crate::node::Sender;
use crate::world::{Event, World};

impl World {
    /// A lane sends a message.
    pub(crate) fn send_to_node(&mut self, index: usize, bytes: Vec<u8>) {
        let now = self.events.now();
        let lane = &mut self.lanes[index];
        let (node, thread) = (lane.node, lane.thread);
        if let Some(stream) = &mut lane.stream {
            let from = Sender { lane: index, connection: stream.connection, wrap: Wrap::Plain };
            let at = stream.there.carry(&mut self.rng, &self.network.weather, now);
            self.events.at(at, Event::ToNode { node, thread, bytes, from });
        } else if self.network.is_whole(lane.process, node) {
            let from = Sender { lane: index, connection: 0, wrap: Wrap::Plain };
            let events = &mut self.events;
            self.network.carry(&mut self.rng, bytes, |after, bytes| {
                events.after(after, Event::ToNode { node, thread, bytes, from });
            });
        }
    }

    /// An answer goes to a lane.
    pub(crate) fn send_to_lane(&mut self, to: Sender, bytes: Vec<u8>) {
        let now = self.events.now();
        let lane = &mut self.lanes[to.lane];
        match &mut lane.stream {
            Some(stream) if stream.connection != to.connection || !stream.is_open => {}
            Some(stream) => {
                let at = stream.back.carry(&mut self.rng, &self.network.weather, now);
                self.events.at(at, Event::ToLane { to, bytes });
            }
            None if self.network.is_whole(lane.process, lane.node) => {
                let events = &mut self.events;
                self.network.carry(&mut self.rng, bytes, |after, bytes| {
                    events.after(after, Event::ToLane { to, bytes });
                });
            }
            None => {}
        }
    }
}
