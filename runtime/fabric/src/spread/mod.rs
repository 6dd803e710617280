//! `yonder://controller`: pages on the nodes of a controller.
//!
//! An allocation is cut into groups of a region each ([`group`]), which the controller places on its emptiest nodes.
//! Queue pairs have a lane to each node ([`nodes`]) and post where a group is; where it has moved, a thread finds out
//! ([`follower`]) while what concerns it waits ([`queue`]). Addresses are this fabric's own: they stay what they are
//! wherever their memory is.
//!
//! Neighbours: `cluster` asks the controller and renews the lease; `areas` is how queue pairs find groups.

mod follower;
mod group;
mod nodes;
mod queue;
mod url;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use yonder_controller::{ClientError, ControllerClient};
use yonder_mapping::Mapping;
use yonder_placement::{Key, Pid, REGIONS_PER_REQUEST_MAX, Refusal};
use yonder_wire::{AllocateRequest, Backing, Body, ErrorCode, Kind, Permission};

use crate::areas::{Area, Areas, parts_of};
use crate::background::{Background, Waker};
use crate::cluster::{Cluster, ClusterError};
use crate::lane::CallError;
use crate::ranges::Ranges;
use crate::{Counter, Credentials, Fabric, FabricError, Module, QueuePair, RemoteAddress};
use follower::Followed;
use group::{Group, Place, Standing};
use nodes::{FailedCall, Nodes};
use queue::{SpreadQueuePair, may_have_moved};
pub(crate) use url::SCHEME;

/// How long a controller has for an answer.
const CONTROLLER_TIME_MAX: Duration = Duration::from_secs(5);
/// How often an allocation is tried anew because nodes had filled up since the controller last heard of them.
const ATTEMPTS_MAX: usize = 16;
/// How long a call waits for a region that is on its way between nodes.
const MOVE_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause between two questions where a region is.
const ASK_AGAIN: Duration = Duration::from_millis(2);
/// Addresses that this fabric gives out: far more than there is memory.
const ADDRESSES: u64 = 1 << 56;

/// Pages on the nodes of a controller.
pub struct SpreadFabric {
    url: String,
    shared: Arc<Shared>,
    addresses: Mutex<Ranges>,
    /// Ended first, so that nothing is followed any more when the address space ends.
    follower: Background,
}

/// What queue pairs and the follower share.
struct Shared {
    cluster: Cluster,
    areas: Arc<Areas<Group>>,
    nodes: Nodes,
    moved: AtomicU64,
    waker: OnceLock<Arc<Waker>>,
}

impl Shared {
    /// The place of a group is doubted: the follower asks.
    fn doubt(&self, group: &Group) {
        if group.doubt()
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }

    fn pid(&self) -> u32 {
        self.cluster.pid()
    }

    fn count_move(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }
}

/// A part of an allocation that a node has given.
struct Part {
    place: Place,
    bytes: u64,
}

impl SpreadFabric {
    /// Makes an address space at the controller that `url` names. Blocks for some seconds at most.
    pub fn connect(url: &str) -> Result<Self, FabricError> {
        let settings = url::parse(url)?;
        let cluster = Cluster::create(settings.controllers, CONTROLLER_TIME_MAX, settings.lease);
        let cluster = cluster.map_err(|error| failed(url, 0, error))?;
        let nodes = Nodes::new(cluster.pid(), settings.protection);
        let shared = Arc::new(Shared {
            cluster,
            areas: Arc::new(Areas::new()),
            nodes,
            moved: AtomicU64::new(0),
            waker: OnceLock::new(),
        });
        let followed = Arc::clone(&shared);
        let follower = Background::start("yonder-follower", move || follower::step(&followed));
        let follower = follower.map_err(|error| FabricError::System {
            url: url.to_owned(),
            cause: format!("no thread can be started to follow what moves: {error}"),
        })?;
        assert!(shared.waker.set(follower.waker()).is_ok(), "one thread follows");
        Ok(Self { url: url.to_owned(), shared, addresses: Mutex::new(Ranges::new(ADDRESSES)), follower })
    }

