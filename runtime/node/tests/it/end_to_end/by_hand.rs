//! A lane whose messages may be kept, changed and sent again, and what comes of those that are sent from elsewhere.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;

use yonder_fabric::lane::{Lane, NodeAddress, NodeSession};
use yonder_identity::{Credential, Role};
use yonder_node::Node;
use yonder_session::{
    Cipher, GrantBytes, Home, LaneKeys, Protection, SessionGrant, SessionNumber, SessionRequest, SessionSecret, open,
    seal,
};
use yonder_wire::{AtomicOperation, Body, ErrorCode, Greeting, Header, Kind, PROOF_BYTES, Permission, Welcome, split};

use crate::end_to_end::lossy::LossyProxy;
use crate::end_to_end::raw::{self, allocation, fresh, retry};
use crate::end_to_end::secured::{ask, create, node, open as lane_to, shared_key};
use crate::end_to_end::testbed::{Network, TIMEOUT, address, wait_for};

const LANE: u8 = 9;
/// Other ports of the lane's address: with two threads both get something, but once in 2^31 runs.
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
    /// One that has not greeted.
    pub(super) fn new(node: &Node, key: &Credential, protection: Protection) -> Self {
        let to: SocketAddr = address(node).parse().unwrap();
        let grant = grant(to, key, protection);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let keys = grant.secret.lane(LANE, Home::Any);
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
        let mut greeting = [0; Greeting::BYTES];
        Greeting { home: None }.write_to(&mut greeting);
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

/// The simulator found it (`sim node`, seeds 227 and 2235): who withheld a retry had the request executed once more, by
/// another data thread, which the port that he sent it from had chosen.
#[test]
fn what_was_executed_is_not_done_again_from_another_port() {
    let folder = tempfile::tempdir().unwrap();
    let key: Arc<Credential> = shared_key(folder.path(), "key");
    let node = node(Network::Udp, &key);
    let mut lane = ByHand::open(&node, &key, Protection::Encrypted);
    let made = lane.ask(&fresh(Kind::CreateSpace, 0), &[]);
    let space = raw::Grant { pid: made.pid, capability: made.capability };
    let (allocate, body) = allocation(space, 1, Permission::ReadWrite);
    let word = lane.ask(&allocate, &body).address;
    let (add, one) = space.atomic(word, AtomicOperation::FetchAdd(1));
    assert_eq!(lane.ask(&add, &one).address, 0);
    let (mut answered, mut dropped) = (0, 0);
    for _ in 0..PORTS {
        let withheld = lane.sealed(&retry(&add), &one);
        let elsewhere = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        elsewhere.set_nonblocking(true).unwrap();
        let before = node.stats().bad_datagrams;
        elsewhere.send_to(&withheld, lane.to).unwrap();
        let is_answered = wait_for(|| match elsewhere.recv(&mut [0; 4096]) {
            Ok(_) => Some(true),
            Err(_) => (node.stats().bad_datagrams > before).then_some(false),
        });
        *(if is_answered { &mut answered } else { &mut dropped }) += 1;
    }
    assert!(answered > 0, "the thread that has executed it knows it, whatever the port");
    assert!(dropped > 0, "no port has led to another thread");
    let (look, nothing) = space.atomic(word, AtomicOperation::FetchAdd(0));
    assert_eq!(lane.ask(&look, &nothing).address, 1, "it was done again");
}

/// Who sends a lane's greeting from another port leads the lane to a thread that its own port does not reach. It is not
/// heard there, and greets again.
#[test]
fn a_lane_that_was_led_to_another_thread_finds_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Udp, &key);
    let session = Arc::new(NodeSession::with(Some(key), Protection::Encrypted));
    let space = create(&mut lane_to(&node, &session).unwrap());
    let proxy = LossyProxy::misleading(&address(&node));
    let through = NodeAddress::resolve(&proxy.url()).unwrap().remove(0);
    let before = node.stats().bad_datagrams;
    // Half of them are led to another thread.
    for _ in 0..16 {
        let mut lane = Lane::open(&through, 16, &session).unwrap().lane;
        ask(&mut lane, Kind::Ping, space, 0).unwrap();
    }
    assert!(node.stats().bad_datagrams > before, "all were led to their own thread");
}
