//! Which regions move where (Clio, section 4.7: proactive migration of rarely used regions from nodes under pressure).
//!
//! A node that drains gives all its regions away; a node under pressure the coldest ones, until it is below the lower
//! mark. A region's move is a record before the owner hears of it, and is ordered again with the same name after every
//! interruption, until the owner says how it ended. It ends well when the owner has closed the region for good, which
//! the owner tells the target and the controller; either tells the other, so one of them is enough. The target serves
//! the region from the first of the two on; until it has said so the region is `opening`, and is not moved again.

use std::cmp::Reverse;

use yonder_units::Nanos;

use crate::asker::Maker;
use crate::controller::Controller;
use crate::fullness::Fullness;
use crate::group::SAME_NODE;
use crate::message::{Command, MoveOrder};
use crate::names::{MoveId, NodeId, Pid};
use crate::record::{Duty, Move, NodeRecord, Presence, Record, RegionRecord};

impl Controller {
    /// Starts moves that are due, and notes nodes that have become empty.
    pub(crate) fn plan_moves(&mut self, now: Nanos) {
        self.end_drains();
        // A move whose owner is lost waits for it, and must not hold others up.
        let is_under_way = |record: &RegionRecord| record.moving.is_some() && !self.is_lost(record.owner);
        let under_way = self.state.regions.values().filter(|record| is_under_way(record)).count();
        let mut left = self.config.moves_max.saturating_sub(under_way);
        if left == 0 {
            return;
        }
        let mut fullness = self.fullness();
        let (draining, serving) = (self.nodes_with(Duty::Draining), self.nodes_with(Duty::Serving));
        for node in draining.into_iter().chain(serving) {
            if self.is_connected(node) {
                left -= self.plan_moves_from(node, left, &mut fullness, now);
            }
        }
    }

    /// What the owner of a region is told about its move; `None` if it does not move, or the target is not ready.
    pub(crate) fn move_order(&self, (pid, region): (Pid, u32)) -> Option<MoveOrder> {
        let moving = self.state.regions.get(&(pid, region))?.moving?;
        let Some(Presence::Ready(capabilities)) = self.state.presences.get(&(pid, moving.to)) else { return None };
        let target = &self.state.nodes.get(&moving.to)?.facts;
        Some(MoveOrder {
            id: moving.id,
            pid,
            region,
            address: u64::from(region) * self.config.region_bytes,
            bytes: self.config.region_bytes,
            to: moving.to,
            name: target.name.clone(),
            urls: target.urls.clone(),
            capability: capabilities.owner,
        })
    }

    /// Tells the owner of a region that a move has brought to serve it.
    pub(crate) fn open_order(&self, (pid, region): (Pid, u32)) -> Option<Command> {
        let id = self.state.regions.get(&(pid, region))?.opening?;
        Some(Command::OpenRegion { pid, region, id })
    }

    /// Tells a node to free what a failed move has left there. All moves to there that were ordered are over.
    pub(crate) fn drop_order(&self, (pid, region): (Pid, u32)) -> Command {
        Command::DropRegion { pid, region, before: self.state.cluster.next_move, is_given_up: false }
    }

    pub(crate) fn send_move_order(&mut self, key: (Pid, u32)) {
        let owner = self.state.regions[&key].owner;
        if let Some(order) = self.move_order(key) {
            self.command(owner, Command::MoveRegion(order));
        }
    }

    /// Takes back the moves of a space's regions to a node that has not made the space: no owner has heard of them.
    pub(crate) fn cancel_unsent_moves(&mut self, pid: Pid, to: NodeId) -> Vec<u32> {
        if self.state.ready(pid, to) {
            return Vec::new();
        }
        let unsent: Vec<u32> = self
            .state
            .regions_of(pid)
            .filter(|(_, record)| record.moving.is_some_and(|moving| moving.to == to))
            .map(|(region, _)| region)
            .collect();
        for region in &unsent {
            let mut record = self.state.regions[&(pid, *region)].clone();
            record.moving = None;
            self.state.put_region((pid, *region), record);
        }
        unsent
    }

    /// Tells the node to make the space, unless it was told; first to end what it has of an earlier time.
    pub(crate) fn begin_space(&mut self, pid: Pid, node: NodeId) {
        if !self.state.presences.contains_key(&(pid, node)) && !self.end_if_stray(pid, node) {
            self.state.put_presence(pid, node, Presence::Creating);
            let create = self.create_order(pid);
            self.command(node, create);
        }
    }

