//! What processes do: each makes an address space on each node, shares it with all others, and every lane then does
//! what comes to its mind, on the same few pages as the others.
//!
//! [`World::work`] starts operations, [`World::react`] learns from how they end. What an allocation is used for decides
//! how its bytes are judged: see [`Use`].

use std::ops::Range;

use rand::Rng;
use rand::seq::IndexedRandom;
use yonder_simulation::encoded;
use yonder_units::Nanos;
use yonder_wire::{AtomicOperation, ErrorCode, Kind};

use crate::history::{Asked, End, Life};
use crate::homes::Home;
use crate::node::COUNTER;
use crate::settings::MICROSECOND;
use crate::world::{Phase, World};

/// Bytes of a read when everything is looked at in the end.
const REVIEW_BYTES: u64 = 1024;

/// Addresses of allocations that are kept, which others never have.
pub(crate) const KEPT: Range<u64> = 1 << 30..1 << 31;

/// Whether an allocation at this address is one that is kept.
pub(crate) const fn is_kept(address: u64) -> bool {
    KEPT.start <= address && address < KEPT.end
}

/// What an allocation is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Whole words, each written with another value: judged word by word.
    Words,
    /// Any bytes, discards and words among them.
    Bytes,
    /// Words for atomics.
    Counters,
    /// Locks, and what they guard.
    Locks,
    /// Nobody may write it.
    ReadOnly,
}

impl Use {
    /// Whether it is never freed alone: a late write would go to the next allocation at its address, which is as it
    /// should be, and whoever judges single words would have to know of it.
    pub(crate) const fn is_kept(self) -> bool {
        matches!(self, Self::Words | Self::Locks)
    }
}

/// An allocation that its owner has told everybody about.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    /// Its life on its node.
    pub(crate) life: Life,
    /// The process that made it.
    pub(crate) owner: usize,
    /// The address space.
    pub(crate) pid: u32,
    /// The owner's, a writer's and a reader's capability.
    pub(crate) capabilities: [u128; 3],
    /// Its first address.
    pub(crate) address: u64,
    /// Its length.
    pub(crate) bytes: u64,
    /// What it is for.
    pub(crate) used: Use,
    /// Whether it may be used. Some are tried all the same.
    pub(crate) is_live: bool,
}

impl Region {
    /// Its address space, its first address and the one behind it.
    pub(crate) const fn range(&self) -> (u32, u64, u64) {
        (self.pid, self.address, self.address + self.bytes)
    }

    /// Whether some of it lies in a range: one that moves may have been that of an allocation which is gone.
    pub(crate) const fn overlaps(&self, (pid, from, to): (u32, u64, u64)) -> bool {
        self.pid == pid && self.address < to && from < self.address + self.bytes
    }
}

/// What an operation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Nothing more.
    Plain,
    /// It makes an address space.
    Create,
    /// It renews a lease.
    Renew,
    /// It makes the capability with this place in [`Home::capabilities`].
    Grant(usize),
    /// It makes all capabilities void, and another one for the owner.
    Revoke,
    /// It makes a region.
    Allocate(Use),
    /// It is a step of the critical section with this number.
    Script(u32),
    /// It is part of the look at everything in the end.
    Review,
}

/// Where a lane is in a critical section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Script {
    /// In none.
    Idle,
    /// It tries to take the lock.
    Taking(Lock),
    /// It waits before it tries again.
    Waiting(Lock, Nanos),
    /// It reads what the lock guards.
    Reading(Lock),
    /// It writes what the lock guards, and releases it.
    Releasing(Lock),
}

/// A lock: the region, its number there, and how often it was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lock {
    /// Number of the region.
    pub(crate) region: usize,
    /// Address of its word.
    pub(crate) word: u64,
    /// Address of what it guards.
    pub(crate) guarded: u64,
    /// Attempts.
    pub(crate) tries: u32,
}

