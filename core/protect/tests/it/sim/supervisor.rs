//! [`Supervisor`]: judges nodes, gives their places up, sweeps, and adopts others.

use std::collections::BTreeMap;

use yonder_protect::health::{Health, Others, State, others};
use yonder_protect::{Cause, GivenUp, Place, Slot, SlotSet};

use super::owner::{Owner, PlaceRecord};
use super::{Count, NODES_MAX};

/// Words that are swept in a call.
const WORDS: u32 = 3;

pub(super) struct Supervisor {
    /// The places that were not given up, and their addresses.
    places: Vec<(Place, u64)>,
    /// By node and incarnation.
    healths: BTreeMap<(usize, u32), usize>,
    /// Regions that nodes were asked for.
    asked: [bool; NODES_MAX],
    /// Other groups of the program have places on other nodes, which are heard.
    has_other_groups: bool,
}

impl Supervisor {
    pub(super) fn new(has_other_groups: bool) -> Self {
        Self { places: Vec::new(), healths: BTreeMap::new(), asked: [false; NODES_MAX], has_other_groups }
    }

    /// Does all that there is to do, but asks for regions: the nodes to ask are returned.
    pub(super) fn look(&mut self, owner: &mut Owner, is_offered: impl Fn(usize) -> bool, wanted: u8) -> Vec<usize> {
        self.judge(owner);
        for (place, _) in self.places.clone() {
            self.look_at(owner, place);
        }
        owner.group.sweep(WORDS);
        let view = owner.group.view();
        let given_up = self.places.iter().filter(|(place, _)| !view.has(*place)).map(|(_, address)| *address);
        let given_up: Vec<u64> = given_up.collect();
        given_up.iter().for_each(|_| owner.count(Count::GivenUp));
        owner.given_up.extend(given_up);
        self.places.retain(|(place, _)| view.has(*place));
        self.nodes_to_ask(owner, is_offered, wanted)
    }

    fn judge(&self, owner: &Owner) {
        let in_use = || self.places.iter().map(|(_, address)| owner.places[*address as usize].health);
        let nodes = || in_use().map(|health| &owner.healths[health]);
        for node in nodes() {
            let others = if self.has_other_groups { Others::Heard } else { others(nodes(), node, owner.now) };
            node.judge(others);
        }
    }

    fn look_at(&self, owner: &mut Owner, place: Place) {
        let Some(address) = owner.group.address(place) else { return };
        match owner.healths[owner.places[address as usize].health].state() {
            State::Lost => _ = owner.group.give_up(place, Cause::Lost),
            State::Silent => match owner.group.give_up(place, Cause::Silent) {
                GivenUp::Retiring => owner.count(Count::Retired),
                GivenUp::Kept => owner.count(Count::Kept),
                GivenUp::Leaving | GivenUp::Already => {}
            },
            State::Up if owner.group.take_back(place) => owner.count(Count::TakenBack),
            State::Up | State::Suspect => {}
        }
    }

    fn nodes_to_ask(&mut self, owner: &mut Owner, is_offered: impl Fn(usize) -> bool, wanted: u8) -> Vec<usize> {
        let view = owner.group.view();
        let has_place = |node: usize| self.places.iter().any(|(_, at)| owner.places[*at as usize].node == node);
        let asked = self.asked.iter().filter(|is_asked| **is_asked).count();
        let missing = usize::from(wanted).saturating_sub(view.live().iter().count() + asked);
        let nodes = (0..NODES_MAX).filter(|node| is_offered(*node) && !has_place(*node) && !self.asked[*node]);
        let nodes: Vec<usize> = nodes.take(missing.min(usize::from(view.free().count()))).collect();
        nodes.iter().for_each(|node| self.asked[*node] = true);
        nodes
    }

    /// A node has answered: it has a region, or not.
    pub(super) fn was_allocated(&mut self, owner: &mut Owner, node: usize, region: Option<(u32, u64)>) {
        self.asked[node] = false;
        let Some((incarnation, region)) = region else { return };
        let health = *self.healths.entry((node, incarnation)).or_insert_with(|| {
            owner.healths.push(Health::default());
            owner.healths.len() - 1
        });
        owner.healths[health].hear(owner.now);
        let Some(slot) = owner.group.view().free().first() else { return };
        let address = owner.places.len() as u64;
        owner.places.push(PlaceRecord { node, incarnation, region, health });
        let place = owner.group.adopt(slot, address);
        self.places.push((place, address));
        owner.count(Count::Adopted);
    }

    /// The places that were not given up.
    pub(super) fn places<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = PlaceRecord> + 'a {
        self.places.iter().map(|(_, address)| owner.places[*address as usize])
    }

    /// The node of a slot's place.
    pub(super) fn node(&self, owner: &Owner, slot: Slot) -> Option<usize> {
        let at = self.places.iter().find(|(place, _)| place.slot == slot)?;
        Some(owner.places[at.1 as usize].node)
    }

    /// Whether every page is everywhere it should be, and every node of a place is up.
    pub(super) fn is_whole(&self, owner: &Owner, wanted: u8) -> bool {
        let view = owner.group.view();
        let is_up = view.live() == owner.up() && view.retiring().is_empty();
        let is_swept = view.free() == SlotSet::ALL - view.live();
        is_up && is_swept && view.live().count() >= wanted && owner.group.pages_degraded() == 0
    }
}
