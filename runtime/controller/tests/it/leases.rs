//! Leases of address spaces, and connections on which nothing comes: what a program that was killed leaves behind.

use std::io::{ErrorKind, Read as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_controller::{
    ClientError, ControllerClient, EmbeddedStore, FromController, MemoryStore, Space, ToController,
};
use yonder_identity::Role;
use yonder_placement::{Config, Pid, Refusal, Request};

use crate::fake::{Cluster, REGION, TIMEOUT, config, until};
use crate::identities::{Members, Raw, register};

/// Long enough that a busy machine does not miss all renewals.
const LEASE: Duration = Duration::from_secs(2);
/// How long a connection may be idle in these tests.
const IDLE: Duration = Duration::from_millis(600);

fn refused(result: Result<impl Sized, ClientError>) -> Refusal {
    match result.map(drop) {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Makes an address space with memory on both nodes.
fn make(client: &mut ControllerClient, lease: Duration) -> Space {
    let space = client.create_space_for(lease).unwrap();
    client.place(space.pid, space.keys.owner, 2 * REGION, &[]).unwrap();
    space
}

/// How many nodes have the address space.
fn nodes_of(cluster: &Cluster, pid: Pid) -> usize {
    cluster.network.hosts().values().filter(|host| host.spaces.contains_key(&pid)).count()
}

#[test]
fn what_a_killed_program_had_is_free_at_all_nodes_and_what_is_renewed_is_kept() {
    let cluster = Cluster::in_memory();
    let _nodes = [cluster.node(1, 8), cluster.node(2, 8)];
    let mut client = cluster.client();
    let kept = make(&mut client, LEASE);
    let left = {
        let mut killed = cluster.client();
        make(&mut killed, LEASE)
    };
    assert_eq!(left.lease, Some(LEASE));
    assert_eq!([kept.pid, left.pid].map(|pid| nodes_of(&cluster, pid)), [2, 2]);
    until("the nodes have ended what nobody renews", || {
        client.renew(kept.pid, kept.keys.owner, TIMEOUT).unwrap();
        (nodes_of(&cluster, left.pid) == 0).then_some(())
    });
    assert_eq!(nodes_of(&cluster, kept.pid), 2, "the other one was made before it");
    assert_eq!(client.spaces().unwrap().iter().map(|view| view.pid).collect::<Vec<_>>(), [kept.pid]);
    // Its owner comes too late, and is told what to do.
    let (pid, owner) = (left.pid, left.keys.owner);
    for refusal in [refused(client.renew(pid, owner, TIMEOUT)), refused(client.place(pid, owner, 1, &[]))] {
        assert_eq!(refusal, Refusal::BadKey { pid });
        assert!(refusal.to_string().contains("make another address space if it has ended or its lease is over"));
    }
}

#[test]
fn another_tenant_renews_nothing_and_an_operator_does() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let mut owner = cluster.client_as(&members.add(Role::Tenant, "app"));
    let mut other = cluster.client_as(&members.add(Role::Tenant, "other"));
    let mut operator = cluster.client_as(&members.add(Role::Operator, "me"));
    let [space, kept] = [(); 2].map(|()| owner.create_space_for(LEASE).unwrap());
    drop(owner);
    until("it has ended although another tenant renews it", || {
        operator.renew(kept.pid, kept.keys.owner, TIMEOUT).unwrap();
        match refused(other.renew(space.pid, space.keys.owner, TIMEOUT)) {
            Refusal::NotYours { .. } => None,
            Refusal::BadKey { .. } => Some(()),
            refusal => panic!("{refusal}"),
        }
    });
    assert_eq!(operator.spaces().unwrap().iter().map(|view| view.pid).collect::<Vec<_>>(), [kept.pid]);
}

#[test]
fn a_controller_that_was_away_for_longer_than_a_lease_ends_nothing_early() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let open = || Box::new(EmbeddedStore::open(&path).unwrap());
    let mut cluster = Cluster::new(config(), open());
    let space = cluster.client().create_space_for(LEASE).unwrap();
    drop(cluster.server.take());
    // tidy: sleep: no controller is there for longer than a lease, and nothing happens that could be waited for
    std::thread::sleep(LEASE + LEASE / 4);
    let back = Instant::now();
    cluster.restart(|| open());
    let mut client = cluster.client();
    // A key for reads renews nothing.
    let read = space.keys.read;
    client.open(space.pid, read).expect("no owner could renew while there was no controller");
    until("it ends", || match client.open(space.pid, read) {
        Err(ClientError::Refused(Refusal::BadKey { .. })) => Some(()),
        other => other.map(|_| None).unwrap(),
    });
    assert!(back.elapsed() >= LEASE, "it had a whole lease again");
}

/// As behind a firewall, or a machine that is paused: connections are taken, and no word comes.
#[test]
fn a_controller_that_hangs_keeps_no_owner_from_the_one_that_leads_now() {
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let cluster = Cluster::in_memory();
    let addresses = format!("{},{}", hanging.local_addr().unwrap(), cluster.address);
    let space = cluster.client().create_space().unwrap();
    let mut owner = ControllerClient::new(&addresses, TIMEOUT);
    let time = Duration::from_secs(2);
    owner.renew(space.pid, space.keys.owner, time).expect("the second one has had time to answer");
    // So little that the first one takes all of it: the next attempt begins with the other.
    let (mut hasty, little) = (ControllerClient::new(&addresses, TIMEOUT), Duration::from_millis(10));
    until("the next attempt is for the other one", || hasty.renew(space.pid, space.keys.owner, little).ok());
}

/// Whether the other end has closed it.
fn is_closed(raw: &mut Raw) -> bool {
    raw.stream.socket().set_nonblocking(true).unwrap();
    match raw.stream.socket().peek(&mut [0]) {
        Ok(0) => true,
        Ok(_) => panic!("it is told something: clients would take that for a refusal"),
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn an_idle_member_is_cut_off_and_its_client_goes_on() {
    let idle = u64::try_from(IDLE.as_nanos()).unwrap();
    // Nodes that have nothing to say for long are not idle.
    let config = Config { peer_idle_max: idle, lease: 1000 * idle, ..config() };
    let cluster = Cluster::new(config, Box::new(MemoryStore::default()));
    let mut node = Raw::new(cluster.address, None);
    node.say(&register(1, None));
    assert!(matches!(node.hear(), FromController::Registered { .. }));
    // It needs no second attempt at the time when it connects again.
    let mut client = cluster.client();
    client.nodes().unwrap();
    let mut silent = Raw::new(cluster.address, None);
    silent.say(&ToController::Ask { id: 1, request: Request::Nodes });
    silent.hear();
    let mut never = Raw::new(cluster.address, None);
    let mut busy = Raw::new(cluster.address, None);
    let begun = Instant::now();
    until("the silent ones are cut off", || {
        busy.say(&ToController::Ask { id: 2, request: Request::Nodes });
        busy.hear();
        (is_closed(&mut silent) && is_closed(&mut never)).then_some(())
    });
    assert!(begun.elapsed() >= IDLE / 2, "they were cut off at once");
    assert_eq!(client.nodes().unwrap().len(), 1, "it was idle for as long, and connects again");
    let space = client.create_space().unwrap();
    client.destroy_space(space.pid, space.keys.owner).unwrap();
    busy.say(&ToController::Ask { id: 3, request: Request::Nodes });
    busy.hear();
    assert!(!is_closed(&mut node), "a node has a lease, and no other bound");
}

/// With identities the end of a connection is one of TLS.
#[test]
fn a_member_that_was_idle_shows_who_it_is_again() {
    let mut members = Members::new();
    let config = Config { peer_idle_max: u64::try_from(IDLE.as_nanos()).unwrap(), ..config() };
    let cluster = members.cluster(config);
    let credential = members.add(Role::Tenant, "app");
    let mut client = cluster.client_as(&credential);
    let space = client.create_space().unwrap();
    let mut silent = Raw::new(cluster.address, Some(&*Arc::clone(&credential)));
    let mut rest = Vec::new();
    // The end, with TLS's own word for it.
    silent.stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    client.open(space.pid, space.keys.owner).unwrap();
}
