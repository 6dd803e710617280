//! A controller that serves nodes and clients, until it is told to end or its state cannot be kept.
//!
//! Of several on one etcd, one serves and the others wait. One that another has taken over from, because it stood still
//! or did not reach etcd, ends all that it served and waits as well: it reads the state anew when it leads again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use yonder::units::format_bytes;
use yonder_controller::{
    ControllerClient, ControllerError, ControllerServer, EmbeddedStore, EtcdAccess, EtcdStore, Leadership, Store,
    StoreError,
};
use yonder_identity::{Credential, Role};
use yonder_metrics::{BoundMetrics, Extra, ExtraKind, MetricsServer, Sample, Tenant};
use yonder_placement::{Config, NodeCondition, NodeView, TenantView};

use super::condition;
use crate::args::{ServeArgs, as_user};
use crate::commands::protection;

/// Where all that controllers keep in etcd is.
const ETCD_PREFIX: &str = "yonder/";
/// Pause before etcd is asked again for the leadership.
const ETCD_PAUSE: Duration = Duration::from_secs(1);
/// How long the controller may take to answer what its own metrics ask.
const METRICS_TIMEOUT: Duration = Duration::from_millis(500);
/// Nodes that have metrics of their own.
const NODES_MAX: usize = 100;

/// What the command waits for.
enum Event {
    /// It is told to end.
    Stop,
    /// This controller leads, or never will.
    Leads(Result<Box<EtcdStore>, StoreError>),
    /// It does not serve any more, for this reason.
    Ended(thread::Result<Result<(), ControllerError>>),
}

/// Why a controller does not serve any more.
enum End {
    /// It is told to end.
    Stopped,
    /// Another one has taken over.
    Deposed(StoreError),
}

pub(super) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let address = args.listen.as_ref().context("no --listen: type one such as tcp://127.0.0.1:7400")?.resolve()?;
    let user = args.user.find()?;
    let credential = as_user(user.as_ref(), || args.credential.of_server(Role::Controller))?;
    if credential.is_none() {
        let addresses = std::iter::once(address.to_string()).chain(args.metrics.clone());
        args.open.check_or(addresses, ", or --identity FILE or --key FILE")?;
    }
    let etcd = args.etcd()?;
    let lease = u64::try_from(args.lease.as_nanos()).context("--lease is too long: type one such as 3s")?;
    let config = Config { region_bytes: args.region_size, lease, set_spares: args.set_spares, ..Config::default() };
    // Before anything is waited for.
    config.check()?;
    // Of several controllers on one etcd only that which leads may be connected to.
    let mut bound = if etcd.is_none() { Some(Sockets::bind(args, address)?) } else { None };
    if let Some(user) = &user {
        // Threads that are made from here on have no more rights than this one, and what the store makes is the user's.
        user.become_for_good()?;
    }
    let (happens, events) = mpsc::channel();
    let on_signal = happens.clone();
    ctrlc::set_handler(move || {
        let _ = on_signal.send(Event::Stop);
    })?;
    let term = Term { args, etcd, address, config, credential, happens, events };
    let mut leadership = Leadership::Refuse;
    loop {
        match term.serve(bound.take(), leadership)? {
            End::Stopped => return Ok(()),
            End::Deposed(error) => eprintln!("yonder controller: {error}; waiting to take over"),
        }
        leadership = Leadership::Wait;
    }
}

/// What a controller needs to serve, once or again.
struct Term<'args> {
    args: &'args ServeArgs,
    etcd: Option<EtcdAccess>,
    address: SocketAddr,
    config: Config,
    credential: Option<Arc<Credential>>,
    happens: Sender<Event>,
    events: Receiver<Event>,
}

