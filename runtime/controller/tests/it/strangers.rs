//! Peers that want the controller's time or memory for themselves: they are cut off, and the others are served.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use yonder_controller::{ClientError, FromController, LinkError, MemoryStore, ToController, VERSION_MIN};
use yonder_identity::{HANDSHAKE_TIMEOUT, Role};
use yonder_placement::{
    Answer, Config, NodeCondition, NodeReport, NodeView, Pid, Refusal, RegionReport, Request, WAITING_MAX,
};

use crate::fake::{Cluster, config, until};
use crate::identities::{Members, Raw, register};

/// Each of them once kept the controller for half a second.
#[test]
fn those_who_ask_and_do_not_read_keep_no_others() {
    const FLOODERS: usize = 3;
    let cluster = Cluster::in_memory();
    let mut client = cluster.client();
    for _ in 0..64 {
        client.create_space().unwrap();
    }
    let mut text = Vec::new();
    let ask = ToController::Ask { id: 1, request: Request::Spaces { from: yonder_placement::Pid::FIRST } };
    for _ in 0..200 {
        serde_json::to_writer(&mut text, &ask).unwrap();
        text.push(b'\n');
    }
    std::thread::scope(|scope| {
        for _ in 0..FLOODERS {
            let raw = Raw::new(cluster.address, None);
            raw.stream.socket().set_write_timeout(Some(Duration::from_secs(20))).unwrap();
            let text = &text;
            // It ends when it is cut off.
            scope.spawn(move || while { &raw.stream }.write_all(text).is_ok() {});
        }
        for _ in 0..10 {
            assert_eq!(client.nodes().unwrap(), []);
        }
    });
    assert_eq!(client.nodes().unwrap(), []);
}

/// Once half of all places were theirs until their time was over, though no one knows them.
#[test]
fn those_who_only_connect_keep_no_member_out() {
    // More than may shake hands at a time, and of the host that the member is on.
    const SILENT: usize = 300;
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let operator = members.add(Role::Operator, "me");
    let mut connected = cluster.client_as(&operator);
    connected.nodes().unwrap();
    let begun = Instant::now();
    let silent: Vec<TcpStream> = (0..SILENT).map(|_| TcpStream::connect(cluster.address).unwrap()).collect();
    cluster.client_as(&operator).nodes().unwrap();
    assert!(begun.elapsed() < HANDSHAKE_TIMEOUT, "a member has waited until the others' time was over");
    connected.nodes().unwrap();
    drop(silent);
}

#[test]
fn those_who_are_no_nodes_have_short_lines() {
    let mut members = Members::new();
    let plain = Cluster::in_memory();
    let named = members.cluster(config());
    let tenant = members.add(Role::Tenant, "app");
    for (cluster, credential, begins) in [
        (&plain, None, "{\"ask\":"),
        (&plain, None, "["),
        (&named, Some(&*tenant), "{\"ask\":"),
        // It says that it is a node, and is none.
        (&named, Some(&*tenant), "{\"register\":"),
    ] {
        let raw = &mut Raw::new(cluster.address, credential);
        let text = [begins, &"x".repeat(70 << 10)].concat();
        // The controller has seen enough before all of it is there.
        let _ = raw.stream.write_all(text.as_bytes());
        let cause = raw.cause();
        assert!(cause.contains("more than 65536 bytes"), "{cause}");
    }
}

/// So many peers, each of which begins as a node does and says no whole line.
fn half_lines<const PEERS: usize>(cluster: &Cluster) -> [Raw; PEERS] {
    let text = ["{\"register\":", &"x".repeat((4 << 20) - 100)].concat();
    std::thread::scope(|scope| {
        let peers = [(); PEERS].map(|()| {
            let (mut raw, text) = (Raw::new(cluster.address, None), &text);
            scope.spawn(move || {
                // One that is cut off early cannot send all of it.
                let _ = raw.stream.write_all(text.as_bytes());
                raw
            })
        });
        peers.map(|peer| peer.join().unwrap())
    })
}

