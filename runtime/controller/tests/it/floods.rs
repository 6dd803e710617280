//! Those who ask much, or only come and go: what they do to leases of others.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use yonder_controller::{ClientError, ControllerClient, MemoryStore, Store, StoreError, ToController, Write};
use yonder_identity::Role;
use yonder_placement::{Config, NodeCondition, NodeReport, NodeView, Request};

use crate::fake::{Cluster, TIMEOUT, config, until};
use crate::identities::{Members, Raw, register};

const LEASE: Duration = Duration::from_secs(2);
/// How long each line takes a controller that is slow.
const PER_LINE: Duration = Duration::from_millis(8);

/// A store that says when the first address space has ended, and that may be slow to say whether it leads.
#[derive(Default)]
struct Watched {
    records: MemoryStore,
    ended: Arc<Mutex<Option<Instant>>>,
    is_slow: Arc<AtomicBool>,
    /// How often a node was announced: when it registers, and with each report.
    announced: Arc<AtomicUsize>,
}

impl Store for Watched {
    fn scan(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.records.scan(prefix)
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let ends = |write: &Write| matches!(write, Write::Delete { key } if key == "space/80000000");
        if writes.iter().any(ends) {
            *self.ended.lock().unwrap() = Some(Instant::now());
        }
        self.records.commit(writes)
    }

    fn announce(&mut self, name: &str, value: &[u8], lease: Duration) -> Result<(), StoreError> {
        self.announced.fetch_add(1, Ordering::AcqRel);
        self.records.announce(name, value, lease)
    }

    fn leads(&self) -> Result<(), StoreError> {
        if self.is_slow.load(Ordering::Acquire) {
            // tidy: sleep: time is all that a line takes
            thread::sleep(PER_LINE);
        }
        Ok(())
    }
}

/// A check that the port is open, each tenth of a second, once made a lease of a minute last for an hour.
#[test]
fn connections_on_which_nothing_is_said_hold_no_lease_up() {
    let store = Watched::default();
    let ended = Arc::clone(&store.ended);
    let cluster = Cluster::new(config(), Box::new(store));
    cluster.client().create_space_for(LEASE).unwrap();
    let begun = Instant::now();
    let end = until("the lease is over", || {
        drop(TcpStream::connect(cluster.address).unwrap());
        // tidy: sleep: connections come and go at times that are apart
        thread::sleep(LEASE / 20);
        *ended.lock().unwrap()
    });
    assert!(end - begun < 2 * LEASE, "{:?}", end - begun);
}

/// What owners said was once judged by when it was read, which was after what others asked meanwhile.
#[test]
fn one_who_asks_much_ends_no_address_space_of_another() {
    let store = Watched::default();
    let (ended, is_slow) = (Arc::clone(&store.ended), Arc::clone(&store.is_slow));
    let cluster = Cluster::new(config(), Box::new(store));
    let mut line = serde_json::to_vec(&ToController::Ask { id: 1, request: Request::Nodes }).unwrap();
    line.push(b'\n');
    let streams: Vec<_> = (0..300).map(|_| TcpStream::connect(cluster.address).unwrap()).collect();
    let mut others: Vec<_> = streams.iter().map(|stream| stream.try_clone().unwrap()).collect();
    let mut owner = ControllerClient::new(&cluster.address.to_string(), LEASE / 4);
    let space = owner.create_space_for(LEASE).unwrap();
    is_slow.store(true, Ordering::Release);
    thread::scope(|scope| {
        for stream in &mut others {
            let line = &line;
            // Each has some questions under way, until the test ends it.
            scope.spawn(move || -> std::io::Result<()> {
                stream.write_all(&line.repeat(16))?;
                let answers = BufReader::new(stream.try_clone()?).lines();
                answers.map_while(Result::ok).try_for_each(|_| stream.write_all(line))
            });
        }
        let (begun, mut unanswered) = (Instant::now(), 0);
        while begun.elapsed() < 8 * LEASE && ended.lock().unwrap().is_none() {
            match owner.renew(space.pid, space.keys.owner, LEASE / 4) {
                Ok(_) => {}
                Err(ClientError::Unreachable { .. }) => unanswered += 1,
                Err(error) => panic!("{:?}: {error}", begun.elapsed()),
            }
        }
        is_slow.store(false, Ordering::Release);
        streams.iter().for_each(|stream| drop(stream.shutdown(std::net::Shutdown::Both)));
        assert!(unanswered > 6, "the others ask too little for the controller to be slow: {unanswered}");
    });
    assert_eq!(*ended.lock().unwrap(), None, "its owner has renewed it all the time");
}

