//! Servers whose pages are on the nodes of a controller (`yonder://`): a space larger than any node, of which a node
//! is drained, and the controller killed, without a client that notices; and with copies or shares, nodes that are
//! killed or stand still.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use yonder_e2e::{Client, Content, Process, Yonder};

use crate::cluster::Cluster;
use crate::files::can_use_files;

/// More than one node has, and many times what is local.
const CONTENT: Content = Content { name: "spread", keys: 22_000, value_bytes: 1000 };

/// As much as two of three nodes have room for, with copies.
const LITTLE: Content = Content { name: "little", keys: 5_000, value_bytes: 1000 };

fn far(cluster: &Cluster) -> String {
    cluster.at().replace("tcp://", "yonder://")
}

fn server(cluster: &Cluster, far: &str) -> Process {
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--local", "4MiB", "--far", far];
    let server = cluster.yonder.serve(&[&flags[..], &["--metrics", "127.0.0.1:0"]].concat());
    Client::connect(server.address()).fill(&CONTENT, 0..CONTENT.keys, 1);
    server
}

#[test]
fn a_server_on_many_nodes_goes_on_while_one_is_drained_and_the_controller_starts_anew() {
    let mut cluster = Cluster::start();
    let nodes = ["udp", "tcp", "udp", "tcp"].map(|scheme| (cluster.node(scheme), scheme));
    let server = server(&cluster, &far(&cluster));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (is_done, address) = (&is_done, server.address());
        let reader = scope.spawn(move || {
            let mut client = Client::connect(address);
            let mut rounds = 0;
            while !is_done.load(Ordering::Acquire) || rounds == 0 {
                client.verify(&CONTENT, (rounds % 10..CONTENT.keys).step_by(10), 1);
                rounds += 1;
            }
        });
        let (drained, at) = (nodes[0].0.url(nodes[0].1), cluster.at());
        let ended = cluster.yonder.run(&["controller", "drain", &drained, "--at", &at]);
        is_done.store(true, Ordering::Release);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(cluster.view(&drained).expect("it is known")["regions"], 0);
        reader.join().expect("nothing was lost");
    });
    cluster.restart_controller();
    Client::connect(server.address()).verify(&CONTENT, 0..CONTENT.keys, 1);
    // What is left of the four is room for three: all is there still.
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// Reads and writes all items in turn until told to stop; none may be wrong, missing or refused.
fn use_all(server: SocketAddr, is_done: &AtomicBool) {
    let mut client = Client::connect(server);
    let mut rounds = 0;
    while !is_done.load(Ordering::Acquire) || rounds == 0 {
        client.verify(&CONTENT, (rounds % 10..CONTENT.keys).step_by(10), 1);
        client.fill(&CONTENT, ((rounds + 3) % 10..CONTENT.keys).step_by(20), 1);
        rounds += 1;
    }
}

fn a_node_fails(signal: Signal, protection: &str) {
    let cluster = Cluster::start();
    let mut nodes: Vec<Process> = (0..8).map(|_| cluster.node("tcp")).collect();
    let mut server = server(&cluster, &format!("{}?{protection}", far(&cluster)));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (is_done, address) = (&is_done, server.address());
        let user = scope.spawn(move || use_all(address, is_done));
        let failing = nodes.pop().expect("there are some");
        let url = failing.url("tcp");
        failing.signal(signal);
        // Regions that it had are the group's others' by then, and it is not asked for them any more.
        let lost = cluster.wait_until(&url, |view| view.is_none_or(|view| view["regions"] == 0));
        is_done.store(true, Ordering::Release);
        user.join().expect("nothing was lost");
        assert!(lost, "the node's regions were not given up");
        if signal == Signal::STOP {
            failing.signal(Signal::CONT);
        }
    });
    Client::connect(server.address()).verify(&CONTENT, 0..CONTENT.keys, 1);
    // All is at all places again, and the node that failed is forgotten, or back.
    assert!(cluster.is_well_in_time(), "it does not become well");
    let shown = cluster.yonder.run(&["top", "--once", "--attach", &server.metrics_address().to_string()]).stdout;
    let protection: Vec<&str> = shown.lines().skip_while(|line| *line != "protection").skip(1).take(2).collect();
    let [kept, below] = protection[..] else { panic!("top shows no protection: {shown}") };
    assert!(kept.trim_start().starts_with("any of places") && below.trim_start().starts_with("pages below"), "{shown}");
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_node_that_is_killed_is_not_noticed_where_there_are_copies() {
    a_node_fails(Signal::KILL, "copies=2");
}

