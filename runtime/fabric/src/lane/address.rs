//! [`NodeAddress`]: where a node is, out of its URL.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use crate::FabricError;
use crate::url::{bad, shm_path, socket_address};

/// Where a node listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodeAddress {
    /// Streams over the network.
    Tcp(SocketAddr),
    /// Datagrams.
    Udp(SocketAddr),
    /// A local stream, over which the node also hands out its memory.
    Unix(PathBuf),
}

impl NodeAddress {
    /// The addresses that `url` stands for, best first; at least one.
    pub fn resolve(url: &str) -> Result<Vec<Self>, FabricError> {
        let unreachable = |cause: String| FabricError::Unreachable { url: url.to_owned(), cause };
        let resolve = |make: fn(SocketAddr) -> Self| {
            let found = socket_address(url)?.to_socket_addrs().map_err(|error| unreachable(error.to_string()))?;
            let found: Vec<Self> = found.map(make).collect();
            if found.is_empty() { Err(unreachable("the name has no address".to_owned())) } else { Ok(found) }
        };
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("tcp") => resolve(Self::Tcp),
            Some("udp") => resolve(Self::Udp),
            Some("shm") => Ok(vec![Self::Unix(shm_path(url)?.to_owned())]),
            _ => Err(bad(
                url,
                "is not the address of a memory node: type udp://host:port, tcp://host:port or shm:///path",
            )),
        }
    }
}
