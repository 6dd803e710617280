//! A node that wants to know who asks: honest clients under its sessions, and attackers beside them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use yonder_client::Operation;
use yonder_fabric::lane::{CallError, Data, Lane, NodeAddress, NodeSession, OpenError, call};
use yonder_identity::{Authority, Credential, Role, SharedKey};
use yonder_node::{Listen, Node, NodeConfig};
use yonder_session::{Door, Protection, SessionGrant};
use yonder_wire::{Body, ErrorCode, Greeting, HEADER_BYTES, Header, Kind, PROOF_BYTES, Welcome, split};

use crate::end_to_end::by_hand::{ByHand, grant};
use crate::end_to_end::raw::{Raw, fresh};
use crate::end_to_end::testbed::{NETWORKS, Network, PAGE, TIMEOUT, address, wait_for};

const DAY: Duration = Duration::from_secs(24 * 3600);
const PROTECTIONS: [Protection; 2] = [Protection::Authenticated, Protection::Encrypted];

/// A key that all of a small cluster share.
pub(super) fn shared_key(folder: &Path, name: &str) -> Arc<Credential> {
    let path = folder.join(name);
    SharedKey::generate().unwrap().write(&path).unwrap();
    load(&path)
}

pub(super) fn load(path: &Path) -> Arc<Credential> {
    Arc::new(Credential::load(path).unwrap())
}

/// The file of a new member of a cluster.
pub(super) fn member(authority: &mut Authority, folder: &Path, role: Role, name: &str) -> PathBuf {
    let path = folder.join(format!("{name}.pem"));
    authority.add(role, name, DAY).unwrap().write(&path).unwrap();
    path
}

pub(super) fn node(network: Network, credential: &Arc<Credential>) -> Node {
    node_at(vec![network.listen("127.0.0.1:0")], credential)
}

/// A node at these addresses.
pub(super) fn node_at(listen: Vec<Listen>, credential: &Arc<Credential>) -> Node {
    let mut config = NodeConfig::new(listen, 64 * PAGE);
    config.page_bytes = Some(PAGE);
    config.data_threads = NonZeroUsize::new(2);
    config.credential = Some(Arc::clone(credential));
    wait_for(|| Node::start(config.clone()).ok())
}

pub(super) fn open(node: &Node, session: &Arc<NodeSession>) -> Result<Lane, OpenError> {
    let at = NodeAddress::resolve(&node.addresses()[0].to_string()).unwrap().remove(0);
    Lane::open(&at, 16, session).map(|opened| opened.lane)
}

pub(super) fn ask(
    lane: &mut Lane,
    kind: Kind,
    (pid, capability): (u32, u128),
    length: u64,
) -> Result<Header, CallError> {
    let operation = Operation { kind, pid, capability, address: 0, length, body: &[], deadline: u64::MAX, token: 1 };
    call(lane, &operation, &[]).map(|answer| answer.header)
}

pub(super) fn create(lane: &mut Lane) -> (u32, u128) {
    let made = ask(lane, Kind::CreateSpace, (0, 0), 0).unwrap();
    (made.pid, made.capability)
}

#[test]
fn those_who_share_a_key_use_memory_and_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let (key, other) = (shared_key(folder.path(), "key"), shared_key(folder.path(), "other"));
    for network in NETWORKS {
        let node = node(network, &key);
        for protection in PROTECTIONS {
            let session = Arc::new(NodeSession::with(Some(Arc::clone(&key)), protection));
            let (mut lane, mut second) = (open(&node, &session).unwrap(), open(&node, &session).unwrap());
            let space = create(&mut lane);
            assert!(ask(&mut second, Kind::Ping, space, 0).is_ok(), "{network:?}: lanes share a session");
            assert!(ask(&mut second, Kind::DestroySpace, space, 0).is_ok());
        }
        // Who has no key is told what to type, and who has another one is turned away at the door.
        let plain = open(&node, &Arc::new(NodeSession::with(None, Protection::Encrypted)));
        assert!(plain.as_ref().is_err_and(|error| error.to_string().contains("YONDER_KEY=FILE")), "{plain:?}");
        let foreign = open(&node, &Arc::new(NodeSession::with(Some(Arc::clone(&other)), Protection::Encrypted)));
        assert!(matches!(foreign, Err(OpenError::Handshake(_))), "{foreign:?}");
        wait_for(|| (node.stats().refused_sessions == 1).then_some(()));
    }
}

