//! What happens to the nodes, the links and the program of a [`World`].

use rand::Rng as _;
use yonder_protect::Slot;

use super::super::MS;
use super::super::controller::Location;
use super::super::owner::PlaceRecord;
use super::{Event, Link, NODES_FEW, Weather, World};

/// As long it takes at most until a node is heard again.
const LATELY: u64 = 300 * MS;

impl World {
    /// A region moves to a node that has none of the group's, now and then: more often than not to where it was before.
    pub(super) fn move_region(&mut self) {
        let now = self.owner.now;
        if self.is_closing || self.controller.is_away(now) || !self.owner.chance(self.moving) {
            return;
        }
        let regions: Vec<u64> = self.supervisor.places(&self.owner).map(|place| place.region).collect();
        if regions.is_empty() {
            return;
        }
        let last = self.last_moved.filter(|region| regions.contains(region) && self.owner.chance(0.5));
        let region = last.unwrap_or_else(|| regions[self.owner.rng.random_range(0..regions.len())]);
        let any = self.owner.rng.random_range(0..self.nodes.len());
        let before = self.controller.before(region).filter(|_| self.owner.chance(0.8));
        let to = before.unwrap_or(any);
        let is_free = !self.controller.uses(to, regions) && !self.supervisor.has_asked(to);
        if is_free && self.controller.begin(region, to, &mut self.nodes, now) {
            // Some take longer than a node may be silent.
            let is_long = self.weather == Weather::Wild && self.owner.chance(0.1);
            let usual = if self.owner.chance(0.5) { 60 * MS } else { 3 * MS };
            let longest = if is_long { 1_500 * MS } else { usual };
            let span = self.owner.rng.random_range(MS..longest);
            self.last_moved = Some(region);
            self.schedule(now + span, Event::Moved(region));
        }
    }

    pub(super) fn fault(&mut self) {
        let now = self.owner.now;
        let longest = if self.weather == Weather::Restless { 20 * MS } else { 350 * MS };
        let next = 40 * MS + self.owner.rng.random_range(0..longest);
        if self.is_closing {
            return;
        }
        self.schedule(now + next, Event::Fault);
        let is_fair = !self.is_wild();
        let waits = is_fair && self.weather != Weather::Calm;
        if waits && !(self.is_calm_now() && self.supervisor.is_whole(&self.owner, self.wanted)) {
            return;
        }
        let node = self.victim();
        let short = self.owner.rng.random_range(5 * MS..300 * MS);
        let long = self.owner.rng.random_range(5 * MS..2_500 * MS);
        let is_long = self.owner.chance(if self.weather == Weather::Restless { 0.9 } else { 0.5 });
        let span = if is_long { long } else { short };
        if self.weather == Weather::Placid {
            return;
        }
        let kind = match self.weather {
            Weather::Calm => self.owner.rng.random_range(0..2),
            Weather::Restless => 2 + usize::from(self.owner.chance(0.9)),
            _ => self.owner.rng.random_range(0..6),
        };
        let last = |until: &mut u64| *until = (*until).max(now + span);
        match kind {
            0 => last(&mut self.program_stopped_until),
            1 => last(&mut self.links[node].slow_until),
            2 => last(&mut self.links[node].cut_until),
            3 | 4 => last(&mut self.links[node].stalled_until),
            // The only copy of a page is lost with its node.
            _ if is_fair && self.wanted == self.owner.group.protection().needed() => {}
            _ if self.nodes[node].is_down => {}
            _ => {
                self.nodes[node].crash();
                self.schedule(now + span, Event::Restart(node));
            }
        }
        self.has_node_failed |= kind >= 2;
    }

    /// Whether a node is gone, or could not be reached a moment ago, in which the program has not stood still.
    pub(super) fn has_failed_lately(&self) -> bool {
        let is_lately = |end: u64| end + LATELY >= self.owner.now;
        let was_cut_off = |link: &Link| is_lately(link.stalled_until.max(link.cut_until));
        let is_any_down = self.nodes.iter().any(|node| node.is_down && !node.is_gone);
        is_any_down || is_lately(self.program_stopped_until) || self.links.iter().any(was_cut_off)
    }

    /// A node that has a place, more often than not.
    pub(super) fn victim(&mut self) -> usize {
        let node = self.owner.rng.random_range(0..self.nodes.len());
        let slots = if usize::from(self.wanted) > NODES_FEW { self.wanted } else { 4 };
        let slot = Slot::new(self.owner.rng.random_range(0..slots));
        if self.owner.chance(0.8) { self.supervisor.node(&self.owner, slot).unwrap_or(node) } else { node }
    }

    /// Whether no fault is going on.
    pub(super) fn is_calm_now(&self) -> bool {
        let now = self.owner.now;
        let is_calm = |link: &Link| [link.stalled_until, link.cut_until, link.slow_until].iter().all(|end| *end <= now);
        let is_program_calm = self.program_stopped_until <= now;
        is_program_calm
            && self.is_noticed()
            && self.links.iter().all(is_calm)
            && self.nodes.iter().all(|node| !node.is_down || node.is_gone)
    }

    /// Whether all places are where the program takes them to be: what came back, or has moved, is noticed when it is
    /// asked.
    pub(super) fn is_noticed(&self) -> bool {
        self.supervisor.places(&self.owner).all(|PlaceRecord { node, incarnation, region, .. }| {
            let is_present = self.nodes[node].incarnation == incarnation;
            is_present && self.controller.is_at(region, Location { node, incarnation })
        })
    }
}
