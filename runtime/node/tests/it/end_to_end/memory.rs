//! Allocation, its limit, and memory that really returns.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use yonder_fabric::{FabricError, Status};
use yonder_node::{Node, NodeConfig, NodeError};
use yonder_wire::{AllocateRequest, Backing, Body, ErrorCode, Kind, NodeStatus, Permission};

use crate::end_to_end::raw::{Raw, allocation_of};
use crate::end_to_end::testbed::{Client, NETWORKS, Network, PAGE, node, page, shm_node, wait_for};

#[test]
fn memory_is_limited_and_returns() {
    let folder = tempfile::tempdir().unwrap();
    let shm = shm_node(folder.path(), 64);
    for node in NETWORKS.map(|network| node(network, 64)).into_iter().chain([shm]) {
        let mut client = Client::of(&node, 1);
        let others = node.stats().allocated_bytes;
        let start = client.allocate(64);
        match client.fabric.allocate(PAGE) {
            Err(FabricError::OutOfMemory { bytes, .. }) => assert_eq!(bytes, PAGE),
            other => panic!("{other:?}"),
        }
        for number in 0..64 {
            assert_eq!(client.store(page(start, number), 1), Status::Done);
        }
        assert_eq!((node.stats().backed_bytes, node.stats().allocated_bytes), (64 * PAGE, others + 64 * PAGE));
        client.fabric.discard(page(start, 16), 16 * PAGE).unwrap();
        assert_eq!(client.load(page(start, 15)), (Status::Done, 1));
        assert_eq!(client.load(page(start, 16)), (Status::Done, 0));
        assert_eq!(client.load(page(start, 31)), (Status::Done, 0));
        assert_eq!(client.load(page(start, 32)), (Status::Done, 1));
        client.fabric.release(start).unwrap();
        assert_eq!(node.stats().allocated_bytes, others);
        assert!(client.fabric.release(start).is_err(), "it was released already");
        let again = client.allocate(64);
        for number in 0..64 {
            assert_eq!(client.load(page(again, number)), (Status::Done, 0));
        }
    }
}

/// One client writes and frees as fast as it can while others allocate what it freed: their memory stays zero.
#[test]
fn memory_that_changes_hands_is_never_written_by_its_last_owner() {
    for network in NETWORKS {
        changes_hands(&node(network, 8));
    }
}

fn changes_hands(node: &Node) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            let mut writer = Client::of(node, 8);
            (0..8).for_each(|frame| writer.fill(frame, 0xaa));
            while !over.load(Ordering::Relaxed) {
                let Ok(start) = writer.fabric.allocate(4 * PAGE) else { continue };
                for turn in 0..8 {
                    writer.write(page(start, turn % 4), turn as u32);
                }
                writer.poll();
                writer.fabric.release(start).unwrap();
                writer.finish(writer.queue_pair.outstanding());
            }
        });
        let mut reader = Client::of(node, 1);
        for _ in 0..300 {
            let Ok(start) = reader.fabric.allocate(6 * PAGE) else { continue };
            for number in 0..6 {
                assert_eq!(reader.load(page(start, number)), (Status::Done, 0));
            }
            reader.fabric.release(start).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Two clients write the same untouched pages at the same moment: each page gets memory once, and none is lost for it.
#[test]
fn pages_that_two_clients_touch_first_get_memory_once() {
    const TOUCHED: u64 = 600;
    const PAGES: u64 = 640;
    let node = node(Network::Tcp, PAGES);
    let (mut first, mut second) = (Raw::connect(&node), Raw::connect(&node));
    assert_ne!(first.greet(None).home, second.greet(None).home, "two threads serve them");
    let space = first.create_space(0);
    let (permission, backing) = (Permission::ReadWrite, Backing::OnDemand);
    let request = AllocateRequest { bytes: TOUCHED * PAGE, permission, backing, from: 0, to: 0 };
    let (request, body) = allocation_of(space, &request);
    let start = first.ask(&request, &body).unwrap().0.address;
    let together = Barrier::new(2);
    std::thread::scope(|scope| {
        for (raw, byte) in [(&mut first, 1), (&mut second, 2)] {
            let together = &together;
            scope.spawn(move || {
                for page in 0..TOUCHED {
                    together.wait();
                    wait_for(|| match raw.write(space, start + page * PAGE, byte) {
                        Ok(()) => Some(()),
                        // The ring of zeroed pages is being filled.
                        Err(code) => {
                            assert_eq!(code, ErrorCode::Busy);
                            None
                        }
                    });
                }
            });
        }
    });
    for page in 0..TOUCHED {
        // The two may have been copied through each other, for nobody has ordered them.
        let read = space.request(Kind::Read, start + page * PAGE, PAGE as u32);
        let (_, bytes) = first.ask(&read, &[]).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 1 || *byte == 2), "page {page} has bytes that nobody wrote");
    }
    let (_, status) = first.ask(&space.request(Kind::Status, 0, 0), &[]).unwrap();
    assert_eq!(NodeStatus::from_bytes(&status).unwrap().free_bytes, (PAGES - TOUCHED) * PAGE);
    // All the rest can be had.
    assert!(first.allocate(space, PAGES - TOUCHED).is_ok());
    assert_eq!(first.allocate(space, 1), Err(ErrorCode::OutOfMemory));
}

#[test]
fn nodes_that_cannot_start_say_why() {
    let tcp = |address: &str| vec![Network::Tcp.listen(address)];
    let message = |config| {
        let message = Node::start(config).expect_err("the node started").to_string();
        assert_eq!(message.lines().count(), 1);
        message
    };
    assert!(message(NodeConfig::new(vec![], PAGE)).contains("type --listen tcp://"));
    assert!(message(NodeConfig::new(tcp("127.0.0.1:0"), 0)).contains("type --memory"));
    for network in NETWORKS {
        let node = node(network, 1);
        let taken = message(NodeConfig::new(node.addresses().to_vec(), PAGE));
        assert!(taken.starts_with(&format!("cannot listen on {}: ", node.addresses()[0])), "{taken}");
    }
    assert!(message(NodeConfig::new(tcp("127.0.0.1:0"), 1 << 60)).contains("--memory"));
    let odd_pages = NodeConfig { page_bytes: Some(5000), ..NodeConfig::new(tcp("127.0.0.1:0"), PAGE) };
    assert!(message(odd_pages).contains("type --page-size"));
    let folder = tempfile::tempdir().unwrap();
    let living = shm_node(folder.path(), 1);
    let taken = Node::start(NodeConfig::new(living.addresses().to_vec(), PAGE));
    assert!(matches!(taken, Err(NodeError::Listen { .. })));
    // The refused second node must not have taken the first one's socket away.
    let mut client = Client::of(&living, 1);
    let start = client.allocate(1);
    assert_eq!(client.load(start), (Status::Done, 0));
}
