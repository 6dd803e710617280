//! [`StalledPath`]: the way to one node, on which requests of some connections stand still, and go on later, or all
//! requests are late.
//!
//! The node registers through the path, as with `lossy_path`. Connections have numbers, in their order.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::cluster::lossy_path::{pass, pass_registrations};
use crate::cluster::scene::Scene;

/// The way to a node, for as long as the test runs.
pub(crate) struct StalledPath {
    /// Where the node finds its controller.
    pub(crate) controller: String,
    /// Where others find the node.
    pub(crate) url: String,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    connections: Mutex<Connections>,
    has_changed: Condvar,
}

#[derive(Default)]
struct Connections {
    count: usize,
    stalled: BTreeSet<usize>,
    delay: Duration,
}

impl StalledPath {
    pub(crate) fn new(scene: &Scene) -> Self {
        let requests = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", requests.local_addr().unwrap());
        let (controller, node) = pass_registrations(scene, url.clone());
        let gate = Arc::new(Gate::default());
        let gates = Arc::clone(&gate);
        thread::spawn(move || {
            for client in requests.incoming().map_while(Result::ok) {
                let node: SocketAddr = node.lock().unwrap().expect("a node has registered before others reach it");
                if let Ok(node) = TcpStream::connect(node) {
                    carry(client, node, &gates);
                }
            }
        });
        Self { controller, url, gate }
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.gate.connections.lock().unwrap().count
    }

    /// These connections stand still from now on, and no others.
    pub(crate) fn stall(&self, connections: impl IntoIterator<Item = usize>) {
        self.gate.connections.lock().unwrap().stalled = connections.into_iter().collect();
        self.gate.has_changed.notify_all();
    }

    /// What is asked takes so much longer from now on.
    pub(crate) fn delay(&self, delay: Duration) {
        self.gate.connections.lock().unwrap().delay = delay;
    }
}

/// Passes requests on while the connection does not stand still, and answers always.
fn carry(client: TcpStream, node: TcpStream, gate: &Arc<Gate>) {
    let number = {
        let mut connections = gate.connections.lock().unwrap();
        connections.count += 1;
        connections.count - 1
    };
    let (mut answers, mut answered) = (node.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || pass(&mut answers, &mut answered));
    let (gate, mut client, mut node) = (Arc::clone(gate), client, node);
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(length @ 1..) = client.read(&mut bytes) {
            let connections = gate.connections.lock().unwrap();
            let passes = gate.has_changed.wait_while(connections, |now| now.stalled.contains(&number));
            let delay = passes.unwrap().delay;
            thread::sleep(delay); // tidy: sleep: it is what is tested, and nothing waits for it to be over
            if node.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = (client.shutdown(Shutdown::Both), node.shutdown(Shutdown::Both));
    });
}
