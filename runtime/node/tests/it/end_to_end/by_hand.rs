//! A lane whose messages may be kept, changed and sent again, and what comes of those that are sent from elsewhere.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;

use yonder_fabric::lane::{Lane, NodeAddress, NodeSession};
use yonder_identity::{Credential, Role};
use yonder_node::{Listen, Node};
use yonder_session::{
    Cipher, Door, GrantBytes, Home, LaneKeys, Protection, SessionGrant, SessionNumber, SessionRequest, SessionSecret,
    THREAD_FIELD, open, seal,
};
use yonder_wire::{AtomicOperation, Body, ErrorCode, Greeting, Header, Kind, PROOF_BYTES, Permission, Welcome, split};

use crate::end_to_end::lossy::LossyProxy;
use crate::end_to_end::raw::{self, allocation, fresh, retry};
use crate::end_to_end::secured::{ask, create, is_dropped, node, node_at, open as lane_to, shared_key};
use crate::end_to_end::testbed::{Network, TIMEOUT, address};

const LANE: u8 = 9;
/// Other ports of the lane's address: with two threads the kernel gives some of them to each, but once in 2^31 runs.
const PORTS: usize = 32;

/// A lane made by hand.
pub(super) struct ByHand {
    pub(super) socket: UdpSocket,
    pub(super) to: SocketAddr,
    number: SessionNumber,
    secret: SessionSecret,
    keys: LaneKeys,
    sequence: u64,
    pub(super) time: u64,
}

impl ByHand {
    /// One that has not greeted, by datagrams.
    pub(super) fn new(node: &Node, key: &Credential, protection: Protection) -> Self {
        Self::at(node, key, protection, Door::Datagrams)
    }

    /// One that has not greeted, and does it at a door.
    pub(super) fn at(node: &Node, key: &Credential, protection: Protection, door: Door) -> Self {
        let to: SocketAddr = address(node).parse().unwrap();
        let grant = grant(to, key, protection);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let keys = grant.secret.lane(LANE, Home::Door(door));
        let (number, secret) = (grant.number.with_lane(LANE), grant.secret);
        Self { socket, to, number, secret, keys, sequence: 0, time: grant.time }
    }

    /// One that a thread has welcomed.
    pub(super) fn open(node: &Node, key: &Credential, protection: Protection) -> Self {
        let mut lane = Self::new(node, key, protection);
        let hello = lane.hello();
        lane.send(&hello);
        let mut welcome = lane.receive();
        lane.settle(&mut welcome);
        lane
    }

    /// A greeting.
    pub(super) fn hello(&mut self) -> Vec<u8> {
        self.hello_to(None)
    }

    /// A greeting that names a thread.
    fn hello_to(&mut self, home: Option<u32>) -> Vec<u8> {
        let mut greeting = [0; Greeting::BYTES];
        Greeting { home }.write_to(&mut greeting);
        self.sealed(&fresh(Kind::Hello, Greeting::BYTES as u32), &greeting)
    }

    /// Is for the thread that has sent a welcome from now on.
    pub(super) fn settle(&mut self, welcome: &mut [u8]) {
        let (_, payload) = self.opened(welcome).expect("it is a welcome to this lane");
        let Welcome { home, .. } = Welcome::from_bytes(&payload).unwrap();
        self.keys = self.secret.lane(LANE, Home::Thread(home.try_into().unwrap()));
    }

    /// Has keys of a session that no node has made.
    pub(super) fn make_up_keys(&mut self) {
        let secret = SessionSecret::from_bytes([7; 32], Cipher::best(), self.secret.protection());
        self.keys = secret.lane(LANE, Home::Thread(0));
    }

    pub(super) fn sealed(&mut self, header: &Header, payload: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        let counter = self.time >> 20 << 36 | self.sequence;
        let mut bytes = [&header.seal(payload)[..], payload, &[0; PROOF_BYTES]].concat();
        seal(&self.keys.requests, self.number, counter, &mut bytes);
        bytes
    }

    fn opened(&self, bytes: &mut [u8]) -> Option<(Header, Vec<u8>)> {
        let opened = open(&self.keys.answers, bytes).ok()?;
        split(&bytes[..opened]).unwrap().map(|message| (message.header, message.payload.to_vec()))
    }

    fn receive(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let (length, _) = self.socket.recv_from(&mut bytes).expect("the node answers");
        bytes.truncate(length);
        bytes
    }

    /// The answer that comes, opened; none for what the node drops.
    pub(super) fn answer(&self) -> Option<Header> {
        self.opened(&mut self.receive()).map(|(header, _)| header)
    }

    pub(super) fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, self.to).unwrap();
    }

    fn ask(&mut self, header: &Header, payload: &[u8]) -> Header {
        let request = self.sealed(header, payload);
        self.send(&request);
        let answer = self.answer().expect("it is answered");
        assert_eq!(answer.code, ErrorCode::None, "{header:?}");
        answer
    }
}

