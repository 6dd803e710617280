//! Peers that do not follow the protocol, and two sessions of one queue pair: bytes on plain sockets.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use yonder_fabric::Status;
use yonder_node::Node;
use yonder_units::PAGE_BYTES;
use yonder_wire::{ClientId, ErrorCode, Greeting, Header, Kind, Welcome};

use crate::messages::{Messages, sealed};
use crate::testbed::{Client, Dice, PAGE, PATIENCE, address, tcp_node, wait_for};

/// A client made of single messages.
struct Raw(Messages);

impl Raw {
    fn connect(node: &Node) -> Self {
        Self(Messages::new(TcpStream::connect(address(node)).unwrap(), PATIENCE))
    }

    fn hello(&mut self, queue_pair: u32, epoch: u64) -> Header {
        let greeting = Greeting { client: ClientId([7; 16]), epoch, queue_pair };
        let hello = Header::request(Kind::Hello, 1, 0, Greeting::BYTES as u64);
        self.ask(hello, &greeting.to_bytes()).0
    }

    fn ask(&mut self, header: Header, payload: &[u8]) -> (Header, Vec<u8>) {
        self.0.send(&header, payload);
        self.0.receive().expect("the node answers")
    }
}

#[test]
fn a_newer_session_fences_the_older_one() {
    let node = tcp_node(4);
    let mut control = Raw::connect(&node);
    assert_eq!(control.hello(0, 1).kind, Kind::HelloAck);
    let start = control.ask(Header::request(Kind::Allocate, 2, 0, PAGE), &[]).0.address;
    let mut older = Raw::connect(&node);
    assert_eq!(older.hello(1, 2).kind, Kind::HelloAck);
    // The older session has half a write on its way when the newer one opens.
    let write = Header::request(Kind::Write, 3, start, PAGE);
    let late = sealed(&write, &[1; PAGE_BYTES]);
    older.0.stream.write_all(&late[..2000]).unwrap();
    let mut newer = Raw::connect(&node);
    assert_eq!(newer.hello(1, 3).kind, Kind::HelloAck);
    assert_eq!(newer.ask(write, &[2; PAGE_BYTES]).0.kind, Kind::WriteAck);
    // The node may have closed the older connection already, and then sending fails.
    let _ = older.0.stream.write_all(&late[2000..]);
    assert_eq!(older.0.receive(), None, "the late write was answered");
    let read = newer.ask(Header::request(Kind::Read, 4, start, PAGE), &[]);
    assert_eq!(read, (Header::request(Kind::ReadReply, 4, start, PAGE), vec![2; PAGE_BYTES]));
    assert_eq!(node.stats().writes, 1);
}

#[test]
fn an_older_session_that_comes_late_is_refused() {
    let node = tcp_node(1);
    let (mut newer, mut older) = (Raw::connect(&node), Raw::connect(&node));
    assert_eq!(newer.hello(1, 9).kind, Kind::HelloAck);
    let refused = older.hello(1, 8);
    assert_eq!((refused.kind, refused.code), (Kind::Error, ErrorCode::StaleEpoch));
    assert_eq!(older.0.receive(), None);
    assert_eq!(newer.ask(Header::request(Kind::Ping, 5, 0, 0), &[]).0.kind, Kind::PingAck);
}

#[test]
fn the_welcome_tells_who_remembers_and_how_much() {
    let node = tcp_node(4);
    let mut welcomes = Vec::new();
    let mut sessions = Vec::new();
    for queue_pair in [0, 1] {
        let mut raw = Raw::connect(&node);
        let greeting = Greeting { client: ClientId([7; 16]), epoch: 1, queue_pair };
        let hello = Header::request(Kind::Hello, 1, 0, Greeting::BYTES as u64);
        welcomes.push(Welcome::from_bytes(&raw.ask(hello, &greeting.to_bytes()).1).unwrap());
        sessions.push(raw);
    }
    assert_eq!(welcomes[0], welcomes[1]);
    assert!(welcomes[0].address_space_bytes >= 4 * PAGE);
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
    let mut huge = Header::request(Kind::Write, 1, start.0, 0).seal(&[]).to_vec();
    huge[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
    let short_hello = sealed(&Header::request(Kind::Hello, 1, 0, 3), &[1, 2, 3]);
    let http = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: a browser that has lost its way entirely\r\n\r\n".to_vec();
    let mut epoch = 1;
    let mut bad = 0;
    for bytes in [garbage, huge, http, short_hello, ping] {
        for greets in [false, true] {
            let mut peer = Raw::connect(&node);
            if greets {
                epoch += 1;
                assert_eq!(peer.hello(3, epoch).kind, Kind::HelloAck);
                if bytes[3] == Kind::Ping as u8 {
                    // After a greeting this is a good peer.
                    continue;
                }
            }
            // The node may close the connection before it has taken everything.
            let _ = peer.0.stream.write_all(&bytes);
            assert_eq!(peer.0.receive(), None);
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
    let hello = Header::request(Kind::Hello, 1, 0, Greeting::BYTES as u64);
    let greeting = Greeting { client: ClientId([1; 16]), epoch: 1, queue_pair: 0 }.to_bytes();
    let bytes = sealed(&hello, &greeting);
    for cut in [0, 1, 63, 64, 95] {
        Raw::connect(&node).0.stream.write_all(&bytes[..cut]).unwrap();
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
    let mut control = Raw::connect(&node);
    control.hello(0, 1);
    let length = 16 * PAGE;
    let from = control.ask(Header::request(Kind::Allocate, 2, 0, length), &[]).0.address;
    let mut greedy = Raw::connect(&node);
    greedy.hello(1, 2);
    greedy.0.stream.set_nonblocking(true).unwrap();
    let requests: Vec<u8> = (0..64).flat_map(|id| Header::request(Kind::Read, id, from, length).seal(&[])).collect();
    // Asks until nothing more is taken: the node has stopped reading. What is cut off here is sent below.
    let (mut asked, mut cut) = (0, 0);
    loop {
        match greedy.0.stream.write(&requests[cut..]) {
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
    greedy.0.stream.set_nonblocking(false).unwrap();
    for _ in 0..asked / 64 {
        let (header, payload) = greedy.0.receive().expect("the connection stands");
        assert_eq!((header.kind, payload.len() as u64), (Kind::ReadReply, length));
    }
}
