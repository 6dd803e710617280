//! Where allocations go: a region of the space that has room, else a new one on the emptiest node; and several in a row
//! for a large one.

use std::collections::BTreeSet;

use crate::REGIONS_PER_REQUEST_MAX;
use crate::controller::Controller;
use crate::fullness::Fullness;
use crate::live::Usage;
use crate::message::{Answer, Placement, Refusal};
use crate::names::{NodeId, Pid};
use crate::record::{Presence, RegionRecord};

/// The first region of a space. Nothing is at address 0, nor near it.
const REGION_FIRST: u32 = 1;

/// One region of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    region: u32,
    node: NodeId,
    /// Bytes of the allocation in this region.
    bytes: u64,
}

/// How a request for regions goes on.
#[derive(Debug)]
pub(crate) enum Placing {
    /// It is answered.
    Done(Answer),
    /// It waits until this node has made the space.
    WaitsFor(NodeId),
}

impl Controller {
    /// Finds regions for `bytes`, and makes the new ones among them.
    pub(crate) fn place(&mut self, pid: Pid, bytes: u64, avoid: &[u32]) -> Placing {
        let bytes_max = self.config.region_bytes.saturating_mul(REGIONS_PER_REQUEST_MAX);
        if bytes == 0 || bytes > bytes_max {
            return Placing::Done(Answer::Refused(Refusal::BadLength { bytes, bytes_max }));
        }
        let avoid: BTreeSet<u32> = avoid.iter().copied().collect();
        let Some(parts) = self.find_parts(pid, bytes, &avoid) else {
            return Placing::Done(Answer::Refused(Refusal::NoRoom { bytes }));
        };
        for part in &parts {
            self.begin_space(pid, part.node);
        }
        if let Some(part) = parts.iter().find(|part| !self.state.ready(pid, part.node)) {
            return Placing::WaitsFor(part.node);
        }
        for part in &parts {
            self.take(pid, part);
        }
        let regions = parts.iter().filter_map(|part| self.placement(pid, part.region, |owner| owner.owner)).collect();
        Placing::Done(Answer::Placed { regions })
    }

    /// Where a region is, with one of its node's capabilities.
    pub(crate) fn placement(
        &self,
        pid: Pid,
        region: u32,
        choose: impl Fn(&crate::Capabilities) -> crate::Capability,
    ) -> Option<Placement> {
        let node = self.state.regions.get(&(pid, region))?.owner;
        let Some(Presence::Ready(capabilities)) = self.state.presences.get(&(pid, node)) else { return None };
        let facts = &self.state.nodes.get(&node)?.facts;
        let (name, urls, page_bytes) = (facts.name.clone(), facts.urls.clone(), facts.page_bytes);
        Some(Placement { region, node, name, urls, page_bytes, capability: choose(capabilities) })
    }

    fn take(&mut self, pid: Pid, part: &Part) {
        let key = (pid, part.region);
        if !self.state.regions.contains_key(&key) {
            let record = RegionRecord::new(part.node);
            self.state.put_region(key, record);
            self.usage.insert(key, Usage::empty());
        }
        self.usage.entry(key).or_default().give(part.bytes);
    }

    fn find_parts(&self, pid: Pid, bytes: u64, avoid: &BTreeSet<u32>) -> Option<Vec<Part>> {
        let fullness = self.fullness();
        if bytes > self.config.region_bytes {
            return self.find_row(pid, bytes, avoid, fullness);
        }
        let existing =
            self.state.regions_of(pid).filter(|(region, _)| !avoid.contains(region)).find_map(|(region, _)| {
                self.part_in_existing(pid, region, bytes, self.config.region_bytes - bytes, &fullness)
            });
        let part = existing.or_else(|| {
            let taken = |region: &u32| self.state.regions.contains_key(&(pid, *region)) || avoid.contains(region);
            let region = (REGION_FIRST..u32::MAX).find(|region| !taken(region))?;
            let node = fullness.node_for(region, self.on_pages(bytes))?;
            Some(Part { region, node, bytes: self.on_pages(bytes) })
        });
        part.map(|part| vec![part])
    }

    /// A part of `bytes` in a region that exists, if it has at most `allocated_max` allocated and its node has room.
    fn part_in_existing(
        &self,
        pid: Pid,
        region: u32,
        bytes: u64,
        allocated_max: u64,
        fullness: &Fullness,
    ) -> Option<Part> {
        let record = self.state.regions.get(&(pid, region))?;
        let allocated = self.usage[&(pid, region)].allocated(self.config.region_bytes);
        let bytes = self.on_pages(bytes);
        let fits = record.is_stable()
            && allocated <= allocated_max
            && allocated + bytes <= self.config.region_bytes
            && fullness.has_room(record.owner, region, bytes);
        fits.then_some(Part { region, node: record.owner, bytes })
    }

    /// The lowest row of regions that are new or empty, for more than one region can hold.
    fn find_row(&self, pid: Pid, bytes: u64, avoid: &BTreeSet<u32>, fullness: Fullness) -> Option<Vec<Part>> {
        let region_bytes = self.config.region_bytes;
        let length = u32::try_from(bytes.div_ceil(region_bytes)).ok()?;
        let mut start = REGION_FIRST;
        // Each start that fails leads past another region, so after so many all of them are behind.
        for _ in 0..=self.state.regions_of(pid).count() + avoid.len() {
            match self.try_row(pid, start, length, bytes, avoid, fullness.clone()) {
                Ok(parts) => return Some(parts),
                Err(blocked) => start = blocked.checked_add(1)?,
            }
        }
        None
    }

    /// The row that begins at `start`, or the first region that cannot be part of it.
    fn try_row(
        &self,
        pid: Pid,
        start: u32,
        length: u32,
        bytes: u64,
        avoid: &BTreeSet<u32>,
        mut fullness: Fullness,
    ) -> Result<Vec<Part>, u32> {
        let mut left = bytes;
        let mut parts = Vec::new();
        for region in start..start.checked_add(length).ok_or(start)? {
            let bytes = left.min(self.config.region_bytes);
            let part = if avoid.contains(&region) {
                None
            } else if self.state.regions.contains_key(&(pid, region)) {
                self.part_in_existing(pid, region, bytes, 0, &fullness)
            } else {
                let node = fullness.node_for(region, self.on_pages(bytes));
                node.map(|node| Part { region, node, bytes: self.on_pages(bytes) })
            };
            let part = part.ok_or(region)?;
            fullness.give(part.node, part.bytes);
            left -= bytes;
            parts.push(part);
        }
        Ok(parts)
    }

    /// What an allocation of `bytes` takes on the pages of any node.
    fn on_pages(&self, bytes: u64) -> u64 {
        let largest = self.state.nodes.values().map(|record| record.facts.page_bytes).max().unwrap_or(1);
        bytes.next_multiple_of(largest).min(self.config.region_bytes)
    }
}
