//! [`FakeNode`]: a memory node whose memory is a map from address to word, and [`Network`], by which nodes and clients
//! reach it by URL. Moves wait until the test lets them go on, if it says so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use yonder_controller::{
    ControllerClient, ControllerServer, LinkError, MemoryStore, MoveEnd, NodeAgent, NodeLink, Store,
};
use yonder_identity::Credential;
use yonder_placement::{
    Capabilities, Capability, Config, Domains, MoveId, MoveOrder, NodeId, NodeReport, Pid, Placement, RegionReport,
    Registration, TenantReport,
};

pub(crate) const REGION: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Long enough for anything that will happen; a test that waits so long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// One region at one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FakeRegion {
    pub(crate) words: BTreeMap<u64, u64>,
    pub(crate) heat: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) spaces: BTreeMap<Pid, BTreeMap<u32, FakeRegion>>,
    pub(crate) moving: BTreeSet<(Pid, u32)>,
    pub(crate) moved: BTreeSet<(Pid, u32)>,
    /// What it says to be free instead of what is.
    pub(crate) claims_free: Option<u64>,
    /// Moves wait here if the test holds them.
    pub(crate) holds_moves: bool,
    pub(crate) held: Vec<(MoveOrder, MoveEnd)>,
    /// What it was told to serve.
    pub(crate) opened: Vec<(Pid, u32, MoveId)>,
    /// What it says of its tenants.
    pub(crate) tenants: Vec<TenantReport>,
    /// How many moves it has begun.
    pub(crate) moves_begun: usize,
    regions_max: u64,
    secret: u64,
}

/// Why a fake node refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Busy,
    Moved,
    BadCapability,
}

/// All fake nodes, by URL.
#[derive(Clone, Default)]
pub(crate) struct Network {
    hosts: Arc<Mutex<BTreeMap<String, Host>>>,
}

impl Network {
    pub(crate) fn hosts(&self) -> MutexGuard<'_, BTreeMap<String, Host>> {
        self.hosts.lock().unwrap()
    }

    /// What happens at the node with this number.
    pub(crate) fn at<T>(&self, node: u64, what: impl FnOnce(&mut Host) -> T) -> T {
        what(self.hosts().get_mut(&url(node)).unwrap())
    }

    /// Writes a word at an address, as a client would.
    pub(crate) fn write(&self, pid: Pid, at: &Placement, address: u64, word: u64) -> Result<(), Refused> {
        self.access(pid, at, |region| {
            region.words.insert(address, word);
        })
    }

    pub(crate) fn read(&self, pid: Pid, at: &Placement, address: u64) -> Result<Option<u64>, Refused> {
        self.access(pid, at, |region| region.words.get(&address).copied())
    }

    fn access<T>(&self, pid: Pid, at: &Placement, what: impl FnOnce(&mut FakeRegion) -> T) -> Result<T, Refused> {
        let mut hosts = self.hosts();
        let host = hosts.get_mut(&at.urls[0]).unwrap();
        let key = (pid, at.region);
        if host.moving.contains(&key) {
            return Err(Refused::Busy);
        }
        if host.moved.contains(&key) {
            return Err(Refused::Moved);
        }
        let known = [1, 2, 3].map(|rights| capability(host.secret, pid, rights)).contains(&at.capability);
        let space = host.spaces.get_mut(&pid).filter(|_| known).ok_or(Refused::BadCapability)?;
        Ok(what(space.entry(at.region).or_default()))
    }

    /// Moves all words of a region, and ends the move.
    pub(crate) fn finish(&self, from: u64, order: &MoveOrder, end: MoveEnd) {
        let mut hosts = self.hosts();
        let key = (order.pid, order.region);
        let known = hosts.get(&order.urls[0]).is_some_and(|target| {
            target.spaces.contains_key(&order.pid) && order.capability == capability(target.secret, order.pid, 3)
        });
        let source = hosts.get_mut(&url(from)).unwrap();
        source.moving.remove(&key);
        if !known {
            drop(hosts);
            return end.failed("the target does not know the space");
        }
        source.moved.insert(key);
        let region = source.spaces.get_mut(&order.pid).and_then(|space| space.remove(&order.region));
        let target = hosts.get_mut(&order.urls[0]).unwrap();
        target.moved.remove(&key);
        let space = target.spaces.get_mut(&order.pid).unwrap();
        assert_eq!(space.insert(order.region, region.unwrap_or_default()), None, "the target had the region already");
        drop(hosts);
        end.moved();
    }

    /// The moves that wait at a node.
    pub(crate) fn held(&self, node: u64) -> Vec<(MoveOrder, MoveEnd)> {
        self.at(node, |host| std::mem::take(&mut host.held))
    }
}

pub(crate) fn url(node: u64) -> String {
    format!("tcp://node{node}:7000")
}

fn capability(secret: u64, pid: Pid, rights: u64) -> Capability {
    Capability(u128::from(secret << 40 | u64::from(pid.0) << 2 | rights))
}

/// The agent of one node.
pub(crate) struct FakeAgent {
    node: u64,
    network: Network,
}

impl NodeAgent for FakeAgent {
    fn report(&mut self) -> NodeReport {
        self.network.at(self.node, |host| {
            let mut regions = Vec::new();
            for (pid, space) in &host.spaces {
                regions.extend(space.iter().map(|(region, content)| RegionReport {
                    pid: *pid,
                    region: *region,
                    allocated_bytes: REGION / 2,
                    resident_bytes: REGION / 2,
                    heat: content.heat,
                }));
            }
            let used = regions.len() as u64 * REGION / 2;
            let free_bytes = (host.regions_max * REGION).saturating_sub(used);
            let free_bytes = host.claims_free.unwrap_or(free_bytes);
            NodeReport { free_bytes, regions, tenants: host.tenants.clone(), ..NodeReport::default() }
        })
    }

