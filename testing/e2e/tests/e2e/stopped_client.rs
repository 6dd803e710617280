//! A client that stands still for longer than its lease, as under a debugger, Ctrl-Z or suspend: its memory on the node
//! ends, and other tenants get it. When it goes on it neither reads zeros or their bytes, nor writes over them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Instant;

use rustix::process::Signal;
use yonder_e2e::{Client, Content, Got, Process, TIMEOUT, Yonder, alone};

/// The answer of a request that needs a page which cannot be had.
const REFUSAL: &str = "SERVER_ERROR far memory unavailable";
/// What the client has that stands still. Five times its local memory.
const STOPPED: Content = Content { name: "stopped", keys: 20_000, value_bytes: 1000 };
/// What another tenant stores meanwhile. Together with the first it is more than the node has.
const OTHER: Content = Content { name: "other", keys: 30_000, value_bytes: 1000 };
const OTHER_MEMORY: &str = "48MiB";
/// How many address spaces the node has.
const SPACES: &str = "yonder_node_spaces ";

/// A server with 4 MiB of local memory.
fn start_server(yonder: Yonder, far: &str, memory: &str) -> Process {
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", memory, "--local", "4MiB", "--deadline", "500ms"];
    yonder.serve(&[&flags[..], &["--far", far]].concat())
}

/// The value of a metric of the node.
fn metric(at: SocketAddr, name: &str) -> u64 {
    let mut stream = TcpStream::connect(at).expect("the node serves metrics");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("there is no {name} in {text}"))
}

fn wait_for_spaces(at: SocketAddr, spaces: u64) {
    let give_up = Instant::now() + TIMEOUT;
    while metric(at, SPACES) != spaces {
        assert!(Instant::now() < give_up, "there are not {spaces} address spaces");
        std::thread::yield_now();
    }
}

/// Reads all items of a client that stood still. Returns how many were there; every other one was refused.
fn survey(client: &mut Client) -> u64 {
    let mut there = 0;
    for index in 0..STOPPED.keys {
        let key = STOPPED.key(index);
        match client.get(&key) {
            Got::Value(value) => {
                assert!(value == STOPPED.value(index, 1), "{key} has a wrong value");
                there += 1;
            }
            Got::Refused(line) => assert_eq!(line, REFUSAL, "{key}"),
            Got::Miss => panic!("{key} was stored, and is said not to be there"),
        }
        // What is lost is refused at the deadline each time; a few of those are enough.
        if index + 1 - there > 20 {
            break;
        }
    }
    there
}

fn stands_still(yonder: Yonder, folder: &Path, scheme: &str) {
    let socket = folder.join(format!("{scheme}.sock"));
    let listen =
        if scheme == "shm" { format!("shm://{}", socket.display()) } else { format!("{scheme}://127.0.0.1:0") };
    let mut node = yonder.serve(&["node", "--listen", &listen, "--memory", "64MiB", "--metrics", "127.0.0.1:0"]);
    let metrics = node.metrics_address();
    // Offloads have some of their own.
    let before = metric(metrics, SPACES);
    let stopped = start_server(yonder, &format!("{}?lease=2s", node.url(scheme)), "32MiB");
    let mut client = Client::connect(stopped.address());
    client.fill(&STOPPED, 0..STOPPED.keys, 1);
    client.verify(&STOPPED, (0..STOPPED.keys).step_by(100), 1);
    wait_for_spaces(metrics, before + 1);

    stopped.signal(Signal::STOP);
    wait_for_spaces(metrics, before);
    // It takes the memory over.
    let other = start_server(yonder, &node.url(scheme), OTHER_MEMORY);
    let mut tenant = Client::connect(other.address());
    tenant.fill(&OTHER, 0..OTHER.keys, 1);

    stopped.signal(Signal::CONT);
    let there = survey(&mut client);
    assert!(there < STOPPED.keys, "nothing was remote");
    // What it would store now would be written over what the other one has.
    for index in 0..200 {
        let answer = client.set(&STOPPED.key(index), &STOPPED.value(index, 2));
        assert!(answer == "STORED" || answer == REFUSAL, "{answer}");
        if answer == REFUSAL {
            break;
        }
    }
    tenant.verify(&OTHER, 0..OTHER.keys, 1);
    drop(stopped);
    assert_eq!(other.stop().code, Some(0));
}

#[test]
fn a_client_that_stood_still_beyond_its_lease_is_refused_and_harms_nobody() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for scheme in ["shm", "tcp"] {
        stands_still(yonder, folder.path(), scheme);
    }
}
