//! Signs of life of a controller: who is shown them, and what a node and a client do where there are none.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use yonder_controller::{ControllerClient, FromController, LinkCondition, ToController, VERSION, VERSION_MIN};
use yonder_placement::{ClusterId, NodeCondition, Request};

use crate::fake::{Cluster, TIMEOUT, any_port, until};
use crate::identities::{Raw, register};

/// A controller that stands still once it has welcomed a node.
pub(crate) struct Still {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Still {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind(any_port()).unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    /// Its address before that of another one.
    pub(crate) fn before(&self, other: SocketAddr) -> String {
        format!("{},{other}", self.address)
    }

    /// Welcomes the next one that connects, and says no more.
    pub(crate) fn welcome(&self, cluster: ClusterId, alive_every_ms: u64) -> TcpStream {
        self.welcome_with(cluster, alive_every_ms, VERSION_MIN)
    }

    /// The same, as one that speaks this version.
    pub(crate) fn welcome_with(&self, cluster: ClusterId, alive_every_ms: u64, version: u32) -> TcpStream {
        let mut stream = self.listener.accept().unwrap().0;
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("\"knows_alive\":true"), "{line}");
        let welcome = FromController::Registered { cluster, lease_ms: 60_000, alive_every_ms, version };
        writeln!(stream, "{}", serde_json::to_string(&welcome).unwrap()).unwrap();
        stream
    }
}

/// What the controller calls its cluster.
pub(crate) fn cluster_of(cluster: &Cluster) -> ClusterId {
    let mut raw = Raw::new(cluster.address, None);
    raw.say(&register(9, None));
    match raw.hear() {
        FromController::Registered { cluster, .. } => cluster,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn serves(client: &mut ControllerClient, node: u64) -> bool {
    let nodes = client.nodes().unwrap();
    nodes.iter().any(|view| view.node.0 == node && view.condition == NodeCondition::Serving)
}

#[test]
fn a_node_looks_for_another_controller_when_its_own_stands_still() {
    let (cluster, still) = (Cluster::in_memory(), Still::new());
    let id = cluster_of(&cluster);
    let (link, _connection) = std::thread::scope(|scope| {
        let node = scope.spawn(|| cluster.node_at(&still.before(cluster.address), 1, 10, None).unwrap());
        let connection = still.welcome(id, 20);
        (node.join().unwrap(), connection)
    });
    let mut client = cluster.client();
    until("the node comes to the other one", || serves(&mut client, 1).then_some(()));
    until("it knows that", || (link.condition() == LinkCondition::Connected).then_some(()));
}

/// As one that stood still already when the node was started.
#[test]
fn a_node_does_not_wait_for_the_welcome_of_one_that_stands_still() {
    let (cluster, still) = (Cluster::in_memory(), Still::new());
    let _link = cluster.node_at(&still.before(cluster.address), 1, 10, None).unwrap();
    assert!(serves(&mut cluster.client(), 1));
}

/// One of an earlier release shows no signs of life, and is not left for that.
#[test]
fn a_controller_that_does_not_know_signs_of_life_is_not_left() {
    let (cluster, still) = (Cluster::in_memory(), Still::new());
    let id = cluster_of(&cluster);
    let (_link, connection) = std::thread::scope(|scope| {
        let node = scope.spawn(|| cluster.node_at(&still.before(cluster.address), 1, 10, None).unwrap());
        let connection = still.welcome(id, 0);
        (node.join().unwrap(), connection)
    });
    connection.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut line = String::new();
    let silent = BufReader::new(connection).read_line(&mut line).unwrap_err();
    assert_eq!(silent.kind(), std::io::ErrorKind::WouldBlock, "{line}");
}

#[test]
fn only_nodes_that_know_signs_of_life_are_shown_them() {
    let cluster = Cluster::in_memory();
    let (mut old, mut new) = (Raw::new(cluster.address, None), Raw::new(cluster.address, None));
    old.say(&register(1, None));
    let ToController::Register { facts, cluster: of, spaces, report, .. } = register(2, None) else { unreachable!() };
    let (knows_alive, version, version_min) = (true, VERSION, 1);
    new.say(&ToController::Register { facts, cluster: of, spaces, report, knows_alive, version, version_min });
    assert!(matches!(old.hear(), FromController::Registered { alive_every_ms: 0, .. }));
    assert!(matches!(new.hear(), FromController::Registered { alive_every_ms: 500, .. }));
    let mut client = Raw::new(cluster.address, None);
    client.say(&ToController::Ask { id: 1, request: Request::Nodes });
    client.hear();
    [(); 2].into_iter().for_each(|()| assert_eq!(new.hear(), FromController::Alive {}));
    client.say(&ToController::Ask { id: 2, request: Request::Nodes });
    assert!(matches!(client.hear(), FromController::Answer { id: 2, .. }));
    // What it is told next is why it is turned away: nothing came before that.
    old.say(&register(1, None));
    assert!(old.cause().contains("registers once"));
}

/// A program with a long deadline once waited for a third of it.
#[test]
fn a_client_does_not_wait_for_one_that_stands_still_where_another_one_listens() {
    let (cluster, still) = (Cluster::in_memory(), Still::new());
    let mut client = ControllerClient::new(&still.before(cluster.address), 100 * TIMEOUT);
    let begun = std::time::Instant::now();
    assert_eq!(client.nodes().unwrap(), []);
    assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
}
