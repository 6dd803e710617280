//! What is written is what is read: every fabric against a model, with many operations outstanding.

use std::collections::HashMap;

use yonder_fabric::{Module, PostError, QueuePair, ReadInto, RemoteAddress, Status, WorkId};
use yonder_node::Listen;
use yonder_units::FrameIndex;

use crate::end_to_end::lossy::{Faults, LossyProxy};
use crate::end_to_end::proxy::Proxy;
use crate::end_to_end::testbed::{
    Client, Dice, NETWORKS, Network, PAGE, address, node, node_at, page, shm_node, tcp_node, wait_for,
};

pub(crate) const PAGES: u64 = 48;
const FRAMES: u64 = 40;
/// What a frame of a cancelled operation is filled with; no page ever has it.
const TABOO: u8 = 0xff;

struct Doing {
    page: u64,
    frame: u32,
    /// The value to be stored; `None` for a read.
    stores: Option<u8>,
}

/// So many random reads and writes, some of them cancelled, never two on one page or frame, checked against a table of
/// values.
pub(crate) fn agrees_with_a_model(url: &str, operations: u32, seed: u64) {
    let mut client = Client::new(url, FRAMES as usize);
    let start = client.allocate(PAGES);
    let mut dice = Dice(seed);
    let mut model: Vec<Vec<u8>> = vec![vec![0]; PAGES as usize];
    let mut doing: HashMap<WorkId, Doing> = HashMap::new();
    let mut taboo: Vec<u32> = Vec::new();
    let mut posted = 0;
    while posted < operations {
        let (number, frame) = (dice.below(PAGES), dice.below(FRAMES) as u32);
        let busy = doing.values().any(|other| other.page == number || other.frame == frame);
        if !busy && dice.below(3) == 0 {
            taboo.retain(|other| *other != frame);
            let value = (posted % 255) as u8;
            client.fill(frame, value);
            let id = client.write(page(start, number), frame);
            doing.insert(id, Doing { page: number, frame, stores: Some(value) });
            posted += 1;
        } else if !busy {
            taboo.retain(|other| *other != frame);
            let id = client.read(page(start, number), frame);
            doing.insert(id, Doing { page: number, frame, stores: None });
            posted += 1;
        }
        if !busy
            && dice.below(20) == 0
            && let Some(id) = doing.keys().min_by_key(|id| id.0).copied()
        {
            client.queue_pair.cancel(id);
            let cancelled = doing.remove(&id).unwrap();
            client.fill(cancelled.frame, TABOO);
            taboo.push(cancelled.frame);
            // The write may have reached the node: the page has either value until it is read or written again.
            model[cancelled.page as usize].extend(cancelled.stores);
        }
        if dice.below(4) == 0 {
            complete(&mut client, &mut doing, &mut model);
        }
    }
    while !doing.is_empty() {
        complete(&mut client, &mut doing, &mut model);
    }
    assert_eq!(client.queue_pair.outstanding(), 0);
    for frame in taboo {
        assert_eq!(client.content(frame), TABOO, "a late reply touched the frame of a cancelled operation");
    }
    for (number, values) in model.iter().enumerate() {
        let (status, value) = client.load(page(start, number as u64));
        assert!(status == Status::Done && values.contains(&value), "page {number}: {value} is none of {values:?}");
    }
}

fn complete(client: &mut Client, doing: &mut HashMap<WorkId, Doing>, model: &mut [Vec<u8>]) {
    for completion in client.poll() {
        let done = doing.remove(&completion.id).expect("a completion of what is not outstanding");
        assert_eq!(completion.status, Status::Done);
        let values = &mut model[done.page as usize];
        match done.stores {
            Some(value) => *values = vec![value],
            None => {
                let value = client.content(done.frame);
                assert!(values.contains(&value), "page {}: {value} is none of {values:?}", done.page);
                *values = vec![value];
            }
        }
    }
    assert_eq!(client.queue_pair.outstanding(), doing.len());
}

#[test]
fn networks_agree_with_a_model() {
    for network in NETWORKS {
        let node = node(network, 2 * PAGES);
        agrees_with_a_model(&node.addresses()[0].to_string(), 5000, 1);
        let stats = node.stats();
        assert!(stats.reads > 3000 && stats.writes > 1000 && stats.errors == 0, "{network:?}: {stats:?}");
        assert_eq!(stats.read_bytes, stats.reads * PAGE);
        assert_eq!((stats.bad_peers, stats.bad_datagrams), (0, 0));
    }
}

