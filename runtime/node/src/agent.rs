//! [`Agent`]: what the node does for its controller. Address spaces are made and ended on the slow path; each move has
//! a thread of its own, which `carrier` is for.
//!
//! The controller's link owns the agent and calls it from one thread. When it is dropped no move is under way any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use yonder_board::{Pid, SlowPath, TenantUse};
use yonder_controller::{MoveEnd, NodeAgent};
use yonder_placement::{Arrival, Capabilities, Capability, MoveId, MoveOrder, NodeReport, RegionReport, TenantReport};
use yonder_wire::{ErrorCode, Rights};

use crate::Shared;
use crate::carrier::carry;
use crate::crash::crashing;
use crate::errand::SlowShell;

/// Regions that one errand to the slow path looks at, so that requests do not wait for the whole report.
const REGIONS_PER_ERRAND: usize = 8;
/// Pause before a move that was called off is looked at again.
const MOVE_PAUSE: Duration = Duration::from_millis(1);

/// The node, as its controller sees it.
#[derive(Debug)]
pub(crate) struct Agent {
    shared: Arc<Shared>,
    region_bytes: u64,
    moves: Vec<Move>,
}

/// A move that was begun.
#[derive(Debug)]
struct Move {
    pid: yonder_placement::Pid,
    region: u32,
    is_called_off: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Agent {
    pub(crate) fn new(shared: Arc<Shared>, region_bytes: u64) -> Self {
        Self { shared, region_bytes, moves: Vec::new() }
    }

    fn call_off(&self, is_meant: impl Fn(&Move) -> bool) {
        for meant in self.moves.iter().filter(|underway| is_meant(underway)) {
            meant.is_called_off.store(true, Ordering::Release);
        }
    }

    /// The address spaces that a controller has named.
    fn named_spaces(&self) -> Option<Vec<Pid>> {
        let named = |slow: &mut SlowPath| slow.spaces().into_iter().filter(|pid| pid.is_of_controller()).collect();
        self.shared.on_slow_path(move |slow, _| named(slow))
    }

    /// The regions of an address space that have allocations; `None` if the node stops.
    fn regions_of(&self, pid: Pid) -> Option<Vec<RegionReport>> {
        let used = self.shared.on_slow_path(move |slow, _| slow.regions(pid))?;
        let mut reports = Vec::with_capacity(used.len());
        for some in used.chunks(REGIONS_PER_ERRAND) {
            let regions: Vec<u32> = some.iter().map(|used| used.region).collect();
            let resident = self.shared.on_slow_path(move |slow, _| {
                regions.iter().map(|region| slow.resident_bytes(pid, *region)).collect::<Vec<u64>>()
            })?;
            reports.extend(some.iter().zip(resident).map(|(used, resident_bytes)| RegionReport {
                pid: yonder_placement::Pid(pid.get()),
                region: used.region,
                allocated_bytes: used.allocated_bytes,
                resident_bytes,
                heat: self.shared.board.heat(pid, used.region),
            }));
        }
        Some(reports)
    }

    fn whole_report(&self) -> Option<NodeReport> {
        let free_bytes = self.shared.on_slow_path(|slow, _| slow.status().free_bytes)?;
        let mut regions = Vec::new();
        for pid in self.named_spaces()? {
            regions.extend(self.regions_of(pid)?);
        }
        let arrived = self.arrivals()?;
        Some(NodeReport { free_bytes, regions, arrived, tenants: self.tenants() })
    }

    /// What tenants have and have done here.
    fn tenants(&self) -> Vec<TenantReport> {
        let report = |(name, usage): (String, TenantUse)| TenantReport {
            name,
            requests: usage.requests,
            bytes: usage.bytes,
            shed: usage.shed,
            work_ns: usage.work_ns,
            spaces: usage.spaces,
            connections: usage.connections,
            reserved_bytes: usage.reserved_bytes,
            memory_bytes: usage.memory_bytes,
        };
        TenantReport::most(self.shared.tenants().into_iter().map(report).collect())
    }

    /// The regions that are served here on the word of their source alone; `None` if the node stops.
    fn arrivals(&self) -> Option<Vec<Arrival>> {
        let arrivals = |slow: &mut SlowPath| {
            let spaces = slow.spaces();
            let found = spaces.into_iter().map(|pid| (pid, slow.arrivals(pid)));
            found.collect::<Vec<_>>()
        };
        let region_bytes = self.region_bytes;
        let arrivals = self.shared.on_slow_path(move |slow, _| arrivals(slow))?;
        let arrivals = arrivals.into_iter().flat_map(|(pid, ranges)| ranges.into_iter().map(move |range| (pid, range)));
        let arrival = |(pid, (from, transfer)): (Pid, (u64, u64))| Arrival {
            pid: yonder_placement::Pid(pid.get()),
            region: u32::try_from(from / region_bytes).unwrap_or(u32::MAX),
            id: MoveId(transfer),
        };
        Some(arrivals.map(arrival).collect())
    }

    /// Returns when nothing is left of an address space that ends, or the node stops. Each errand does a piece of what
    /// is left, and requests go between.
    fn wait_until_ended(&self, pid: Pid) {
        let ends = move |slow: &mut SlowPath, shell: &mut SlowShell<'_, '_>| {
            let is_ending = slow.is_ending(pid);
            if is_ending {
                slow.work(yonder_clock::now(), shell);
            }
            is_ending
        };
        while self.shared.on_slow_path(ends) == Some(true) {}
    }

    /// The addresses of a region.
    fn range(&self, region: u32) -> (u64, u64) {
        let from = u64::from(region) * self.region_bytes;
        (from, from + self.region_bytes)
    }
}

impl NodeAgent for Agent {
    fn report(&mut self) -> NodeReport {
        let report = self.whole_report().unwrap_or_default();
        self.shared.board.cool();
        report
    }

