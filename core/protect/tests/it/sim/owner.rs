//! [`Owner`]: what the threads of the simulated program share: the group, what is known of places and nodes, and the
//! oracle, which knows what each page should be.

use std::collections::BTreeSet;

use rand::Rng as _;
use rand::rngs::SmallRng;
use yonder_protect::health::Health;
use yonder_protect::{Group, Place, Protection, SLOTS_MAX, Slot, SlotSet};

use super::node::{Call, Request};
use super::{Broken, Count, Counts, MS, PAGES, Sabotage};

/// A place that was adopted. Its address is its index.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceRecord {
    pub(super) node: usize,
    pub(super) incarnation: u32,
    pub(super) region: u64,
    /// Its node's, of that incarnation.
    pub(super) health: usize,
}

/// What a page should be.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Page {
    pub(super) acknowledged: u64,
    /// It was written and that was not acknowledged: the program has it still, and writes it again.
    pub(super) is_dirty: bool,
    /// A thread reads, writes or forgets it.
    pub(super) is_busy: bool,
}

/// Where answers arrive: one place for copies, a place for each share.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Frame {
    copy: u64,
    shares: [u64; SLOTS_MAX],
}

/// What a share of some content is: what it is of, and the slot.
const SLOT_SHIFT: u32 = 60;

impl Frame {
    pub(super) fn arrive(&mut self, slot: Slot, content: u64) {
        (self.copy, self.shares[slot.index()]) = (content, content);
    }

    /// What it has when a read is done that got answers of these slots.
    pub(super) fn content(&self, protection: Protection, got: SlotSet) -> u64 {
        if protection.needed() == 1 {
            return self.copy;
        }
        let shares = got.iter().map(|slot| self.shares[slot.index()] ^ u64::from(slot.number()) << SLOT_SHIFT);
        let all: BTreeSet<u64> = shares.collect();
        // What shares of different contents add up to is nobody's content, nor are shares of other slots.
        let is_enough = got.count() >= protection.needed() && all.len() == 1;
        if is_enough { *all.first().expect("there is one") } else { u64::MAX }
    }
}

pub(super) struct Owner {
    pub(super) now: u64,
    pub(super) rng: SmallRng,
    pub(super) group: Group<Broken>,
    pub(super) places: Vec<PlaceRecord>,
    pub(super) healths: Vec<Health>,
    pub(super) pages: Vec<Page>,
    pub(super) outbox: Vec<Request>,
    /// Nodes whose places were given up because they were silent.
    pub(super) given_up_silent: Vec<usize>,
    /// The last address at which each slot's place has done what it was asked for there.
    pub(super) answered: [u64; SLOTS_MAX],
    /// Slots whose places may have moved.
    pub(super) doubted: SlotSet,
    pub(super) sabotage: Option<Sabotage>,
    pub(super) counts: Counts,
    /// Places that were given up: no message is for one of them.
    pub(super) given_up: BTreeSet<u64>,
    pub(super) next_id: u64,
    pub(super) next_content: u64,
}

impl Owner {
    pub(super) fn new(rng: SmallRng, group: Group<Broken>, sabotage: Option<Sabotage>) -> Self {
        Self {
            now: MS,
            rng,
            group,
            places: Vec::new(),
            healths: Vec::new(),
            pages: vec![Page::default(); PAGES],
            outbox: Vec::new(),
            given_up_silent: Vec::new(),
            answered: [0; SLOTS_MAX],
            doubted: SlotSet::NONE,
            sabotage,
            counts: Counts::default(),
            given_up: BTreeSet::new(),
            next_id: 0,
            next_content: 0,
        }
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn content(&mut self) -> u64 {
        self.next_content += 1;
        self.next_content
    }

    /// The write of a content to a slot's place.
    pub(super) fn share(&self, content: u64, slot: Slot) -> Call {
        let is_copy = self.group.protection().needed() == 1;
        Call::Write(if is_copy { content } else { content ^ u64::from(slot.number()) << SLOT_SHIFT })
    }

    pub(super) fn chance(&mut self, of: f64) -> bool {
        self.rng.random_bool(of)
    }

    pub(super) fn count(&mut self, what: Count) {
        self.counts[what as usize] += 1;
    }

    /// The number of the health of a place's node, if the place is there.
    pub(super) fn health_of(&self, place: Place) -> Option<usize> {
        self.group.address(place).map(|address| self.places[address as usize].health)
    }

    /// The slots whose nodes are not suspect.
    pub(super) fn up(&self) -> SlotSet {
        let view = self.group.view();
        let is_up = |place: Place| self.health_of(place).is_some_and(|health| self.healths[health].state().is_up());
        view.readable().iter().filter(|slot| is_up(view.place(*slot))).collect()
    }

    /// Notes that a page has been read, and compares.
    pub(super) fn check_read(&mut self, page: usize, content: u64) {
        self.count(Count::Read);
        let expected = self.pages[page].acknowledged;
        assert_eq!(content, expected, "a read of page {page} that counts brought something else");
    }
}
