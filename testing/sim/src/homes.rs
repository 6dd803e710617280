//! The address space that a process has on a node: it is claimed, shared, and kept by its lease.
//!
//! The lane that looks after it renews the lease four times in its length. Behind the lease, by its own clock, a
//! process uses the address space no more, until a renewal is answered; when the node refuses one, it claims another.

use rand::Rng;
use rand::seq::IndexedRandom;
use yonder_simulation::encoded;
use yonder_units::Nanos;
use yonder_wire::{AllocateRequest, Allocated, Backing, Body, ErrorCode, Kind, Permission, Rights};

use crate::counts::Count;
use crate::history::{Asked, End};
use crate::sabotage::Sabotage;
use crate::settings::{MICROSECOND, MILLISECOND, PAGE_BYTES};
use crate::workload::{KEPT, Purpose, Region, Use};
use crate::world::{Event, Phase, World};

/// Regions that a process has on a node.
const REGIONS_MAX: usize = 5;
/// One part in so many of a lease is not used: what the clocks of process and node may differ by in their pace.
const DRIFT_SHARE: Nanos = 32;

/// What a process knows of a lease, by its own clock.
#[derive(Clone, Copy, Default, Debug)]
struct Lease {
    /// Its length; 0 if it has no end.
    length: Nanos,
    /// When the last renewal was asked for that the node has answered.
    renewed: Nanos,
    /// How often the node's clock had leapt by less than a step of leases then, which nobody can tell from silence.
    leaps: u64,
    /// The renewal under way, when it was asked for, and how often the clock had leapt.
    renewal: Option<(u64, Nanos, u64)>,
}

impl Lease {
    /// Whether the node may have ended the address space by now.
    const fn is_over(&self, now: Nanos) -> bool {
        self.length > 0 && now >= self.renewed + self.length - self.length / DRIFT_SHARE
    }

    /// Whether it should be renewed.
    const fn is_due(&self, now: Nanos) -> bool {
        self.length > 0 && self.renewal.is_none() && now >= self.renewed + self.length / 4
    }
}

/// A process's address space on a node.
#[derive(Clone, Default, Debug)]
pub(crate) struct Home {
    /// Its number; 0 while there is none.
    pub(crate) pid: u32,
    /// The owner's, a writer's and a reader's capability; 0 while there is none.
    pub(crate) capabilities: [u128; 3],
    /// The operation that brings it forward.
    pub(crate) pending: Option<u64>,
    pub(crate) regions: usize,
    /// The owner's capability is being revoked: what is asked with it may be refused.
    pub(crate) is_revoking: bool,
    lease: Lease,
}

impl Home {
    /// Whether a renewal of its lease is under way.
    pub(crate) const fn is_renewing(&self) -> bool {
        self.lease.renewal.is_some()
    }
}

impl World {
    /// Whether the lease of the address space that a lane's process has on its node is over, as far as the process
    /// knows.
    pub(crate) fn is_behind_lease(&self, index: usize) -> bool {
        let local = self.lanes[index].clock.read(self.events.now());
        self.home(index).lease.is_over(local)
    }

    /// Renews the lease if it is time to. Returns whether it did.
    fn renew(&mut self, index: usize) -> bool {
        let local = self.lanes[index].clock.read(self.events.now());
        let home = self.home(index).clone();
        if home.pid == 0 || home.is_revoking || !home.lease.is_due(local) {
            return false;
        }
        let asked = self.asked_of(index, &home, Kind::Ping, 0);
        let token = self.submit(asked, home.capabilities[0], Vec::new(), Nanos::MAX, Purpose::Renew);
        let leaps = self.nodes[self.lanes[index].node].leaps;
        self.home_mut(index).lease.renewal = Some((token, local, leaps));
        true
    }