impl Term<'_> {
    /// Leads, and serves until it is told to end or another one leads. Nothing of it is left then.
    fn serve(&self, bound: Option<Sockets>, leadership: Leadership) -> anyhow::Result<End> {
        let args = self.args;
        let Some((store, place)) = self.open_store(leadership)? else { return Ok(End::Stopped) };
        let sockets = bound.map_or_else(|| Sockets::bind(args, self.address), Ok)?;
        let server = match ControllerServer::start_on(sockets.listener, self.config, store, self.credential.clone()) {
            Err(ControllerError::Store(error @ StoreError::Deposed { .. })) => return Ok(End::Deposed(error)),
            started => Arc::new(started?),
        };
        let listens = server.address();
        let metrics =
            sockets.metrics.map(|bound| serve_metrics(bound, listens, self.credential.clone())).transpose()?;
        eprintln!(
            "yonder controller: nodes and clients at tcp://{listens}, regions of {}, state in {place}; Ctrl-C ends it",
            format_bytes(args.region_size)
        );
        eprintln!("yonder controller: {}", protection::of_network(&args.credential, &[listens.to_string()]));
        if let Some(metrics) = &metrics {
            eprintln!("yonder controller: metrics on {}", metrics.address());
        }
        let (ends, happens) = (Arc::clone(&server), self.happens.clone());
        thread::spawn(move || {
            let ended = panic::catch_unwind(AssertUnwindSafe(|| ends.wait()));
            // Its socket is closed when the other owner has dropped it.
            drop(ends);
            let _ = happens.send(Event::Ended(ended));
        });
        let mut is_told = false;
        loop {
            match self.events.recv()? {
                Event::Stop => {
                    is_told = true;
                    server.stop();
                }
                Event::Leads(_) => {}
                Event::Ended(Err(cause)) => panic::resume_unwind(cause),
                Event::Ended(Ok(Err(ControllerError::Store(error @ StoreError::Deposed { .. })))) => {
                    // One that is told to end does not lead again.
                    return Ok(if is_told { End::Stopped } else { End::Deposed(error) });
                }
                Event::Ended(Ok(ended)) => {
                    ended?;
                    eprintln!("yonder controller: ended; nodes go on serving, and register at the next one");
                    return Ok(End::Stopped);
                }
            }
        }
    }

    /// Opens what `--state` or `--etcd` names, and says where it is. `None` if the command is told to end meanwhile.
    fn open_store(&self, leadership: Leadership) -> anyhow::Result<Option<(Box<dyn Store>, String)>> {
        let Some(etcd) = &self.etcd else {
            let path = &self.args.state;
            return Ok(Some((Box::new(EmbeddedStore::open(path)?), path.display().to_string())));
        };
        let store = self.lead(etcd, leadership)?;
        Ok(store.map(|store| (store as Box<dyn Store>, format!("etcd at {}", etcd.endpoints.join(",")))))
    }

    /// Waits until this controller leads in etcd. One that has never led complains if there is none.
    fn lead(&self, etcd: &EtcdAccess, leadership: Leadership) -> anyhow::Result<Option<Box<EtcdStore>>> {
        let name = format!("at {}, process {}", self.address, std::process::id());
        if leadership == Leadership::Refuse {
            match EtcdStore::open(etcd, ETCD_PREFIX, &name, leadership) {
                Err(StoreError::Taken { holder, .. }) => {
                    eprintln!("yonder controller: the controller {holder} leads; waiting to take over");
                }
                other => return other.map(|store| Some(Box::new(store))).map_err(|error| without_etcd(etcd, error)),
            }
        }
        let (etcd, happens) = (etcd.clone(), self.happens.clone());
        thread::spawn(move || {
            let opened = wait_to_lead(&etcd, &name);
            let _ = happens.send(Event::Leads(opened.map(Box::new)));
        });
        loop {
            match self.events.recv()? {
                Event::Stop => return Ok(None),
                Event::Leads(opened) => return Ok(Some(opened?)),
                // Of the last time that it served.
                Event::Ended(_) => {}
            }
        }
    }
}

/// What a controller listens on.
struct Sockets {
    listener: TcpListener,
    metrics: Option<BoundMetrics>,
}

impl Sockets {
    fn bind(args: &ServeArgs, address: SocketAddr) -> anyhow::Result<Self> {
        let listener = ControllerServer::bind(address)?;
        Ok(Self { listener, metrics: args.metrics.as_deref().map(yonder_metrics::bind).transpose()? })
    }
}

