//! [`Cluster`]: an address space that spans the nodes of a controller, as one process knows it.
//!
//! `yonder::clib` asks it where an address is, and follows what moves; `yonder://` keeps pages in one. Its addresses are divided into regions, each on one node. Where regions are is known to a controller; what was asked
//! once is kept here, for all threads, until a node says that the region has moved. The controller ends an address
//! space when its lease is over, which programs with the owner's key renew (`renewal`).
//!
//! Renewal has the connection over which the address space was made or opened, and threads together have another one,
//! from their first question on. So no thread's question keeps renewal waiting; and where a controller takes no more
//! connections, it is a question that fails, and not the lease.

mod renewal;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use yonder_controller::{ClientError, ControllerClient};
use yonder_placement::{Key, Keys, NodeId, Pid, Placement, PlacesWanted};
use yonder_units::Nanos;
use yonder_wire::{ErrorCode, Rights};

use crate::FabricError;
use crate::lane::NodeSession;
use renewal::Renewal;

/// How long a region that is said to be where it was is waited for: who asks tries that node again then, several times.
const MOVE_TIME_MAX: Duration = Duration::from_millis(640);
/// Pause between two questions where a region is.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// Why a question of an address space of a controller has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The controller has refused, or was not reached.
    #[error(transparent)]
    Controller(#[from] ClientError),
    /// The thread that renews the lease was not started.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// What was asked for is not possible here, whoever is asked.
    #[error("{0}")]
    Refused(ErrorCode),
}

/// Where a region is.
#[derive(Clone, Debug)]
pub struct Location {
    /// The node that has it.
    pub node: NodeId,
    /// What the node is called, where nodes have names.
    pub name: Option<String>,
    /// Where the node is reached, best first.
    pub urls: Vec<String>,
    /// The right to the region, there.
    pub capability: u128,
}

/// An address space of a controller.
pub struct Cluster {
    controller: Mutex<ControllerClient>,
    /// Renews the lease, for owners.
    renewal: Mutex<Option<Renewal>>,
    pid: Pid,
    key: Key,
    /// All keys, if this process has made the address space.
    keys: Option<Keys>,
    region_bytes: u64,
    regions: RwLock<HashMap<u32, Location>>,
    standings: Mutex<HashMap<NodeId, Arc<NodeSession>>>,
    /// Further parts of allocations that are longer than a region, by their start.
    parts: Mutex<HashMap<u64, Vec<u64>>>,
}

impl Cluster {
    /// Makes an address space with a lease of this length. The controller has as long as `deadline` for each answer.
    pub fn create(addresses: &str, deadline: Duration, lease: Duration) -> Result<Self, ClusterError> {
        let mut controller = ControllerClient::new(addresses, deadline).with_credential_of_process()?;
        let asked = yonder_clock::boottime();
        let space = controller.create_space_for(lease)?;
        let others = controller.another();
        let cluster = Self::new(others, space.pid, space.keys.owner, Some(space.keys), space.region_bytes);
        cluster.keep(controller, addresses, space.lease, asked)?;
        Ok(cluster)
    }

    /// Uses the address space of another process.
    pub fn open(addresses: &str, deadline: Duration, pid: u32, key: u128) -> Result<Self, ClusterError> {
        let mut controller = ControllerClient::new(addresses, deadline).with_credential_of_process()?;
        let (pid, key) = (Pid(pid), Key(key));
        let asked = yonder_clock::boottime();
        let opened = controller.open(pid, key)?;
        if opened.rights != Rights::Owner {
            return Ok(Self::new(controller, pid, key, None, opened.region_bytes));
        }
        let cluster = Self::new(controller.another(), pid, key, None, opened.region_bytes);
        cluster.keep(controller, addresses, opened.lease, asked)?;
        Ok(cluster)
    }

    fn new(controller: ControllerClient, pid: Pid, key: Key, keys: Option<Keys>, region_bytes: u64) -> Self {
        Self {
            controller: Mutex::new(controller),
            renewal: Mutex::default(),
            pid,
            key,
            keys,
            region_bytes,
            regions: RwLock::default(),
            standings: Mutex::default(),
            parts: Mutex::default(),
        }
    }

