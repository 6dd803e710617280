//! Tests of those who wait for the slow path and the extend path while others flood them.
//!
//! An errand holds the slow path, so that what is not answered waits in its queue. Hosts are addresses of the loopback.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use yonder_board::Source;
use yonder_units::Narrow;
use yonder_wire::{Body, ErrorCode, Greeting, Header, Kind, Rights, split};

use crate::event_loop::Inbox;
use crate::extend::Extension;
use crate::forward::AnswerTo;
use crate::gate::Wrap;
use crate::held::Held;
use crate::{Listen, Node, NodeConfig};

const TIMEOUT: Duration = Duration::from_secs(20);
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const VICTIM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);
/// More than a queue has room for.
const FLOOD: usize = 1500;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn node() -> Node {
    let mut config = NodeConfig::new(vec![Listen::Udp("127.0.0.1:0".to_owned())], 64 << 20);
    config.data_threads = NonZeroUsize::new(1);
    Node::start(config).unwrap()
}

/// An address space, and the right to it.
fn space(node: &Node) -> (u32, u128) {
    let made = node.shared.on_slow_path(|slow, _| {
        let pid = slow.create_space(None, 0, yonder_clock::now()).unwrap();
        (pid.get(), slow.capability(pid, Rights::Owner))
    });
    made.unwrap()
}

/// A socket whose address is proven, with its cookie.
struct Port(UdpSocket, u64);

fn socket(node: &Node, from: Ipv4Addr) -> Port {
    let Listen::Udp(address) = &node.addresses()[0] else { panic!("datagrams") };
    let socket = UdpSocket::bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let greeting = [0; Greeting::BYTES];
    let hello = Header::request(Kind::Hello, 1, 0, greeting.len().narrow_u32()).seal(&greeting);
    socket.send(&[&hello[..], &greeting].concat()).unwrap();
    let mut bytes = [0; 512];
    let length = socket.recv(&mut bytes).expect("the node answers");
    Port(socket, split(&bytes[..length]).unwrap().unwrap().header.cookie)
}

fn request(kind: Kind, (pid, capability): (u32, u128)) -> Header {
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    Header { pid, capability, ..Header::request(kind, id, 0, 0) }
}

fn ask(Port(socket, cookie): &Port, header: &Header) {
    socket.send(&Header { cookie: *cookie, ..*header }.seal(&[])).unwrap();
}

fn answer(Port(socket, _): &Port) -> ErrorCode {
    let mut bytes = [0; 512];
    let length = socket.recv(&mut bytes).expect("the node answers");
    split(&bytes[..length]).unwrap().unwrap().header.code
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "waited in vain");
        std::thread::yield_now();
    }
}

#[test]
fn strangers_are_refused_while_the_slow_path_stands_still() {
    let node = node();
    let (pid, capability) = space(&node);
    let held = Held::of(&node);
    let stranger = socket(&node, ATTACKER);
    for kind in [Kind::Free, Kind::Discard, Kind::Ping, Kind::Status, Kind::DestroySpace] {
        ask(&stranger, &request(kind, (pid, capability ^ 1)));
        assert_eq!(answer(&stranger), ErrorCode::BadCapability, "{kind:?}");
    }
    drop(held);
}

#[test]
fn a_host_with_many_ports_leaves_room_for_others() {
    let node = node();
    let (theirs, mine) = (space(&node), space(&node));
    let victim = socket(&node, VICTIM);
    let held = Held::of(&node);
    let ports: Vec<Port> = (0..FLOOD / 5).map(|_| socket(&node, ATTACKER)).collect();
    for _ in 0..5 {
        ports.iter().for_each(|port| ask(port, &request(Kind::Ping, theirs)));
    }
    // As many as there is no room for have been told so.
    wait_until(|| node.stats().errors >= (FLOOD - 1024) as u64);
    ask(&victim, &request(Kind::Ping, mine));
    ask(&victim, &request(Kind::Read, (mine.0, mine.1 ^ 1)));
    // What a data thread answers comes after what it has put into the queue.
    assert_eq!(answer(&victim), ErrorCode::BadCapability, "a host was refused for another");
    drop(held);
    assert_eq!(answer(&victim), ErrorCode::None);
}

/// Whoever makes many address spaces, or pretends to, does it from one place in the queue.
#[test]
fn requests_that_need_no_right_leave_room_for_those_with_one() {
    let node = node();
    let mine = space(&node);
    let victim = socket(&node, VICTIM);
    let held = Held::of(&node);
    for host in 1..=30 {
        let port = socket(&node, Ipv4Addr::new(127, 0, 1, host));
        (0..FLOOD / 30).for_each(|_| ask(&port, &request(Kind::CreateSpace, (0, 0))));
    }
    wait_until(|| node.stats().errors >= (FLOOD - 1024) as u64);
    ask(&victim, &request(Kind::Ping, mine));
    ask(&victim, &request(Kind::Read, (mine.0, mine.1 ^ 1)));
    assert_eq!(answer(&victim), ErrorCode::BadCapability, "a tenant was refused for strangers");
    drop(held);
    assert_eq!(answer(&victim), ErrorCode::None);
}

#[test]
fn calls_of_one_host_do_not_make_another_wait_for_all_of_them() {
    let (extension, inbox) = (Extension::new(), Arc::new(Inbox::new().unwrap()));
    let call = |source, token| {
        let header = request(Kind::Call, (7, u128::from(token))).seal(&[]);
        let answer_to = AnswerTo::Stream {
            inbox: Arc::clone(&inbox),
            token,
            source: Source(source),
            wrap: Wrap::Plain,
            peer: None,
        };
        extension.queue.put(&split(&header).unwrap().unwrap(), answer_to)
    };
    let taken = (0..FLOOD as u64).filter(|lane| call(1, *lane)).count();
    assert!(taken < FLOOD);
    assert!(call(2, 1), "a host has no room for a call");
    let place = std::iter::from_fn(|| extension.queue.take()).position(|next| next.answer_to.source() == Source(2));
    assert!(place.is_some_and(|place| place < 2), "it waits for {place:?} calls of another host");
}