impl World {
    /// Starts what the lane may start now.
    pub(crate) fn work(&mut self, index: usize) -> Result<(), String> {
        self.continue_script(index);
        loop {
            let lane = &self.lanes[index];
            let has_room = lane.client.has_room() && lane.depth() < self.settings.depth;
            if !has_room || lane.idle_until > self.events.now() {
                return Ok(());
            }
            match self.phase {
                Phase::Storm if lane.budget > 0 => self.start(index)?,
                Phase::Review => match self.reviews[index].pop() {
                    Some(part) => self.review(part),
                    None => return Ok(()),
                },
                _ => return Ok(()),
            }
        }
    }

    /// Plans to read every region in the end.
    pub(crate) fn plan_review(&mut self) {
        for (number, region) in self.regions.iter().enumerate().filter(|(_, region)| region.is_live) {
            let Life { node, .. } = region.life;
            if self.nodes[node].life() != region.life {
                continue;
            }
            let lane = self.lane_of(region.owner, node);
            for offset in (0..region.bytes).step_by(REVIEW_BYTES as usize) {
                self.reviews[lane].push((number, offset));
            }
        }
    }

    fn review(&mut self, (number, offset): (usize, u64)) {
        let region = self.regions[number].clone();
        let lane = self.lane_of(region.owner, region.life.node);
        let asked = self.read(lane, number, &region, region.address + offset, REVIEW_BYTES);
        self.submit(asked, region.capabilities[0], Vec::new(), Nanos::MAX, Purpose::Review);
    }

    /// The first lane of a process to a node, which looks after its address space there.
    pub(crate) fn lane_of(&self, process: usize, node: usize) -> usize {
        (process * self.settings.nodes + node) * self.settings.lanes
    }

    fn start(&mut self, index: usize) -> Result<(), String> {
        let habits = self.settings.habits;
        if self.provision(index) {
            return Ok(());
        }
        if self.rng.random_bool(habits.fence) {
            self.fence(index)?;
        }
        if self.rng.random_bool(habits.cancel) {
            self.cancel_any(index)?;
        }
        self.lanes[index].budget -= 1;
        if self.rng.random_bool(habits.think) {
            self.lanes[index].idle_until = self.events.now() + self.rng.random_range(1..300) * MICROSECOND;
        }
        let (life, dare) = (self.lanes[index].life, self.rng.random_bool(habits.dare));
        // Behind its lease a process does not use what it has.
        let (process, is_over) = (self.lanes[index].process, self.is_behind_lease(index));
        let is_used = |region: &Region| region.is_live && !(is_over && region.owner == process);
        let known = |number: &usize| self.regions[*number].life == life && (is_used(&self.regions[*number]) || dare);
        let choices: Vec<usize> = (0..self.regions.len()).filter(known).collect();
        let Some(number) = choices.choose(&mut self.rng).copied() else {
            self.lanes[index].idle_until = self.events.now() + 50 * MICROSECOND;
            self.plain(index, Kind::Ping, 0);
            return Ok(());
        };
        if self.rng.random_bool(habits.mischief) {
            self.misbehave(index, number);
        } else if self.rng.random_bool(habits.renew) {
            self.give_up(index);
        } else {
            self.use_region(index, number);
        }
        Ok(())
    }

    fn use_region(&mut self, index: usize, number: usize) {
        let region = self.regions[number].clone();
        let (address, length) = self.range(&region);
        let chance = self.rng.random_range(0..100);
        let capability = region.capabilities[usize::from(self.lanes[index].process != region.owner)];
        let deadline = self.deadline(index);
        match region.used {
            Use::Locks => return self.enter(index, number),
            Use::Counters if chance < 10 => {
                let asked = Asked { data: vec![7; 16], ..self.asked(index, &region, Kind::Call, COUNTER, 16) };
                self.submit(asked, capability, Vec::new(), deadline, Purpose::Plain);
                return;
            }
            Use::Counters if chance < 70 => return self.atomic(index, &region, capability, deadline),
            Use::ReadOnly if chance < 95 => {}
            Use::Bytes if self.rng.random_bool(self.settings.habits.discard) => {
                let asked = self.asked(index, &region, Kind::Discard, address, length);
                self.submit(asked, capability, Vec::new(), deadline, Purpose::Plain);
                return;
            }
            _ if chance < 50 => {
                let data = self.data(&region, length);
                let words_of = (region.used == Use::Words).then_some(number as u32);
                let asked = Asked { data, words_of, ..self.asked(index, &region, Kind::Write, address, length) };
                self.submit(asked, capability, Vec::new(), deadline, Purpose::Plain);
                return;
            }
            _ => {}
        }
        let asked = self.read(index, number, &region, address, length);
        let capability = if self.rng.random_bool(0.3) { region.capabilities[2] } else { capability };
        self.submit(asked, capability, Vec::new(), deadline, Purpose::Plain);
    }

