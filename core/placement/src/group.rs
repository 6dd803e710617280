//! Groups: pages that are kept at several nodes, in regions of their own that are on different ones.
//!
//! A place of a group is a region with a new number. It is used until its owner gives it up, which it does when the
//! node has failed, or has become too slow for it; the record goes at once, and what nodes have of the region is freed
//! when they are told. One that was not there to be told says in its reports that it still has it, and is told then: a
//! region with a number that the space has given out, and without a record, was given up. So nothing needs to be
//! remembered of it, and its number does not come again.

use std::collections::BTreeSet;

use crate::controller::Controller;
use crate::domains::Domains;
use crate::fullness::Fullness;
use crate::live::Usage;
use crate::message::{Answer, Command, NodeReport, PlacesWanted, Refusal};
use crate::names::{NodeId, Pid};
use crate::place::Placing;
use crate::record::{Record, RecordKey, RegionRecord};
use crate::{APART_PER_REQUEST_MAX, AVOIDED_PER_REQUEST_MAX, PLACES_PER_REQUEST_MAX};

/// Closeness of a node and itself: more than that of any nodes that one request can name.
pub(crate) const SAME_NODE: u32 = 1 << 16;
/// Most regions that a node is told to drop for one report: the next one names the others again.
const DROPS_PER_REPORT_MAX: usize = 256;

impl Controller {
    /// Finds nodes for places of a group, and makes a region for it on each.
    pub(crate) fn place_group(&mut self, pid: Pid, wanted: &PlacesWanted) -> Placing {
        let refused = |refusal| Placing::Done(Answer::Refused(refusal));
        if let Err(refusal) = self.check_wanted(wanted) {
            return refused(refusal);
        }
        let bytes = self.on_pages(wanted.bytes);
        let Some(regions) = self.fresh_regions(pid, wanted) else {
            return refused(Refusal::NoRoom { bytes: wanted.bytes });
        };
        let last = *regions.last().expect("there is a place at least");
        let nodes = match self.nodes_for_group(pid, wanted, last, bytes) {
            Ok(nodes) => nodes,
            Err(refusal) => return refused(refusal),
        };
        for node in &nodes {
            self.begin_space(pid, *node);
        }
        if let Some(node) = nodes.iter().find(|node| !self.state.ready(pid, **node)) {
            return Placing::WaitsFor(*node);
        }
        let group = wanted.group.unwrap_or(regions[0]);
        // First, so that no prefix of the changes has a region whose number may come again once it was given up.
        self.note_numbers(pid, last);
        for (node, region) in nodes.iter().zip(&regions) {
            self.state.put_region((pid, *region), RegionRecord::of_group(*node, group));
            let mut usage = Usage::empty();
            usage.give(bytes);
            self.usage.insert((pid, *region), usage);
        }
        let places = regions.iter().filter_map(|region| self.placement(pid, *region, |of| of.owner)).collect();
        Placing::Done(Answer::Group { group, places })
    }

    /// Forgets a region that its owner does not use any more, and tells the nodes that have something of it.
    pub(crate) fn give_up(&mut self, pid: Pid, region: u32) -> Answer {
        if let Some(record) = self.state.regions.get(&(pid, region)) {
            let holders = record.holders();
            self.note_numbers(pid, region);
            self.state.delete(RecordKey::Region(pid, region));
            self.usage.remove(&(pid, region));
            for node in holders {
                self.command(node, self.give_up_order(pid, region));
                if self.is_lost(node) {
                    self.give_up_what_is_empty(node);
                }
            }
        }
        Answer::GivenUp
    }

    /// Tells a node to drop regions that it has and that were given up while it could not be told.
    pub(crate) fn drop_what_was_given_up(&mut self, node: NodeId, report: &NodeReport) {
        let reported = report.regions.iter().map(|region| (region.pid, region.region));
        let arrived = report.arrived.iter().map(|arrival| (arrival.pid, arrival.region));
        let was_given_up = |(pid, region): &(Pid, u32)| {
            self.state.ready(*pid, node)
                && self.state.spaces.get(pid).is_some_and(|space| *region < space.fresh_from)
                && !self.state.regions.contains_key(&(*pid, *region))
        };
        let given_up: BTreeSet<(Pid, u32)> =
            reported.chain(arrived).filter(was_given_up).take(DROPS_PER_REPORT_MAX).collect();
        for (pid, region) in given_up {
            self.command(node, self.give_up_order(pid, region));
        }
    }

    fn give_up_order(&self, pid: Pid, region: u32) -> Command {
        Command::DropRegion { pid, region, before: self.state.cluster.next_move, is_given_up: true }
    }

