//! What nodes answer to commands.
//!
//! An outcome counts only if the records still want it: an answer to a command that was repeated, or is not wanted any
//! more, finds nothing to change.

use yonder_units::Nanos;

use crate::controller::Controller;
use crate::message::{Answer, Arrival, Command, Outcome, Refusal};
use crate::names::{MoveId, NodeId, Pid};
use crate::record::{Capabilities, Move, Presence, RecordKey, RegionRecord};

/// Longest cause that is passed on, to each of those who wait: one line.
const CAUSE_BYTES_MAX: usize = 1024;

impl Controller {
    pub(crate) fn answered(&mut self, node: NodeId, outcome: Outcome, now: Nanos) {
        match outcome {
            Outcome::SpaceCreated { pid, capabilities } => self.space_created(pid, node, capabilities),
            Outcome::SpaceRefused { pid, cause } => {
                self.space_refused(pid, node, beginning(&cause), now);
            }
            Outcome::SpaceDestroyed { pid } => self.space_destroyed(pid, node),
            Outcome::Moved { id } => self.moved(node, id),
            Outcome::RegionOpened { pid, region, id } => self.region_opened((pid, region), node, id),
            Outcome::MoveFailed { id, .. } => self.move_failed(node, id, now),
            Outcome::RegionDropped { pid, region } => {
                if let Some(record) = self.state.regions.get(&(pid, region))
                    && record.leftovers.contains(&node)
                {
                    let mut record = record.clone();
                    record.leftovers.remove(&node);
                    self.state.put_region((pid, region), record);
                }
            }
        }
    }

    fn space_created(&mut self, pid: Pid, node: NodeId, capabilities: Capabilities) {
        if self.state.presences.get(&(pid, node)) != Some(&Presence::Creating) {
            return;
        }
        self.state.put_presence(pid, node, Presence::Ready(capabilities));
        let coming: Vec<u32> = self
            .state
            .regions_of(pid)
            .filter(|(_, record)| record.moving.is_some_and(|moving| moving.to == node))
            .map(|(region, _)| region)
            .collect();
        for region in coming {
            self.send_move_order((pid, region));
        }
        self.ask_again(node, Some(pid));
    }

    /// What the node had of a space is gone. If that was of an earlier time of the node, it may be wanted there again.
    fn space_destroyed(&mut self, pid: Pid, node: NodeId) {
        if self.state.presences.get(&(pid, node)) != Some(&Presence::Ending) {
            return;
        }
        let moves_there = |record: &RegionRecord| record.moving.is_some_and(|moving| moving.to == node);
        if self.state.regions_of(pid).any(|(_, record)| moves_there(record)) {
            // In one change, so that no prefix of the changes has a move whose target will never hear of the space.
            self.state.put_presence(pid, node, Presence::Creating);
            let create = self.create_order(pid);
            self.command(node, create);
        } else {
            self.state.delete(RecordKey::Presence(pid, node));
        }
        self.ask_again(node, Some(pid));
    }

    fn space_refused(&mut self, pid: Pid, node: NodeId, cause: &str, now: Nanos) {
        if self.state.presences.get(&(pid, node)) != Some(&Presence::Creating) {
            return;
        }
        for region in self.cancel_unsent_moves(pid, node) {
            self.rest((pid, region), now);
        }
        self.state.delete(RecordKey::Presence(pid, node));
        let url = self.state.url(node);
        for waiting in self.take_waiting(|waiting| waiting.node == node && waiting.pid == pid) {
            let refusal = Refusal::NodeRefused { url: url.clone(), cause: cause.to_owned() };
            self.actions.answers.push((waiting.ticket, Answer::Refused(refusal)));
        }
    }

    fn moved(&mut self, node: NodeId, id: MoveId) {
        let Some((key, to)) = self.find_move(node, id) else { return };
        self.hand_over(key, Move { id, to });
    }

    /// A node serves a region because its source has told it to. The source may not have been able to say so here.
    pub(crate) fn arrived(&mut self, node: NodeId, arrival: &Arrival) {
        let key = (arrival.pid, arrival.region);
        let Some(record) = self.state.regions.get(&key) else { return };
        let brought = Move { id: arrival.id, to: node };
        if record.moving == Some(brought) && self.state.ready(arrival.pid, node) {
            self.hand_over(key, brought);
        } else if record.owner == node && record.is_stable() {
            // The records have it already: the node is told again, and stops saying so.
            self.command(node, Command::OpenRegion { pid: arrival.pid, region: arrival.region, id: arrival.id });
        }
    }

    /// The source has closed the region for good: it is the target's.
    fn hand_over(&mut self, key: (Pid, u32), Move { id, to }: Move) {
        let mut record = self.state.regions[&key].clone();
        let node = record.owner;
        (record.owner, record.moving, record.opening) = (to, None, Some(id));
        self.state.put_region(key, record);
        if let Some(order) = self.open_order(key) {
            self.command(to, order);
        }
        // The nodes' next reports say so themselves; until then this is what changed.
        let resident = self.usage[&key].reported().map_or(0, |reported| i128::from(reported.resident_bytes));
        for (node, bytes) in [(node, -resident), (to, resident)] {
            if let Some(live) = self.live.get_mut(&node) {
                live.moved_bytes += bytes;
            }
        }
    }

    fn region_opened(&mut self, key: (Pid, u32), node: NodeId, id: MoveId) {
        if let Some(record) = self.state.regions.get(&key)
            && record.owner == node
            && record.opening == Some(id)
        {
            let record = RegionRecord { opening: None, ..record.clone() };
            self.state.put_region(key, record);
        }
    }

    fn move_failed(&mut self, node: NodeId, id: MoveId, now: Nanos) {
        let Some((key, to)) = self.find_move(node, id) else { return };
        let mut record = self.state.regions[&key].clone();
        record.moving = None;
        record.leftovers.insert(to);
        self.state.put_region(key, record);
        self.rest(key, now);
        self.command(to, self.drop_order(key));
        if self.is_lost(to) {
            self.give_up_what_is_empty(to);
        }
    }

    /// The region that `node` is moving under this name, and where it goes. Only a move whose order can have been sent:
    /// the target has the address space by then.
    fn find_move(&self, node: NodeId, id: MoveId) -> Option<((Pid, u32), NodeId)> {
        self.state.regions.iter().find_map(|(key, record)| {
            let moving = record
                .moving
                .filter(|moving| moving.id == id && record.owner == node && self.state.ready(key.0, moving.to))?;
            Some((*key, moving.to))
        })
    }

    fn rest(&mut self, key: (Pid, u32), now: Nanos) {
        self.usage.entry(key).or_default().rests_until = now.saturating_add(self.config.move_retry);
    }
}

/// As much of a cause as is passed on.
fn beginning(cause: &str) -> &str {
    let end = (0..=cause.len().min(CAUSE_BYTES_MAX)).rev().find(|end| cause.is_char_boundary(*end));
    &cause[..end.unwrap_or(0)]
}
