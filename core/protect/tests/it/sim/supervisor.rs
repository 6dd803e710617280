//! [`Supervisor`]: judges nodes, finds places that have moved, gives others up or evacuates them, sweeps, and adopts
//! further ones.

use std::collections::{BTreeMap, BTreeSet};

use yonder_protect::health::{Health, Others, State, others};
use yonder_protect::{Cause, Evacuation, GivenUp, Place, Slot, SlotSet};

use super::controller::{Found, Location};
use super::owner::{Owner, PlaceRecord};
use super::{Count, NODES_MAX, Sabotage};

/// Words that are swept in a call.
const WORDS: u32 = 3;

pub(super) struct Supervisor {
    /// The places that were not given up, and their addresses.
    places: Vec<(Place, u64)>,
    /// By node and incarnation.
    healths: BTreeMap<Location, usize>,
    /// Regions that nodes were asked for.
    asked: [bool; NODES_MAX],
    /// Places that the controller was asked about, whether their nodes had lost them by then, and when that was.
    sought: Vec<(Place, bool, u64)>,
    evacuation: Evacuation,
    /// Places that were given up because they had no pages any more.
    evacuated: BTreeSet<u64>,
    /// Nodes that places are moved off, until then.
    left_until: [u64; NODES_MAX],
    /// Other groups of the program have places on other nodes, which are heard.
    has_other_groups: bool,
}

impl Supervisor {
    pub(super) fn new(has_other_groups: bool) -> Self {
        Self {
            places: Vec::new(),
            healths: BTreeMap::new(),
            asked: [false; NODES_MAX],
            sought: Vec::new(),
            evacuation: Evacuation::default(),
            evacuated: BTreeSet::new(),
            left_until: [0; NODES_MAX],
            has_other_groups,
        }
    }

    /// Does all that there is to do, but asks nodes for regions, which are returned.
    pub(super) fn look(&mut self, owner: &mut Owner, is_offered: impl Fn(usize) -> bool, wanted: u8) -> Vec<usize> {
        self.judge(owner);
        for (place, _) in self.places.clone() {
            self.look_at(owner, place);
        }
        self.evacuate(owner, wanted);
        owner.group.sweep(WORDS);
        let view = owner.group.view();
        let given_up = self.places.iter().filter(|(place, _)| !view.has(*place)).map(|(_, address)| *address);
        let given_up: Vec<u64> = given_up.collect();
        for address in &given_up {
            owner.count(if self.evacuated.contains(address) { Count::Evacuated } else { Count::GivenUp });
        }
        owner.given_up.extend(given_up);
        self.places.retain(|(place, _)| view.has(*place));
        self.nodes_to_ask(owner, is_offered, wanted)
    }

    /// A node is slow until then.
    pub(super) fn leave(&mut self, node: usize, until: u64) {
        self.left_until[node] = until;
    }

    fn is_left(&self, node: usize, now: u64) -> bool {
        self.left_until[node] > now
    }