    fn addresses(&self) -> MutexGuard<'_, Ranges> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `bytes` given by nodes, part by part.
    fn take(&self, bytes: u64) -> Result<Vec<Part>, FabricError> {
        let at_once = REGIONS_PER_REQUEST_MAX * self.shared.cluster.region_bytes();
        let mut parts = Vec::new();
        let mut left = bytes;
        while left > 0 {
            match self.take_row(left.min(at_once)) {
                Ok(taken) => {
                    left -= taken.iter().map(|part| part.bytes).sum::<u64>();
                    parts.extend(taken);
                }
                Err(error) => {
                    self.give_back(&parts);
                    return Err(error);
                }
            }
        }
        Ok(parts)
    }

    /// Has regions in a row placed, and memory in each given by its node.
    fn take_row(&self, bytes: u64) -> Result<Vec<Part>, FabricError> {
        let mut avoid = Vec::new();
        for _ in 0..ATTEMPTS_MAX {
            let placed =
                self.shared.cluster.place_at(bytes, &avoid).map_err(|error| failed(&self.url, bytes, error))?;
            let (mut parts, mut left) = (Vec::with_capacity(placed.len()), bytes);
            let mut refused = None;
            for (region, location) in &placed {
                let bytes = left.min(self.shared.cluster.region_bytes());
                match self.take_part(*region, location, bytes) {
                    Ok(part) => {
                        left -= bytes;
                        parts.push(part);
                    }
                    Err(error) => {
                        refused = Some(error);
                        break;
                    }
                }
            }
            let Some(error) = refused else { return Ok(parts) };
            self.give_back(&parts);
            if !matches!(error, FabricError::OutOfMemory { .. }) {
                return Err(error);
            }
            avoid.extend(placed.iter().map(|(region, _)| *region));
        }
        Err(FabricError::OutOfMemory { url: self.url.clone(), bytes })
    }

    fn take_part(&self, region: u32, location: &crate::cluster::Location, bytes: u64) -> Result<Part, FabricError> {
        let index = self.shared.nodes.know(location)?;
        self.shared.nodes.connect(index)?;
        let node = self.shared.nodes.get(index);
        let from = u64::from(region) * self.shared.cluster.region_bytes();
        let to = from + self.shared.cluster.region_bytes();
        let request = AllocateRequest { bytes, permission: Permission::ReadWrite, backing: Backing::Now, from, to };
        let mut body = [0; AllocateRequest::BYTES];
        request.write_to(&mut body);
        match node.call(Kind::Allocate, 0, 0, &body) {
            Ok(answer) => Ok(Part { place: Place { node: index, region, address: answer.header.address }, bytes }),
            // It has filled up since the controller last heard of it, or the region is on its way.
            Err(FailedCall::Call(CallError::Refused(
                ErrorCode::OutOfMemory | ErrorCode::BadAddress | ErrorCode::BadLength | ErrorCode::Moved,
            ))) => Err(FabricError::OutOfMemory { url: self.url.clone(), bytes }),
            Err(FailedCall::Open(error)) => Err(error),
            Err(FailedCall::Call(CallError::Refused(code))) => {
                Err(FabricError::System { url: node.url(), cause: code.to_string() })
            }
            Err(FailedCall::Call(error)) => Err(FabricError::Unreachable { url: node.url(), cause: error.to_string() }),
        }
    }

    /// Frees what nodes have given and nobody has used.
    fn give_back(&self, parts: &[Part]) {
        for part in parts {
            // What cannot be freed ends with the address space.
            let _ = self.shared.nodes.get(part.place.node).call(Kind::Free, part.place.address, 0, &[]);
        }
    }

