//! [`Fullness`]: how full each node is and will be, from reports, from what was given since, and from moves under way.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::NODE_MEMORY_BYTES_MAX;
use crate::config::Config;
use crate::live::{Link, Live, Usage};
use crate::names::{NodeId, Pid};
use crate::record::{Duty, RegionRecord};
use crate::state::State;

/// One node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    memory: u64,
    page_bytes: u64,
    /// Most bytes that may be allocated on it.
    commit_limit: u64,
    /// Bytes in use from which on it gets nothing.
    pressure_high: i128,
    committed: u64,
    /// Bytes of those allocations that have memory already.
    resident: i128,
    used: i128,
    leaving: i128,
    coming: i128,
    pub(crate) regions: u64,
    pub(crate) regions_leaving: u64,
    takes_regions: bool,
}

/// All nodes.
#[derive(Clone, Debug)]
pub(crate) struct Fullness {
    config: Config,
    loads: BTreeMap<NodeId, Load>,
}

impl Fullness {
    /// As it is now.
    pub(crate) fn of(
        config: &Config,
        state: &State,
        live: &BTreeMap<NodeId, Live>,
        usage: &BTreeMap<(Pid, u32), Usage>,
    ) -> Self {
        let loads = state.nodes.iter().map(|(node, record)| {
            let facts = &record.facts;
            let seen = &live[node];
            let used = i128::from(facts.memory_bytes) - i128::from(seen.free_bytes.unwrap_or(0)) + seen.moved_bytes;
            let load = Load {
                memory: facts.memory_bytes,
                page_bytes: facts.page_bytes,
                commit_limit: config.commit_limit(facts.memory_bytes),
                pressure_high: config.pressure_high(facts.memory_bytes).into(),
                committed: 0,
                resident: 0,
                used: used.max(0),
                leaving: 0,
                coming: 0,
                regions: 0,
                regions_leaving: 0,
                takes_regions: seen.link == Link::Connected && record.duty == Duty::Serving,
            };
            (*node, load)
        });
        let mut fullness = Self { config: *config, loads: loads.collect() };
        for (key, region) in &state.regions {
            fullness.count(region, &usage[key]);
        }
        fullness
    }

    fn count(&mut self, region: &RegionRecord, usage: &Usage) {
        let allocated = usage.allocated(self.config.region_bytes);
        let resident = i128::from(usage.reported().unwrap_or_default().resident_bytes);
        if let Some(owner) = self.loads.get_mut(&region.owner) {
            owner.committed = owner.committed.saturating_add(allocated);
            owner.resident += resident;
            owner.regions += 1;
            if region.moving.is_some() {
                owner.leaving += resident;
                owner.regions_leaving += 1;
            }
        }
        if let Some(target) = region.moving.and_then(|moving| self.loads.get_mut(&moving.to)) {
            target.committed = target.committed.saturating_add(allocated);
            target.coming += resident;
        }
    }

    pub(crate) fn load(&self, node: NodeId) -> &Load {
        &self.loads[&node]
    }

    /// Notes that `bytes` will be allocated on the node.
    pub(crate) fn give(&mut self, node: NodeId, bytes: u64) {
        if let Some(load) = self.loads.get_mut(&node) {
            load.committed = load.committed.saturating_add(bytes);
        }
    }

    /// Takes back what [`Fullness::give`] has noted.
    pub(crate) fn take_back(&mut self, node: NodeId, bytes: u64) {
        if let Some(load) = self.loads.get_mut(&node) {
            load.committed = load.committed.saturating_sub(bytes);
        }
    }

    /// Whether `bytes` more may be allocated in this region at the node.
    pub(crate) fn has_room(&self, node: NodeId, region: u32, bytes: u64) -> bool {
        self.loads.get(&node).is_some_and(|load| load.has_room(region, bytes, self.config.region_bytes))
    }

    /// Whether the node gets regions, if it has room.
    pub(crate) fn takes_regions(&self, node: NodeId) -> bool {
        self.loads.get(&node).is_some_and(|load| load.takes_regions)
    }

    /// The share of the node's memory that is spoken for, in parts of 2^32.
    pub(crate) fn share_spoken_for(&self, node: NodeId) -> i128 {
        let load = &self.loads[&node];
        (load.spoken_for() << 32) / i128::from(load.memory.max(1))
    }

    /// The share of the node's memory that some bytes are, in the same parts.
    pub(crate) fn share_of(&self, node: NodeId, bytes: u64) -> i128 {
        (i128::from(bytes) << 32) / i128::from(self.loads[&node].memory.max(1))
    }