#[test]
fn a_client_with_a_key_is_told_of_a_node_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    for network in NETWORKS {
        let node = crate::end_to_end::testbed::node(network, 8);
        let refused = open(&node, &Arc::new(NodeSession::with(Some(Arc::clone(&key)), Protection::Encrypted)));
        let error = refused.expect_err("it has sent its messages to whoever is there").to_string();
        assert!(error.contains("leave those of this program out"), "{network:?}: {error}");
    }
}

#[test]
fn members_of_a_cluster_are_served_for_what_they_are_until_they_are_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let mut authority = Authority::init(&folder.path().join("authority")).unwrap();
    let mut file = |role, name| member(&mut authority, folder.path(), role, name);
    let (node_file, tenant, operator) =
        (file(Role::Node, "a"), file(Role::Tenant, "shop"), file(Role::Operator, "ada"));
    let controller = file(Role::Controller, "c");
    let mut strange = Authority::init(&folder.path().join("strange")).unwrap();
    let stranger = member(&mut strange, folder.path(), Role::Tenant, "stranger");
    let session = |path: &Path| Arc::new(NodeSession::with(Some(load(path)), Protection::Encrypted));
    let node = node(Network::Udp, &load(&node_file));
    for path in [&tenant, &operator, &node_file] {
        let mut lane = open(&node, &session(path)).unwrap();
        create(&mut lane);
    }
    for path in [&controller, &stranger] {
        let refused = open(&node, &session(path));
        assert!(refused.is_err(), "{}", path.display());
    }
    authority.revoke("shop").unwrap();
    std::fs::copy(authority.revoked_file(), folder.path().join(yonder_identity::REVOKED_FILE)).unwrap();
    let refused = open(&node, &session(&tenant));
    assert!(refused.is_err(), "a revoked tenant has got a session");
    assert!(open(&node, &session(&operator)).is_ok());
}

/// What one tenant has is of no use to another, though it has the capability; who runs the cluster sees to all.
#[test]
fn a_capability_of_one_tenant_opens_nothing_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut authority = Authority::init(&folder.path().join("authority")).unwrap();
    let mut file = |role, name| member(&mut authority, folder.path(), role, name);
    let (node_file, shop) = (file(Role::Node, "a"), file(Role::Tenant, "shop"));
    let (bank, operator) = (file(Role::Tenant, "bank"), file(Role::Operator, "ada"));
    let session = |path: &Path| Arc::new(NodeSession::with(Some(load(path)), Protection::Authenticated));
    for network in NETWORKS {
        let node = node(network, &load(&node_file));
        let lane = |path| open(&node, &session(path)).unwrap();
        let mut own = lane(&shop);
        let space = create(&mut own);
        for kind in [Kind::Ping, Kind::Status, Kind::Revoke, Kind::DestroySpace] {
            let refused = ask(&mut lane(&bank), kind, space, 0);
            assert_eq!(refused.map(drop), Err(CallError::Refused(ErrorCode::BadCapability)), "{kind:?}");
        }
        assert!(ask(&mut lane(&operator), Kind::Ping, space, 0).is_ok());
        assert!(ask(&mut lane(&shop), Kind::Ping, space, 0).is_ok(), "another session of the same tenant");
    }
}

/// What nothing answers is counted; until then the node may still be at it.
pub(super) fn is_dropped(node: &Node, before: u64) {
    wait_for(|| (node.stats().bad_datagrams > before).then_some(()));
    assert_eq!(node.stats().bad_datagrams, before + 1);
}

