//! `tcp://host:port` and `udp://host:port`: a memory node over kernel sockets.
//!
//! [`RemoteFabric`] is an address space on the node; each queue pair has a lane of its own.

use std::sync::Arc;

use yonder_mapping::Mapping;

use crate::lane::{Lane, NodeAddress};
use crate::queue::{LaneQueuePair, lane_config};
use crate::space::Space;
use crate::url::settings_of;
use crate::{Counter, Credentials, Fabric, FabricError, Module, QueuePair, RemoteAddress};

/// Operations of the lane for allocation: one, and those that were given up and not yet acknowledged.
const CONTROL_OPERATIONS_MAX: usize = 32;

/// A memory node over the network.
pub struct RemoteFabric {
    address: NodeAddress,
    space: Space,
}

impl RemoteFabric {
    /// Connects to the node at `tcp://host:port` or `udp://host:port`, perhaps with some of
    /// `?lease=60s&name=n1&protection=authenticated` behind it. Blocks for some seconds at most.
    pub fn connect(url: &str) -> Result<Self, FabricError> {
        let (url, settings) = settings_of(url)?;
        let mut refused = String::new();
        for address in NodeAddress::resolve(url)? {
            match Lane::open(&address, CONTROL_OPERATIONS_MAX, &Arc::new(settings.session())) {
                Ok(opened) => {
                    let space = Space::create(url, opened.lane, settings.lease_of_fabric())?;
                    return Ok(Self { address, space });
                }
                Err(error) => refused = error.to_string(),
            }
        }
        Err(FabricError::Unreachable { url: url.to_owned(), cause: refused })
    }
}

impl Fabric for RemoteFabric {
    fn url(&self) -> &str {
        self.space.url()
    }

    fn queue_pair(&self, _module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        let opened = Lane::open_with(&self.address, self.space.session(), lane_config)
            .map_err(|error| FabricError::Unreachable { url: self.url().to_owned(), cause: error.to_string() })?;
        Ok(Box::new(LaneQueuePair::new(opened.lane, &self.space, frames)))
    }

    fn space(&self) -> Option<Credentials> {
        Some(self.space.credentials())
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        self.space.allocate(bytes)
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        self.space.release(start)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.space.discard(start, bytes)
    }

    fn counters(&self) -> Vec<Counter> {
        self.space.session().counters()
    }
}
