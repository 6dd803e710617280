//! [`Flows`]: one thread's lanes, one to each node that it uses, and which of them leads to an address.

use std::sync::Arc;
use std::time::Duration;

use yonder_client::{Operation, OperationId, SubmitError};
use yonder_fabric::FabricError;
use yonder_fabric::cluster::Location;
use yonder_fabric::lane::{Condition, Lane, NodeAddress, NodeSession};
use yonder_placement::NodeId;
use yonder_units::{Nanos, saturating_nanos};
use yonder_wire::Kind;

use super::ClibError;
use super::process::{Backend, Shared};
use super::ticket::Proof;

/// Longest sleep of a thread that waits for several nodes at once: it looks at the others then.
const TURN: Duration = Duration::from_micros(50);
/// Longest sleep of a thread that waits for one: its timers and arrivals end it before.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A thread's way to one node.
struct Flow {
    /// `None` for the one node of an address space without a controller.
    node: Option<NodeId>,
    lane: Lane,
}

/// A thread's ways to all nodes that it uses.
pub(super) struct Flows {
    process: Arc<Shared>,
    flows: Vec<Flow>,
    operations_max: usize,
}

/// How an address is reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    flow: usize,
    pid: u32,
    capability: u128,
    /// Which node that is; `None` without a controller.
    pub(super) node: Option<NodeId>,
    /// The addresses up to here are reached in the same way.
    pub(super) end: u64,
}

/// What is asked of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) kind: Kind,
    /// The address that says which node; often the same as `address`.
    pub(super) near: u64,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) body: &'a [u8],
}

impl Request<'_> {
    /// A request of `kind` about `length` bytes at `address`.
    pub(super) const fn at(kind: Kind, address: u64, length: u64) -> Self {
        Self { kind, near: address, address, length, body: &[] }
    }
}

impl Flows {
    /// For at most `operations_max` operations to each node. Without a controller the node is connected to now.
    pub(super) fn new(process: &Arc<Shared>, operations_max: usize) -> Result<Self, ClibError> {
        let mut flows = Self { process: Arc::clone(process), flows: Vec::new(), operations_max };
        if let Backend::Node(node) = &process.place {
            let lane =
                open(&process.url, std::slice::from_ref(&node.address), operations_max, node.space_lease.session())?;
            flows.flows.push(Flow { node: None, lane });
        }
        Ok(flows)
    }

    /// How `address` is reached, as far as is known.
    pub(super) fn route(&mut self, address: u64) -> Result<Route, ClibError> {
        let process = Arc::clone(&self.process);
        match &process.place {
            Backend::Node(node) => {
                let Proof::Capability(capability) = node.ticket.proof() else {
                    unreachable!("a node's address space has a capability");
                };
                Ok(Route { flow: 0, pid: node.ticket.pid(), capability, node: None, end: u64::MAX })
            }
            Backend::Cluster(cluster) => {
                let region = cluster.region_of(address)?;
                let location = cluster.locate(region)?;
                let end = (u64::from(region) + 1) * cluster.region_bytes();
                let flow = self.flow_to(&location, &cluster.session(&location))?;
                let (capability, node) = (location.capability, Some(location.node));
                Ok(Route { flow, pid: cluster.pid(), capability, node, end })
            }
        }
    }

    /// Submits a request by a route.
    pub(super) fn submit(
        &mut self,
        route: &Route,
        request: &Request<'_>,
        token: u64,
        now: Nanos,
    ) -> Result<OperationId, SubmitError> {
        let Request { kind, address, length, body, .. } = *request;
        let deadline = now.saturating_add(saturating_nanos(self.process.config.deadline));
        let (pid, capability) = (route.pid, route.capability);
        let operation = Operation { kind, pid, capability, address, length, body, deadline, token };
        self.flows[route.flow].lane.submit(&operation, now)
    }

    /// Gives up what was submitted by a route.
    pub(super) fn cancel(&mut self, route: &Route, id: OperationId) {
        self.flows[route.flow].lane.cancel(id);
    }

    /// Whether the node that a route leads to is out of reach.
    pub(super) fn is_down(&self, route: &Route) -> bool {
        self.flows[route.flow].lane.condition() == Condition::Down
    }

    /// All lanes.
    pub(super) fn lanes(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.flows.iter_mut().map(|flow| &mut flow.lane)
    }

    /// Operations that have not ended, or whose end was not taken from a lane.
    pub(super) fn outstanding(&self) -> usize {
        self.flows.iter().map(|flow| flow.lane.outstanding()).sum()
    }

    /// Most payload bytes of a message by a route.
    pub(super) fn payload_bytes_max(&self, route: &Route) -> usize {
        self.flows[route.flow].lane.payload_bytes_max()
    }

    /// What the lanes have seen: that of the first, if there are several.
    pub(super) fn stats(&self) -> yonder_client::Stats {
        self.flows.first().map(|flow| flow.lane.stats()).unwrap_or_default()
    }

    /// Sleeps until something may have arrived or is due.
    pub(super) fn wait(&mut self) {
        let mut busy = self.flows.iter_mut().filter(|flow| flow.lane.outstanding() > 0);
        let first = busy.next();
        let longest = if busy.next().is_some() { TURN } else { SLEEP_MAX };
        if let Some(flow) = first {
            flow.lane.wait(yonder_clock::now(), longest);
        }
    }

    fn flow_to(&mut self, location: &Location, session: &Arc<NodeSession>) -> Result<usize, ClibError> {
        if let Some(known) = self.flows.iter().position(|flow| flow.node == Some(location.node)) {
            return Ok(known);
        }
        let mut addresses = Vec::new();
        for url in &location.urls {
            addresses.extend(NodeAddress::resolve(url)?);
        }
        let lane = open(&location.urls.join(","), &addresses, self.operations_max, session)?;
        self.flows.push(Flow { node: Some(location.node), lane });
        Ok(self.flows.len() - 1)
    }
}

/// Opens a lane to the first of a node's addresses that answers.
pub(super) fn open(
    url: &str,
    addresses: &[NodeAddress],
    operations_max: usize,
    session: &Arc<NodeSession>,
) -> Result<Lane, ClibError> {
    let mut refused = "the node has no address".to_owned();
    for address in addresses {
        match Lane::open(address, operations_max, session) {
            Ok(opened) => return Ok(opened.lane),
            Err(error) => refused = error.to_string(),
        }
    }
    Err(FabricError::Unreachable { url: url.to_owned(), cause: refused }.into())
}