    fn read(&self, lane: usize, number: usize, region: &Region, address: u64, length: u64) -> Asked {
        let words_of = (region.used == Use::Words).then_some(number as u32);
        Asked { words_of, ..self.asked(lane, region, Kind::Read, address, length) }
    }

    pub(crate) fn asked(&self, lane: usize, region: &Region, kind: Kind, address: u64, length: u64) -> Asked {
        Asked { lane, kind, pid: region.pid, address, length, data: Vec::new(), words_of: None }
    }

    /// A range of the region, often at its start, where everybody is.
    fn range(&mut self, region: &Region) -> (u64, u64) {
        let hot = self.rng.random_bool(self.settings.habits.hot);
        let grain = if region.used == Use::Words { 8 } else { 1 };
        let bytes = if hot { region.bytes.min(256) } else { region.bytes };
        let longest = (if self.rng.random_bool(0.8) { 64 } else { 3 * self.settings.fragment_bytes as u64 }).min(bytes);
        let length = (self.rng.random_range(1..=longest)).next_multiple_of(grain);
        let offset = self.rng.random_range(0..=bytes - length) / grain * grain;
        (region.address + offset, length)
    }

    /// Data of the next operation: words that nobody else writes, or anything.
    fn data(&mut self, region: &Region, length: u64) -> Vec<u8> {
        let token = self.history.next_token();
        match region.used {
            Use::Words => (0..length / 8).flat_map(|index| ((token << 16) + index).to_le_bytes()).collect(),
            _ => (0..length).map(|_| self.rng.random()).collect(),
        }
    }

    fn deadline(&mut self, index: usize) -> Nanos {
        if !self.rng.random_bool(self.settings.habits.deadline) {
            return Nanos::MAX;
        }
        let local = self.lanes[index].clock.read(self.events.now());
        local + self.rng.random_range(1..1000) * MICROSECOND
    }

    fn atomic(&mut self, index: usize, region: &Region, capability: u128, deadline: Nanos) {
        let word = region.address + 8 * self.rng.random_range(0..region.bytes.min(64) / 8);
        let value = self.history.next_token();
        let operation = match self.rng.random_range(0..10) {
            0 => AtomicOperation::TestAndSet,
            1 => AtomicOperation::Store(value),
            2..=3 => AtomicOperation::CompareAndSwap { expected: self.rng.random_range(0..4), new: value },
            _ => AtomicOperation::FetchAdd(1),
        };
        let asked = self.asked(index, region, Kind::Atomic, word, 8);
        self.submit(asked, capability, encoded(&operation), deadline, Purpose::Plain);
    }

    /// Something that a node must refuse, or can.
    fn misbehave(&mut self, index: usize, number: usize) {
        let region = self.regions[number].clone();
        let [owner, writer, reader] = region.capabilities;
        let (what, bit) = (self.rng.random_range(0..10), self.rng.random_range(0..64));
        if self.rng.random_bool(0.3) && self.use_spent(index) {
            return;
        }
        let asked = |kind, address, length| self.asked(index, &region, kind, address, length);
        let (address, end) = (region.address, region.address + region.bytes);
        let add = encoded(&AtomicOperation::FetchAdd(1));
        let (asked, capability, body) = match what {
            0 => (asked(Kind::Atomic, address, 8), reader, add),
            1 => (asked(Kind::Atomic, address + 1, 8), writer, add),
            2 => (asked(Kind::Free, address, region.bytes), writer, Vec::new()),
            3 => (asked(Kind::Free, address + 8, region.bytes), owner, Vec::new()),
            4 => (asked(Kind::Read, end - 1, 4), reader, Vec::new()),
            5 => (asked(Kind::Read, u64::MAX - 7, 8), reader, Vec::new()),
            6 => (asked(Kind::Discard, address, 100), owner ^ (1 << bit), Vec::new()),
            7 => (Asked { pid: region.pid ^ 1, ..asked(Kind::Read, address, 8) }, owner, Vec::new()),
            8 => (asked(Kind::Grant, 0, 3), reader, Vec::new()),
            _ => (asked(Kind::Ping, 0, 0), owner, Vec::new()),
        };
        self.submit(asked, capability, body, Nanos::MAX, Purpose::Plain);
    }