    /// A renewal has ended.
    pub(crate) fn renewed(&mut self, index: usize, token: u64, end: End) -> Result<(), String> {
        let local = self.lanes[index].clock.read(self.events.now());
        let lane = &self.lanes[index];
        let is_same_life = lane.life == self.nodes[lane.node].life();
        let has_wrong_clock = self.has_wrong_clock[lane.process];
        let is_late = self.sabotage == Some(Sabotage::LateLeases);
        let leaps = self.nodes[lane.node].leaps;
        let home = self.home_mut(index);
        let ended = home.lease.renewal.take_if(|(renewal, ..)| *renewal == token);
        let Some((_, asked, leaps_before)) = ended else { return Ok(()) };
        match end {
            End::Done(_) => {
                home.lease.leaps = leaps_before;
                home.lease.renewed = home.lease.renewed.max(if is_late { local } else { asked });
                self.counts.add(Count::Renewals, 1);
            }
            End::Refused(ErrorCode::BadCapability) if is_same_life => {
                let pid = home.pid;
                if !has_wrong_clock && leaps == home.lease.leaps && !home.lease.is_over(local) {
                    return Err(format!("lane {index} lost address space {pid:x} before its lease was over"));
                }
                *home = Home::default();
            }
            _ => {}
        }
        Ok(())
    }

    /// An operation that was to bring the address space forward has failed. Without an address space there is nothing
    /// to bring forward.
    pub(crate) fn provision_failed(&mut self, index: usize, end: End) {
        let lane = &self.lanes[index];
        let is_same_life = lane.life == self.nodes[lane.node].life();
        if end == End::Refused(ErrorCode::BadCapability) && is_same_life {
            *self.home_mut(index) = Home::default();
        }
        // A node without room is not asked again and again.
        self.lanes[index].idle_until = self.events.now() + 500 * MICROSECOND;
    }

    fn asked_of(&self, lane: usize, home: &Home, kind: Kind, length: u64) -> Asked {
        Asked { lane, kind, pid: home.pid, address: 0, length, data: Vec::new(), words_of: None }
    }

    /// Does what the address space of the lane's process lacks, if this lane looks after it and nothing is under way.
    pub(crate) fn provision(&mut self, index: usize) -> bool {
        let (process, node) = (self.lanes[index].process, self.lanes[index].node);
        if self.lane_of(process, node) == index && self.renew(index) {
            return true;
        }
        let home = self.home(index).clone();
        if self.lane_of(process, node) != index || home.pending.is_some() {
            return false;
        }
        let asked = |kind, length| self.asked_of(index, &home, kind, length);
        let token = if home.pid == 0 {
            let create = asked(Kind::CreateSpace, 0);
            let length = if self.rng.random_bool(self.settings.habits.lease) { self.settings.lease } else { 0 };
            let renewed = self.lanes[index].clock.read(self.events.now());
            self.home_mut(index).lease = Lease { length, renewed, leaps: self.nodes[node].leaps, renewal: None };
            let create = Asked { length: length / MILLISECOND, ..create };
            self.submit(create, 0, Vec::new(), Nanos::MAX, Purpose::Create)
        } else if let Some(place) = home.capabilities.iter().position(|capability| *capability == 0) {
            let rights = if place == 1 { Rights::ReadWrite } else { Rights::Read };
            let purpose = Purpose::Grant(place);
            self.submit(asked(Kind::Grant, rights as u64), home.capabilities[0], Vec::new(), Nanos::MAX, purpose)
        } else if home.regions < REGIONS_MAX {
            self.allocate(asked(Kind::Allocate, 0), home.capabilities[0])
        } else {
            return false;
        };
        self.home_mut(index).pending = Some(token);
        self.lanes[index].idle_until = self.events.now() + self.rng.random_range(1..20) * MICROSECOND;
        true
    }

    fn allocate(&mut self, asked: Asked, capability: u128) -> u64 {
        let used = *[Use::Words, Use::Words, Use::Bytes, Use::Counters, Use::Locks, Use::ReadOnly]
            .choose(&mut self.rng)
            .unwrap_or(&Use::Words);
        let bytes = self.rng.random_range(1..=self.settings.region_pages * PAGE_BYTES);
        let permission = if used == Use::ReadOnly { Permission::Read } else { Permission::ReadWrite };
        let backing = if self.rng.random_bool(0.2) { Backing::Now } else { Backing::OnDemand };
        let (from, to) = if used.is_kept() { (KEPT.start, KEPT.end) } else { (0, KEPT.start) };
        let body = encoded(&AllocateRequest { bytes, permission, backing, from, to });
        self.submit(Asked { length: bytes, ..asked }, capability, body, Nanos::MAX, Purpose::Allocate(used))
    }

