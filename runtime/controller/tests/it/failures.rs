//! Controllers that stop, nodes that go and come back, peers that talk nonsense, stores that fail.

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use yonder_controller::{
    ClientError, ControllerClient, ControllerError, EmbeddedStore, LinkCondition, LinkError, MemoryStore, Store,
    StoreError, ToController, Write,
};
use yonder_placement::{Config, Refusal, Request};

use crate::fake::{Cluster, REGION, TIMEOUT, config, until, url};
use crate::identities::Raw;

#[test]
fn a_controller_that_starts_again_knows_everything_and_orders_no_move_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let open = || -> Box<dyn Store> { Box::new(EmbeddedStore::open(&path).unwrap()) };
    let mut cluster = Cluster::new(config(), open());
    let links = [cluster.node(1, 10), cluster.node(2, 10)];
    let mut client = cluster.client();
    let space = client.create_space().unwrap();
    let placed = client.place(space.pid, space.keys.owner, REGION, &[]).unwrap();
    cluster.network.write(space.pid, &placed[0], REGION, 5).unwrap();
    cluster.network.at(1, |host| host.holds_moves = true);
    assert_eq!(client.start_drain(&url(1)).unwrap(), 1);
    let (order, end) = until("the move begins", || cluster.network.held(1).pop());
    cluster.restart(open);
    until("the nodes are back", || links.iter().all(|link| link.condition() == LinkCondition::Connected).then_some(()));
    assert_eq!(client.locate(space.pid, space.keys.owner, 1).unwrap(), placed[0], "the move is not over");
    // The end of the move is told to nobody: the controller is away. It must hear of it when it asks again.
    drop(cluster.server.take());
    cluster.network.finish(1, &order, end);
    cluster.restart(open);
    let at = until("the region is at its new node", || {
        let at = client.locate(space.pid, space.keys.owner, 1).unwrap();
        (at.node.0 == 2).then_some(at)
    });
    assert_eq!(cluster.network.read(space.pid, &at, REGION), Ok(Some(5)));
    assert_eq!(cluster.network.at(1, |host| host.moves_begun), 1);
    until("the node is drained", || (client.start_drain(&url(1)).unwrap() == 0).then_some(()));
}

#[test]
fn what_a_lost_node_had_is_lost_until_it_comes_back() {
    let config = Config { lease: 500_000_000, ..config() };
    let cluster = Cluster::new(config, Box::new(MemoryStore::default()));
    let link = cluster.node(1, 10);
    let _other = cluster.node(2, 10);
    let mut client = cluster.client();
    let space = client.create_space().unwrap();
    let placed = client.place(space.pid, space.keys.owner, REGION, &[]).unwrap();
    cluster.network.write(space.pid, &placed[0], REGION, 5).unwrap();
    drop(link);
    let said = until("the node is lost", || match client.locate(space.pid, space.keys.owner, 1) {
        Err(ClientError::Refused(refusal @ Refusal::RegionLost { .. })) => Some(refusal.to_string()),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    });
    assert!(said.contains("tcp://node1:7000"), "{said}");
    // A busy machine may let the other node's short lease end too, for a moment.
    let elsewhere = until("there is room", || client.place(space.pid, space.keys.owner, REGION, &[]).ok());
    assert_eq!((elsewhere[0].region, elsewhere[0].node.0), (2, 2));
    let _link = cluster.node(1, 10);
    let found = until("the node is back", || client.locate(space.pid, space.keys.owner, 1).ok());
    assert_eq!(found, placed[0]);
    assert_eq!(cluster.network.read(space.pid, &placed[0], REGION), Ok(Some(5)));
}

#[test]
fn a_space_that_ended_while_a_node_was_away_is_ended_when_it_returns() {
    let cluster = Cluster::in_memory();
    let link = cluster.node(1, 10);
    let mut client = cluster.client();
    let space = client.create_space().unwrap();
    client.place(space.pid, space.keys.owner, REGION, &[]).unwrap();
    drop(link);
    client.destroy_space(space.pid, space.keys.owner).unwrap();
    assert_eq!(cluster.network.at(1, |host| host.spaces.len()), 1);
    let _link = cluster.node(1, 10);
    until("the node ends the space", || cluster.network.at(1, |host| host.spaces.is_empty().then_some(())));
}

#[test]
fn a_controller_that_has_lost_its_state_does_not_take_nodes_that_hold_memory() {
    let mut cluster = Cluster::in_memory();
    let link = cluster.node(1, 10);
    cluster.restart(|| Box::new(MemoryStore::default()));
    let cause = until("the node is turned away", || match link.condition() {
        LinkCondition::Reconnecting(cause) if cause.contains("another cluster") => Some(cause),
        _ => None,
    });
    assert!(cause.contains("start the node again"), "{cause}");
    assert_eq!(cluster.client().nodes().unwrap(), []);
}

#[test]
fn a_node_with_other_regions_is_turned_away_at_its_start() {
    let mut cluster = Cluster::in_memory();
    cluster.config.region_bytes *= 2;
    let error = cluster.try_node(1, 10).unwrap_err();
    assert!(matches!(&error, LinkError::TurnedAway { cause, .. } if cause.contains("1 MiB")), "{error}");
    drop(cluster.server.take());
    let error = cluster.try_node(1, 10).unwrap_err();
    assert!(error.to_string().contains("start one with `yonder controller --listen"), "{error}");
    let mut client = ControllerClient::new(&cluster.address.to_string(), Duration::from_millis(1));
    assert!(matches!(client.nodes(), Err(ClientError::Unreachable { .. })));
}

