//! Capabilities that become void: their owner revokes them, or their address space ends. What is void is tried again,
//! also after the number of the address space was given to another one.
//!
//! While a revocation is under way, what is asked with the capabilities before may be done or refused; what is asked
//! after its answer is refused. The oracle knows the moment.

use rand::Rng;
use rand::seq::IndexedRandom;
use yonder_board::Pid;
use yonder_simulation::encoded;
use yonder_units::Nanos;
use yonder_wire::{AtomicOperation, ErrorCode, Kind, Rights};

use crate::counts::Count;
use crate::history::{Asked, End, Life};
use crate::homes::Home;
use crate::node::Node;
use crate::sabotage::Sabotage;
use crate::workload::Purpose;
use crate::world::World;

/// Void capabilities that are remembered.
const SPENT_MAX: usize = 32;

impl World {
    /// Makes the capabilities of the lane's process void. False if it has none, or something else is under way.
    pub(crate) fn revoke(&mut self, index: usize) -> bool {
        let home = self.home(index).clone();
        // A renewal that is under way would be refused.
        if home.pid == 0 || home.pending.is_some() || home.is_renewing() {
            return false;
        }
        let asked = Asked {
            lane: index,
            kind: Kind::Revoke,
            pid: home.pid,
            address: 0,
            length: 0,
            data: Vec::new(),
            words_of: None,
        };
        let token = self.submit(asked, home.capabilities[0], Vec::new(), Nanos::MAX, Purpose::Revoke);
        let home = self.home_mut(index);
        (home.pending, home.is_revoking) = (Some(token), true);
        true
    }

    /// The capabilities of a lane's process are void, and `owner` is the one that it has now.
    pub(crate) fn revoked(&mut self, index: usize, owner: u128) {
        self.counts.add(Count::Revoked, 1);
        self.spend(index);
        let life = self.lanes[index].life;
        let home = self.home_mut(index);
        (home.capabilities, home.is_revoking) = ([owner, 0, 0], false);
        let pid = home.pid;
        self.share(life, pid, [owner, 0, 0]);
    }

    /// A revocation was not done, as far as is known. If nobody knows, the process knows no capability that is good for
    /// certain, and claims another address space.
    pub(crate) fn not_revoked(&mut self, index: usize, end: End) {
        let life = self.lanes[index].life;
        let home = self.home_mut(index);
        home.is_revoking = false;
        if !matches!(end, End::Refused(code) if code != ErrorCode::TooOld) {
            let pid = home.pid;
            *home = Home::default();
            self.regions.iter_mut().filter(|region| (region.life, region.pid) == (life, pid)).for_each(|region| {
                region.is_live = false;
            });
        }
        self.provision_failed(index, end);
    }

    /// Others hear of the capabilities of an address space.
    pub(crate) fn share(&mut self, life: Life, pid: u32, capabilities: [u128; 3]) {
        for region in self.regions.iter_mut().filter(|region| (region.life, region.pid) == (life, pid)) {
            for (known, capability) in region.capabilities.iter_mut().zip(capabilities) {
                *known = if capability == 0 { *known } else { capability };
            }
        }
    }

    /// What the lane's process could do with its address space is remembered: it is void now.
    fn spend(&mut self, index: usize) {
        let mine = self.rights_of(index);
        self.spent.extend(mine);
        self.spent.drain(..self.spent.len().saturating_sub(SPENT_MAX));
    }

    /// The same for an address space that the operation which is submitted next will end, if it is done.
    pub(crate) fn spend_at_the_end(&mut self, index: usize) {
        let mine = self.rights_of(index);
        self.spent_at_the_end.insert(self.history.next_token(), mine);
    }

    /// An operation has ended.
    pub(crate) fn spend_ended(&mut self, token: u64, end: End) {
        let mine = self.spent_at_the_end.remove(&token).filter(|_| matches!(end, End::Done(_)));
        self.spent.extend(mine.into_iter().flatten());
    }

    /// The lease of an address space was over.
    pub(crate) fn spend_leased(&mut self, life: Life, pid: u32) {
        let region = self.regions.iter().find(|region| (region.life, region.pid) == (life, pid));
        self.spent.extend(region.into_iter().flat_map(|region| region.capabilities.map(|right| (life, pid, right))));
    }

    fn rights_of(&self, index: usize) -> Vec<(Life, u32, u128)> {
        let (life, home) = (self.lanes[index].life, self.home(index));
        let known = home.capabilities.into_iter().filter(|capability| *capability != 0);
        known.map(|capability| (life, home.pid, capability)).collect()
    }

    /// Asks for something with a capability that is void, or becomes so. False if none is known.
    pub(crate) fn use_spent(&mut self, index: usize) -> bool {
        let life = self.lanes[index].life;
        let mine: Vec<(Life, u32, u128)> = self.spent.iter().filter(|spent| spent.0 == life).copied().collect();
        let Some((_, pid, capability)) = mine.choose(&mut self.rng).copied() else { return false };
        if self.rng.random_bool(0.5) && self.nodes[life.node].begin_again(pid, self.events.now()) {
            self.counts.add(Count::NumbersAgain, 1);
        }
        let kinds = [Kind::Read, Kind::Write, Kind::Atomic, Kind::Free, Kind::Grant, Kind::Revoke, Kind::DestroySpace];
        let kind = *kinds.choose(&mut self.rng).unwrap_or(&Kind::Read);
        let of_pid = self.regions.iter().find(|region| (region.life, region.pid) == (life, pid));
        let address = of_pid.map_or(4096, |region| region.address);
        let (address, length, data, body) = match kind {
            Kind::Write => (address, 8, vec![9; 8], Vec::new()),
            Kind::Atomic => (address, 8, Vec::new(), encoded(&AtomicOperation::FetchAdd(1))),
            Kind::Grant => (0, Rights::Read as u64, Vec::new(), Vec::new()),
            Kind::Revoke | Kind::DestroySpace => (0, 0, Vec::new(), Vec::new()),
            _ => (address, 8, Vec::new(), Vec::new()),
        };
        self.counts.add(Count::Spent, 1);
        let asked = Asked { lane: index, kind, pid, address, length, data, words_of: None };
        self.submit(asked, capability, body, Nanos::MAX, Purpose::Plain);
        true
    }
}

impl Node {
    /// Gives the number of an address space that has ended to another one, which has no lease. False if there is one.
    fn begin_again(&mut self, pid: u32, now: Nanos) -> bool {
        let (Some(number), shown) = (Pid::new(pid), self.clock.read(now)) else { return false };
        if self.slow_path.create_space(Some(number), 0, shown).is_err() {
            return false;
        }
        let owner = self.slow_path.capability(number, Rights::Owner);
        self.oracle.set_space(pid, owner);
        true
    }

    /// The request as sabotage lets the board see it: with the owner's present capability, if it has one that was good.
    pub(crate) fn unrevoked(&self, pid: u32, capability: u128) -> u128 {
        let is_sabotaged = self.sabotage == Some(Sabotage::NothingIsRevoked);
        self.oracle.owner_after(pid, capability).filter(|_| is_sabotaged).unwrap_or(capability)
    }
}