#[test]
fn what_is_repeated_forged_or_from_elsewhere_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Udp, &key);
    for protection in PROTECTIONS {
        let mut lane = ByHand::open(&node, &key, protection);
        let ping = lane.sealed(&fresh(Kind::Ping, 0), &[]);
        lane.send(&ping);
        assert_eq!(lane.answer().map(|header| (header.kind, header.code)), Some((Kind::Ping, ErrorCode::None)));
        let spaces = node.stats().spaces;
        let attacks = |lane: &mut ByHand| -> Vec<(&str, Vec<u8>)> {
            let mut attacks = vec![("again", ping.clone())];
            let mut create = || lane.sealed(&fresh(Kind::CreateSpace, 0), &[]);
            for at in [0, 1, 4, 5, 8, 12, 19, 20, 30, 60, HEADER_BYTES, HEADER_BYTES + PROOF_BYTES - 1] {
                let mut bytes = create();
                bytes[at] ^= 1;
                attacks.push(("flipped", bytes));
            }
            let mut cut = create();
            cut.pop();
            attacks.push(("cut", cut));
            let whole = create();
            attacks.push(("longer", [&whole[..], &[0]].concat()));
            // The other protection's lead on the same bytes.
            let mut other = create();
            other[0] ^= 0xe3 ^ 0xa3;
            attacks.push(("downgraded", other));
            lane.time += 60_000_000_000;
            attacks.push(("from the future", lane.sealed(&fresh(Kind::CreateSpace, 0), &[])));
            lane.time -= 60_000_000_000;
            attacks
        };
        for (what, bytes) in attacks(&mut lane) {
            let before = node.stats().bad_datagrams;
            lane.send(&bytes);
            is_dropped(&node, before);
            assert_eq!(node.stats().spaces, spaces, "{what}");
        }
        // Repeated from other ports.
        for _ in 0..16 {
            let before = node.stats().bad_datagrams;
            UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().send_to(&ping, lane.to).unwrap();
            is_dropped(&node, before);
        }
        // A lane of the same session whose sender has another address has no key there.
        let create = lane.sealed(&fresh(Kind::CreateSpace, 0), &[]);
        let before = node.stats().bad_datagrams;
        UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 9), 0)).unwrap().send_to(&create, lane.to).unwrap();
        is_dropped(&node, before);
        assert_eq!(node.stats().spaces, spaces, "it was executed for another address");
        // An answer that is sent back to its node is no request.
        let before = node.stats().bad_datagrams;
        lane.send(&create);
        let mut reflected = [0; 4096];
        let (length, _) = lane.socket.recv_from(&mut reflected).unwrap();
        lane.send(&reflected[..length]);
        is_dropped(&node, before);
        // Keys of a session that the node has not made.
        lane.make_up_keys();
        let forged = lane.sealed(&fresh(Kind::Ping, 0), &[]);
        let before = node.stats().bad_datagrams;
        lane.send(&forged);
        is_dropped(&node, before);
    }
}

/// How nice those threads of this process are that have a name.
fn niceness_of(name: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may have ended meanwhile.
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let of_name = stats.filter(|stat| stat.contains(&format!("({name})")));
    let nice = |stat: String| stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok();
    of_name.filter_map(nice).collect()
}

/// Those who begin to ask for a session and go no further keep no one from getting one.
#[test]
fn who_says_nothing_at_the_door_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Tcp, &key);
    let to: SocketAddr = address(&node).parse().unwrap();
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.write_all(&[0x16]).unwrap();
            stream
        })
        .collect();
    // They weigh little where CPUs are short.
    wait_for(|| niceness_of("yonder-session").into_iter().find(|nice| *nice >= 15));
    let session = Arc::new(NodeSession::with(Some(key), Protection::Encrypted));
    let began = std::time::Instant::now();
    create(&mut open(&node, &session).unwrap());
    assert!(began.elapsed() < Duration::from_secs(4), "it has waited for others' time to be over");
    // Their time is over too, though they say a byte now and then.
    for mut stream in silent {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
}

/// A node whose door is full may let the handshake of a member go, which begins another.
#[test]
fn a_handshake_that_is_let_go_is_begun_again() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Tcp, &key);
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addresses = NodeAddress::resolve(&format!("tcp://{}", door.local_addr().unwrap())).unwrap();
    let to = address(&node);
    // It ends with the process: nothing joins it.
    std::thread::spawn(move || {
        for (number, stream) in door.incoming().enumerate() {
            let mut stream = stream.unwrap();
            if number < 3 {
                // What it says first is read, so that it is not reset.
                let _ = stream.read(&mut [0; 4096]).unwrap();
                continue;
            }
            let node = TcpStream::connect(&to).unwrap();
            for (from, into) in [(&stream, &node), (&node, &stream)] {
                let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut into);
                    let _ = into.shutdown(Shutdown::Write);
                });
            }
        }
    });
    let session = Arc::new(NodeSession::with(Some(key), Protection::Encrypted));
    create(&mut Lane::open(&addresses[0], 4, &session).unwrap().lane);
}