#[test]
fn nonsense_is_answered_in_one_line_and_harms_nobody() {
    let cluster = Cluster::in_memory();
    let mut client = cluster.client();
    assert_eq!(client.nodes().unwrap(), []);
    for text in ["GET / HTTP/1.1\r\n\r\n", "\n", "{\"report\":{\"free_bytes\":1,\"regions\":[]}}\n", "{\"ask\":{}}\n"] {
        let mut stream = TcpStream::connect(cluster.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"turned-away\":{\"cause\":"), "{answer}");
        assert_eq!(answer.lines().count(), 1);
    }
    assert_eq!(client.nodes().unwrap(), []);
}

/// A store whose disk is full after some commits.
struct Failing(usize);

impl Store for Failing {
    fn scan(&mut self, _prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _writes: &[Write]) -> Result<(), StoreError> {
        let full = || StoreError::Failed { place: "here".to_owned(), cause: "no space left".to_owned() };
        self.0 = self.0.checked_sub(1).ok_or_else(full)?;
        Ok(())
    }

    fn announce(&mut self, _name: &str, _value: &[u8], _lease: Duration) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn a_controller_that_cannot_write_ends_before_it_answers() {
    // The cluster's own record, and one space.
    let cluster = Cluster::new(config(), Box::new(Failing(2)));
    let mut client = ControllerClient::new(&cluster.address.to_string(), Duration::from_millis(200));
    client.create_space().unwrap();
    assert!(matches!(client.create_space(), Err(ClientError::Unreachable { .. })));
    let ended = cluster.server.as_ref().unwrap().wait();
    assert!(matches!(ended, Err(ControllerError::Store(StoreError::Failed { .. }))));
}

/// A store in which another controller takes over, or whose disk is slow.
#[derive(Default)]
struct Moody {
    records: MemoryStore,
    is_deposed: Arc<AtomicBool>,
    is_slow: Arc<AtomicBool>,
    waits: Arc<AtomicBool>,
}

/// How long a commit takes on a slow disk.
const SLOW: Duration = Duration::from_secs(3);

impl Store for Moody {
    fn scan(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.records.scan(prefix)
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        if self.is_slow.load(Ordering::Acquire) {
            self.waits.store(true, Ordering::Release);
            // tidy: sleep: time is all that a slow disk takes
            std::thread::sleep(SLOW);
        }
        self.records.commit(writes)
    }

    fn announce(&mut self, name: &str, value: &[u8], lease: Duration) -> Result<(), StoreError> {
        self.records.announce(name, value, lease)
    }

    fn leads(&self) -> Result<(), StoreError> {
        match self.is_deposed.load(Ordering::Acquire) {
            true => Err(StoreError::Deposed { place: "here".to_owned() }),
            false => Ok(()),
        }
    }
}

#[test]
fn a_controller_that_was_deposed_answers_no_one() {
    let store = Moody::default();
    let is_deposed = Arc::clone(&store.is_deposed);
    let cluster = Cluster::new(config(), Box::new(store));
    let mut client = cluster.client();
    let space = client.create_space().unwrap();
    client.renew(space.pid, space.keys.owner, TIMEOUT).unwrap();
    is_deposed.store(true, Ordering::Release);
    let mut client = ControllerClient::new(&cluster.address.to_string(), Duration::from_millis(200));
    let renewed = client.renew(space.pid, space.keys.owner, TIMEOUT);
    assert!(matches!(renewed, Err(ClientError::Unreachable { .. })), "the one that leads knows nothing of it");
    let ended = cluster.server.as_ref().unwrap().wait();
    assert!(matches!(ended, Err(ControllerError::Store(StoreError::Deposed { .. }))));
}

#[test]
fn a_slow_store_ends_no_address_space_of_an_owner_who_waits() {
    let store = Moody::default();
    let [is_slow, waits] = [&store.is_slow, &store.waits].map(Arc::clone);
    let cluster = Cluster::new(config(), Box::new(store));
    let mut owner = cluster.client();
    let space = owner.create_space_for(SLOW / 2).unwrap();
    let mut talks = Raw::new(cluster.address, None);
    let mut other = cluster.client();
    is_slow.store(true, Ordering::Release);
    let made = std::thread::spawn(move || other.create_space().map(drop));
    until("the disk is slow", || waits.load(Ordering::Acquire).then_some(()));
    // Others have much to say meanwhile, which comes one after the other and waits.
    let begun = Instant::now();
    while begun.elapsed() < SLOW - SLOW / 10 {
        talks.say(&ToController::Ask { id: 1, request: Request::Nodes });
        // tidy: sleep: what is said comes at times that are apart
        std::thread::sleep(SLOW / 20);
    }
    is_slow.store(false, Ordering::Release);
    made.join().unwrap().unwrap();
    owner.renew(space.pid, space.keys.owner, TIMEOUT).expect("its owner could not renew while the store was slow");
}