    /// The node for a new region: the emptiest one that has room, so that a space spreads over all nodes.
    pub(crate) fn node_for(&self, region: u32, bytes: u64) -> Option<NodeId> {
        let with_room = self.loads.iter().filter(|(_, load)| load.has_room(region, bytes, self.config.region_bytes));
        with_room.min_by(|(_, a), (_, b)| a.compare_spoken_for(b)).map(|(node, _)| *node)
    }

    /// Whether all nodes together have room for so many regions from `region` on, of which the last needs `last_bytes`
    /// alone: else no row of them is found, whatever regions there are.
    pub(crate) fn have_room_for_row(&self, region: u32, length: u32, last_bytes: u64) -> bool {
        let region_bytes = self.config.region_bytes;
        let with_room = self.loads.values().filter(|load| load.has_room(region, last_bytes, region_bytes));
        let (mut whole, mut fits_last) = (0, false);
        for left in with_room.map(|load| load.commit_limit - load.committed) {
            whole += u128::from(left / region_bytes);
            fits_last |= left % region_bytes >= last_bytes;
        }
        whole + u128::from(fits_last) >= length.into()
    }

    /// The node to move a region to, if it stays out of pressure: of those for which `closeness` says the least, the
    /// one with the smallest share of its memory in use. One for which it says nothing is none.
    pub(crate) fn target_for(
        &self,
        region: u32,
        record: &RegionRecord,
        usage: &Usage,
        closeness: impl Fn(NodeId) -> Option<u32>,
    ) -> Option<NodeId> {
        let allocated = usage.allocated(self.config.region_bytes);
        let resident = i128::from(usage.reported()?.resident_bytes);
        let fits = |node: NodeId, load: &Load| {
            node != record.owner
                && !record.leftovers.contains(&node)
                && load.has_room(region, allocated, self.config.region_bytes)
                && load.used + load.coming + resident <= load.pressure_high
        };
        let fitting = self.loads.iter().filter(|(node, load)| fits(**node, load));
        let near = fitting.filter_map(|(node, load)| Some((closeness(*node)?, load, *node)));
        near.min_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.compare_used(b.1))).map(|(.., node)| node)
    }

    /// Whether the node has so much in use that it must begin to give regions away.
    pub(crate) fn is_pressed(&self, node: NodeId) -> bool {
        let load = &self.loads[&node];
        load.used - load.leaving >= load.pressure_high
    }

    /// Whether it has, after what is moving now, still more in use than where it may stop.
    pub(crate) fn is_above_low(&self, node: NodeId) -> bool {
        let load = &self.loads[&node];
        load.used - load.leaving >= i128::from(self.config.pressure_low(load.memory))
    }
}

impl Load {
    pub(crate) const fn committed(&self) -> u64 {
        self.committed
    }

    /// Whether `bytes` more may be allocated in this region.
    fn has_room(&self, region: u32, bytes: u64, region_bytes: u64) -> bool {
        self.takes_regions
            && self.reaches(region, region_bytes)
            && self.committed.saturating_add(bytes) <= self.commit_limit
            && self.used + self.coming < self.pressure_high
    }

    /// Whether the node can name the region's last page.
    fn reaches(&self, region: u32, region_bytes: u64) -> bool {
        let end = (u128::from(region) + 1) * u128::from(region_bytes);
        end <= u128::from(self.page_bytes) << 32
    }

    /// Bytes that are not free, or will not be once all that is allocated has its memory.
    fn spoken_for(&self) -> i128 {
        self.used + (i128::from(self.committed) - self.resident).max(0)
    }

    /// Which of two nodes has the smaller share of its memory spoken for. Both have room, and memory of at most
    /// [`NODE_MEMORY_BYTES_MAX`], so the products are far from their bound.
    fn compare_spoken_for(&self, other: &Self) -> Ordering {
        let share = self.spoken_for() * i128::from(other.memory);
        share.cmp(&(other.spoken_for() * i128::from(self.memory)))
    }

    fn compare_used(&self, other: &Self) -> Ordering {
        let share = (self.used + self.coming) * i128::from(other.memory);
        share.cmp(&((other.used + other.coming) * i128::from(self.memory)))
    }
}

// Bytes in use, which are fewer than a node's memory if it has room, and those allocated, as the other one's memory.
const _: () =
    assert!((NODE_MEMORY_BYTES_MAX as i128 + u64::MAX as i128).checked_mul(NODE_MEMORY_BYTES_MAX as i128).is_some());