    fn spaces(&mut self) -> Vec<Pid> {
        self.network.at(self.node, |host| host.spaces.keys().copied().collect())
    }

    fn create_space(&mut self, pid: Pid, _tenant: Option<&str>) -> Result<Capabilities, String> {
        self.network.at(self.node, |host| {
            host.spaces.entry(pid).or_default();
            let [read, read_write, owner] = [1, 2, 3].map(|rights| capability(host.secret, pid, rights));
            Ok(Capabilities { owner, read_write, read })
        })
    }

    fn destroy_space(&mut self, pid: Pid) {
        self.network.at(self.node, |host| drop(host.spaces.remove(&pid)));
    }

    fn open_region(&mut self, pid: Pid, region: u32, id: MoveId) -> Result<(), String> {
        self.network.at(self.node, |host| {
            host.opened.push((pid, region, id));
            let space = host.spaces.get(&pid).ok_or("there is no such space")?;
            space.contains_key(&region).then_some(()).ok_or("it has not come here".to_owned())
        })
    }

    fn drop_region(&mut self, pid: Pid, region: u32, _before: MoveId) -> Result<(), String> {
        self.network.at(self.node, |host| host.spaces.get_mut(&pid).map(|space| space.remove(&region)));
        Ok(())
    }

    fn give_up_region(&mut self, pid: Pid, region: u32, before: MoveId) -> Result<(), String> {
        self.network.at(self.node, |host| host.moving.remove(&(pid, region)));
        self.drop_region(pid, region, before)
    }

    fn start_move(&mut self, order: MoveOrder, end: MoveEnd) {
        let held = self.network.at(self.node, |host| {
            host.moves_begun += 1;
            host.moving.insert((order.pid, order.region));
            host.holds_moves
        });
        if held {
            self.network.at(self.node, |host| host.held.push((order, end)));
        } else {
            self.network.finish(self.node, &order, end);
        }
    }
}

pub(crate) fn config() -> Config {
    // Tests wait for leases to end.
    Config { region_bytes: REGION, space_lease_ms_min: 1000, ..Config::default() }
}

pub(crate) fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A controller, its nodes and their network.
pub(crate) struct Cluster {
    pub(crate) config: Config,
    pub(crate) credential: Option<Arc<Credential>>,
    pub(crate) server: Option<ControllerServer>,
    pub(crate) address: SocketAddr,
    pub(crate) network: Network,
}

impl Cluster {
    pub(crate) fn new(config: Config, store: Box<dyn Store>) -> Self {
        Self::of(config, store, None)
    }

    /// One that shows this credential and asks for one.
    pub(crate) fn of(config: Config, store: Box<dyn Store>, credential: Option<Arc<Credential>>) -> Self {
        let server = ControllerServer::start_as(any_port(), config, store, credential.clone()).unwrap();
        let address = server.address();
        Self { config, credential, server: Some(server), address, network: Network::default() }
    }

    pub(crate) fn in_memory() -> Self {
        Self::new(config(), Box::new(MemoryStore::default()))
    }

    /// Starts a node with room for some regions, or connects the one that is there again.
    pub(crate) fn node(&self, node: u64, regions: u64) -> NodeLink {
        self.try_node(node, regions).unwrap()
    }

    pub(crate) fn try_node(&self, node: u64, regions: u64) -> Result<NodeLink, LinkError> {
        self.node_as(node, regions, None)
    }

    /// The same, with a credential of the node's own.
    pub(crate) fn node_as(
        &self,
        node: u64,
        regions: u64,
        credential: Option<Arc<Credential>>,
    ) -> Result<NodeLink, LinkError> {
        self.node_at(&self.address.to_string(), node, regions, credential)
    }

    /// The same, of controllers at these addresses.
    pub(crate) fn node_at(
        &self,
        addresses: &str,
        node: u64,
        regions: u64,
        credential: Option<Arc<Credential>>,
    ) -> Result<NodeLink, LinkError> {
        let host = || Host { regions_max: regions, secret: 1000 + node, ..Host::default() };
        self.network.hosts().entry(url(node)).or_insert_with(host);
        let facts = Registration {
            node: NodeId(node),
            name: None,
            urls: vec![url(node)],
            memory_bytes: regions * REGION,
            page_bytes: PAGE,
            region_bytes: self.config.region_bytes,
            domains: Domains::default(),
        };
        let agent = FakeAgent { node, network: self.network.clone() };
        NodeLink::start_as(addresses, facts, Box::new(agent), credential)
    }

    pub(crate) fn client(&self) -> ControllerClient {
        ControllerClient::new(&self.address.to_string(), TIMEOUT)
    }

    pub(crate) fn client_as(&self, credential: &Arc<Credential>) -> ControllerClient {
        self.client().with_credential(Some(Arc::clone(credential)))
    }

    /// Stops the controller and starts it again at the same address.
    pub(crate) fn restart(&mut self, store: impl FnOnce() -> Box<dyn Store>) {
        drop(self.server.take());
        let deadline = Instant::now() + TIMEOUT;
        let store = store();
        // The port may be in use for a moment by connections that end.
        let mut store = Some(store);
        loop {
            match std::net::TcpListener::bind(self.address) {
                Ok(listener) => break drop(listener),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
        self.server = Some(
            ControllerServer::start_as(self.address, self.config, store.take().unwrap(), self.credential.clone())
                .unwrap(),
        );
    }
}

/// Asks again and again until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}