    pub(crate) fn provisioned(
        &mut self,
        index: usize,
        purpose: Purpose,
        (pid, capability, address): (u32, u128, u64),
        payload: &[u8],
    ) {
        let life = self.lanes[index].life;
        let owner = self.lanes[index].process;
        let home = self.home_mut(index);
        match purpose {
            Purpose::Create => {
                *home = Home { pid, capabilities: [capability, 0, 0], lease: home.lease, ..Home::default() };
            }
            Purpose::Grant(place) => {
                home.capabilities[place] = capability;
                let (pid, capabilities) = (home.pid, home.capabilities);
                self.share(life, pid, capabilities);
            }
            Purpose::Revoke => self.revoked(index, capability),
            Purpose::Allocate(used) => {
                home.regions += 1;
                let (pid, capabilities) = (home.pid, home.capabilities);
                let bytes = Allocated::from_bytes(payload).map_or(0, |allocated| allocated.bytes);
                // Its lease may have ended while the answer was on its way.
                let node = &self.nodes[life.node];
                let is_live = node.life() != life || node.oracle.is_lasting(pid, capabilities[0]);
                let mut region = Region { life, owner, pid, capabilities, address, bytes, used, is_live };
                // What has not come home when the storm is over is lost, which may be before the answer is here.
                let is_lost = self.phase != Phase::Storm && node.away().any(|away| region.overlaps(away));
                region.is_live &= !is_lost;
                self.regions.push(region);
            }
            Purpose::Plain | Purpose::Renew | Purpose::Script(_) | Purpose::Review => {}
        }
    }

    /// If the node is another one, all lanes of the process to it are abandoned, and what the process had there is
    /// lost.
    pub(crate) fn notice_restart(&mut self, index: usize) -> Result<(), String> {
        let (process, node) = (self.lanes[index].process, self.lanes[index].node);
        if self.lanes[index].life == self.nodes[node].life() {
            return Ok(());
        }
        self.forget_node(index)?;
        self.begin_line(process, node)
    }

    /// If the node is another one, nothing of what its lanes and the process knew of it is left.
    pub(crate) fn forget_node(&mut self, index: usize) -> Result<(), String> {
        let (process, node) = (self.lanes[index].process, self.lanes[index].node);
        if self.lanes[index].life == self.nodes[node].life() {
            return Ok(());
        }
        *self.home_mut(index) = Home::default();
        let first = self.lane_of(process, node);
        for lane in first..first + self.settings.lanes {
            self.abandon(lane)?;
            self.take_completions(lane)?;
        }
        Ok(())
    }

    pub(crate) fn home(&self, index: usize) -> &Home {
        let lane = &self.lanes[index];
        &self.homes[lane.process * self.settings.nodes + lane.node]
    }

    pub(crate) fn home_mut(&mut self, index: usize) -> &mut Home {
        let lane = &self.lanes[index];
        &mut self.homes[lane.process * self.settings.nodes + lane.node]
    }

    /// A node looks at its leases, as long as clients renew them.
    pub(crate) fn look_at_leases(&mut self, node: usize) -> Result<(), String> {
        if self.phase != Phase::Storm {
            return Ok(());
        }
        self.events.after(self.settings.lease_period(), Event::Leases(node));
        let life = self.nodes[node].life();
        for pid in self.nodes[node].look_at_leases(self.events.now())? {
            self.trace.say(self.events.now(), || format!("node {node}: the lease of {pid:x} is over"));
            self.counts.add(Count::LeasesOver, 1);
            self.spend_leased(life, pid);
            for region in self.regions.iter_mut().filter(|region| region.life == life && region.pid == pid) {
                region.is_live = false;
            }
        }
        self.plan_slow(node);
        Ok(())
    }
}