/// Members are heard in turn, so an owner's words are heard between older ones of another. When those were gone, its
/// lease was once over: it had begun, each time, when the oldest of them had come.
#[test]
fn what_another_member_has_waiting_ends_no_address_space_of_an_owner_who_is_heard() {
    let store = Watched::default();
    let (ended, is_slow) = (Arc::clone(&store.ended), Arc::clone(&store.is_slow));
    let mut members = Members::new();
    let credential = members.add(Role::Controller, "c1");
    let cluster = Cluster::of(config(), Box::new(store), Some(credential));
    let [owner, other] = ["owner", "other"].map(|name| members.add(Role::Tenant, name));
    let mut many: Vec<Raw> = (0..100).map(|_| Raw::new(cluster.address, Some(&other))).collect();
    let mut owner = cluster.client_as(&owner);
    let space = owner.create_space_for(LEASE).unwrap();
    is_slow.store(true, Ordering::Release);
    for raw in &mut many {
        (0..4).for_each(|id| raw.say(&ToController::Ask { id, request: Request::Nodes }));
    }
    let is_over = AtomicBool::new(false);
    let (begun, longest) = thread::scope(|scope| {
        let renewing = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Acquire) {
                let asked = Instant::now();
                owner.renew(space.pid, space.keys.owner, LEASE / 4).unwrap();
                longest = longest.max(asked.elapsed());
                // tidy: sleep: renewals come at times that are apart
                thread::sleep(LEASE / 16);
            }
            longest
        });
        let begun = Instant::now();
        many.iter_mut().for_each(|raw| (0..4).for_each(|_| drop(raw.hear())));
        is_over.store(true, Ordering::Release);
        (begun, renewing.join().unwrap())
    });
    assert!(begun.elapsed() > LEASE && longest < LEASE / 4, "{:?}, {longest:?}", begun.elapsed());
    owner.renew(space.pid, space.keys.owner, LEASE).unwrap();
    assert_eq!(*ended.lock().unwrap(), None);
}

/// A node that says nothing is lost in time, and what is on it is given up, though a tenant has much waiting: once that
/// kept dead nodes among those that serve.
#[test]
fn what_a_tenant_has_waiting_keeps_no_node_that_is_silent() {
    let store = Watched::default();
    let is_slow = Arc::clone(&store.is_slow);
    let mut members = Members::new();
    let credential = members.add(Role::Controller, "c1");
    let config = Config { lease: 500_000_000, ..config() };
    let cluster = Cluster::of(config, Box::new(store), Some(credential));
    let other = members.add(Role::Tenant, "other");
    let operator = members.add(Role::Operator, "me");
    let mut operator = cluster.client_as(&operator);
    let mut many: Vec<Raw> = (0..100).map(|_| Raw::new(cluster.address, Some(&other))).collect();
    let mut node = Raw::new(cluster.address, Some(&members.add(Role::Node, "n1")));
    node.say(&register(1, None));
    node.hear();
    is_slow.store(true, Ordering::Release);
    for raw in &mut many {
        (0..4).for_each(|id| raw.say(&ToController::Ask { id, request: Request::Nodes }));
    }
    let serves = |node: &NodeView| node.condition == NodeCondition::Serving;
    until("the node is lost", || (!operator.nodes().unwrap().iter().any(serves)).then_some(()));
    let waits = |raw: &Raw| {
        let socket = raw.stream.socket();
        socket.set_nonblocking(true).unwrap();
        socket.peek(&mut [0]).is_err()
    };
    assert!(many.iter().any(waits), "all that waited was heard before");
    is_slow.store(false, Ordering::Release);
}

/// When what one member had waiting was gone, all others once had been idle for as long as that had waited; and those
/// whose lines waited were idle too.
#[test]
fn none_is_idle_who_asks_beside_much_that_waits() {
    const MANY: usize = 100;
    let idle = PER_LINE * 100;
    let store = Watched::default();
    let is_slow = Arc::clone(&store.is_slow);
    let mut members = Members::new();
    let credential = members.add(Role::Controller, "c1");
    let config = Config { peer_idle_max: u64::try_from(idle.as_nanos()).unwrap(), ..config() };
    let cluster = Cluster::of(config, Box::new(store), Some(credential));
    let [one, other] = ["one", "other"].map(|name| members.add(Role::Tenant, name));
    let ask = |raw: &mut Raw| raw.say(&ToController::Ask { id: 0, request: Request::Nodes });
    is_slow.store(true, Ordering::Release);
    let mut many: Vec<Raw> = (0..MANY)
        .map(|_| {
            let mut raw = Raw::new(cluster.address, Some(&other));
            (0..4).for_each(|_| ask(&mut raw));
            raw
        })
        .collect();
    let mut one = Raw::new(cluster.address, Some(&one));
    let is_over = AtomicBool::new(false);
    let begun = Instant::now();
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) && begun.elapsed() < TIMEOUT {
                ask(&mut one);
                one.hear();
            }
            // Nothing waits now, and it was heard a moment ago.
            ask(&mut one);
            one.hear();
        });
        many.iter_mut().for_each(|raw| (0..4).for_each(|_| drop(raw.hear())));
        is_over.store(true, Ordering::Release);
        asking.join().unwrap();
    });
    assert!(begun.elapsed() > 2 * idle, "too little has waited: {:?}", begun.elapsed());
}

/// A node without a name has turns of its own, not those of all that is said at its address.
#[test]
fn a_node_is_heard_beside_what_others_of_its_host_have_waiting() {
    let store = Watched::default();
    let (announced, is_slow) = (Arc::clone(&store.announced), Arc::clone(&store.is_slow));
    let cluster = Cluster::new(config(), Box::new(store));
    let mut node = Raw::new(cluster.address, None);
    node.say(&register(1, None));
    node.hear();
    let mut many: Vec<Raw> = (0..100).map(|_| Raw::new(cluster.address, None)).collect();
    is_slow.store(true, Ordering::Release);
    for raw in &mut many {
        (0..4).for_each(|id| raw.say(&ToController::Ask { id, request: Request::Nodes }));
    }
    let before = announced.load(Ordering::Acquire);
    node.say(&ToController::Report(NodeReport::default()));
    until("the report is heard", || (announced.load(Ordering::Acquire) > before).then_some(()));
    let last = many[99].stream.socket();
    last.set_nonblocking(true).unwrap();
    assert!(last.peek(&mut [0]).is_err(), "all that waited was heard before");
    is_slow.store(false, Ordering::Release);
}
