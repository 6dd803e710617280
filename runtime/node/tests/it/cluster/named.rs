//! A cluster whose nodes have names: a region moves to the node that the controller names, and its program finds it
//! there.

use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use yonder_client::Operation;
use yonder_controller::{ControllerClient, ControllerServer, MemoryStore};
use yonder_fabric::lane::{Answer, Lane, NodeAddress, NodeSession, OpenError, call};
use yonder_identity::{Authority, Credential, Role};
use yonder_node::{ControllerConfig, Listen, Node, NodeConfig};
use yonder_placement::{Config, Placement};
use yonder_session::Protection;
use yonder_wire::{AllocateRequest, Backing, Body, Kind, Permission};

use crate::cluster::scene::{PAGE, REGION, TIMEOUT};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A controller and an authority.
struct Named {
    folder: TempDir,
    authority: Authority,
    server: Option<ControllerServer>,
}

impl Named {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::init(&folder.path().join("authority")).unwrap();
        let mut named = Self { folder, authority, server: None };
        let config = Config { region_bytes: REGION, lease: 1_500_000_000, ..Config::default() };
        let credential = named.add(Role::Controller, "c1");
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let server = ControllerServer::start_as(listen, config, Box::new(MemoryStore::default()), Some(credential));
        named.server = Some(server.unwrap());
        named
    }

    fn add(&mut self, role: Role, name: &str) -> Arc<Credential> {
        let path: PathBuf = self.folder.path().join(format!("{name}.pem"));
        self.authority.add(role, name, DAY).unwrap().write(&path).unwrap();
        Arc::new(Credential::load(&path).unwrap())
    }

    fn at(&self) -> String {
        self.server.as_ref().expect("it was started").address().to_string()
    }

    fn node(&mut self, name: &str) -> Node {
        let credential = Some(self.add(Role::Node, name));
        let controller = Some(ControllerConfig::new(self.at(), REGION));
        let (page_bytes, data_threads) = (Some(PAGE), NonZeroUsize::new(1));
        let config = NodeConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())], 64 * PAGE);
        Node::start(NodeConfig { page_bytes, data_threads, controller, credential, ..config }).unwrap()
    }

    fn client(&mut self, role: Role, name: &str) -> ControllerClient {
        let credential = self.add(role, name);
        ControllerClient::new(&self.at(), TIMEOUT).with_credential(Some(credential))
    }
}

/// A lane to where a region is, for a node of this name.
fn lane(place: &Placement, name: Option<&str>, credential: &Arc<Credential>) -> Result<Lane, OpenError> {
    let session =
        NodeSession::with(Some(Arc::clone(credential)), Protection::Encrypted).called(name.map(str::to_owned));
    let address = NodeAddress::resolve(&place.urls[0]).unwrap().remove(0);
    Lane::open(&address, 4, &Arc::new(session)).map(|opened| opened.lane)
}

#[test]
fn a_region_moves_to_the_node_that_is_named_and_is_found_there() {
    let mut named = Named::new();
    let _first = named.node("n1");
    let (mut client, app) = (named.client(Role::Tenant, "app"), named.folder.path().join("app.pem"));
    let app = Arc::new(Credential::load(&app).unwrap());
    let mut operator = named.client(Role::Operator, "me");
    let space = client.create_space().unwrap();
    let placed = client.place(space.pid, space.keys.owner, REGION, &[]).unwrap().remove(0);
    assert_eq!(placed.name.as_deref(), Some("n1"));
    let ask = |place: &Placement, kind, body: &[u8]| -> Answer {
        let mut lane = lane(place, place.name.as_deref(), &app).unwrap();
        let (pid, capability) = (space.pid.0, place.capability.0);
        let operation = Operation { kind, pid, capability, address: 0, length: 0, body, deadline: u64::MAX, token: 1 };
        call(&mut lane, &operation, &[]).unwrap()
    };
    let from = u64::from(placed.region) * REGION;
    let (permission, backing) = (Permission::ReadWrite, Backing::OnDemand);
    let request = AllocateRequest { bytes: PAGE, permission, backing, from, to: from + REGION };
    let mut body = [0; AllocateRequest::BYTES];
    request.write_to(&mut body);
    ask(&placed, Kind::Allocate, &body);
    let _second = named.node("n2");
    operator.drain("n1", TIMEOUT).unwrap();
    let moved = client.locate(space.pid, space.keys.owner, placed.region).unwrap();
    assert_eq!(moved.name.as_deref(), Some("n2"));
    ask(&moved, Kind::Ping, &[]);
    // Where the controller sends a program, another node of the cluster does not pass for the one that it names.
    let refused = lane(&moved, Some("n1"), &app).unwrap_err();
    assert!(refused.to_string().contains("another name"), "{refused}");
}
