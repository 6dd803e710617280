//! What nodes say of themselves, and is forgotten with the controller: [`Live`] of a node, [`Usage`] of a region.

use std::collections::BTreeSet;

use yonder_units::Nanos;

use crate::controller::Controller;
use crate::message::{NodeReport, RegionReport};
use crate::names::{NodeId, Pid};
use crate::tenants::LiveTenants;

/// How a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// It is connected.
    Connected,
    /// It is not connected, and its lease is not over.
    Silent,
    /// Its lease is over.
    Lost,
}

/// What is known of a node.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) link: Link,
    /// The end of its lease, in the time of leases.
    pub(crate) lease_until: Nanos,
    /// Bytes that were free at the last report; `None` before the first.
    pub(crate) free_bytes: Option<u64>,
    /// Bytes that have come (or, negative, gone) by moves that ended since.
    pub(crate) moved_bytes: i128,
    /// Its tenants, as it last said.
    pub(crate) tenants: LiveTenants,
    /// Address spaces that it has and should not, and that are not noted yet; none if it is not connected.
    pub(crate) strays: BTreeSet<Pid>,
}

impl Live {
    /// A node that was there when the controller stopped.
    pub(crate) fn silent(lease_until: Nanos) -> Self {
        let (tenants, strays) = (LiveTenants::default(), BTreeSet::new());
        Self { link: Link::Silent, lease_until, free_bytes: None, moved_bytes: 0, tenants, strays }
    }

    /// It is not connected any more. What it has it names when it connects again.
    pub(crate) fn end_link(&mut self, link: Link) {
        self.link = link;
        self.strays = BTreeSet::new();
    }

    /// Takes a report of the node that came then, and its lease lasts until `lease_until`.
    pub(crate) fn report(&mut self, report: &NodeReport, came: Nanos, lease_until: Nanos) {
        (self.link, self.lease_until) = (Link::Connected, lease_until);
        (self.free_bytes, self.moved_bytes) = (Some(report.free_bytes), 0);
        self.tenants.report(&report.tenants, came);
    }
}

impl Controller {
    /// Those of these nodes that are not connected and have nothing, and whose leases are not over.
    pub fn silent_without_spaces(&self, mut nodes: BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        nodes.retain(|node| self.live.get(node).is_some_and(|live| live.link == Link::Silent));
        if !nodes.is_empty() {
            self.state.presences.keys().for_each(|(_, at)| _ = nodes.remove(at));
        }
        nodes
    }
}

/// What is known of a region.
///
/// A report may have been made before a client has allocated in the region that it was given. So what was given counts
/// until the second report after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    reported: Option<RegionUsage>,
    given_now: u64,
    given_before: u64,
    /// When it may move again.
    pub(crate) rests_until: Nanos,
}

/// What a node said of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RegionUsage {
    pub(crate) allocated_bytes: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) heat: u64,
}

impl Usage {
    /// A region that nobody has allocated in.
    pub(crate) fn empty() -> Self {
        Self { reported: Some(RegionUsage::default()), ..Self::default() }
    }

    /// Takes what the owner reported; `None` if it reported other regions only.
    pub(crate) fn report(&mut self, report: Option<&RegionReport>) {
        self.reported = Some(report.map_or_else(RegionUsage::default, |report| RegionUsage {
            allocated_bytes: report.allocated_bytes,
            resident_bytes: report.resident_bytes,
            heat: report.heat,
        }));
        (self.given_before, self.given_now) = (self.given_now, 0);
    }

    /// A client was given room for `bytes`.
    pub(crate) fn give(&mut self, bytes: u64) {
        self.given_now = self.given_now.saturating_add(bytes);
    }

    /// Bytes of allocations, rather too many than too few; before the first report, all of the region.
    pub(crate) fn allocated(&self, region_bytes: u64) -> u64 {
        self.reported.map_or(region_bytes, |reported| {
            let given = self.given_now.saturating_add(self.given_before);
            reported.allocated_bytes.saturating_add(given).min(region_bytes)
        })
    }

    /// What the owner reported last.
    pub(crate) fn reported(&self) -> Option<RegionUsage> {
        self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_counts_until_the_second_report() {
        let mut usage = Usage::default();
        assert_eq!(usage.allocated(100), 100, "nothing is known yet");
        usage.report(None);
        assert_eq!(usage.allocated(100), 0);
        usage.give(30);
        assert_eq!(usage.allocated(100), 30);
        usage.report(None);
        assert_eq!(usage.allocated(100), 30, "the report may be older than the allocation");
        let report = RegionReport { pid: Pid::FIRST, region: 1, allocated_bytes: 30, resident_bytes: 10, heat: 1 };
        usage.report(Some(&report));
        assert_eq!(usage.allocated(100), 30);
    }
}