/// A process has more lanes to a node than a session has numbers for.
#[test]
fn lanes_never_run_out_of_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Udp, &key);
    let session = Arc::new(NodeSession::with(Some(key), Protection::Encrypted));
    let mut first = open(&node, &session).unwrap();
    let space = create(&mut first);
    for _ in 0..300 {
        assert!(ask(&mut open(&node, &session).unwrap(), Kind::Ping, space, 0).is_ok());
    }
    assert!(ask(&mut first, Kind::Ping, space, 0).is_ok());
}

/// The node is started again: who had memory there is told that it is lost, by datagram too, soon.
#[test]
fn who_had_memory_on_a_node_that_was_started_again_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    for network in NETWORKS {
        let first = node(network, &key);
        let at = network.listen(&address(&first));
        let session = Arc::new(NodeSession::with(Some(Arc::clone(&key)), Protection::Encrypted));
        let mut lane = open(&first, &session).unwrap();
        let space = create(&mut lane);
        first.stop();
        let _second = node_at(vec![at], &key);
        let told = wait_for(|| match ask(&mut lane, Kind::Ping, space, 0) {
            Err(CallError::TimedOut) => None,
            other => Some(other),
        });
        assert_eq!(told.map(drop), Err(CallError::Lost), "{network:?}");
    }
}

/// What a listener has recorded of a connection opens none.
#[test]
fn a_recorded_connection_is_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Tcp, &key);
    let mut lane = ByHand::at(&node, &key, Protection::Encrypted, Door::Streams);
    let to = lane.to;
    let play = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let hello = lane.hello();
    let mut stream = play(&hello);
    let mut welcome = [0; HEADER_BYTES + Welcome::BYTES + PROOF_BYTES];
    stream.read_exact(&mut welcome).unwrap();
    lane.settle(&mut welcome);
    let create = lane.sealed(&fresh(Kind::CreateSpace, 0), &[]);
    let spaces = node.stats().spaces;
    stream.write_all(&create).unwrap();
    wait_for(|| (node.stats().spaces == spaces + 1).then_some(()));
    // Again, whole or from the middle, it ends without an answer.
    for bytes in [&[&hello[..], &create].concat(), &create] {
        let mut rest = Vec::new();
        let _ = play(bytes).read_to_end(&mut rest);
        assert!(rest.is_empty(), "{} bytes were answered", rest.len());
        assert_eq!(node.stats().spaces, spaces + 1);
    }
}

/// Data goes to and fro, under a network that loses and repeats.
#[test]
fn nothing_is_lost_or_done_twice_under_protection_when_the_network_is_bad() {
    use crate::end_to_end::lossy::{Faults, LossyProxy};
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Udp, &key);
    let proxy = LossyProxy::to(&address(&node), Faults { lost: 100, repeated: 200, late: 200 }, 5);
    // The session is made with the node; the datagrams go through the proxy, from the same address.
    let direct: SocketAddr = address(&node).parse().unwrap();
    let session = Arc::new(NodeSession::with(Some(key), Protection::Encrypted));
    let mut maker = open(&node, &session).unwrap();
    let space = create(&mut maker);
    let through = NodeAddress::resolve(&proxy.url()).unwrap().remove(0);
    assert_ne!(NodeAddress::Udp(direct), through);
    let mut lane = Lane::open(&through, 16, &session).unwrap().lane;
    for _ in 0..200 {
        assert!(ask(&mut lane, Kind::Ping, space, 0).is_ok());
    }
    let before = node.stats().spaces;
    for turn in 1..=20 {
        create(&mut lane);
        assert_eq!(node.stats().spaces, before + turn, "one was made twice, or not at all");
    }
}

