//! How a node joins a controller: [`ControllerConfig`], what it tells the controller of itself, and what cannot be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use yonder_board::PageSize;
use yonder_controller::NodeLink;
use yonder_identity::Credential;
use yonder_placement::{Domains, NodeId, Registration, URLS_MAX};
use yonder_wire::ADOPT_PAGES_MAX;

use crate::agent::Agent;
use crate::listen::Listen;
use crate::{NodeError, Shared};

/// The controller that a node serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerConfig {
    /// Where it is: `host:port`; several, of which one leads, are separated by commas.
    pub addresses: String,
    /// Bytes of the regions that the controller places: a power of two, the same for the whole cluster.
    pub region_bytes: u64,
    /// What fails together with the node.
    pub domains: Domains,
}

impl ControllerConfig {
    /// For a node that fails alone.
    #[must_use]
    pub fn new(addresses: impl Into<String>, region_bytes: u64) -> Self {
        Self { addresses: addresses.into(), region_bytes, domains: Domains::default() }
    }

    /// Checks that regions are made of pages, and of no more than can move together.
    pub(crate) fn check(&self, page_size: PageSize) -> Result<(), NodeError> {
        let Self { region_bytes, .. } = *self;
        let page_bytes = page_size.bytes();
        if !region_bytes.is_power_of_two() || region_bytes < page_bytes {
            return Err(NodeError::RegionSize { region_bytes, page_bytes });
        }
        let page_bytes_min = region_bytes / u64::from(ADOPT_PAGES_MAX);
        if page_bytes < page_bytes_min {
            return Err(NodeError::RegionPages { region_bytes, page_bytes, page_bytes_min });
        }
        Ok(())
    }
}

/// Registers the node, which serves at `addresses`, at its controller.
pub(crate) fn join(
    shared: &Arc<Shared>,
    config: &ControllerConfig,
    credential: Option<Arc<Credential>>,
    addresses: &[Listen],
) -> Result<NodeLink, NodeError> {
    let urls = urls(addresses, &config.addresses);
    if urls.is_empty() {
        return Err(NodeError::NoNetwork);
    }
    let facts = Registration {
        node: NodeId(shared.incarnation),
        name: None,
        urls,
        memory_bytes: shared.memory.bytes(),
        page_bytes: shared.board.config().page_size.bytes(),
        region_bytes: config.region_bytes,
        domains: config.domains.clone(),
    };
    let agent = Box::new(Agent::new(Arc::clone(shared), config.region_bytes));
    Ok(NodeLink::start_as(&config.addresses, facts, agent, credential)?)
}

/// Where other machines reach the node. What only this machine reaches is not among it.
fn urls(addresses: &[Listen], controllers: &str) -> Vec<String> {
    let url = |address: &Listen| match address {
        Listen::Tcp(address) => Some(format!("tcp://{}", reachable(address, controllers))),
        Listen::Udp(address) => Some(format!("udp://{}", reachable(address, controllers))),
        Listen::Shm(_) => None,
    };
    addresses.iter().filter_map(url).take(URLS_MAX).collect()
}

/// An address at which others reach what listens at `address`: if that is every address of this machine, the one from
/// which this machine talks to the controller.
fn reachable(address: &str, controllers: &str) -> String {
    let Ok(bound) = address.parse::<SocketAddr>() else { return address.to_owned() };
    if !bound.ip().is_unspecified() {
        return address.to_owned();
    }
    let candidates = controllers.split(',').filter_map(|address| address.trim().to_socket_addrs().ok()).flatten();
    let mut own = candidates.filter_map(|controller| own_address(controller).ok());
    // A socket for all IPv6 addresses serves IPv4 too.
    let found = own.find(|own| bound.is_ipv6() || own.is_ipv4());
    found.map_or_else(|| address.to_owned(), |own| SocketAddr::new(own, bound.port()).to_string())
}

/// The address from which this machine talks to `peer`. Nothing is sent.
fn own_address(peer: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_made_of_pages_and_not_of_too_many() {
        let check = |region_bytes, page_bytes| {
            let config = ControllerConfig::new("", region_bytes);
            config.check(PageSize::new(page_bytes).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(check(1 << 30, 4 << 20), Ok(()));
        assert_eq!(check(1 << 30, 512 << 10), Ok(()));
        let many = check(1 << 30, 256 << 10).unwrap_err();
        assert!(many.contains("4096 pages") && many.ends_with("type --page-size 512KiB or more"), "{many}");
        for wrong in [check(3 << 20, 4096), check(1 << 20, 4 << 20), check(0, 4096)] {
            assert!(wrong.unwrap_err().contains("type a power of two"));
        }
    }

    #[test]
    fn every_address_becomes_one_that_others_reach() {
        let controllers = "127.0.0.1:7100";
        let listen = [
            Listen::Udp("0.0.0.0:7000".to_owned()),
            Listen::Shm("/tmp/node.sock".into()),
            Listen::Tcp("10.1.2.3:7001".to_owned()),
        ];
        assert_eq!(urls(&listen, controllers), ["udp://127.0.0.1:7000", "tcp://10.1.2.3:7001"]);
        assert_eq!(reachable("[::]:7000", controllers), "127.0.0.1:7000");
        assert_eq!(reachable("0.0.0.0:7000", "no address"), "0.0.0.0:7000");
    }
}