    fn spaces(&mut self) -> Vec<yonder_placement::Pid> {
        let named = self.named_spaces().unwrap_or_default();
        named.into_iter().map(|pid| yonder_placement::Pid(pid.get())).collect()
    }

    fn create_space(&mut self, pid: yonder_placement::Pid, tenant: Option<&str>) -> Result<Capabilities, String> {
        let named = Pid::new(pid.0).filter(|pid| pid.is_of_controller());
        let named =
            named.ok_or_else(|| format!("{pid} is not a number that a controller gives to an address space"))?;
        let tenant =
            tenant.map(|name| self.shared.doors.tenant(name).ok_or("the node knows as many tenants as it can"));
        let tenant = tenant.transpose()?.unwrap_or(0);
        self.wait_until_ended(named);
        let created = self.shared.on_slow_path(move |slow, _| {
            match slow.create_space_of(Some(named), tenant, 0, yonder_clock::now()) {
                // It was made before; it has the same capabilities.
                Ok(_) | Err(ErrorCode::BadAddress) => {}
                Err(code) => return Err(code.to_string()),
            }
            let [owner, read_write, read] = [Rights::Owner, Rights::ReadWrite, Rights::Read]
                .map(|rights| Capability(slow.capability(named, rights)));
            Ok(Capabilities { owner, read_write, read })
        });
        created.unwrap_or_else(|| Err("the node stops".to_owned()))
    }

    fn destroy_space(&mut self, pid: yonder_placement::Pid) {
        let Some(named) = Pid::new(pid.0) else { return };
        self.call_off(|underway| underway.pid == pid);
        // A move that was called off gives its range back at once.
        while self.shared.on_slow_path(move |slow, _| slow.destroy_space(named)) == Some(Err(ErrorCode::Busy)) {
            thread::sleep(MOVE_PAUSE);
        }
        self.wait_until_ended(named);
    }

    fn open_region(&mut self, pid: yonder_placement::Pid, region: u32, id: MoveId) -> Result<(), String> {
        let named = Pid::new(pid.0).ok_or("the address space has no number")?;
        let (from, to) = self.range(region);
        let opened = self.shared.on_slow_path(move |slow, _| slow.open_range(named, id.0, from, to));
        opened.ok_or("the node stops")?.map_err(|code| code.to_string())
    }

    fn drop_region(&mut self, pid: yonder_placement::Pid, region: u32, before: MoveId) -> Result<(), String> {
        let named = Pid::new(pid.0).ok_or("the address space has no number")?;
        let (from, to) = self.range(region);
        let dropped = self.shared.on_slow_path(move |slow, _| slow.drop_range(named, before.0, from, to));
        dropped.ok_or("the node stops")?.map_err(|code| code.to_string())
    }