    fn check_wanted(&self, wanted: &PlacesWanted) -> Result<(), Refusal> {
        let PlacesWanted { bytes, places, apart, avoid, .. } = wanted;
        let (bytes, places, bytes_max) = (*bytes, *places, self.config.region_bytes);
        if !(1..=PLACES_PER_REQUEST_MAX).contains(&places) {
            return Err(Refusal::BadPlaces { places, places_max: PLACES_PER_REQUEST_MAX });
        }
        if !(1..=bytes_max).contains(&bytes) {
            return Err(Refusal::BadLength { bytes, bytes_max });
        }
        if apart.len() > APART_PER_REQUEST_MAX {
            return Err(Refusal::TooManyApart { apart: apart.len(), apart_max: APART_PER_REQUEST_MAX });
        }
        if avoid.len() > AVOIDED_PER_REQUEST_MAX {
            return Err(Refusal::TooManyAvoided { avoided: avoid.len(), avoided_max: AVOIDED_PER_REQUEST_MAX });
        }
        Ok(())
    }

    /// Numbers that no region of the space has had, one for each place.
    fn fresh_regions(&self, pid: Pid, wanted: &PlacesWanted) -> Option<Vec<u32>> {
        let is_free = |region: &u32| !self.state.regions.contains_key(&(pid, *region));
        let regions: Vec<u32> = (self.fresh_from(pid)..u32::MAX).filter(is_free).take(wanted.places as usize).collect();
        (regions.len() == wanted.places as usize).then_some(regions)
    }

    /// From now on new regions of the space have higher numbers than this one.
    fn note_numbers(&mut self, pid: Pid, region: u32) {
        let fresh_from = region.saturating_add(1);
        if let Some(space) = self.state.spaces.get(&pid).filter(|space| space.fresh_from < fresh_from) {
            let space = crate::SpaceRecord { fresh_from, ..space.clone() };
            self.state.put(Record::Space { pid, space });
        }
    }

    /// The nodes for new places, of which the last is in region `last`.
    fn nodes_for_group(&self, pid: Pid, wanted: &PlacesWanted, last: u32, bytes: u64) -> Result<Vec<NodeId>, Refusal> {
        let fullness = self.fullness();
        let avoided = wanted.avoid.iter().filter_map(|region| self.state.regions.get(&(pid, *region)));
        let excluded: BTreeSet<NodeId> =
            avoided.map(|record| record.owner).chain(wanted.apart.iter().copied()).collect();
        let usable = |node: &&NodeId| !excluded.contains(*node) && fullness.takes_regions(**node);
        let usable: Vec<NodeId> = self.state.nodes.keys().filter(usable).copied().collect();
        let there = u32::try_from(usable.len()).unwrap_or(u32::MAX);
        if there < wanted.places {
            return Err(Refusal::TooFewNodes { wanted: wanted.places, there });
        }
        let with_room: Vec<NodeId> = usable.into_iter().filter(|node| fullness.has_room(*node, last, bytes)).collect();
        let beside = self.beside(pid, wanted);
        self.pick(&with_room, wanted.places, &beside, &fullness).ok_or(Refusal::NoRoom { bytes: wanted.bytes })
    }

    /// Nodes that have places of the group already: as the owner says, and as the records do, which know of moves.
    fn beside(&self, pid: Pid, wanted: &PlacesWanted) -> Vec<NodeId> {
        let known = wanted.group.map(|group| self.nodes_of_group(pid, group, None)).unwrap_or_default();
        wanted.apart.iter().copied().chain(known).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The nodes that have regions of a group in which something is allocated, or that get one, other than `except`.
    pub(crate) fn nodes_of_group(&self, pid: Pid, group: u32, except: Option<u32>) -> BTreeSet<NodeId> {
        let is_used = |region: u32| self.usage[&(pid, region)].allocated(self.config.region_bytes) > 0;
        let regions = self
            .state
            .regions_of(pid)
            .filter(|(region, record)| record.group == Some(group) && Some(*region) != except && is_used(*region));
        regions.flat_map(|(_, record)| [Some(record.owner), record.moving.map(|moving| moving.to)]).flatten().collect()
    }

    /// So many of `nodes`, each as little together with the others and with those `beside` as can be, and of those the
    /// emptiest.
    fn pick(&self, nodes: &[NodeId], count: u32, beside: &[NodeId], fullness: &Fullness) -> Option<Vec<NodeId>> {
        let mut together = beside.to_vec();
        for _ in 0..count {
            let left = nodes.iter().filter(|node| !together[beside.len()..].contains(node));
            let next = left.min_by_key(|node| (self.closeness(**node, &together), fullness.share_spoken_for(**node)));
            together.push(*next?);
        }
        Some(together.split_off(beside.len()))
    }

    /// How much of its failures a node has together with others: to be one of them counts more than all domains.
    pub(crate) fn closeness(&self, node: NodeId, others: &[NodeId]) -> u32 {
        let none = Domains::default();
        let domains = |node: &NodeId| self.state.nodes.get(node).map_or(&none, |record| &record.facts.domains);
        let own = domains(&node);
        others.iter().map(|other| if *other == node { SAME_NODE } else { own.shared_with(domains(other)) }).sum()
    }
}
