//! [`Controller`]: knows where each region is, and has regions moved to other nodes.
//!
//! What a region contains when it begins to move is what it contains at the other node when it ends. If the other is
//! gone by then it stays where it is, and if its own node is, it is lost.

use std::collections::BTreeMap;

use super::Sabotage;
use super::node::{Contents, Node};

/// A node, and which incarnation of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Location {
    pub(super) node: usize,
    pub(super) incarnation: u32,
}

/// What is known of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    At(Location),
    /// Its node is gone, or came back without it.
    Lost,
    /// No controller answers.
    Unknown,
}

/// A region on its way.
struct Move {
    from: Location,
    to: Location,
    contents: Contents,
    begun: u64,
}

#[derive(Default)]
pub(super) struct Controller {
    regions: BTreeMap<u64, Location>,
    /// Where regions were before they moved last.
    before: BTreeMap<u64, usize>,
    moves: BTreeMap<u64, Move>,
    /// None answers until then.
    pub(super) away_until: u64,
}

impl Controller {
    pub(super) fn is_away(&self, now: u64) -> bool {
        now < self.away_until
    }

    /// A node has given a region.
    pub(super) fn note(&mut self, region: u64, location: Location) {
        self.regions.insert(region, location);
    }

    /// Where a region is.
    pub(super) fn find(&self, region: u64, nodes: &[Node], now: u64) -> Found {
        let location = self.regions[&region];
        match () {
            () if self.is_away(now) => Found::Unknown,
            () if is_there(nodes, location) => Found::At(location),
            () => Found::Lost,
        }
    }

    /// Whether the node that a region is at came back without it, or never will.
    pub(super) fn is_gone(&self, region: u64, nodes: &[Node]) -> bool {
        let Location { node, incarnation } = self.regions[&region];
        nodes[node].incarnation != incarnation || nodes[node].is_gone
    }

    /// Whether a region is there, and does not move.
    pub(super) fn is_at(&self, region: u64, location: Location) -> bool {
        self.regions[&region] == location && !self.moves.contains_key(&region)
    }

    /// Whether some region of these is at a node, or is to be.
    pub(super) fn uses(&self, node: usize, regions: impl IntoIterator<Item = u64>) -> bool {
        let is_at = |region: u64| self.regions[&region].node == node;
        self.moves.values().any(|moved| moved.to.node == node) || regions.into_iter().any(is_at)
    }

    /// Where a region was before it moved.
    pub(super) fn before(&self, region: u64) -> Option<usize> {
        self.before.get(&region).copied()
    }

    /// A region begins to move. Whether it does.
    pub(super) fn begin(&mut self, region: u64, to: usize, nodes: &mut [Node], now: u64) -> bool {
        let from = self.regions[&region];
        let can_move = is_there(nodes, from) && !nodes[to].is_down && !self.moves.contains_key(&region);
        if can_move {
            let to = Location { node: to, incarnation: nodes[to].incarnation };
            let contents = nodes[from.node].close(region);
            self.moves.insert(region, Move { from, to, contents, begun: now });
        }
        can_move
    }

    /// A region has moved, if both nodes are there still. Whether it has.
    pub(super) fn end(&mut self, region: u64, nodes: &mut [Node], sabotage: Option<Sabotage>) -> bool {
        let Move { from, to, contents, begun } = self.moves.remove(&region).expect("it has begun");
        let (is_from, is_to) = (is_there(nodes, from), is_there(nodes, to));
        if is_from && is_to {
            nodes[from.node].hand_over(region, sabotage);
            nodes[to.node].take_over(region, contents, begun);
            self.regions.insert(region, to);
            self.before.insert(region, from.node);
        } else if is_from {
            nodes[from.node].open(region);
        }
        is_from && is_to
    }
}

fn is_there(nodes: &[Node], location: Location) -> bool {
    let node = &nodes[location.node];
    !node.is_down && node.incarnation == location.incarnation
}