/// Waits until this controller leads. That etcd is slow, or away for a while, does not end a controller that is to take
/// over.
fn wait_to_lead(etcd: &EtcdAccess, name: &str) -> Result<EtcdStore, StoreError> {
    loop {
        match EtcdStore::open(etcd, ETCD_PREFIX, name, Leadership::Wait) {
            Err(error @ StoreError::Failed { .. }) => {
                tracing::warn!(%error, "still waiting to take over");
                thread::sleep(ETCD_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// What to type when etcd cannot be used. What its client says is long, and for the log.
fn without_etcd(etcd: &EtcdAccess, error: StoreError) -> anyhow::Error {
    let StoreError::Failed { cause, .. } = &error else { return error.into() };
    tracing::info!(cause, "etcd cannot be used");
    let files = if etcd.tls.is_some() { " see that --etcd-ca and --etcd-cert are those for it," } else { "" };
    anyhow!(
        "no etcd can be used at {}: start one there,{files} type another --etcd, or --state PATH to keep the state in a \
         file; YONDER_LOG=info says more",
        etcd.endpoints.join(",")
    )
}

/// Serves what the controller at `controller` tells every client, as metrics.
fn serve_metrics(
    bound: BoundMetrics,
    controller: SocketAddr,
    credential: Option<Arc<Credential>>,
) -> anyhow::Result<MetricsServer> {
    let client = ControllerClient::new(&reachable(controller).to_string(), METRICS_TIMEOUT);
    let client = Mutex::new(client.with_credential(credential.clone()));
    let sample = move || {
        let mut client = client.lock().unwrap_or_else(PoisonError::into_inner);
        // A controller that ends, or waits for its store, shows nothing rather than no nodes.
        let Ok(nodes) = client.nodes() else { return Sample::default() };
        let mut extra = metrics(&nodes);
        let tenants = client.tenants().unwrap_or_default();
        extra.extend(Tenant::controller_metrics(tenants.into_iter().map(tenant).collect()));
        Sample { extra, ..Sample::default() }
    };
    Ok(bound.serve(Arc::new(sample), credential)?)
}

/// An address by which this machine reaches a socket that is bound to `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// What is shown of a tenant.
fn tenant(view: TenantView) -> Tenant {
    Tenant {
        name: view.tenant,
        requests: view.requests,
        bytes: view.bytes,
        shed: view.shed,
        work_ns: view.work_ns,
        spaces: view.spaces,
        connections: view.connections,
        reserved_bytes: view.reserved_bytes,
        memory_bytes: view.memory_bytes,
    }
}

fn metrics(nodes: &[NodeView]) -> Vec<Extra> {
    let gauge = |name, value, help| Extra::new(name, ExtraKind::Gauge, value, help);
    let count = |condition| nodes.iter().filter(|node| node.condition == condition).count() as u64;
    let sum = |of: fn(&NodeView) -> u64| nodes.iter().map(of).sum();
    let mut metrics = vec![
        gauge("yonder_controller_nodes", nodes.len() as u64, "Memory nodes that are known."),
        gauge("yonder_controller_nodes_serving", count(NodeCondition::Serving), "Nodes that serve."),
        gauge("yonder_controller_nodes_draining", count(NodeCondition::Draining), "Nodes whose regions move away."),
        gauge("yonder_controller_nodes_drained", count(NodeCondition::Drained), "Nodes that get no regions."),
        gauge("yonder_controller_nodes_silent", count(NodeCondition::Silent), "Nodes that are not connected."),
        gauge("yonder_controller_nodes_lost", count(NodeCondition::Lost), "Nodes whose lease is over."),
        gauge("yonder_controller_regions", sum(|node| node.regions), "Regions that have a node."),
        gauge("yonder_controller_regions_moving", sum(|node| node.regions_leaving), "Regions that move now."),
        gauge("yonder_controller_memory_bytes", sum(|node| node.memory_bytes), "Bytes of memory of all nodes."),
        gauge("yonder_controller_free_bytes", sum(|node| node.free_bytes), "Bytes of it that nothing uses."),
        gauge("yonder_controller_committed_bytes", sum(|node| node.committed_bytes), "Bytes of all allocations."),
    ];
    metrics.extend(node_metrics(nodes));
    metrics
}

/// Metrics of each node, by its name or number. Of more than [`NODES_MAX`] the others are in the sums alone.
fn node_metrics(nodes: &[NodeView]) -> Vec<Extra> {
    /// A metric of each node.
    type OfNode = (&'static str, &'static str, fn(&NodeView) -> u64);
    const OF_NODE: [OfNode; 3] = [
        ("yonder_controller_node_memory_bytes", "Bytes of memory, by node.", |node| node.memory_bytes),
        ("yonder_controller_node_free_bytes", "Bytes of it that nothing uses, by node.", |node| node.free_bytes),
        ("yonder_controller_node_regions", "Regions that it has, by node.", |node| node.regions),
    ];
    let nodes = &nodes[..nodes.len().min(NODES_MAX)];
    let labelled = |name, help, value, labels| Extra { labels, ..Extra::new(name, ExtraKind::Gauge, value, help) };
    let called = |node: &NodeView| node.name.clone().unwrap_or_else(|| node.node.to_string());
    let of_all = |(name, help, value): OfNode| {
        nodes.iter().map(move |node| labelled(name, help, value(node), vec![("node", called(node))]))
    };
    let condition_metric = |node: &NodeView| {
        let labels = vec![("node", called(node)), ("condition", condition(node.condition).to_owned())];
        labelled("yonder_controller_node_condition", "1 for the condition that it is in, by node.", 1, labels)
    };
    OF_NODE.into_iter().flat_map(of_all).chain(nodes.iter().map(condition_metric)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_for_all_addresses_is_reached_on_this_machine() {
        for (bound, reached) in
            [("0.0.0.0:7400", "127.0.0.1:7400"), ("[::]:7400", "[::1]:7400"), ("10.0.0.2:7400", "10.0.0.2:7400")]
        {
            assert_eq!(reachable(bound.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
