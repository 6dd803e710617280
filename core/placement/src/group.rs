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
use crate::message::{Answer, Command, NodeReport, PlacesWanted, Refusal, Registration};
use crate::names::{NodeId, Pid};
use crate::place::Placing;
use crate::record::{Duty, GroupRecord, NodeRecord, Record, RecordKey, RegionRecord};
use crate::sets::{Candidate, Member, coding_sets, emptiest, free_seat};
use crate::{APART_PER_REQUEST_MAX, AVOIDED_PER_REQUEST_MAX, PLACES_PER_REQUEST_MAX};

/// Closeness of a node and itself: more than that of any nodes that one request can name.
pub(crate) const SAME_NODE: u32 = 1 << 16;
/// Most regions that a node is told to drop for one report: the next one names the others again.
const DROPS_PER_REPORT_MAX: usize = 256;

/// What nodes are picked for.
struct Order<'a> {
    /// A number that no other group has.
    group: u64,
    places: u32,
    /// How many places the group has when none is missing.
    places_of_group: u32,
    /// Bytes of each place.
    bytes: u64,
    /// Nodes that have places of the group already.
    beside: &'a [NodeId],
}

/// Nodes of one set for places of a group, how close they are, and what shares of their memory are spoken for.
struct Picked {
    nodes: Vec<NodeId>,
    closeness: u32,
    share: i128,
}

/// Nodes for places of a group.
struct Chosen {
    nodes: Vec<NodeId>,
    /// Whether they are in one set, with those that have places of the group already.
    is_in_set: bool,
}