    fn give_up_region(&mut self, pid: yonder_placement::Pid, region: u32, before: MoveId) -> Result<(), String> {
        let named = Pid::new(pid.0).ok_or("the address space has no number")?;
        let (from, to) = self.range(region);
        self.call_off(|underway| (underway.pid, underway.region) == (pid, region));
        // A move that was called off gives its range back at once, and what is being freed soon is.
        let give_up = move |slow: &mut SlowPath, shell: &mut SlowShell<'_, '_>| {
            let given_up = slow.give_up_range(named, before.0, from, to);
            if given_up == Err(ErrorCode::Busy) {
                slow.work(yonder_clock::now(), shell);
            }
            given_up
        };
        loop {
            match self.shared.on_slow_path(give_up).ok_or("the node stops")? {
                Err(ErrorCode::Busy) => thread::sleep(MOVE_PAUSE),
                given_up => return given_up.map_err(|code| code.to_string()),
            }
        }
    }

    fn start_move(&mut self, order: MoveOrder, end: MoveEnd) {
        self.moves.retain(|underway| !underway.thread.is_finished());
        let (pid, region, is_called_off) = (order.pid, order.region, Arc::new(AtomicBool::new(false)));
        let (shared, called_off) = (Arc::clone(&self.shared), Arc::clone(&is_called_off));
        let body = crashing(move || carry(&shared, &order, &called_off, end));
        // If there is no thread the end of the move is dropped with it, which says that it has failed.
        if let Ok(thread) = thread::Builder::new().name("yonder-move".to_owned()).spawn(body) {
            self.moves.push(Move { pid, region, is_called_off, thread });
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.call_off(|_| true);
        for underway in self.moves.drain(..) {
            underway.thread.join().expect("a thread that panics ends the process");
        }
    }
}

#[cfg(test)]
mod tests {
    use yonder_wire::{AllocateRequest, Backing, Permission};

    use super::*;
    use crate::{Listen, Node, NodeConfig};

    const PAGE: u64 = 4096;

    #[test]
    fn a_report_tells_what_each_tenant_has() {
        let node = Node::start(NodeConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())], 16 << 20)).unwrap();
        let mut agent = Agent::new(Arc::clone(&node.shared), 1 << 30);
        assert_eq!(agent.report().tenants, []);
        for (number, tenant) in [(7, Some("app")), (8, Some("app")), (9, None)] {
            agent.create_space(yonder_placement::Pid(1 << 31 | number), tenant).unwrap();
        }
        let pid = Pid::new(1 << 31 | 7).unwrap();
        let (permission, backing) = (Permission::ReadWrite, Backing::OnDemand);
        let some = AllocateRequest { bytes: 3 << 20, permission, backing, from: 0, to: 0 };
        node.shared.on_slow_path(move |slow, shell| slow.allocate(pid, &some, shell)).unwrap().unwrap();
        let [app] = &agent.report().tenants[..] else { panic!("{:?}", agent.report().tenants) };
        assert_eq!((app.name.as_str(), app.spaces, app.reserved_bytes), ("app", 2, 3 << 20));
    }

    #[test]
    fn an_address_space_is_made_again_as_soon_as_it_has_ended() {
        let mut config = NodeConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())], 256 << 20);
        config.page_bytes = Some(PAGE);
        let node = Node::start(config).unwrap();
        let mut agent = Agent::new(Arc::clone(&node.shared), 1 << 30);
        let named = yonder_placement::Pid(1 << 31 | 7);
        let pid = Pid::new(named.0).unwrap();
        for _ in 0..3 {
            agent.create_space(named, None).unwrap();
            let bytes = 1000 * PAGE;
            let (permission, backing) = (Permission::ReadWrite, Backing::OnDemand);
            let some = AllocateRequest { bytes, permission, backing, from: 0, to: 0 };
            for _ in 0..32 {
                node.shared.on_slow_path(move |slow, shell| slow.allocate(pid, &some, shell)).unwrap().unwrap();
            }
            agent.destroy_space(named);
            let ends = node.shared.on_slow_path(move |slow, _| slow.is_ending(pid));
            assert_eq!(ends, Some(false), "its end was answered before it was over");
        }
    }
}