/// Once 4,096 of them could hold 4 MiB each.
#[test]
fn half_lines_of_all_peers_together_are_bounded() {
    const PEERS: usize = 24;
    let cluster = Cluster::in_memory();
    let peers = half_lines::<PEERS>(&cluster);
    for peer in &peers {
        peer.stream.socket().set_nonblocking(true).unwrap();
    }
    let is_held = |peer: &&Raw| {
        let looked = peer.stream.socket().peek(&mut [0]);
        looked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    until("those that are too many are cut off", || (peers.iter().filter(is_held).count() <= 8).then_some(()));
    let told = peers.into_iter().find(|peer| peer.stream.socket().peek(&mut [0]).is_ok_and(|count| count == 1));
    let mut told = told.expect("those that are cut off are told why");
    assert!(told.cause().contains("too many long lines"));
    // Others are served all the same.
    assert_eq!(cluster.client().nodes().unwrap(), []);
    let _node = cluster.node(1, 10);
}

/// Of so many regions that it is a long line.
fn report(free_bytes: u64) -> NodeReport {
    let region = RegionReport { pid: Pid::FIRST, region: 0, allocated_bytes: 0, resident_bytes: 0, heat: 0 };
    let regions = (1..=200).map(|number| RegionReport { region: number, ..region }).collect();
    NodeReport { free_bytes, regions, ..NodeReport::default() }
}

/// They once took all that the reports of nodes need, and so all nodes were lost.
#[test]
fn half_lines_of_those_who_begin_as_nodes_do_keep_no_node_out() {
    // As many as once had all that there was for long lines.
    const PEERS: usize = 16;
    // It need not speak in time.
    let config = Config { lease: 1000 * config().lease, ..config() };
    let cluster = Cluster::new(config, Box::new(MemoryStore::default()));
    let mut node = Raw::new(cluster.address, None);
    let ToController::Register { facts, cluster: of, spaces, .. } = register(1, None) else { unreachable!() };
    node.say(&ToController::Register {
        facts,
        cluster: of,
        spaces,
        report: report(0),
        knows_alive: false,
        version: VERSION_MIN,
        version_min: 1,
    });
    assert!(matches!(node.hear(), FromController::Registered { .. }));
    let half = half_lines::<PEERS>(&cluster);
    // Of the last bytes it is not known when they are read: the node says much meanwhile.
    let mut client = cluster.client();
    for free_bytes in 1..200 {
        node.say(&ToController::Report(report(free_bytes)));
        until("the node is heard", || (client.nodes().unwrap()[0].free_bytes == free_bytes).then_some(()));
    }
    drop(half);
}

#[test]
fn one_program_makes_so_many_spaces_and_others_theirs() {
    let config = Config { spaces_per_maker_max: 3, ..config() };
    let mut members = Members::new();
    let cluster = members.cluster(config);
    let mut greedy = cluster.client_as(&members.add(Role::Tenant, "greedy"));
    let spaces = [(); 3].map(|()| greedy.create_space().unwrap());
    let error = greedy.create_space().unwrap_err();
    assert!(matches!(&error, ClientError::Refused(Refusal::TooManySpaces { spaces_max: 3, .. })), "{error}");
    assert!(error.to_string().contains("tenant greedy has 3 address spaces"), "{error}");
    cluster.client_as(&members.add(Role::Tenant, "other")).create_space().unwrap();
    greedy.destroy_space(spaces[0].pid, spaces[0].keys.owner).unwrap();
    greedy.create_space().unwrap();
    // Without names an address counts.
    let plain = Cluster::new(config, Box::new(MemoryStore::default()));
    for _ in 0..3 {
        plain.client().create_space().unwrap();
    }
    assert!(plain.client().create_space().unwrap_err().to_string().contains("127.0.0.1 has 3 address spaces"));
}

/// Those who had gone once kept their places among requests that wait for nodes.
#[test]
fn requests_of_those_who_have_gone_leave_their_places() {
    // The node need not speak in time.
    let config = Config { lease: 1000 * config().lease, ..config() };
    let cluster = Cluster::new(config, Box::new(MemoryStore::default()));
    let mut node = Raw::new(cluster.address, None);
    node.say(&register(1, None));
    assert!(matches!(node.hear(), FromController::Registered { .. }));
    let space = cluster.client().create_space().unwrap();
    // The node never makes it.
    let place = || Request::PlaceRegion { pid: space.pid, key: space.keys.owner, bytes: 1, avoid: Vec::new() };
    // Whether one of so many requests is refused, and the connection.
    let ask = |count: u64| {
        let mut raw = Raw::new(cluster.address, None);
        (0..count).for_each(|id| raw.say(&ToController::Ask { id, request: place() }));
        raw.say(&ToController::Ask { id: count, request: Request::Nodes });
        let FromController::Answer { answer, .. } = raw.hear() else { panic!("it is turned away") };
        (matches!(answer, Answer::Refused(Refusal::Busy { .. })), raw)
    };
    let most = WAITING_MAX as u64 / 2;
    let (is_refused, held) = ask(most);
    assert!(!is_refused && ask(1).0, "half of all is the most that wait for one address");
    drop(held);
    until("there is room again", || (!ask(1).0).then_some(()));
}

/// Each of them once left a record for as long as a lease, however many they were.
#[test]
fn nodes_without_names_that_have_gone_and_have_nothing_count_until_their_leases_are_over() {
    let config = Config { nodes_per_source_max: 3, lease: 1000 * config().lease, ..config() };
    let cluster = Cluster::new(config, Box::new(MemoryStore::default()));
    let mut client = cluster.client();
    for node in 1..=3 {
        let mut raw = Raw::new(cluster.address, None);
        raw.say(&register(node, None));
        assert!(matches!(raw.hear(), FromController::Registered { .. }));
        drop(raw);
        let is_silent = |view: &NodeView| view.condition == NodeCondition::Silent;
        until("it has gone", || client.nodes().unwrap().iter().all(is_silent).then_some(()));
    }
    let error = cluster.try_node(4, 10).unwrap_err();
    let told = "3 nodes are connected from 127.0.0.1 already, or were a moment ago";
    assert!(matches!(&error, LinkError::TurnedAway { cause, .. } if cause.contains(told)), "{error}");
    // One of them may come back.
    cluster.try_node(3, 10).unwrap();
}

#[test]
fn one_address_has_so_many_nodes_without_names() {
    let cluster = Cluster::new(Config { nodes_per_source_max: 3, ..config() }, Box::new(MemoryStore::default()));
    let mut fakes: Vec<Raw> = (1..=3)
        .map(|node| {
            let mut raw = Raw::new(cluster.address, None);
            raw.say(&register(node, None));
            assert!(matches!(raw.hear(), FromController::Registered { .. }));
            raw
        })
        .collect();
    let error = cluster.try_node(4, 10).unwrap_err();
    let told = "3 nodes are connected from 127.0.0.1 already";
    assert!(matches!(&error, LinkError::TurnedAway { cause, .. } if cause.contains(told)), "{error}");
    // One that connects anew, and whose older end is not known yet, needs no place more.
    let mut anew = Raw::new(cluster.address, None);
    anew.say(&register(3, None));
    assert!(matches!(anew.hear(), FromController::Registered { .. }));
    drop((fakes.pop(), anew));
    until("there is room again", || cluster.try_node(4, 10).ok());
}