impl Controller {
    /// How many times a group got places that are not all in one set, since the controller started: no set had room.
    #[must_use]
    pub fn groups_outside_sets(&self) -> u64 {
        self.outside_sets
    }

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
        let Chosen { nodes, is_in_set } = match self.nodes_for_group(pid, wanted, last, bytes) {
            Ok(chosen) => chosen,
            Err(refusal) => return refused(refusal),
        };
        for node in &nodes {
            self.begin_space(pid, *node);
        }
        if let Some(node) = nodes.iter().find(|node| !self.state.ready(pid, **node)) {
            return Placing::WaitsFor(*node);
        }
        let group = wanted.group.unwrap_or(regions[0]);
        let record = GroupRecord { number: group, places: self.places_of_group(pid, wanted) };
        if !is_in_set {
            self.outside_sets += 1;
            self.actions.outside_sets.push((pid, group));
        }
        // First, so that no prefix of the changes has a region whose number may come again once it was given up.
        self.note_numbers(pid, last);
        for (node, region) in nodes.iter().zip(&regions) {
            self.state.put_region((pid, *region), RegionRecord::of_group(*node, record));
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
    fn nodes_for_group(&self, pid: Pid, wanted: &PlacesWanted, last: u32, bytes: u64) -> Result<Chosen, Refusal> {
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
        let with_room = usable.into_iter().filter(|node| fullness.has_room(*node, last, bytes)).collect();
        let beside = self.beside(pid, wanted);
        let group = u64::from(pid.0) << 32 | u64::from(last);
        let (places, places_of_group) = (wanted.places, self.places_of_group(pid, wanted));
        let order = Order { group, places, places_of_group, bytes, beside: &beside };
        self.choose(&with_room, &order, &fullness).ok_or(Refusal::NoRoom { bytes: wanted.bytes })
    }

    /// The emptiest nodes with room of one set: of that in which they are least together with one another and with
    /// those `beside`, then of the one that has most of those, then of the emptiest. If no set has room, of all nodes.
    fn choose(&self, with_room: &BTreeSet<NodeId>, order: &Order<'_>, fullness: &Fullness) -> Option<Chosen> {
        let beside = order.beside;
        // One place alone fails with its node, in whatever set.
        let is_alone = order.places_of_group == 1;
        let sets = if is_alone { Vec::new() } else { self.sets_for(order.places_of_group) };
        let in_set = sets.iter().filter_map(|set| {
            let candidates: Vec<NodeId> = set.iter().filter(|node| with_room.contains(node)).copied().collect();
            let picked = self.pick(&candidates, order, fullness)?;
            let elsewhere = beside.iter().filter(|node| !set.contains(node)).count();
            Some(((picked.closeness, elsewhere, picked.share), picked.nodes))
        });
        if let Some(((_, elsewhere, _), nodes)) = in_set.min_by(|(one, _), (other, _)| one.cmp(other)) {
            return Some(Chosen { nodes, is_in_set: elsewhere < beside.len().max(1) });
        }
        let candidates: Vec<NodeId> = with_room.iter().copied().collect();
        let picked = self.pick(&candidates, order, fullness)?;
        Some(Chosen { nodes: picked.nodes, is_in_set: is_alone })
    }

    /// The sets for groups of so many places, of nodes that may have some. One that is silent is still of its set.
    fn sets_for(&self, places: u32) -> Vec<Vec<NodeId>> {
        let is_member = |(node, record): &(&NodeId, &NodeRecord)| record.duty == Duty::Serving && !self.is_lost(**node);
        let members = self.state.nodes.iter().filter(is_member).filter_map(|(node, record)| {
            Some(Member { node: *node, seat: record.seat?, domains: &record.facts.domains })
        });
        coding_sets(&members.collect::<Vec<_>>(), places, self.config.set_spares)
    }

    /// The set that has most of a group's nodes.
    pub(crate) fn home_of(&self, nodes: &[NodeId], places: u32) -> BTreeSet<NodeId> {
        let sets = self.sets_for(places).into_iter();
        let home = sets.rev().max_by_key(|set| nodes.iter().filter(|node| set.contains(node)).count());
        home.unwrap_or_default().into_iter().collect()
    }

    /// The seat for a node that registers: that of the node in whose place it was started, or a free one.
    pub(crate) fn seat_for(&self, facts: &Registration) -> u32 {
        let is_in_its_place = |record: &&NodeRecord| {
            let is_called_so = match &facts.name {
                Some(_) => record.facts.name == facts.name,
                None => record.facts.urls.first() == facts.urls.first(),
            };
            is_called_so && record.facts.domains == facts.domains && !self.is_connected(record.facts.node)
        };
        let earlier = self.state.nodes.values().find(is_in_its_place).and_then(|record| record.seat);
        earlier.unwrap_or_else(|| {
            let taken = self.state.nodes.values().filter(|record| record.facts.node != facts.node);
            free_seat(&facts.domains, taken.filter_map(|record| Some((record.seat?, &record.facts.domains))))
        })
    }

    /// Gives seats to nodes that an earlier release has registered.
    pub(crate) fn seat_nodes(&mut self) {
        let without = self.state.nodes.values().filter(|record| record.seat.is_none()).cloned();
        for record in without.collect::<Vec<_>>() {
            let seat = Some(self.seat_for(&record.facts));
            self.state.put(Record::Node(NodeRecord { seat, ..record }));
        }
    }

    /// Nodes that have places of the group already, as the records say. An owner names others too, that are silent or
    /// slow: they are kept apart from, and say nothing of where a failure would hurt.
    fn beside(&self, pid: Pid, wanted: &PlacesWanted) -> Vec<NodeId> {
        let known = wanted.group.map(|group| self.nodes_of_group(pid, group, None)).unwrap_or_default();
        known.into_iter().collect()
    }

    /// How many places the group of a request has when none is missing: as many as its first request has asked for. One
    /// that has none any more is as a new one, for its owner asks for all of them.
    fn places_of_group(&self, pid: Pid, wanted: &PlacesWanted) -> u32 {
        let Some(number) = wanted.group else { return wanted.places };
        let mut records = self.state.regions_of(pid).filter_map(|(_, record)| record.group);
        records.find(|group| group.number == number).map_or(wanted.places, |group| group.places)
    }

    /// The nodes that have regions of a group in which something is allocated, or that get one, other than `except`.
    pub(crate) fn nodes_of_group(&self, pid: Pid, group: u32, except: Option<u32>) -> BTreeSet<NodeId> {
        let is_used = |region: u32| self.usage[&(pid, region)].allocated(self.config.region_bytes) > 0;
        let regions = self
            .state
            .regions_of(pid)
            .filter(|(region, record)| record.group.is_some_and(|of| of.number == group) && Some(*region) != except)
            .filter(|(region, _)| is_used(*region));
        regions.flat_map(|(_, record)| [Some(record.owner), record.moving.map(|moving| moving.to)]).flatten().collect()
    }

    /// So many of `nodes`, each as little together with the others and with those `beside` as can be, and of those the
    /// emptiest.
    fn pick(&self, nodes: &[NodeId], order: &Order<'_>, fullness: &Fullness) -> Option<Picked> {
        let Order { beside, .. } = order;
        let mut picked = Picked { nodes: beside.to_vec(), closeness: 0, share: 0 };
        for _ in 0..order.places {
            let left = nodes.iter().filter(|node| !picked.nodes[beside.len()..].contains(node));
            let close: Vec<(u32, NodeId)> = left.map(|node| (self.closeness(*node, &picked.nodes), *node)).collect();
            let closeness = close.iter().map(|(close, _)| *close).min()?;
            let candidate = |node| Candidate {
                node,
                load: fullness.share_spoken_for(node),
                slack: fullness.share_of(node, order.bytes / 4),
            };
            let least_close = close.iter().filter(|(close, _)| *close == closeness).map(|(_, node)| candidate(*node));
            let next = emptiest(&least_close.collect::<Vec<_>>(), order.group)?;
            picked.nodes.push(next.node);
            picked.closeness += closeness;
            picked.share += next.load;
        }
        picked.nodes.drain(..beside.len());
        Some(picked)
    }

    /// How much of its failures a node has together with others: to be one of them counts more than all domains.
    pub(crate) fn closeness(&self, node: NodeId, others: &[NodeId]) -> u32 {
        let none = Domains::default();
        let domains = |node: &NodeId| self.state.nodes.get(node).map_or(&none, |record| &record.facts.domains);
        let own = domains(&node);
        others.iter().map(|other| if *other == node { SAME_NODE } else { own.shared_with(domains(other)) }).sum()
    }
}