    /// Asks the node that has a group, wherever it is by then.
    fn call_at(&self, start: RemoteAddress, kind: Kind, offset: u64, bytes: u64) -> Result<(), FabricError> {
        let end = Instant::now() + MOVE_TIME_MAX;
        loop {
            let Some(area) = follower::place_of(&self.shared, start) else {
                return Err(FabricError::System { url: self.url.clone(), cause: "there is no such memory".to_owned() });
            };
            let place = area.table.place;
            let node = self.shared.nodes.get(place.node);
            let error = match node.call(kind, place.address + offset, bytes, &[]) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let is_over = Instant::now() >= end || area.table.standing() == Standing::Lost;
            let may_be_elsewhere = match &error {
                FailedCall::Call(CallError::Refused(code)) => may_have_moved(*code),
                FailedCall::Call(CallError::TimedOut | CallError::Lost) | FailedCall::Open(_) => true,
            };
            if is_over || !may_be_elsewhere || follower::follow(&self.shared, &area) == Followed::Lost {
                return Err(FabricError::Unreachable { url: node.url(), cause: error.to_string() });
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }
}

/// Ends the address space of a program at a controller, which is no more.
pub(crate) fn end_space(url: &str, credentials: Credentials) -> Result<(), FabricError> {
    let settings = url::parse(url)?;
    let client = ControllerClient::new(settings.controllers, CONTROLLER_TIME_MAX).with_credential_of_process();
    let ended = client.and_then(|mut client| client.destroy_space(Pid(credentials.pid), Key(credentials.capability)));
    ended.map_err(|error| failed(url, 0, error.into()))
}

fn failed(url: &str, bytes: u64, error: ClusterError) -> FabricError {
    let url = url.to_owned();
    match error {
        ClusterError::Fabric(error) => error,
        ClusterError::Controller(ClientError::Refused(Refusal::NoRoom { .. })) => {
            FabricError::OutOfMemory { url, bytes }
        }
        error => FabricError::System { url, cause: error.to_string() },
    }
}

impl Fabric for SpreadFabric {
    fn url(&self) -> &str {
        &self.url
    }

    fn queue_pair(&self, _module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        Ok(Box::new(SpreadQueuePair::new(&self.shared, frames)))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let parts = self.take(bytes)?;
        let Some(start) = self.addresses().allocate(bytes) else {
            self.give_back(&parts);
            return Err(FabricError::OutOfMemory { url: self.url.clone(), bytes });
        };
        let mut at = start;
        for part in parts {
            let added = self.shared.areas.add(Area::new(RemoteAddress(at), part.bytes, Group::new(part.place)));
            assert!(added, "addresses are given out once");
            at += part.bytes;
        }
        Ok(RemoteAddress(start))
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        let Some(bytes) = self.addresses().length(start.0) else {
            return Err(FabricError::System { url: self.url.clone(), cause: "there is no such memory".to_owned() });
        };
        let areas = self.shared.areas.all();
        let mut failed = Ok(());
        for (area, _) in parts_of(&areas, start, bytes) {
            // What cannot be freed ends with the address space.
            failed = failed.and(self.call_at(area.start(), Kind::Free, 0, 0));
            self.shared.areas.remove(area.start());
        }
        self.addresses().release(start.0);
        failed
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        let areas = self.shared.areas.all();
        for (area, pages) in parts_of(&areas, start, bytes) {
            let (from, to) = (area.address(pages.start).0, area.address(pages.end).0);
            self.call_at(area.start(), Kind::Discard, from - area.start().0, to - from)?;
        }
        Ok(())
    }

    fn space(&self) -> Option<Credentials> {
        Some(Credentials { pid: self.shared.cluster.pid(), capability: self.shared.cluster.key().0 })
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.shared.nodes.counters();
        counters.push(Counter { name: "spread_moves", value: self.shared.moved.load(Ordering::Relaxed) });
        counters
    }
}

impl Drop for SpreadFabric {
    fn drop(&mut self) {
        self.follower.stop();
        self.shared.cluster.destroy();
    }
}
