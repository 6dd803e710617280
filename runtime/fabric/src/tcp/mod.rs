//! `tcp://host:port`: a memory node over kernel sockets.
//!
//! [`TcpFabric`] has one control connection; each queue pair has a connection of its own. The parts: `link` is one
//! connection that mends itself without blocking, `queue` the operations on it.

mod link;
mod queue;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use yonder_mapping::Mapping;

use crate::control::{Connected, Control, Redial, SessionError, dial};
use crate::identity::Identity;
use crate::url::tcp_address;
use crate::{Fabric, FabricError, Module, QueuePair, RemoteAddress};

use link::Link;
use queue::TcpQueuePair;

/// A memory node over TCP.
pub struct TcpFabric {
    address: SocketAddr,
    identity: Arc<Identity>,
    control: Control,
}

impl TcpFabric {
    /// Connects to the node at `tcp://host:port`. Blocks for some seconds at most.
    pub fn connect(url: &str) -> Result<Self, FabricError> {
        let unreachable = |cause: String| FabricError::Unreachable { url: url.to_owned(), cause };
        let candidates = tcp_address(url)?.to_socket_addrs().map_err(|error| unreachable(error.to_string()))?;
        let identity = Arc::new(
            Identity::new().map_err(|error| FabricError::System { url: url.to_owned(), cause: error.to_string() })?,
        );
        let mut refused = "the name has no address".to_owned();
        for address in candidates {
            let greeted =
                dial(address).map_err(SessionError::from).and_then(|stream| Control::greet(stream, &identity));
            match greeted {
                Ok((connected, _)) => {
                    let control = Control::new(url, Arc::clone(&identity), Redial::Tcp(address), connected.erase());
                    return Ok(Self { address, identity, control });
                }
                Err(error) => refused = error.to_string(),
            }
        }
        Err(unreachable(refused))
    }

    /// A connected session for queue pair `number`.
    fn link(&self, number: u32) -> Result<Link, SessionError> {
        let stream = Box::new(dial(self.address)?);
        let (connected, _) = Connected::open(stream, &self.identity, number)?;
        Ok(Link::new(*connected.into_stream(), self.address, Arc::clone(&self.identity), number)?)
    }
}

impl Fabric for TcpFabric {
    fn url(&self) -> &str {
        self.control.url()
    }

    fn queue_pair(&self, _module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        let number = self.identity.take_number();
        match self.link(number) {
            Ok(link) => Ok(Box::new(TcpQueuePair::new(link, frames))),
            Err(error) => {
                self.identity.return_number(number);
                Err(FabricError::Unreachable { url: self.url().to_owned(), cause: error.to_string() })
            }
        }
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        self.control.allocate(bytes)
    }

    fn release(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.control.release(start, bytes)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.control.discard(start, bytes)
    }

    fn mapped(&self) -> Option<&Arc<Mapping>> {
        None
    }
}