/// A session, from this machine's usual address.
pub(super) fn grant(to: SocketAddr, key: &Credential, protection: Protection) -> SessionGrant {
    let stream = TcpStream::connect(to).unwrap();
    let deadline = std::time::Instant::now() + TIMEOUT;
    let (stream, peer) = yonder_identity::connect(key, stream, Role::Node, deadline).unwrap();
    assert!(peer.has(Role::Node));
    (&stream).write_all(&SessionRequest { protection }.to_bytes()).unwrap();
    let mut bytes = GrantBytes::new([0; SessionGrant::BYTES]);
    (&stream).read_exact(&mut bytes[..]).unwrap();
    SessionGrant::from_bytes(&bytes).unwrap()
}

/// A word of its own on the node.
fn word(lane: &mut ByHand) -> (raw::Grant, u64) {
    let made = lane.ask(&fresh(Kind::CreateSpace, 0), &[]);
    let space = raw::Grant { pid: made.pid, capability: made.capability };
    let (allocate, body) = allocation(space, 1, Permission::ReadWrite);
    (space, lane.ask(&allocate, &body).address)
}

/// The simulator found it (`sim node`, seeds 227 and 2235): who withheld a retry had the request executed once more, by
/// another data thread, which the port that he sent it from had chosen.
#[test]
fn what_was_executed_is_not_done_again_from_another_port() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Udp, &key);
    let mut lane = ByHand::open(&node, &key, Protection::Encrypted);
    let (space, word) = word(&mut lane);
    let (add, one) = space.atomic(word, AtomicOperation::FetchAdd(1));
    assert_eq!(lane.ask(&add, &one).address, 0);
    for _ in 0..PORTS {
        let withheld = lane.sealed(&retry(&add), &one);
        let elsewhere = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        elsewhere.set_read_timeout(Some(TIMEOUT)).unwrap();
        // For another thread it would not be sealed.
        let mut misled = withheld.clone();
        misled[THREAD_FIELD.at] ^= 1 << THREAD_FIELD.shift;
        let before = node.stats().bad_datagrams;
        elsewhere.send_to(&misled, lane.to).unwrap();
        is_dropped(&node, before);
        elsewhere.send_to(&withheld, lane.to).unwrap();
        let mut answer = [0; 4096];
        let length = elsewhere.recv(&mut answer).expect("it comes to the thread that has executed it");
        assert_eq!(lane.opened(&mut answer[..length]).map(|(header, _)| header.address), Some(0));
    }
    let (look, nothing) = space.atomic(word, AtomicOperation::FetchAdd(0));
    assert_eq!(lane.ask(&look, &nothing).address, 1, "it was done again");
}

/// A reader found it: who sent the greeting of a connection as a datagram led the lane to a thread that knew nothing of
/// what had been executed for it.
#[test]
fn a_greeting_of_a_stream_is_none_of_datagrams_and_keeps_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    for (network, door) in [(Network::Tcp, Door::Datagrams), (Network::Udp, Door::Streams)] {
        // Both are to be had at one port.
        let udp = node(Network::Udp, &key);
        let both = vec![Listen::Udp(address(&udp)), Listen::Tcp(address(&udp))];
        drop(udp);
        let node = node_at(both, &key);
        let mut lane = ByHand::at(&node, &key, Protection::Encrypted, door);
        let hello = lane.hello();
        match network {
            Network::Udp => {
                let before = node.stats().bad_datagrams;
                lane.send(&hello);
                is_dropped(&node, before);
            }
            Network::Tcp => assert!(ends_unanswered(lane.to, &hello)),
        }
    }
    // A connection goes to the thread that it names, or to none.
    let node = node(Network::Tcp, &key);
    let mut lane = ByHand::at(&node, &key, Protection::Encrypted, Door::Streams);
    let named = lane.hello_to(Some(7));
    assert!(ends_unanswered(lane.to, &named), "it was given another thread");
    let named = lane.hello_to(Some(1));
    assert!(!ends_unanswered(lane.to, &named));
}

/// Whether a node ends the connection that begins with these bytes, and says nothing.
fn ends_unanswered(to: SocketAddr, bytes: &[u8]) -> bool {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(bytes).unwrap();
    match stream.read(&mut [0; 16]) {
        Ok(bytes) => bytes == 0,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is neither answered nor ended");
            true
        }
    }
}

/// A greeting is for any thread, so the port that it is repeated from chooses one.
#[test]
fn a_greeting_is_taken_once_whichever_thread_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Udp, &key);
    let mut lane = ByHand::new(&node, &key, Protection::Encrypted);
    let hello = lane.hello();
    lane.send(&hello);
    lane.receive();
    for _ in 0..PORTS {
        let before = node.stats().bad_datagrams;
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().send_to(&hello, lane.to).unwrap();
        is_dropped(&node, before);
    }
}

/// A lane whose port is forgotten on the way is heard by its thread all the same.
#[test]
fn a_lane_is_heard_from_any_port() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Udp, &key);
    let session = Arc::new(NodeSession::with(Some(key), Protection::Encrypted));
    let space = create(&mut lane_to(&node, &session).unwrap());
    let proxy = LossyProxy::forgetful(&address(&node));
    let through = NodeAddress::resolve(&proxy.url()).unwrap().remove(0);
    for _ in 0..8 {
        let mut lane = Lane::open(&through, 16, &session).unwrap().lane;
        for _ in 0..32 {
            ask(&mut lane, Kind::Ping, space, 0).unwrap();
        }
    }
    assert_eq!(node.stats().bad_datagrams, 0, "something came to another thread");
}
