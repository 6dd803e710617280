//! A node or a connection that fails: operations end, nothing reads as zeros, and what can come back does.

use std::time::Duration;

use yonder_fabric::{FabricError, Module, RemoteAddress, Status, WorkId};
use yonder_units::FrameIndex;

use crate::data::shm_node;
use crate::proxy::Proxy;
use crate::testbed::{Client, address, node_at, page, tcp_node, unreachable_cause, wait_for};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn when_the_node_stops_everything_ends_as_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    for node in [tcp_node(64), shm_node(folder.path(), 64)] {
        let mut client = Client::of(&node, 64);
        let start = client.allocate(64);
        assert_eq!(client.store(start, 5), Status::Done);
        node.stop();
        // The end of the connection may be seen a moment later; until then the answers are right.
        wait_for(|| match client.load(start) {
            (Status::Disconnected, _) => Some(()),
            (status, byte) => {
                assert_eq!((status, byte), (Status::Done, 5));
                None
            }
        });
        for frame in 0..64 {
            client.read(page(start, u64::from(frame)), frame);
        }
        let done = client.finish(64);
        assert!(done.values().all(|status| *status == Status::Disconnected));
        unreachable_cause(client.fabric.allocate(4096));
        unreachable_cause(client.fabric.release(start, 4096));
    }
}

#[test]
fn a_restarted_node_never_answers_for_the_memory_it_has_lost() {
    let node = tcp_node(16);
    let at = address(&node);
    let mut client = Client::of(&node, 1);
    let start = client.allocate(16);
    assert_eq!(client.store(start, 9), Status::Done);
    node.stop();
    let node = node_at(&at, 16, LONG);
    // A stranger has the same addresses now, so only the incarnation tells that they are not ours.
    let mut stranger = Client::of(&node, 1);
    assert_eq!(stranger.allocate(16), start);
    let served = node.stats().reads;
    // The client has connected again and has been turned away for good when control requests say so.
    let cause = wait_for(|| {
        assert_eq!(client.load(start), (Status::Disconnected, 0xee));
        let cause = unreachable_cause(client.fabric.allocate(4096));
        cause.contains("lost").then_some(cause)
    });
    assert_eq!(cause, "the node was restarted, or this client was away for too long: its far memory is lost");
    for _ in 0..100 {
        assert_eq!(client.load(start), (Status::Disconnected, 0xee));
        assert_eq!(client.store(start, 1), Status::Disconnected);
    }
    unreachable_cause(client.fabric.queue_pair(Module::Fault, client.frames.clone()));
    assert_eq!(node.stats().reads, served);
    assert_eq!(stranger.load(start), (Status::Done, 0));
}

#[test]
fn a_cut_connection_is_made_again_and_the_memory_is_still_there() {
    let node = node_at("127.0.0.1:0", 16, LONG);
    let proxy = Proxy::to(address(&node), 5000);
    let mut client = Client::new(&proxy.url(), 16);
    let start = client.allocate(16);
    for turn in 0..10u8 {
        assert_eq!(client.store(page(start, turn.into()), turn + 1), Status::Done);
        for frame in 1..16 {
            client.read(start, frame);
        }
        proxy.cut();
        let done = client.finish(15);
        assert!(done.values().all(|status| *status != Status::Failed));
        for seen in 0..=turn {
            assert_eq!(client.load_again(page(start, seen.into())), seen + 1);
        }
    }
    proxy.cut();
    client.fabric.discard(start, 4096).unwrap();
    assert_eq!(client.load_again(start), 0);
    assert_eq!(client.load_again(page(start, 1)), 2);
    proxy.cut();
    client.fabric.release(start, 4096).unwrap();
    proxy.cut();
    assert_eq!(client.allocate(1), start);
}

/// Writes that are sent again after a cut, each with a new value, must win over their first copies.
#[test]
fn a_write_that_is_sent_again_is_never_overwritten_by_its_first_copy() {
    let node = node_at("127.0.0.1:0", 32, LONG);
    let proxy = Proxy::to(address(&node), 9000);
    let mut client = Client::new(&proxy.url(), 32);
    let start = client.allocate(32);
    for turn in 0..30u8 {
        for frame in 0..32 {
            client.fill(frame, 2 * turn);
            client.write(page(start, frame.into()), frame);
        }
        client.poll();
        proxy.cut();
        client.finish(client.queue_pair.outstanding());
        for frame in 0..32u32 {
            wait_for(|| (client.store(page(start, frame.into()), 2 * turn + 1) == Status::Done).then_some(()));
        }
        for frame in 0..32u64 {
            assert_eq!(client.load_again(page(start, frame)), 2 * turn + 1);
        }
    }
}

#[test]
fn a_client_that_was_away_for_longer_than_the_grace_is_turned_away() {
    let node = tcp_node(4);
    let proxy = Proxy::to(address(&node), 5000);
    let mut client = Client::new(&proxy.url(), 1);
    let start = client.allocate(4);
    assert_eq!(client.store(start, 9), Status::Done);
    proxy.cut();
    wait_for(|| (node.stats().allocated_bytes == 0).then_some(()));
    wait_for(|| {
        assert_eq!(client.load(start), (Status::Disconnected, 0xee));
        unreachable_cause(client.fabric.allocate(4096)).contains("lost").then_some(())
    });
    assert_eq!(client.load(start), (Status::Disconnected, 0xee));
}

#[test]
fn addresses_outside_the_allocation_fail() {
    let node = tcp_node(16);
    let (mut client, other) = (Client::of(&node, 1), Client::of(&node, 1));
    let (start, foreign) = (client.allocate(2), other.allocate(2));
    for address in [page(start, 1).0 + 1, foreign.0, 1 << 40, u64::MAX] {
        assert_eq!(client.load(RemoteAddress(address)), (Status::Failed, 0xee));
        assert_eq!(client.store(RemoteAddress(address), 1), Status::Failed);
    }
    assert_eq!(client.load(start), (Status::Done, 0));
    match client.fabric.release(foreign, 4096) {
        Err(FabricError::System { cause, .. }) => assert!(cause.contains("not in memory allocated"), "{cause}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(node.stats().errors, 9);
}

#[test]
fn a_shm_read_beyond_the_memory_fails() {
    let folder = tempfile::tempdir().unwrap();
    let node = shm_node(folder.path(), 4);
    let mut client = Client::of(&node, 1);
    for address in [1 << 40, u64::MAX] {
        assert_eq!(client.load(RemoteAddress(address)), (Status::Failed, 0xee));
    }
}

#[test]
fn queue_pairs_come_and_go() {
    let node = tcp_node(4);
    let mut client = Client::of(&node, 1);
    let start = client.allocate(4);
    for turn in 0..50u64 {
        let mut other = client.fabric.queue_pair(Module::WriteBack, client.frames.clone()).unwrap();
        other.post_write(WorkId(turn), start, FrameIndex(0), 0).unwrap();
    }
    assert_eq!(client.store(start, 3), Status::Done);
    assert_eq!(client.load(start), (Status::Done, 3));
    wait_for(|| (node.stats().connections == 2).then_some(()));
}
