//! The end of a run: everything works from then on, and what was begun must end.

use yonder_placement::{Record, Request};

use super::oracle::Oracle;
use super::world::{LONG, PACKETS_MAX, World};
use super::{ALLOCATED_PAGES, HOSTS, REGIONS};
use crate::settings::PAGE_BYTES;

/// Rounds in which everything that was begun must end.
const ROUNDS_MAX: u32 = 400;

impl World {
    /// From now on everything works. With a node that is drained, if one is given.
    pub(super) fn converge(&mut self, drained: Option<usize>) -> Result<(), String> {
        self.crash_after = None;
        self.packets.append(&mut self.late);
        (0..HOSTS).for_each(|at| self.connect(at));
        self.drain(drained);
        for _ in 0..ROUNDS_MAX {
            for at in 0..HOSTS {
                self.report(at);
                self.obey(at);
                self.send_again(at);
            }
            for _ in 0..2 * PACKETS_MAX {
                self.deliver()?;
                self.check()?;
            }
            self.end_carriers_without_target();
            self.pass(if drained.is_none() { LONG / 100 } else { self.config.lease / 4 });
            self.check()?;
            if self.has_converged(drained) {
                return self.check_converged();
            }
        }
        Err(format!("a move has no end: {:?}", self.regions_by_records()))
    }

    /// The lane to a node that has ended is lost.
    fn end_carriers_without_target(&mut self) {
        for at in 0..HOSTS {
            while let Some(carrier) =
                self.hosts[at].carriers.iter().position(|carrier| self.at(carrier.order.to).is_none())
            {
                self.end_carrier(at, carrier);
            }
        }
    }

    /// Whether nothing moves that can end, the controller knows of all that has ended, and the drained node is empty.
    fn has_converged(&self, drained: Option<usize>) -> bool {
        self.records.values().all(|record| match record {
            Record::Region { record, .. } if self.at(record.owner).is_none() => true,
            Record::Region { record, .. } => {
                record.moving.is_none()
                    && record.opening.is_none()
                    && record.leftovers.iter().all(|node| self.at(*node).is_none())
                    && drained.is_none_or(|at| self.hosts[at].id != record.owner)
            }
            _ => true,
        }) && self.hosts.iter().all(|host| host.carriers.is_empty() && host.report().arrived.is_empty())
    }

    /// What must be true when nothing moves any more.
    fn check_converged(&mut self) -> Result<(), String> {
        for region in 1..=REGIONS {
            let (home, is_alive) = (self.oracle.regions[&region].home, self.oracle.regions[&region].is_alive);
            if !is_alive {
                continue;
            }
            let located = self.locate(region);
            if located != Some(home) {
                return Err(format!("region {region} is at {home:?}, and clients are sent to {located:?}"));
            }
            let at = self.at(home).expect("its data is alive");
            for address in Oracle::addresses(region) {
                let (id, pid, now) = (self.id(), self.pid, self.now);
                let word = self.hosts[at].access(id, pid, address, None, now);
                let word = word.map_err(|code| format!("region {region} is not served: {code}"))?;
                self.oracle.read(region, address, word)?;
            }
        }
        // What has begun late, at a node that knew nothing of it any more, is undone.
        let far = self.now + LONG;
        self.hosts.iter_mut().for_each(|host| host.expire(far));
        let is_whole = self.oracle.regions.values().all(|truth| truth.is_alive);
        for host in self.hosts.iter().filter(|_| is_whole) {
            let owned = self.oracle.regions.values().filter(|truth| truth.home == host.id).count() as u64;
            if host.allocated_bytes() != owned * ALLOCATED_PAGES * PAGE_BYTES {
                return Err(format!("{:?} has {} bytes of {owned} regions", host.id, host.allocated_bytes()));
            }
        }
        Ok(())
    }

    /// The address space ends, and with it all memory is free.
    pub(super) fn end(&mut self) -> Result<(), String> {
        let (pid, key) = (self.pid, self.keys.owner);
        self.ask(Request::DestroySpace { pid, key });
        (0..HOSTS).for_each(|at| {
            self.report(at);
            self.obey(at);
        });
        match self.hosts.iter().find(|host| !host.is_empty()) {
            None => Ok(()),
            Some(host) => Err(format!("{:?} keeps something of an address space that has ended", host.id)),
        }
    }

    fn regions_by_records(&self) -> Vec<&Record> {
        self.records.values().filter(|record| matches!(record, Record::Region { .. })).collect()
    }
}
