//! Servers whose pages are on the nodes of a controller (`yonder://`): a space larger than any node, of which a node
//! is drained, and the controller killed, without a client that notices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use yonder_e2e::{Client, Content, Process};

use crate::cluster::Cluster;

/// More than one node has, and many times what is local.
const CONTENT: Content = Content { name: "spread", keys: 22_000, value_bytes: 1000 };

fn far(cluster: &Cluster) -> String {
    cluster.at().replace("tcp://", "yonder://")
}

fn server(cluster: &Cluster, far: &str) -> Process {
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--local", "4MiB", "--far", far];
    let server = cluster.yonder.serve(&flags);
    Client::connect(server.address()).fill(&CONTENT, 0..CONTENT.keys, 1);
    server
}

#[test]
fn a_server_on_many_nodes_goes_on_while_one_is_drained_and_the_controller_starts_anew() {
    let mut cluster = Cluster::start();
    let nodes = ["udp", "tcp", "udp", "tcp"].map(|scheme| (cluster.node(scheme), scheme));
    let server = server(&cluster, &far(&cluster));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (is_done, address) = (&is_done, server.address());
        let reader = scope.spawn(move || {
            let mut client = Client::connect(address);
            let mut rounds = 0;
            while !is_done.load(Ordering::Acquire) || rounds == 0 {
                client.verify(&CONTENT, (rounds % 10..CONTENT.keys).step_by(10), 1);
                rounds += 1;
            }
        });
        let (drained, at) = (nodes[0].0.url(nodes[0].1), cluster.at());
        let ended = cluster.yonder.run(&["controller", "drain", &drained, "--at", &at]);
        is_done.store(true, Ordering::Release);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(cluster.view(&drained).expect("it is known")["regions"], 0);
        reader.join().expect("nothing was lost");
    });
    cluster.restart_controller();
    Client::connect(server.address()).verify(&CONTENT, 0..CONTENT.keys, 1);
    // What is left of the four is room for three: all is there still.
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}
