//! A node or a connection that fails: operations end, nothing reads as zeros, and what can come back does.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use yonder_fabric::{FabricError, Module, RemoteAddress, Status, WorkId};
use yonder_units::FrameIndex;

use crate::end_to_end::proxy::Proxy;
use crate::end_to_end::testbed::{
    Client, NETWORKS, Network, address, node, node_at, page, shm_node, tcp_node, unreachable_cause, wait_for,
};

#[test]
fn when_the_node_stops_everything_ends_as_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let shm = shm_node(folder.path(), 64);
    for node in NETWORKS.map(|network| node(network, 64)).into_iter().chain([shm]) {
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
        unreachable_cause(client.fabric.release(start));
    }
}

#[test]
fn a_restarted_node_never_answers_for_the_memory_it_has_lost() {
    NETWORKS.into_iter().for_each(is_lost_by_a_restart);
}

fn is_lost_by_a_restart(network: Network) {
    let node = node(network, 16);
    let at = address(&node);
    let mut client = Client::of(&node, 1);
    let start = client.allocate(16);
    assert_eq!(client.store(start, 9), Status::Done);
    node.stop();
    let node = node_at(vec![network.listen(&at)], 16);
    // A stranger has memory there now, and may have the same addresses.
    let mut stranger = Client::of(&node, 1);
    let strangers = stranger.allocate(16);
    assert_eq!(stranger.store(strangers, 3), Status::Done);
    let served = node.stats().reads;
    // The client has seen who is there now when control requests say so.
    let cause = wait_for(|| {
        assert_eq!(client.load(start), (Status::Disconnected, 0xee));
        let cause = unreachable_cause(client.fabric.allocate(4096));
        cause.contains("lost").then_some(cause)
    });
    assert_eq!(
        cause,
        "the node was restarted, this client was away for too long, or its identity was revoked: its far memory is lost"
    );
    for _ in 0..100 {
        assert_eq!(client.load(start), (Status::Disconnected, 0xee));
        assert_eq!(client.store(start, 1), Status::Disconnected);
    }
    unreachable_cause(client.fabric.queue_pair(Module::Fault, client.frames.clone()));
    assert_eq!(node.stats().reads, served);
    assert_eq!(stranger.load(strangers), (Status::Done, 3));
}

#[test]
fn a_cut_connection_is_made_again_and_the_memory_is_still_there() {
    let node = tcp_node(16);
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
    let before = node.stats().allocated_bytes;
    proxy.cut();
    client.fabric.release(start).unwrap();
    assert_eq!(node.stats().allocated_bytes, before - 16 * 4096);
    proxy.cut();
    client.allocate(16);
}

/// Writes that are sent again after a cut, each with a new value, must win over their first copies.
#[test]
fn a_write_that_is_sent_again_is_never_overwritten_by_its_first_copy() {
    let node = tcp_node(32);
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
fn addresses_outside_the_allocation_fail() {
    for network in NETWORKS {
        let node = node(network, 16);
        let (mut client, other) = (Client::of(&node, 1), Client::of(&node, 1));
        let start = client.allocate(2);
        other.allocate(2);
        for address in [page(start, 1).0 + 1, page(start, 2).0, 1 << 40, u64::MAX] {
            assert_eq!(client.load(RemoteAddress(address)), (Status::Failed, 0xee));
            assert_eq!(client.store(RemoteAddress(address), 1), Status::Failed);
        }
        assert_eq!(client.load(start), (Status::Done, 0));
        for nothing_begins_here in [page(start, 1), page(start, 2)] {
            match client.fabric.release(nothing_begins_here) {
                Err(FabricError::System { cause, .. }) => assert!(cause.contains("not in allocated memory"), "{cause}"),
                other => panic!("{other:?}"),
            }
        }
        let errors = node.stats().errors;
        // A read whose answer is late is asked again, by datagram, and refused again.
        assert!(errors == 10 || (network == Network::Udp && errors > 10), "{errors}");
    }
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

/// Whether datagrams reach the node.
#[repr(u8)]
enum Road {
    Open,
    /// Nobody listens, which the network says.
    Closing,
    Closed,
    Over,
}

/// Sends datagrams on to a node and back, as the road is.
fn carry(mut front: Option<UdpSocket>, node: SocketAddr, road: &AtomicU8) {
    let address = front.as_ref().expect("it begins open").local_addr().unwrap();
    let mut backs: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    let mut bytes = vec![0; 1 << 16];
    loop {
        match road.load(Ordering::Acquire) {
            state if state == Road::Open as u8 => {}
            state if state == Road::Over as u8 => return,
            _ => {
                drop(front.take());
                let _ =
                    road.compare_exchange(Road::Closing as u8, Road::Closed as u8, Ordering::AcqRel, Ordering::Relaxed);
                std::thread::yield_now();
                continue;
            }
        }
        let front = front.get_or_insert_with(|| wait_for(|| UdpSocket::bind(address).ok()));
        front.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        if let Ok((length, client)) = front.recv_from(&mut bytes) {
            let back = backs.entry(client).or_insert_with(|| {
                let back = UdpSocket::bind("127.0.0.1:0").unwrap();
                back.connect(node).unwrap();
                back.set_nonblocking(true).unwrap();
                back
            });
            let _ = back.send(&bytes[..length]);
        }
        for (client, back) in &backs {
            while let Ok(length) = back.recv(&mut bytes) {
                let _ = front.send_to(&bytes[..length], *client);
            }
        }
    }
}

/// What is asked of a lane that is down is given up at once, so that nothing was ever received on it again.
#[test]
fn a_datagram_lane_that_only_reads_comes_back_when_the_network_does() {
    let node = node(Network::Udp, 64);
    let to = address(&node).parse().unwrap();
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", front.local_addr().unwrap());
    let road = Arc::new(AtomicU8::new(Road::Open as u8));
    let carrier = {
        let road = Arc::clone(&road);
        std::thread::spawn(move || carry(Some(front), to, &road))
    };
    let mut client = Client::new(&url, 4);
    let start = client.allocate(8);
    assert_eq!(client.store(page(start, 1), 7), Status::Done);
    // One that reads alone, as those of faults do.
    client.queue_pair = client.fabric.queue_pair(Module::Fault, Arc::clone(&client.frames)).unwrap();
    assert_eq!(client.load(page(start, 1)), (Status::Done, 7));
    road.store(Road::Closing as u8, Ordering::Release);
    wait_for(|| (road.load(Ordering::Acquire) == Road::Closed as u8).then_some(()));
    wait_for(|| (client.load(page(start, 1)).0 == Status::Disconnected).then_some(()));
    road.store(Road::Open as u8, Ordering::Release);
    assert_eq!(client.load_again(page(start, 1)), 7);
    road.store(Road::Over as u8, Ordering::Release);
    carrier.join().unwrap();
}