    /// Frees a region of the lane's process, or ends its address space, or makes its capabilities void.
    fn give_up(&mut self, index: usize) {
        if self.rng.random_bool(0.15) && self.revoke(index) {
            return;
        }
        let (process, life) = (self.lanes[index].process, self.lanes[index].life);
        let mine = |region: &Region| region.is_live && region.owner == process && region.life == life;
        let choices: Vec<usize> = (0..self.regions.len()).filter(|number| mine(&self.regions[*number])).collect();
        let Some(number) = choices.choose(&mut self.rng).copied() else { return };
        let region = self.regions[number].clone();
        let ends_space = self.rng.random_bool(0.1) && self.home(index).pending.is_none();
        if region.used.is_kept() && !ends_space {
            return;
        }
        let kind = if ends_space { Kind::DestroySpace } else { Kind::Free };
        for other in choices {
            self.regions[other].is_live &= !ends_space && other != number;
        }
        if ends_space {
            self.spend_at_the_end(index);
            *self.home_mut(index) = Home::default();
        } else {
            let home = self.home_mut(index);
            home.regions = home.regions.saturating_sub(1);
        }
        let asked = self.asked(index, &region, kind, region.address, region.bytes);
        let asked = if ends_space { Asked { address: 0, length: 0, ..asked } } else { asked };
        let deadline = self.deadline(index);
        self.submit(asked, region.capabilities[0], Vec::new(), deadline, Purpose::Plain);
    }

    fn plain(&mut self, lane: usize, kind: Kind, length: u64) {
        let asked = Asked { lane, kind, pid: 0, address: 0, length, data: Vec::new(), words_of: None };
        self.submit(asked, 0, Vec::new(), Nanos::MAX, Purpose::Plain);
    }

    fn cancel_any(&mut self, index: usize) -> Result<(), String> {
        let plain = |token: &u64| self.purposes[*token as usize - 1] == Purpose::Plain;
        let choices: Vec<u64> = self.lanes[index].open.keys().copied().filter(plain).collect();
        match choices.choose(&mut self.rng) {
            Some(token) => self.cancel(index, *token),
            None => Ok(()),
        }
    }

    /// An operation has ended.
    pub(crate) fn react(&mut self, index: usize, token: u64, end: End) -> Result<(), String> {
        let answer = self.lanes[index].take_answer(token);
        let purpose = self.purposes[token as usize - 1];
        if self.home(index).pending == Some(token) {
            self.home_mut(index).pending = None;
            match (end, answer) {
                // A copy of it needs no right, so it may have been executed by a life that the lane knows nothing of.
                _ if purpose == Purpose::Create
                    && self.lanes[index].life != self.nodes[self.lanes[index].node].life() =>
                {
                    self.notice_restart(index)?;
                }
                _ if purpose == Purpose::Revoke && !matches!(end, End::Done(_)) => self.not_revoked(index, end),
                (End::Done(_), Some((header, payload))) => {
                    self.provisioned(index, purpose, (header.pid, header.capability, header.address), &payload);
                }
                _ => self.provision_failed(index, end),
            }
        }
        self.spend_ended(token, end);
        match purpose {
            Purpose::Script(number) if number == self.lanes[index].script_number => {
                self.script_step(index, token, end)?
            }
            Purpose::Renew => self.renewed(index, token, end)?,
            Purpose::Review if !matches!(end, End::Done(_)) => {
                return Err(format!("operation {token}, a read in the end, ended {end:?}"));
            }
            _ => {}
        }
        if end == End::Refused(ErrorCode::BadCapability) {
            self.notice_restart(index)?;
        }
        Ok(())
    }
}