    /// How a node is told to make a space: for the tenant alone that has made it, where tenants have names.
    pub(crate) fn create_order(&self, pid: Pid) -> Command {
        let tenant = self.state.spaces.get(&pid).and_then(|space| match &space.maker {
            Some(Maker::Tenant(name)) => Some(name.clone()),
            _ => None,
        });
        Command::CreateSpace { pid, tenant }
    }

    fn nodes_with(&self, duty: Duty) -> Vec<NodeId> {
        self.state.nodes.iter().filter(|(_, record)| record.duty == duty).map(|(node, _)| *node).collect()
    }

    /// Starts at most `moves_max` moves away from one node; returns how many.
    fn plan_moves_from(&mut self, from: NodeId, moves_max: usize, fullness: &mut Fullness, now: Nanos) -> usize {
        let drains = self.state.nodes[&from].duty == Duty::Draining;
        if moves_max == 0 || !drains && !fullness.is_pressed(from) {
            return 0;
        }
        let mut started = 0;
        for key in self.coldest_first(from, now) {
            if started == moves_max || !drains && !fullness.is_above_low(from) {
                break;
            }
            let usage = &self.usage[&key];
            let is_worth_it = drains || usage.reported().is_some_and(|reported| reported.resident_bytes > 0);
            if is_worth_it && let Some(to) = self.target_for(key, fullness, drains) {
                self.start_move(key, to);
                started += 1;
                *fullness = self.fullness();
            }
        }
        started
    }

    /// The node's regions that may move: coldest first, of equally cold ones the largest.
    fn coldest_first(&self, node: NodeId, now: Nanos) -> Vec<(Pid, u32)> {
        let mut found: Vec<_> = self
            .state
            .regions
            .iter()
            .filter(|(_, record)| record.owner == node && record.is_stable())
            .filter_map(|(key, _)| {
                let usage = &self.usage[key];
                let reported = usage.reported().filter(|_| usage.rests_until <= now)?;
                Some((reported.heat, Reverse(reported.resident_bytes), *key))
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, _, key)| key).collect()
    }

    /// Where a region goes. One of a group goes to no node that has another, and as far as possible from those, and
    /// rather within their set; away from a node that is only under pressure it does not come any closer to them.
    fn target_for(&self, key: (Pid, u32), fullness: &Fullness, drains: bool) -> Option<NodeId> {
        let record = &self.state.regions[&key];
        let others =
            record.group.map(|group| self.nodes_of_group(key.0, group.number, Some(key.1))).unwrap_or_default();
        let others: Vec<NodeId> = others.into_iter().collect();
        let closest = if drains { SAME_NODE } else { self.closeness(record.owner, &others).saturating_add(1) };
        let home = record.group.map(|group| self.home_of(&others, group.places)).unwrap_or_default();
        let closeness = |node| {
            let close = Some(self.closeness(node, &others)).filter(|close| *close < closest.min(SAME_NODE))?;
            Some(2 * close + u32::from(!home.contains(&node)))
        };
        fullness.target_for(key.1, record, &self.usage[&key], closeness)
    }

    fn start_move(&mut self, key: (Pid, u32), to: NodeId) {
        let id = self.state.cluster.next_move;
        self.state.count(|cluster| cluster.next_move = MoveId(id.0 + 1));
        // First, so that no prefix of the changes has a move whose target will never hear of the space.
        self.begin_space(key.0, to);
        let mut record = self.state.regions[&key].clone();
        record.moving = Some(Move { id, to });
        self.state.put_region(key, record);
        self.send_move_order(key);
    }

    fn end_drains(&mut self) {
        for node in self.nodes_with(Duty::Draining) {
            if self.regions_left(node) == 0 {
                self.set_duty(node, Duty::Drained);
            }
        }
    }

    /// Changes what is wanted of a node.
    pub(crate) fn set_duty(&mut self, node: NodeId, duty: Duty) {
        let record = &self.state.nodes[&node];
        if record.duty != duty {
            self.state.put(Record::Node(NodeRecord { duty, ..record.clone() }));
        }
    }

    /// Regions that are at a node or on their way to it.
    pub(crate) fn regions_left(&self, node: NodeId) -> u64 {
        let counts = |owner: NodeId, moving: Option<Move>| owner == node || moving.is_some_and(|to| to.to == node);
        self.state.regions.values().filter(|record| counts(record.owner, record.moving)).count() as u64
    }
}
