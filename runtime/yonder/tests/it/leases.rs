//! How long a node keeps an address space: while its owner renews the lease, and no longer than the owner is there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder::clib::{ClibError, Permission, Process, ProcessConfig, Rights};
use yonder_client::Operation;
use yonder_fabric::lane::{Lane, NodeAddress, NodeSession, call};
use yonder_node::{Listen, Node, NodeConfig};
use yonder_wire::Kind;

/// Long enough that a busy machine does not miss all renewals.
const LEASE: Duration = Duration::from_secs(2);
/// How long a test waits for something before it fails.
const TIMEOUT: Duration = Duration::from_secs(30);

fn start_node() -> (Node, String) {
    let listen = vec![Listen::Udp("127.0.0.1:0".to_owned())];
    let node = Node::start(NodeConfig { page_bytes: Some(64 << 10), ..NodeConfig::new(listen, 16 << 20) }).unwrap();
    let url = node.addresses()[0].to_string();
    (node, url)
}

/// Makes an address space whose lease nobody renews.
fn create_and_forget(url: &str) {
    let address = NodeAddress::resolve(url).unwrap().remove(0);
    let mut lane = Lane::open(&address, 4, &Arc::new(NodeSession::default())).unwrap().lane;
    let length = LEASE.as_millis() as u64;
    let (kind, pid, capability, address) = (Kind::CreateSpace, 0, 0, 0);
    let request = Operation { kind, pid, capability, address, length, body: &[], deadline: u64::MAX, token: 0 };
    call(&mut lane, &request, &[]).unwrap();
}

#[test]
fn a_lease_is_renewed_as_long_as_the_process_is_there() {
    let (node, url) = start_node();
    let config = ProcessConfig { lease: LEASE, ..ProcessConfig::default() };
    let process = Process::create_with(&url, config).unwrap();
    let mut thread = process.thread().unwrap();
    let address = thread.ralloc(1, Permission::ReadWrite).unwrap();
    thread.rwrite(address, &[5]).unwrap();
    let with_mine = node.stats().spaces;
    create_and_forget(&url);
    assert_eq!(node.stats().spaces, with_mine + 1);
    let end = Instant::now() + TIMEOUT;
    while node.stats().spaces > with_mine {
        assert!(Instant::now() < end, "a lease that nobody renews does not end");
        std::thread::yield_now();
    }
    // What was made later, with the same lease, is gone; what is renewed is there.
    let mut back = [0];
    thread.rread(address, &mut back).expect("the lease is renewed");
    assert_eq!(back, [5]);
    drop(process);
    assert_eq!(node.stats().spaces, with_mine - 1, "it ends at once with its process");
}

#[test]
fn a_guest_that_is_told_of_the_end_gives_the_node_up_for_all_its_threads() {
    let (node, url) = start_node();
    let owner = Process::create(&url).unwrap();
    let address = owner.thread().unwrap().ralloc(1, Permission::ReadWrite).unwrap();
    let ticket = owner.ticket(Rights::Owner).unwrap();
    let (guest, other) = (Process::open(&url, ticket).unwrap(), Process::open(&url, ticket).unwrap());
    let (mut thread, mut others) = (guest.thread().unwrap(), other.thread().unwrap());
    thread.rread(address, &mut [0]).unwrap();
    let spaces = node.stats().spaces;
    drop(other);
    assert_eq!(node.stats().spaces, spaces, "a guest ends nothing");
    others.rread(address, &mut [0]).expect("a thread outlives its process");
    drop(owner);
    assert_eq!(node.stats().spaces, spaces - 1);
    assert!(matches!(guest.ticket(Rights::Read), Err(ClibError::Lost)));
    assert!(matches!(thread.rread(address, &mut [0]), Err(ClibError::Lost)), "the whole address space is gone");
}

#[test]
fn an_owner_takes_all_tickets_back_and_goes_on_with_a_new_one() {
    let (node, url) = start_node();
    let owner = Process::create(&url).unwrap();
    let mut owners = owner.thread().unwrap();
    let address = owners.ralloc(1, Permission::ReadWrite).unwrap();
    owners.rwrite(address, &[7]).unwrap();
    let lent = owner.ticket_for(Rights::ReadWrite, Duration::from_secs(90)).unwrap();
    let guest = Process::open(&url, lent).unwrap();
    let mut guests = guest.thread().unwrap();
    guests.rwrite(address, &[8]).unwrap();
    assert!(guest.ticket_for(Rights::Owner, Duration::from_secs(60)).is_err(), "a guest has no more than it was lent");
    assert!(owner.ticket_for(Rights::Read, Duration::MAX).is_err(), "no ticket says that");
    assert!(guest.revoke_tickets().is_err(), "only an owner takes back");
    guests.rwrite(address, &[9]).expect("and nothing has changed");
    let spaces = node.stats().spaces;
    let ticket = owner.revoke_tickets().unwrap();
    let mut back = [0];
    for thread in [&mut owners, &mut guests] {
        assert!(matches!(thread.rread(address, &mut back), Err(ClibError::Lost)), "{back:?} was read");
    }
    assert!(matches!(Process::open(&url, lent).map(drop), Err(ClibError::Lost)));
    assert_eq!(node.stats().spaces, spaces, "the address space stays");
    let again = Process::open(&url, ticket).unwrap();
    again.thread().unwrap().rread(address, &mut back).unwrap();
    assert_eq!(back, [9]);
}