    /// Renews the lease from now on, by this client, which has asked for it at `asked`. There may be none, at a
    /// controller of an earlier release.
    fn keep(
        &self,
        controller: ControllerClient,
        addresses: &str,
        lease: Option<Duration>,
        asked: Nanos,
    ) -> Result<(), ClusterError> {
        let started = Renewal::start(controller, self.pid, self.key, lease, asked);
        let renewal = started.map_err(|error| {
            let cause = format!("no thread can be started to renew the lease: {error}");
            FabricError::System { url: format!("controller://{addresses}"), cause }
        })?;
        *self.renewal() = Some(renewal);
        Ok(())
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.0
    }

    /// Bytes of a region.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.region_bytes
    }

    /// Number of the region that has `address`.
    pub fn region_of(&self, address: u64) -> Result<u32, ClusterError> {
        let region = u32::try_from(address / self.region_bytes).ok();
        region.ok_or(ClusterError::Refused(ErrorCode::BadAddress))
    }

    /// The key that this process has.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// The key that has these rights, if this process has made the address space.
    #[must_use]
    pub fn key_for(&self, rights: Rights) -> Option<Key> {
        let keys = self.keys.as_ref()?;
        Some(match rights {
            Rights::Read => keys.read,
            Rights::ReadWrite => keys.read_write,
            Rights::Owner => keys.owner,
        })
    }

    /// Ends the address space if this process has made it; in any case its lease is not renewed any more.
    pub fn destroy(&self) {
        drop(self.renewal().take());
        if self.keys.is_some() {
            // A controller that cannot be reached ends the address space when its lease is over.
            let destroyed = self.controller().destroy_space(self.pid, self.key);
            if let Err(error) = destroyed {
                tracing::warn!(%error, "an address space was not ended");
            }
        }
    }

    /// Where a region is, as far as is known here; asks if nothing is.
    pub fn locate(&self, region: u32) -> Result<Location, ClusterError> {
        if let Some(known) = self.known(region) {
            return Ok(known);
        }
        self.ask(region)
    }

    /// Where a region is that was at `node` and is no more; `node` if it is there all the same: it may have come back
    /// just now. With `waits`, if `node` has said so before, it is waited for a while if it is on its way.
    pub fn relocate(&self, region: u32, node: NodeId, waits: bool) -> Result<Location, ClusterError> {
        let end = Instant::now() + if waits { MOVE_TIME_MAX } else { Duration::ZERO };
        loop {
            if let Some(known) = self.known(region).filter(|known| known.node != node) {
                return Ok(known);
            }
            let placement = self.controller().locate(self.pid, self.key, region)?;
            if placement.node != node || Instant::now() >= end {
                return Ok(self.learn(&placement));
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Whether the controller says that a region is elsewhere than at `node`.
    pub fn is_elsewhere(&self, region: u32, node: NodeId) -> Result<bool, ClusterError> {
        let placement = self.controller().locate(self.pid, self.key, region)?;
        let is_elsewhere = placement.node != node;
        self.learn(&placement);
        Ok(is_elsewhere)
    }

    /// Asks the next time where the region that has `address` is.
    pub fn forget(&self, address: u64) {
        if let Ok(region) = self.region_of(address) {
            self.regions.write().unwrap_or_else(PoisonError::into_inner).remove(&region);
        }
    }

    /// Regions to allocate `bytes` in, other than those in `avoid`.
    pub fn place(&self, bytes: u64, avoid: &[u32]) -> Result<Vec<u32>, ClusterError> {
        let placements = self.controller().place(self.pid, self.key, bytes, avoid)?;
        for placement in &placements {
            self.learn(placement);
        }
        Ok(placements.iter().map(|placement| placement.region).collect())
    }

    /// Where a region is, as the controller says now.
    pub fn ask(&self, region: u32) -> Result<Location, ClusterError> {
        let placement = self.controller().locate(self.pid, self.key, region)?;
        Ok(self.learn(&placement))
    }

    /// Places for the pages of a group: what the controller calls the group, and the regions, each with where it is.
    pub fn place_group(&self, wanted: &PlacesWanted) -> Result<(u32, Vec<(u32, Location)>), ClusterError> {
        let placed = self.controller().place_group(self.pid, self.key, wanted)?;
        let located = placed.places.iter().map(|placement| (placement.region, self.learn(placement)));
        Ok((placed.group, located.collect()))
    }

    /// A region is not used any more, wherever it is.
    pub fn give_up(&self, region: u32) -> Result<(), ClusterError> {
        self.regions.write().unwrap_or_else(PoisonError::into_inner).remove(&region);
        Ok(self.controller().give_up(self.pid, self.key, region)?)
    }

    /// So many pages are at fewer places than was asked for.
    pub fn note_protection(&self, pages_below: u64) -> Result<(), ClusterError> {
        Ok(self.controller().note_protection(self.pid, self.key, pages_below)?)
    }

    /// What all threads know of the node there.
    pub fn session(&self, at: &Location) -> Arc<NodeSession> {
        let mut standings = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = || Arc::new(NodeSession::default().called(at.name.clone()));
        Arc::clone(standings.entry(at.node).or_insert_with(unknown))
    }

    /// Remembers that the allocation at `start` has further parts.
    pub fn keep_parts(&self, start: u64, parts: Vec<u64>) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(start, parts);
    }

    /// Whether the allocation at `start` has further parts.
    pub fn has_parts(&self, start: u64) -> bool {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&start)
    }

    /// Further parts of the allocation at `start`, which is freed.
    pub fn take_parts(&self, start: u64) -> Vec<u64> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).remove(&start).unwrap_or_default()
    }

    fn known(&self, region: u32) -> Option<Location> {
        self.regions.read().unwrap_or_else(PoisonError::into_inner).get(&region).cloned()
    }

    fn learn(&self, placement: &Placement) -> Location {
        let Placement { region, node, name, urls, capability, .. } = placement;
        let location = Location { node: *node, name: name.clone(), urls: urls.clone(), capability: capability.0 };
        self.regions.write().unwrap_or_else(PoisonError::into_inner).insert(*region, location.clone());
        location
    }

    fn renewal(&self) -> std::sync::MutexGuard<'_, Option<Renewal>> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn controller(&self) -> std::sync::MutexGuard<'_, ControllerClient> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use yonder_controller::{FromController, ToController};
    use yonder_placement::{Answer, Refusal, Request};

    use super::*;

    const PID: Pid = Pid::FIRST;
    const KEY: Key = Key(7);
    /// Of a thread's question: no renewal that waits for it comes in time.
    const DEADLINE: Duration = Duration::from_secs(60);
    /// How long the test waits for a request before it fails.
    const WAIT_MAX: Duration = Duration::from_secs(20);

    /// A request, and where its answer goes.
    struct Asked {
        request: Request,
        id: u64,
        stream: TcpStream,
    }

    impl Asked {
        fn answer(&mut self, answer: Answer) {
            let said = serde_json::to_string(&FromController::Answer { id: self.id, answer }).unwrap();
            // One that has waited too long has asked again meanwhile, over another connection.
            let _ = writeln!(self.stream, "{said}");
        }
    }

    /// A controller that the test answers for: where it is, and what it is asked, over all connections.
    fn controller() -> (String, Receiver<Asked>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (asks, asked) = channel();
        let read = move |stream: TcpStream, asks: std::sync::mpsc::Sender<Asked>| {
            for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                let ToController::Ask { id, request } = serde_json::from_str(&line).unwrap() else { panic!("{line}") };
                let _ = asks.send(Asked { request, id, stream: stream.try_clone().unwrap() });
            }
        };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let asks = asks.clone();
                thread::spawn(move || read(stream, asks));
            }
        });
        (address, asked)
    }

    #[test]
    fn a_question_that_is_not_answered_keeps_no_renewal_waiting() {
        let (address, asked) = controller();
        let opened = || Answer::Opened { rights: Rights::Owner, region_bytes: 1 << 20, lease_ms: 2000 };
        let opens = thread::spawn(move || Cluster::open(&address, DEADLINE, PID.0, KEY.0));
        let mut open = asked.recv_timeout(WAIT_MAX).unwrap();
        assert_eq!(open.request, Request::Open { pid: PID, key: KEY });
        open.answer(opened());
        let cluster = Arc::new(opens.join().unwrap().unwrap());
        let places = Arc::clone(&cluster);
        let placing = thread::spawn(move || places.place(1, &[]));
        // Renewals may come before it.
        let mut place = loop {
            let mut next = asked.recv_timeout(WAIT_MAX).expect("a thread asks");
            match next.request {
                Request::Open { .. } => next.answer(opened()),
                _ => break next,
            }
        };
        let mut renewal = asked.recv_timeout(WAIT_MAX).expect("the lease is renewed meanwhile");
        assert_eq!(renewal.request, Request::Open { pid: PID, key: KEY });
        renewal.answer(opened());
        place.answer(Answer::Refused(Refusal::NoRoom { bytes: 1 }));
        assert!(matches!(
            placing.join().unwrap(),
            Err(ClusterError::Controller(ClientError::Refused(Refusal::NoRoom { .. })))
        ));
    }
}