/// A datagram without the cookie of its address brings no more than it was long.
#[test]
fn an_address_that_has_proven_nothing_is_sent_no_more_than_came() {
    let node = crate::end_to_end::testbed::node(Network::Udp, 16);
    let mut raw = Raw::open(&node);
    let (space, start) = raw.create_memory(1);
    let Listen::Udp(at) = &node.addresses()[0] else { panic!() };
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(at).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut greeting = [0; Greeting::BYTES];
    Greeting { home: None }.write_to(&mut greeting);
    let hello = [&fresh(Kind::Hello, Greeting::BYTES as u32).seal(&greeting)[..], &greeting].concat();
    let read = space.request(Kind::Read, start, PAGE as u32);
    let guessed = Header { cookie: 7, ..space.request(Kind::Read, start, PAGE as u32) };
    let mut cookie = 0;
    for asked in [read.seal(&[]).to_vec(), guessed.seal(&[]).to_vec(), hello] {
        socket.send(&asked).unwrap();
        let mut bytes = [0; 8192];
        let length = socket.recv(&mut bytes).unwrap();
        assert!(length <= asked.len(), "{} bytes have brought {length}", asked.len());
        let answer = split(&bytes[..length]).unwrap().unwrap().header;
        assert!(answer.kind == Kind::Hello || answer.code == ErrorCode::Unproven);
        assert!(cookie == 0 || cookie == answer.cookie);
        cookie = answer.cookie;
    }
    // The one that the address has received opens, but not from another port.
    let proven = Header { cookie, ..space.request(Kind::Read, start, PAGE as u32) };
    socket.send(&proven.seal(&[])).unwrap();
    assert_eq!(socket.recv(&mut [0; 8192]).unwrap(), HEADER_BYTES + PAGE as usize);
    let elsewhere = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    elsewhere.set_read_timeout(Some(TIMEOUT)).unwrap();
    elsewhere.send_to(&proven.seal(&[]), at).unwrap();
    assert_eq!(elsewhere.recv(&mut [0; 8192]).unwrap(), HEADER_BYTES);
}

/// The bytes of pings, which have none.
struct Unread;

impl Data for Unread {
    fn copy_out(&mut self, _: u64, _: u64, _: &mut [u8]) {}

    fn copy_in(&mut self, _: u64, _: u64, _: &[u8]) {}

    fn answer(&mut self, _: u64, _: &Header, _: &[u8]) {}
}

/// A lane with much under way is not silent: no session is made for it beside the one that it has.
#[test]
fn a_lane_that_asks_for_much_at_once_makes_no_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Udp, &key);
    let session = Arc::new(NodeSession::with(Some(Arc::clone(&key)), Protection::Encrypted));
    let at = NodeAddress::resolve(&node.addresses()[0].to_string()).unwrap().remove(0);
    let mut lane = Lane::open(&at, 200, &session).unwrap().lane;
    let (pid, capability) = create(&mut lane);
    let number = |grant: SessionGrant| grant.number.serial();
    let to: SocketAddr = address(&node).parse().unwrap();
    let before = number(grant(to, &key, Protection::Encrypted));
    let began = std::time::Instant::now();
    // For longer than it takes to see that a lane is silent, and to make a session.
    while began.elapsed() < Duration::from_secs(3) {
        let now = yonder_clock::now();
        let operation = |token| Operation {
            kind: Kind::Ping,
            pid,
            capability,
            address: 0,
            length: 0,
            body: &[],
            deadline: u64::MAX,
            token,
        };
        for token in 0..100 {
            // What a full lane refuses is asked again in the next round.
            let _ = lane.submit(&operation(token), now);
        }
        lane.poll(now, &mut Unread);
        while lane.completion().is_some() {}
    }
    assert_eq!(number(grant(to, &key, Protection::Encrypted)), before + 1, "a session was made for a lane that hears");
}

/// The first bytes of a connection may come at any moment, also between those at which the node looks for them: it once
/// took what TLS begins with for a forged greeting then.
#[test]
fn a_session_is_made_whenever_its_first_bytes_come() {
    let folder = tempfile::tempdir().unwrap();
    let key = shared_key(folder.path(), "key");
    let node = node(Network::Tcp, &key);
    let to: SocketAddr = address(&node).parse().unwrap();
    // Up to some 200 us after the connection, one by one.
    for turns in (0..4000).map(|turn| turn * 2) {
        let mut stream = TcpStream::connect(to).unwrap();
        (0..turns).for_each(|_| std::hint::spin_loop());
        // What TLS begins with, as long as the prefix of a message.
        stream.write_all(&[0x16; 64]).unwrap();
    }
    grant(to, &key, Protection::Encrypted);
    assert_eq!(node.stats().bad_peers, 0);
}
