//! Peers that do not follow the protocol, on streams: bytes on plain sockets.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use yonder_fabric::Status;
use yonder_node::Node;
use yonder_wire::{Body, ErrorCode, Greeting, HEADER_BYTES, Header, Kind, Welcome};

use crate::end_to_end::messages::{Messages, sealed};
use crate::end_to_end::raw::{Raw, fresh, page_of};
use crate::end_to_end::testbed::{Client, Dice, NETWORKS, PAGE, TIMEOUT, address, node, tcp_node, wait_for};

fn connect(node: &Node) -> Messages {
    Messages::new(TcpStream::connect(address(node)).unwrap(), TIMEOUT)
}

fn greet(peer: &mut Messages) {
    let mut payload = [0; Greeting::BYTES];
    Greeting { home: None }.write_to(&mut payload);
    peer.send(&fresh(Kind::Hello, payload.len() as u32), &payload);
    let (welcome, payload) = peer.receive().expect("the node answers");
    assert_eq!(welcome.kind, Kind::Hello);
    assert!(Welcome::from_bytes(&payload).is_ok());
}

#[test]
fn the_welcome_tells_who_serves_and_how_much() {
    for network in NETWORKS {
        let node = node(network, 4);
        let mut welcomes: Vec<Welcome> = (0..8).map(|_| Raw::connect(&node).greet(None)).collect();
        assert!(welcomes.iter().all(|welcome| welcome.home < 2), "{network:?}: {welcomes:?}");
        let unknown = Raw::connect(&node).greet(Some(77));
        assert!(unknown.home < 2, "a thread that there is not cannot be had");
        welcomes.push(unknown);
        let same = |welcome: &Welcome| Welcome { home: 0, ..*welcome };
        assert!(welcomes.iter().all(|welcome| same(welcome) == same(&welcomes[0])));
        assert_eq!((welcomes[0].page_bytes, welcomes[0].memory_bytes), (PAGE, 4 * PAGE));
        let other = crate::end_to_end::testbed::node(network, 4);
        assert_ne!(Raw::connect(&other).greet(None).incarnation, welcomes[0].incarnation);
    }
}

#[test]
fn bad_peers_lose_their_connection_and_hurt_nobody() {
    let node = tcp_node(4);
    let mut good = Client::of(&node, 1);
    let start = good.allocate(4);
    assert_eq!(good.store(start, 5), Status::Done);
    let mut dice = Dice(99);
    let garbage: Vec<u8> = (0..5000).map(|_| dice.below(256) as u8).collect();
    let ping = Header::request(Kind::Ping, 1, 0, 0).seal(&[]).to_vec();
    let mut huge = sealed(&Header::request(Kind::Write, 1, start.0, 0), &[]);
    huge[28..32].copy_from_slice(&u32::MAX.to_le_bytes());
    let answer = sealed(&Header::request(Kind::Write, 1, start.0, 4096).answer(1, 4096), &[]);
    let short_hello = sealed(&Header::request(Kind::Hello, 1, 0, 3), &[1, 2, 3]);
    let http = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: a browser that has lost its way entirely\r\n\r\n".to_vec();
    let mut bad = 0;
    for (bytes, is_bad_after_a_greeting) in
        [(garbage, true), (huge, true), (http, true), (answer, true), (short_hello, false), (ping, false)]
    {
        for greets in [false, true] {
            let mut peer = connect(&node);
            if greets {
                greet(&mut peer);
            }
            if greets && !is_bad_after_a_greeting {
                peer.stream.write_all(&bytes).unwrap();
                assert!(peer.receive().is_some(), "it is answered, be it with a refusal");
                continue;
            }
            // The node may close the connection before it has taken everything.
            let _ = peer.stream.write_all(&bytes);
            assert_eq!(peer.receive(), None);
            bad += 1;
            assert_eq!(good.load(start), (Status::Done, 5));
        }
    }
    wait_for(|| (node.stats().bad_peers == bad).then_some(()));
    wait_for(|| (node.stats().connections == 2).then_some(()));
}

#[test]
fn half_a_message_and_a_closed_connection_are_no_violation() {
    let node = tcp_node(1);
    let mut greeting = [0; Greeting::BYTES];
    Greeting { home: None }.write_to(&mut greeting);
    let bytes = sealed(&fresh(Kind::Hello, greeting.len() as u32), &greeting);
    for cut in [0, 1, HEADER_BYTES - 1, HEADER_BYTES, bytes.len() - 1] {
        connect(&node).stream.write_all(&bytes[..cut]).unwrap();
    }
    wait_for(|| (node.stats().connections == 0).then_some(()));
    assert_eq!(node.stats().bad_peers, 0);
}

/// A peer that asks for much and takes nothing is not served further, costs bounded memory, and delays nobody.
#[test]
fn a_peer_that_does_not_read_its_replies_hurts_nobody() {
    let node = tcp_node(32);
    let mut good = Client::of(&node, 1);
    let start = good.allocate(1);
    assert_eq!(good.store(start, 5), Status::Done);
    let length = 16 * PAGE as u32;
    let (space, from) = Raw::open(&node).create_memory(16);
    let mut greedy = connect(&node);
    greet(&mut greedy);
    greedy.stream.set_nonblocking(true).unwrap();
    let requests: Vec<u8> = (0..64).flat_map(|_| sealed(&space.request(Kind::Read, from, length), &[])).collect();
    // Asks until nothing more is taken: the node has stopped reading. What is cut off here is sent below.
    let (mut asked, mut cut) = (0, 0);
    loop {
        match greedy.stream.write(&requests[cut..]) {
            Ok(bytes) => (asked, cut) = (asked + bytes, (cut + bytes) % requests.len()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    }
    for _ in 0..100 {
        assert_eq!(good.load(start), (Status::Done, 5));
    }
    // Once it reads, it gets every answer.
    greedy.stream.set_nonblocking(false).unwrap();
    for _ in 0..asked / HEADER_BYTES {
        let (header, payload) = greedy.receive().expect("the connection stands");
        assert_eq!((header.kind, header.code, payload.len()), (Kind::Read, ErrorCode::None, length as usize));
    }
}

/// A peer that fills the slow path's desk is told to come again, gets an answer to everything, and delays nobody for
/// long.
#[test]
fn a_peer_that_floods_the_slow_path_is_told_to_come_again() {
    const FLOOD: usize = 3000;
    let node = tcp_node(32);
    let good = Client::of(&node, 1);
    let mut raw = Raw::open(&node);
    let (space, start) = raw.create_memory(1);
    let renewals: Vec<Header> = (0..FLOOD).map(|_| space.request(Kind::Ping, 0, 0)).collect();
    let bytes: Vec<u8> = renewals.iter().flat_map(|renewal| sealed(renewal, &[])).collect();
    raw.send(&bytes);
    let fabric_was_served = good.fabric.allocate(PAGE);
    assert!(fabric_was_served.is_ok());
    let (mut renewed, mut busy) = (0, 0);
    for _ in 0..FLOOD {
        let (answer, _) = raw.receive().expect("the connection stands");
        match answer.code {
            ErrorCode::None => renewed += 1,
            ErrorCode::Busy => busy += 1,
            code => panic!("{code}"),
        }
    }
    assert!(renewed >= 64 && renewed + busy == FLOOD, "{renewed} renewed, {busy} put off");
    raw.ask(&space.write(start), &page_of(1)).unwrap();
    assert_eq!(raw.read(space, start), Ok(1));
}
