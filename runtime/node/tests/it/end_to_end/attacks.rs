//! Clients that take what there is a bounded number of, to keep others out. They come from addresses of their own.

use std::net::{Ipv4Addr, TcpStream};
use std::num::NonZeroUsize;
use std::time::Duration;

use yonder_node::{Node, NodeConfig};
use yonder_wire::{Body, ErrorCode, Greeting, Kind};

use crate::end_to_end::raw::{Raw, fresh};
use crate::end_to_end::testbed::{NETWORKS, Network, PAGE, address, node, wait_for};

const CONNECTIONS_MAX: usize = 16;
const VICTIM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 200);

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number)
}

fn small_node(change: impl FnOnce(&mut NodeConfig)) -> Node {
    let mut config = NodeConfig::new(vec![Network::Tcp.listen("127.0.0.1:0")], 16 * PAGE);
    (config.page_bytes, config.data_threads) = (Some(PAGE), NonZeroUsize::new(1));
    config.connections_max = CONNECTIONS_MAX;
    change(&mut config);
    Node::start(config).unwrap()
}

/// Closed by the node, though its client is there.
fn is_closed(raw: &Raw) -> bool {
    let Raw::Stream(messages) = raw else { panic!("a connection") };
    messages.stream.set_nonblocking(true).unwrap();
    messages.stream.peek(&mut [0]).is_ok_and(|bytes| bytes == 0)
}

#[test]
fn connections_that_only_greet_keep_nobody_out_and_lanes_with_a_right_stay() {
    let node = small_node(|_| ());
    let mut early = Raw::open_from(&node, VICTIM);
    let (space, start) = early.create_memory(1);
    early.write(space, start, 7).unwrap();
    let mut idle: Vec<Raw> = Vec::new();
    for number in 0..5 * CONNECTIONS_MAX {
        idle.push(Raw::open_from(&node, host(1 + (number % 5) as u8)));
    }
    wait_for(|| (node.stats().connections <= CONNECTIONS_MAX as u64).then_some(()));
    assert!(idle.iter().filter(|raw| is_closed(raw)).count() >= 4 * CONNECTIONS_MAX);
    // Others still find a place, and one that is idle but may hold a lease has kept it.
    let mut late = Raw::open_from(&node, host(100));
    let (other, _) = late.create_memory(1);
    assert_eq!(late.ask(&other.request(Kind::Ping, 0, 0), &[]).map(|_| ()), Ok(()));
    assert_eq!(early.read(space, start), Ok(7));
}

#[test]
fn a_host_whose_lanes_all_have_a_right_has_its_share_and_no_more() {
    let node = small_node(|_| ());
    let mut first = Raw::open_from(&node, host(1));
    let (space, start) = first.create_memory(1);
    let mut lanes: Vec<Raw> = (1..CONNECTIONS_MAX / 2).map(|_| Raw::open_from(&node, host(1))).collect();
    assert!(lanes.iter_mut().all(|lane| lane.read(space, start) == Ok(0)));
    let mut greeting = [0; Greeting::BYTES];
    yonder_wire::Body::write_to(&yonder_wire::Greeting { home: None }, &mut greeting);
    let mut more = Raw::connect_from(&node, host(1));
    more.send(&crate::end_to_end::messages::sealed(&fresh(Kind::Hello, Greeting::BYTES as u32), &greeting));
    assert_eq!(more.receive().map(|(header, _)| header.code), Some(ErrorCode::Busy));
    assert!(lanes.iter_mut().all(|lane| lane.read(space, start) == Ok(0)));
    Raw::open_from(&node, VICTIM).create_memory(1);
}

#[test]
fn connections_that_never_greet_keep_nobody_out() {
    let node = small_node(|_| ());
    let silent: Vec<TcpStream> =
        (0..4 * CONNECTIONS_MAX).map(|_| TcpStream::connect(address(&node)).unwrap()).collect();
    let mut victim = Raw::open_from(&node, VICTIM);
    victim.create_memory(1);
    assert!(node.stats().connections <= 1 + (CONNECTIONS_MAX / 8) as u64, "{:?}", node.stats());
    assert_eq!(node.stats().bad_peers, 0, "they had the time to greet");
    drop(silent);
}

#[test]
fn an_address_space_that_was_made_without_a_lease_ends_when_its_client_is_silent() {
    let node = small_node(|config| (config.lease_default, config.lease_max) = (LEASE, 2 * LEASE));
    let mut raw = Raw::open(&node);
    let too_long = fresh(Kind::CreateSpace, 2 * LEASE.as_millis() as u32 + 1);
    assert_eq!(raw.ask(&too_long, &[]), Err(ErrorCode::BadLength));
    let before = node.stats();
    let (space, _) = raw.create_memory(3);
    wait_for(|| (node.stats().spaces == before.spaces).then_some(()));
    assert_eq!(raw.allocate(space, 1), Err(ErrorCode::BadCapability));
    assert_eq!(node.stats().allocated_bytes, before.allocated_bytes);
}

const LEASE: Duration = Duration::from_millis(1200);

/// A region whose memory a client reaches by itself cannot move, and a node with one is never drained.
#[test]
fn only_those_who_were_handed_the_memory_are_told_where_theirs_lies() {
    for network in NETWORKS {
        let node = node(network, 8);
        let mut raw = Raw::open(&node);
        let (space, start) = raw.create_memory(1);
        assert_eq!(raw.ask(&space.request(Kind::Translate, start, 1), &[]), Err(ErrorCode::Unsupported));
    }
}

#[test]
fn requests_without_a_right_are_counted() {
    for network in NETWORKS {
        let node = node(network, 8);
        let mut raw = Raw::open(&node);
        let (space, start) = raw.create_memory(1);
        let forged = crate::end_to_end::raw::Grant { capability: space.capability ^ 1, ..space };
        for guess in 0..10 {
            assert_eq!(raw.read(forged, start), Err(ErrorCode::BadCapability));
            assert_eq!(raw.allocate(forged, 1), Err(ErrorCode::BadCapability));
            wait_for(|| (node.stats().refused_capabilities == 2 * guess + 2).then_some(()));
        }
        assert_eq!(node.stats().errors, 20);
    }
}
