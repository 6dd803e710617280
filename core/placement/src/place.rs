//! Where allocations go: a region of the space that has room, else a new one on the emptiest node; and several in a row
//! for a large one.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::controller::Controller;
use crate::fullness::Fullness;
use crate::live::Usage;
use crate::message::{Answer, Placement, Refusal};
use crate::names::{NodeId, Pid};
use crate::record::{Presence, RegionRecord};
use crate::{AVOIDED_PER_REQUEST_MAX, REGIONS_PER_REQUEST_MAX};

#[cfg(test)]
mod tests;

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
        if avoid.len() > AVOIDED_PER_REQUEST_MAX {
            let (avoided, avoided_max) = (avoid.len(), AVOIDED_PER_REQUEST_MAX);
            return Placing::Done(Answer::Refused(Refusal::TooManyAvoided { avoided, avoided_max }));
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
        let on_pages = self.on_pages(bytes);
        // A node that has no room in the first region has none in any.
        fullness.node_for(REGION_FIRST, on_pages)?;
        let allocated_max = self.config.region_bytes - bytes;
        let existing = self
            .state
            .regions_of(pid)
            .filter(|(region, _)| !avoid.contains(region))
            .find_map(|(region, record)| self.part_of(pid, region, record, on_pages, allocated_max, &fullness));
        let part = existing.or_else(|| {
            let taken = |region: &u32| self.state.regions.contains_key(&(pid, *region)) || avoid.contains(region);
            let region = (self.fresh_from(pid)..u32::MAX).find(|region| !taken(region))?;
            let node = fullness.node_for(region, on_pages)?;
            Some(Part { region, node, bytes: on_pages })
        });
        part.map(|part| vec![part])
    }

    /// A part of `bytes` in a region that exists, if it has at most `allocated_max` allocated and its node has room.
    fn part_of(
        &self,
        pid: Pid,
        region: u32,
        record: &RegionRecord,
        bytes: u64,
        allocated_max: u64,
        fullness: &Fullness,
    ) -> Option<Part> {
        let allocated = self.usage[&(pid, region)].allocated(self.config.region_bytes);
        let fits = record.group.is_none()
            && record.is_stable()
            && allocated <= allocated_max
            && allocated + bytes <= self.config.region_bytes
            && fullness.has_room(record.owner, region, bytes);
        fits.then_some(Part { region, node: record.owner, bytes })
    }

    /// The lowest row of regions that are new or empty, for more than one region can hold. In a space in which regions
    /// were given up it is behind them: their numbers are not to come again.
    ///
    /// Rows are tried from the lowest on, each from where the one before it has failed; those with a region that can be
    /// in no row are passed over.
    fn find_row(&self, pid: Pid, bytes: u64, avoid: &BTreeSet<u32>, mut fullness: Fullness) -> Option<Vec<Part>> {
        let region_bytes = self.config.region_bytes;
        let length = u32::try_from(bytes.div_ceil(region_bytes)).ok()?;
        let last_bytes = self.on_pages(bytes - u64::from(length - 1) * region_bytes);
        if !fullness.have_room_for_row(REGION_FIRST, length, last_bytes) {
            return None;
        }
        let is_blocked = |(region, record): &(u32, &RegionRecord)| {
            self.part_of(pid, *region, record, last_bytes, 0, &fullness).is_none()
        };
        let existing = self.state.regions_of(pid).filter(is_blocked).map(|(region, _)| region);
        let mut blocked: Vec<u32> = existing.chain(avoid.iter().copied()).collect();
        blocked.sort_unstable();
        let mut blocked = blocked.into_iter().peekable();
        let mut start = self.fresh_from(pid);
        loop {
            while let Some(region) = blocked.next_if(|region| *region < start.saturating_add(length)) {
                start = start.max(region.checked_add(1)?);
            }
            let row = start..start.checked_add(length)?;
            match self.try_row(pid, row, last_bytes, &mut fullness) {
                Ok(parts) => return Some(parts),
                // What another region's part has taken is free in a row that begins behind that region.
                Err(region) if self.state.regions.contains_key(&(pid, region)) => start = region + 1,
                // No node that reaches it has room for one region more than are before it: no later row fits either.
                Err(_) => return None,
            }
        }
    }

    /// The parts of a row, or the first region that cannot be one. All parts but the last have a whole region.
    /// `fullness` is as before.
    fn try_row(&self, pid: Pid, row: Range<u32>, last_bytes: u64, fullness: &mut Fullness) -> Result<Vec<Part>, u32> {
        let mut parts = Vec::with_capacity(row.len());
        let mut failed = None;
        for region in row.clone() {
            let bytes = if region + 1 == row.end { last_bytes } else { self.config.region_bytes };
            let part = match self.state.regions.get(&(pid, region)) {
                Some(record) => self.part_of(pid, region, record, bytes, 0, fullness),
                None => fullness.node_for(region, bytes).map(|node| Part { region, node, bytes }),
            };
            let Some(part) = part else {
                failed = Some(region);
                break;
            };
            fullness.give(part.node, part.bytes);
            parts.push(part);
        }
        for part in &parts {
            fullness.take_back(part.node, part.bytes);
        }
        failed.map_or(Ok(parts), Err)
    }

    /// The lowest number that a new region of a space may have.
    pub(crate) fn fresh_from(&self, pid: Pid) -> u32 {
        self.state.spaces.get(&pid).map_or(0, |space| space.fresh_from).max(REGION_FIRST)
    }

    /// What an allocation of `bytes` takes on the pages of any node.
    pub(crate) fn on_pages(&self, bytes: u64) -> u64 {
        let largest = self.state.nodes.values().map(|record| record.facts.page_bytes).max().unwrap_or(1);
        bytes.next_multiple_of(largest).min(self.config.region_bytes)
    }
}
