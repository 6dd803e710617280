//! Allocation, its limit, and memory that really returns.

use std::sync::atomic::{AtomicBool, Ordering};

use yonder_fabric::{FabricError, RemoteAddress, Status};
use yonder_node::{Listen, Node, NodeConfig, NodeError};

use crate::data::shm_node;
use crate::testbed::{Client, PAGE, page, tcp_node, wait_for};

#[test]
fn memory_is_limited_and_returns() {
    let folder = tempfile::tempdir().unwrap();
    for node in [tcp_node(64), shm_node(folder.path(), 64)] {
        let mut client = Client::of(&node, 1);
        let start = client.allocate(64);
        match client.fabric.allocate(PAGE) {
            Err(FabricError::OutOfMemory { bytes, .. }) => assert_eq!(bytes, PAGE),
            other => panic!("{other:?}"),
        }
        for number in 0..64 {
            assert_eq!(client.store(page(start, number), 1), Status::Done);
        }
        assert_eq!((node.stats().backed_bytes, node.stats().allocated_bytes), (64 * PAGE, 64 * PAGE));
        client.fabric.discard(page(start, 16), 16 * PAGE).unwrap();
        assert_eq!((node.stats().backed_bytes, node.stats().allocated_bytes), (48 * PAGE, 64 * PAGE));
        assert_eq!(client.load(page(start, 15)), (Status::Done, 1));
        assert_eq!(client.load(page(start, 16)), (Status::Done, 0));
        client.fabric.release(start, 64 * PAGE).unwrap();
        assert_eq!((node.stats().backed_bytes, node.stats().allocated_bytes), (0, 0));
        let again = client.allocate(64);
        for number in 0..64 {
            assert_eq!(client.load(page(again, number)), (Status::Done, 0));
        }
    }
}

#[test]
fn a_part_may_be_released_and_is_gone() {
    let node = tcp_node(64);
    let mut client = Client::of(&node, 1);
    let start = client.allocate(8);
    client.fabric.release(page(start, 2), 2 * PAGE).unwrap();
    assert_eq!(client.load(page(start, 1)), (Status::Done, 0));
    assert_eq!(client.load(page(start, 2)).0, Status::Failed);
    assert!(client.fabric.release(page(start, 1), 2 * PAGE).is_err());
    assert!(client.fabric.discard(page(start, 2), PAGE).is_err());
    assert_eq!(node.stats().allocated_bytes, 6 * PAGE);
}

#[test]
fn the_memory_of_a_client_that_has_gone_is_released() {
    let node = tcp_node(64);
    let stays = Client::of(&node, 1);
    stays.allocate(1);
    let mut goes = Client::of(&node, 1);
    let start = goes.allocate(32);
    goes.store(start, 1);
    drop(goes);
    wait_for(|| (node.stats().allocated_bytes == PAGE).then_some(()));
    assert_eq!((node.stats().backed_bytes, node.stats().connections), (0, 2));
}

/// One client writes and frees as fast as it can while others allocate what it freed: their memory stays zero.
#[test]
fn memory_that_changes_hands_is_never_written_by_its_last_owner() {
    let node = tcp_node(8);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (node, over) = (&node, &over);
        scope.spawn(move || {
            let mut writer = Client::of(node, 8);
            (0..8).for_each(|frame| writer.fill(frame, 0xaa));
            while !over.load(Ordering::Relaxed) {
                let Ok(start) = writer.fabric.allocate(4 * PAGE) else { continue };
                for turn in 0..8 {
                    writer.write(page(start, turn % 4), turn as u32);
                }
                writer.poll();
                writer.fabric.release(start, 4 * PAGE).unwrap();
                writer.finish(writer.queue_pair.outstanding());
            }
        });
        let mut reader = Client::of(node, 1);
        for _ in 0..300 {
            let Ok(start) = reader.fabric.allocate(6 * PAGE) else { continue };
            for number in 0..6 {
                assert_eq!(reader.load(page(start, number)), (Status::Done, 0));
            }
            reader.fabric.release(start, 6 * PAGE).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn nodes_that_cannot_start_say_why() {
    let tcp = |address: &str| vec![Listen::Tcp(address.to_owned())];
    let message = |config| {
        let message = Node::start(config).expect_err("the node started").to_string();
        assert_eq!(message.lines().count(), 1);
        message
    };
    assert!(message(NodeConfig::new(vec![], PAGE)).contains("type --listen tcp://"));
    assert!(message(NodeConfig::new(tcp("127.0.0.1:0"), 0)).contains("type --memory"));
    let node = tcp_node(1);
    let taken = message(NodeConfig::new(node.addresses().to_vec(), PAGE));
    assert!(taken.starts_with(&format!("cannot listen on {}: ", node.addresses()[0])), "{taken}");
    assert!(message(NodeConfig::new(tcp("127.0.0.1:0"), 1 << 60)).contains("--memory"));
    let folder = tempfile::tempdir().unwrap();
    let living = shm_node(folder.path(), 1);
    let taken = Node::start(NodeConfig::new(living.addresses().to_vec(), PAGE));
    assert!(matches!(taken, Err(NodeError::Listen { .. })));
    // The refused second node must not have taken the first one's socket away.
    assert_eq!(Client::of(&living, 1).load(RemoteAddress(0)), (Status::Done, 0));
}
