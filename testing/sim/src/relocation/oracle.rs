//! [`Oracle`]: what each word holds, which node has each region's data, and whether it is alive.

use std::collections::BTreeMap;

use yonder_placement::NodeId;

use super::host::{Host, range};
use super::{ALLOCATED_PAGES, REGIONS};
use crate::settings::PAGE_BYTES;

/// What is true of a region.
#[derive(Debug)]
pub(super) struct Truth {
    /// The node that has the data.
    pub(super) home: NodeId,
    /// The node that is to have it: its home has closed it for good, and neither that node nor the controller knows
    /// yet.
    going_to: Option<NodeId>,
    /// Whether these nodes run.
    pub(super) is_alive: bool,
    /// The word at the beginning of each page that was written, by its address.
    words: BTreeMap<u64, u64>,
}

/// What is true of all regions.
#[derive(Default, Debug)]
pub(super) struct Oracle {
    pub(super) regions: BTreeMap<u32, Truth>,
}

impl Oracle {
    /// A region that was placed.
    pub(super) fn placed(&mut self, region: u32, home: NodeId) {
        self.regions.insert(region, Truth { home, going_to: None, is_alive: true, words: BTreeMap::new() });
    }

    /// The addresses of a region's words.
    pub(super) fn addresses(region: u32) -> impl Iterator<Item = u64> {
        let (from, _) = range(region);
        (0..ALLOCATED_PAGES).map(move |page| from + page * PAGE_BYTES)
    }

    /// A write was executed.
    pub(super) fn written(&mut self, region: u32, address: u64, word: u64) {
        self.truth(region).words.insert(address, word);
    }

    /// A read was executed.
    pub(super) fn read(&mut self, region: u32, address: u64, word: u64) -> Result<(), String> {
        let last = self.truth(region).words.get(&address).copied().unwrap_or(0);
        if word == last {
            Ok(())
        } else {
            Err(format!("{address:#x} was read as {word}, and {last} was the last that was written there"))
        }
    }

    /// A node has ended, with everything it had. Returns how many regions are lost with it.
    pub(super) fn ended(&mut self, node: NodeId) -> u64 {
        let mut lost = 0;
        for truth in self.regions.values_mut().filter(|truth| truth.is_alive) {
            if truth.home != node && truth.going_to != Some(node) {
                continue;
            }
            truth.is_alive = false;
            lost += 1;
        }
        lost
    }

    /// The home of a region has closed it for good. The target may have ended already.
    pub(super) fn closed(&mut self, region: u32, to: NodeId, target_runs: bool) {
        let truth = self.truth(region);
        truth.going_to = Some(to);
        truth.is_alive &= target_runs;
    }

    /// A running node has the data: it has heard from the source, itself or by the controller.
    pub(super) fn has_come(&mut self, region: u32, home: NodeId) {
        let truth = self.truth(region);
        (truth.home, truth.going_to, truth.is_alive) = (home, None, true);
    }

    /// At most one node serves each region. `is_served` asks a node.
    pub(super) fn check_served(
        &mut self,
        hosts: &mut [Host],
        mut is_served: impl FnMut(&mut Host, u64) -> bool,
    ) -> Result<(), String> {
        for region in 1..=REGIONS {
            let (address, _) = range(region);
            let serving: Vec<NodeId> =
                hosts.iter_mut().filter_map(|host| is_served(host, address).then_some(host.id)).collect();
            if serving.len() > 1 {
                return Err(format!("region {region} is served by {serving:?}"));
            }
            if let Some(node) = serving.first() {
                self.has_come(region, *node);
            }
        }
        Ok(())
    }

    fn truth(&mut self, region: u32) -> &mut Truth {
        self.regions.get_mut(&region).expect("every region was placed")
    }
}