#[test]
fn a_node_that_stands_still_is_not_noticed_where_there_are_copies() {
    a_node_fails(Signal::STOP, "copies=2");
}

#[test]
fn a_node_that_is_killed_is_not_noticed_where_pages_are_in_shares() {
    a_node_fails(Signal::KILL, "code=4+1");
}

/// A folder for pages on a disk, and what asks for that; `None` if there is no disk that can be used.
fn on_a_disk() -> Option<(tempfile::TempDir, String)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let far = format!("file://{}", folder.path().display());
    let protection = format!("disk={}", folder.path().display());
    can_use_files(Yonder::ready()?, &far).then_some((folder, protection))
}

#[test]
fn a_node_that_is_killed_is_not_noticed_where_pages_are_on_a_disk_too() {
    let Some((_folder, protection)) = on_a_disk() else { return };
    a_node_fails(Signal::KILL, &protection);
}

#[test]
fn a_node_that_stands_still_is_not_noticed_where_pages_are_on_a_disk_too() {
    let Some((_folder, protection)) = on_a_disk() else { return };
    a_node_fails(Signal::STOP, &protection);
}

#[test]
fn a_node_that_has_forgotten_everything_is_used_again() {
    let cluster = Cluster::start();
    let mut nodes: Vec<Process> = (0..3).map(|_| cluster.node("tcp")).collect();
    let far = format!("{}?copies=2", far(&cluster));
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "8MiB", "--local", "2MiB", "--far", &far];
    let server = cluster.yonder.serve(&flags);
    let mut client = Client::connect(server.address());
    client.fill(&LITTLE, 0..LITTLE.keys, 1);
    // What it has is given up, and it is told to forget the address space when it is back.
    let (forgetful, url) = (&nodes[0], nodes[0].url("tcp"));
    forgetful.signal(Signal::STOP);
    let is_lost = |view: Option<&Value>| view.is_none_or(|view| view["condition"] == "lost" && view["regions"] == 0);
    assert!(cluster.wait_until(&url, is_lost), "it is not lost");
    forgetful.signal(Signal::CONT);
    let is_back = |view: Option<&Value>| view.is_some_and(|view| view["condition"] == "serving");
    assert!(cluster.wait_until(&url, is_back) && cluster.is_well_in_time(), "it is not back");
    // There is no other one for what this one has.
    nodes.pop().expect("there are some").kill();
    client.verify(&LITTLE, 0..LITTLE.keys, 1);
    client.fill(&LITTLE, (0..LITTLE.keys).step_by(3), 1);
    let is_used = |view: Option<&Value>| view.is_some_and(|view| view["regions"] != 0);
    assert!(cluster.wait_until(&url, is_used) && cluster.is_well_in_time(), "it is not used");
    client.verify(&LITTLE, 0..LITTLE.keys, 1);
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn what_has_moved_off_a_node_and_back_is_found_by_a_program_that_stood_still() {
    let cluster = Cluster::start();
    let first = cluster.node("tcp");
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "8MiB", "--local", "2MiB", "--far", &far(&cluster)];
    let server = cluster.yonder.serve(&flags);
    Client::connect(server.address()).fill(&LITTLE, 0..LITTLE.keys, 1);
    server.signal(Signal::STOP);
    let second = cluster.node("tcp");
    let at = cluster.at();
    let control = |what: &str, node: &str| {
        let ended = cluster.yonder.run(&["controller", what, node, "--at", &at]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    };
    // The first forgets the address space while nothing is there, and is told of it anew when all comes back.
    let (first_url, second_url) = (first.url("tcp"), second.url("tcp"));
    control("drain", &first_url);
    first.signal(Signal::STOP);
    let is_gone = |view: Option<&Value>| view.is_none_or(|view| view["condition"] == "lost");
    assert!(cluster.wait_until(&first_url, is_gone), "it is not lost");
    first.signal(Signal::CONT);
    let is_back = |view: Option<&Value>| view.is_some_and(|view| view["condition"] == "serving");
    assert!(cluster.wait_until(&first_url, is_back), "it is not back");
    control("drain", &second_url);
    server.signal(Signal::CONT);
    Client::connect(server.address()).verify(&LITTLE, 0..LITTLE.keys, 1);
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}
