//! Compressed pages and tiered stores over real nodes: what holds for every fabric holds for them.

use yonder_fabric::{Fabric, Status};
use yonder_node::{Listen, Node};

use crate::end_to_end::data::{PAGES, agrees_with_a_model, is_bounded};
use crate::end_to_end::lossy::{Faults, LossyProxy};
use crate::end_to_end::proxy::Proxy;
use crate::end_to_end::testbed::{Client, Network, address, node, node_at, page, tcp_node, wait_for};

/// What is behind a node in these tests. A disk is tested where there is one.
const BEHIND: &str = "emu://?latency=5us&size=16MiB";

/// A node with room for `pages`, with streams and with shared memory in `folder`.
fn both(folder: &std::path::Path, pages: u64) -> (Node, [String; 2]) {
    let node = node_at(vec![Network::Tcp.listen("127.0.0.1:0"), Listen::Shm(folder.join("node.sock"))], pages);
    let [tcp, shm] = [0, 1].map(|at| node.addresses()[at].to_string());
    (node, [tcp, shm])
}

fn counter(fabric: &dyn Fabric, name: &str) -> u64 {
    fabric.counters().iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
}

#[test]
fn layers_agree_with_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let (_node, [tcp, shm]) = both(folder.path(), 8192);
    let layered = [
        format!("lz4+{tcp}"),
        format!("lz4+{shm}"),
        format!("tier+{tcp}+{BEHIND}"),
        format!("tier+{shm}+{BEHIND}"),
        format!("lz4+tier+{tcp}+{BEHIND}"),
        format!("tier+lz4+{tcp}+lz4+{BEHIND}"),
        format!("tier+{BEHIND}+{tcp}"),
    ];
    for (seed, url) in (1..).zip(layered) {
        agrees_with_a_model(&url, 2000, seed);
    }
}

#[test]
fn layers_agree_with_a_model_when_the_network_is_bad() {
    let node = node(Network::Udp, 8 * PAGES);
    for (seed, layers) in (1..).zip(["lz4+", "tier+near=256KiB+"]) {
        let proxy = LossyProxy::to(&address(&node), Faults::USUAL, seed);
        let behind = if layers == "lz4+" { String::new() } else { format!("+{BEHIND}") };
        agrees_with_a_model(&format!("{layers}{}{behind}", proxy.url()), 500, 40 + seed);
    }
}

#[test]
fn queue_pairs_of_layers_are_bounded() {
    let node = tcp_node(4096);
    let tcp = node.addresses()[0].to_string();
    for url in [format!("lz4+{tcp}"), format!("tier+{tcp}+{BEHIND}"), format!("lz4+tier+{tcp}+{BEHIND}")] {
        let mut client = Client::new(&url, 1);
        let start = client.allocate(1);
        is_bounded(&mut client, start);
        assert_eq!(client.store(start, 7), Status::Done);
        is_bounded(&mut client, start);
    }
}

/// Whole pages and what messages add to them, each once at least, and none that was not sent.
#[test]
fn bytes_are_counted_on_the_wire() {
    for network in [Network::Tcp, Network::Udp] {
        let node = node(network, 64);
        let mut client = Client::new(&node.addresses()[0].to_string(), 1);
        let start = client.allocate(16);
        let wire = |client: &Client, name| counter(&*client.fabric, name);
        let before = ["wire_sent_bytes", "wire_received_bytes"].map(|name| wire(&client, name));
        for turn in 0..16 {
            assert_eq!(client.store(page(start, turn), 7), Status::Done);
        }
        let stored = ["wire_sent_bytes", "wire_received_bytes"].map(|name| wire(&client, name));
        assert!((16 * 4096 + 1..32 * 4096).contains(&(stored[0] - before[0])), "{before:?}, {stored:?}");
        assert!((1..16 * 4096).contains(&(stored[1] - before[1])), "acknowledgements: {before:?}, {stored:?}");
        assert_eq!(client.load(start), (Status::Done, 7));
        assert!(wire(&client, "wire_received_bytes") - stored[1] > 4096);
    }
}