/// Datagrams that are lost, repeated, late and out of order change nothing but the time that it takes.
#[test]
fn udp_agrees_with_a_model_when_the_network_is_bad() {
    let node = node(Network::Udp, 4 * PAGES);
    let roads = [
        (800, Faults::USUAL),
        (800, Faults::USUAL),
        (200, Faults { lost: 150, ..Faults::USUAL }),
        (200, Faults { lost: 0, repeated: 300, late: 300 }),
    ];
    for (seed, (operations, faults)) in (1..).zip(roads) {
        let proxy = LossyProxy::to(&address(&node), faults, seed);
        agrees_with_a_model(&proxy.url(), operations, 20 + seed);
        let (lost, repeated, late) = proxy.faults();
        assert!(repeated > 5 && late > 5 && (lost > 5 || faults.lost == 0), "{lost}, {repeated}, {late}");
    }
    assert_eq!(node.stats().bad_datagrams, 0);
}

#[test]
fn tcp_agrees_with_a_model_when_the_stream_is_cut_in_odd_places() {
    let node = tcp_node(4 * PAGES);
    for (piece_max, operations) in [(7, 30), (100, 200), (4200, 1000), (30_011, 1000)] {
        let proxy = Proxy::to(address(&node), piece_max);
        agrees_with_a_model(&proxy.url(), operations, piece_max);
    }
    assert_eq!(node.stats().bad_peers, 0);
}

#[test]
fn shm_agrees_with_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let node = shm_node(folder.path(), 2 * PAGES);
    agrees_with_a_model(&node.addresses()[0].to_string(), 10_000, 3);
}

#[test]
fn all_transports_of_one_node_serve_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let shm = Listen::Shm(folder.path().join("node.sock"));
    let listen = vec![Network::Tcp.listen("127.0.0.1:0"), shm, Network::Udp.listen("127.0.0.1:0")];
    let node = node_at(listen, 6 * PAGES);
    let urls: Vec<String> = node.addresses().iter().map(ToString::to_string).collect();
    std::thread::scope(|scope| {
        for (seed, url) in urls.iter().cycle().take(6).enumerate() {
            scope.spawn(move || agrees_with_a_model(url, 1000, 10 + seed as u64));
        }
    });
}

/// The queue pair takes exactly its depth, and completions wait for room.
pub(crate) fn is_bounded(client: &mut Client, start: RemoteAddress) {
    let depth = client.queue_pair.depth();
    for _ in 0..depth {
        client.read(start, 0);
    }
    let id = client.id();
    let refused = client.queue_pair.post_read(id, start, ReadInto::Frame(FrameIndex(0)), 0);
    assert_eq!(refused, Err(PostError::Full));
    assert_eq!(client.queue_pair.post_write(id, start, FrameIndex(0), 0), Err(PostError::Full));
    assert_eq!(client.queue_pair.outstanding(), depth);
    let done = client.finish(depth);
    assert!(done.values().all(|status| *status == Status::Done));
}

#[test]
fn queue_pairs_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    for node in [node(Network::Tcp, 1), node(Network::Udp, 1), shm_node(folder.path(), 1)] {
        let mut client = Client::of(&node, 1);
        let start = client.allocate(1);
        is_bounded(&mut client, start);
        is_bounded(&mut client, start);
    }
}

#[test]
fn a_write_is_seen_through_another_queue_pair_once_it_is_done() {
    NETWORKS.into_iter().for_each(is_seen_through_another_queue_pair);
}

fn is_seen_through_another_queue_pair(network: Network) {
    let node = node(network, 8);
    let mut client = Client::of(&node, 8);
    let mut other: Box<dyn QueuePair> =
        client.fabric.queue_pair(Module::WriteBack, std::sync::Arc::clone(&client.frames)).unwrap();
    let start = client.allocate(8);
    for turn in 0..200u64 {
        let address = page(start, turn % 8);
        client.fill(1, turn as u8);
        other.post_write(WorkId(turn), address, FrameIndex(1), yonder_clock::now()).unwrap();
        let mut completions = Vec::with_capacity(1);
        wait_for(|| {
            other.poll(yonder_clock::now(), &mut completions);
            completions.pop()
        });
        assert_eq!(client.load(address), (Status::Done, turn as u8));
    }
}

#[test]
fn shm_offers_no_mapping_that_may_cease_to_be_the_clients() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::of(&shm_node(folder.path(), 4), 1);
    assert!(client.fabric.mapped().is_none(), "who copies from a mapping looks at no lease afterwards");
}
