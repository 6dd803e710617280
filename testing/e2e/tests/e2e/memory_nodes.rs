//! `yonder kv` over a `yonder node` that is a process of its own, by tcp and by shm, alone and shared.

use std::path::Path;

use yonder_e2e::{Client, Content, Process, Yonder};

/// A node on both kinds of address.
fn start_node(yonder: Yonder, folder: &Path, memory: &str) -> Process {
    let socket = folder.join("node.sock");
    let listen = format!("tcp://127.0.0.1:0,shm://{}", socket.display());
    yonder.serve(&["node", "--listen", &listen, "--memory", memory])
}

/// A server with 4 MiB of local memory.
fn start_kv(yonder: Yonder, far: &str) -> Process {
    yonder.serve(&["kv", "--listen", "127.0.0.1:0", "--far", far, "--memory", "32MiB", "--local", "4MiB"])
}

fn items_survive_the_way_to_a_node_and_back(scheme: &str) {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start_node(yonder, folder.path(), "64MiB");
    let content = Content { name: "far", keys: 20_000, value_bytes: 1000 };
    for round in 1..=2 {
        // The second server gets memory that the first has used and given back: it must not see anything of it.
        let server = start_kv(yonder, &node.url(scheme));
        let mut client = Client::connect(server.address());
        assert_eq!(client.ask(&format!("get {}", content.key(7))), "END");
        client.fill(&content, 0..content.keys, round);
        client.verify(&content, 0..content.keys, round);
        client.fill(&content, (0..content.keys).step_by(3), 10 * round);
        client.verify(&content, (0..content.keys).step_by(3), 10 * round);
        let stats = client.stats();
        assert!(stats.number("fetched_bytes") > stats.number("bytes") && stats.number("written_bytes") > 0);
        assert!(stats.number("local_peak_bytes") <= stats.number("local_limit_bytes"));
        assert_eq!(stats.number("paging_errors"), 0);
        let ended = server.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    let ended = node.stop();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("writes served"), "{}", ended.stderr);
}

#[test]
fn items_survive_the_way_to_a_node_and_back_over_tcp() {
    items_survive_the_way_to_a_node_and_back("tcp");
}

#[test]
fn items_survive_the_way_to_a_node_and_back_over_shm() {
    items_survive_the_way_to_a_node_and_back("shm");
}

#[test]
fn two_servers_share_a_node_and_see_nothing_of_each_other() {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start_node(yonder, folder.path(), "80MiB");
    let servers = ["tcp", "shm"].map(|scheme| start_kv(yonder, &node.url(scheme)));
    // The same name, so the same keys: only the versions differ.
    let content = Content { name: "same", keys: 12_000, value_bytes: 1000 };
    std::thread::scope(|scope| {
        for (version, address) in (1..).zip(servers.each_ref().map(Process::address)) {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                client.fill(&content, 0..content.keys, version);
                client.verify(&content, 0..content.keys, version);
            });
        }
    });
    // One ends, and gives its memory back; the other goes on.
    let [first, second] = servers;
    assert_eq!(first.stop().code, Some(0));
    let mut client = Client::connect(second.address());
    client.verify(&content, 0..content.keys, 2);
    let third = start_kv(yonder, &node.url("tcp"));
    Client::connect(third.address()).fill(&content, 0..content.keys, 3);
    client.verify(&content, 0..content.keys, 2);
}

#[test]
fn a_node_without_room_is_one_clear_line_and_hurts_nobody() {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start_node(yonder, folder.path(), "48MiB");
    let first = start_kv(yonder, &node.url("tcp"));
    let content = Content { name: "first", keys: 6000, value_bytes: 1000 };
    let mut client = Client::connect(first.address());
    client.fill(&content, 0..content.keys, 1);
    for scheme in ["tcp", "shm"] {
        let url = node.url(scheme);
        let second =
            yonder.run(&["kv", "--listen", "127.0.0.1:0", "--far", &url, "--memory", "32MiB", "--local", "4MiB"]);
        let complaint = second.complaint(1);
        assert!(complaint.contains(&url) && complaint.contains("no room"), "{complaint}");
    }
    client.verify(&content, 0..content.keys, 1);
    assert_eq!(first.stop().code, Some(0));
    // What the first server has given back is enough for another.
    let next = start_kv(yonder, &node.url("tcp"));
    Client::connect(next.address()).fill(&content, 0..content.keys, 2);
}