#[test]
fn less_goes_over_the_wire_when_it_is_compressed() {
    let node = tcp_node(64);
    let mut client = Client::new(&format!("lz4+{}", node.addresses()[0]), 1);
    let start = client.allocate(16);
    for turn in 0..16 {
        assert_eq!(client.store(page(start, turn), turn as u8 + 1), Status::Done);
        assert_eq!(client.load(page(start, turn)), (Status::Done, turn as u8 + 1));
    }
    let stats = node.stats();
    assert!(stats.written_bytes < 16 * 64 && stats.read_bytes < 16 * 64, "{stats:?}");
    assert_eq!(counter(&*client.fabric, "lz4_packed_bytes"), 16 * 4096);
}

#[test]
fn a_node_that_is_full_gives_what_it_has_and_the_rest_goes_far() {
    // Somebody else has most of it.
    let node = tcp_node(2048);
    let other = Client::of(&node, 1);
    other.allocate(1024 + 256);
    let url = format!("tier+{}+{BEHIND}", node.addresses()[0]);
    let mut client = Client::new(&url, 1);
    let start = client.allocate(2048);
    for number in 0..2048 {
        let value = (number % 255) as u8;
        wait_for(|| (client.store(page(start, number), value) == Status::Done).then_some(()));
    }
    let had = counter(&*client.fabric, "tier_near_bytes");
    assert!((2 << 20..=768 * 4096).contains(&had), "{had} bytes of the 3 MiB that the node has left");
    // Some at once, and others when room was made for those behind them.
    let far = ["tier_far_writes", "tier_demoted_pages"].map(|name| counter(&*client.fabric, name));
    assert!(far.iter().sum::<u64>() >= 2048 - had / 4096, "{far:?}");
    for number in 0..2048 {
        assert_eq!(client.load(page(start, number)), (Status::Done, (number % 255) as u8));
    }
}

#[test]
fn a_node_that_stops_takes_its_pages_along_and_nothing_else() {
    let node = tcp_node(4096);
    let mut client = Client::new(&format!("tier+near=1MiB+{}+{BEHIND}", node.addresses()[0]), 64);
    let start = client.allocate(512);
    for number in 0..512 {
        wait_for(|| (client.store(page(start, number), 1) == Status::Done).then_some(()));
    }
    node.stop();
    let mut lost = 0;
    for number in 0..512 {
        // The end of the connection may be seen a moment later; until then the answers are right.
        match client.load(page(start, number)) {
            (Status::Done, byte) => assert_eq!(byte, 1),
            (status, byte) => {
                assert_eq!((status, byte), (Status::Disconnected, 0xee));
                lost += 1;
            }
        }
    }
    assert!(lost > 0 && lost <= 256, "{lost} pages are lost");
    for number in 0..512 {
        wait_for(|| (client.store(page(start, number), 2) == Status::Done).then_some(()));
        assert_eq!(client.load(page(start, number)), (Status::Done, 2));
    }
    // Who comes later does without the node, too.
    let mut later = client.fabric.queue_pair(yonder_fabric::Module::Fault, client.frames.clone()).unwrap();
    std::mem::swap(&mut client.queue_pair, &mut later);
    assert_eq!(client.load(page(start, 7)), (Status::Done, 2));
    assert_eq!(client.store(page(start, 7), 3), Status::Done);
    assert_eq!(client.load(page(start, 7)), (Status::Done, 3));
}

#[test]
fn a_cut_connection_costs_a_compressed_page_nothing() {
    let node = tcp_node(32);
    let proxy = Proxy::to(address(&node), 5000);
    let mut client = Client::new(&format!("lz4+{}", proxy.url()), 16);
    let start = client.allocate(16);
    for turn in 0..10u8 {
        wait_for(|| (client.store(page(start, turn.into()), turn + 1) == Status::Done).then_some(()));
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
}