    fn evacuate(&mut self, owner: &mut Owner, wanted: u8) {
        let view = owner.group.view();
        let node = |slot: Slot| owner.group.address(view.place(slot)).map(|at| owner.places[at as usize].node);
        let is_left = |slot: &Slot| node(*slot).is_some_and(|node| self.is_left(node, owner.now));
        let slow = view.live().iter().filter(is_left).collect();
        for slot in self.evacuation.look(&owner.group, SlotSet::ALL, slow, wanted, owner.now).iter() {
            let place = view.place(slot);
            let address = owner.group.address(place).expect("it is there");
            if matches!(owner.group.give_up(place, Cause::Silent), GivenUp::Leaving | GivenUp::Retiring) {
                self.evacuated.insert(address);
            }
        }
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
            // It may have moved before.
            State::Lost => owner.doubted |= place.slot.into(),
            State::Silent => {
                // It may have moved before.
                owner.doubted |= place.slot.into();
                let given_up = owner.group.give_up(place, Cause::Silent);
                if matches!(given_up, GivenUp::Leaving | GivenUp::Retiring) {
                    owner.given_up_silent.push(owner.places[address as usize].node);
                }
                match given_up {
                    GivenUp::Retiring => owner.count(Count::Retired),
                    GivenUp::Kept => owner.count(Count::Kept),
                    GivenUp::Leaving | GivenUp::Already => {}
                }
            }
            State::Up if owner.group.take_back(place) => owner.count(Count::TakenBack),
            State::Suspect => owner.doubted |= place.slot.into(),
            State::Up => {}
        }
    }

    /// The places that the controller is to be asked about, and their regions.
    pub(super) fn seek(&mut self, owner: &mut Owner) -> Vec<(Place, u64)> {
        let doubted = std::mem::take(&mut owner.doubted);
        let mut sought = Vec::new();
        for (place, address) in self.places.iter().filter(|(place, _)| doubted.contains(place.slot)) {
            let PlaceRecord { region, health, .. } = owner.places[*address as usize];
            if owner.group.address(*place).is_some() && self.sought.iter().all(|(other, ..)| other != place) {
                let is_lost = owner.healths[health].state() == State::Lost;
                self.sought.push((*place, is_lost, owner.now));
                sought.push((*place, region));
            }
        }
        sought
    }

    /// The controller has answered, or none has.
    pub(super) fn was_sought(&mut self, owner: &mut Owner, place: Place, found: Found) {
        let at = self.sought.iter().position(|(sought, ..)| *sought == place).expect("it was sought");
        let (_, is_lost, asked) = self.sought.swap_remove(at);
        let Some(address) = owner.group.address(place) else { return };
        let PlaceRecord { node, incarnation, region, health } = owner.places[address as usize];
        match found {
            Found::At(location) if location != (Location { node, incarnation }) => {
                let health = self.health_at(owner, location);
                if owner.sabotage != Some(Sabotage::OldSilenceCounts) {
                    owner.healths[health].wait_anew(owner.now);
                }
                let moved = owner.places.len() as u64;
                owner.places.push(PlaceRecord {
                    node: location.node,
                    incarnation: location.incarnation,
                    region,
                    health,
                });
                owner.group.relocate(place, moved);
                let entry = self.places.iter_mut().find(|(other, _)| *other == place).expect("it was not given up");
                entry.1 = moved;
                if self.evacuated.contains(&address) {
                    self.evacuated.insert(moved);
                }
                owner.count(Count::Moved);
            }
            Found::At(_) | Found::Lost if is_lost => _ = owner.group.give_up(place, Cause::Lost),
            Found::Lost => _ = owner.group.give_up(place, Cause::Silent),
            Found::Unknown if is_lost => _ = owner.group.give_up(place, Cause::Silent),
            // The controller may know more soon.
            Found::At(_) | Found::Unknown if owner.healths[health].last_heard() <= asked => {
                owner.doubted |= place.slot.into();
            }
            Found::At(_) | Found::Unknown => {}
        }
    }

    /// Somebody says of some regions that they are gone for good.
    pub(super) fn write_off(&self, owner: &Owner, is_gone: impl Fn(u64) -> bool) {
        for (place, address) in &self.places {
            if is_gone(owner.places[*address as usize].region) {
                owner.group.give_up(*place, Cause::Lost);
            }
        }
    }

    /// Whether a node was asked for a region.
    pub(super) fn has_asked(&self, node: usize) -> bool {
        self.asked[node]
    }

    fn health_at(&mut self, owner: &mut Owner, location: Location) -> usize {
        *self.healths.entry(location).or_insert_with(|| {
            owner.healths.push(Health::default());
            owner.healths.len() - 1
        })
    }

    fn nodes_to_ask(&mut self, owner: &mut Owner, is_offered: impl Fn(usize) -> bool, wanted: u8) -> Vec<usize> {
        let view = owner.group.view();
        let has_place = |node: usize| self.places.iter().any(|(_, at)| owner.places[*at as usize].node == node);
        let asked = self.asked.iter().filter(|is_asked| **is_asked).count();
        let written = view.live() - owner.group.evacuated();
        let missing = usize::from(wanted).saturating_sub(usize::from(written.count()) + asked);
        let is_free = |node: &usize| !has_place(*node) && !self.asked[*node] && !self.is_left(*node, owner.now);
        let nodes = (0..NODES_MAX).filter(|node| is_offered(*node) && is_free(node));
        let nodes: Vec<usize> = nodes.take(missing.min(usize::from(view.free().count()))).collect();
        nodes.iter().for_each(|node| self.asked[*node] = true);
        nodes
    }

    /// A node has answered: it has a region, or not.
    pub(super) fn was_allocated(&mut self, owner: &mut Owner, node: usize, region: Option<(u32, u64)>) {
        self.asked[node] = false;
        let Some((incarnation, region)) = region else { return };
        let health = self.health_at(owner, Location { node, incarnation });
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

    /// Whether no place is evacuated, and there are no more than there should be.
    pub(super) fn is_settled(&self, owner: &Owner, wanted: u8) -> bool {
        owner.group.evacuated().is_empty() && owner.group.view().live().count() == wanted
    }

    /// Whether every page is everywhere it should be, and every node of a place is up.
    pub(super) fn is_whole(&self, owner: &Owner, wanted: u8) -> bool {
        let view = owner.group.view();
        let is_up = view.live() == owner.up() && view.retiring().is_empty();
        let is_swept = view.free() == SlotSet::ALL - view.live();
        is_up && is_swept && view.live().count() >= wanted && owner.group.pages_degraded() == 0
    }
}
