//! The whole server over emulated far memory: five times more data than local memory, requests that yield on faults.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use yonder::sched::{SchedConfig, SchedStats, serve};
use yonder::{Config, FarMemory};
use yonder_kv::{KvConfig, KvServer};

use crate::harness::{connect, read_until, stat};
use crate::memory::stamped;

const LOCAL_BYTES: u64 = 4 << 20;
const KEYS: usize = 20_000;
const CLIENTS: usize = 4;
const BATCHES: usize = 60;
const BATCH: usize = 50;

#[test]
fn values_survive_the_way_to_far_memory_and_back() {
    if let Err(error) = yonder::abilities().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    let far = FarMemory::open("emu://?latency=2.5us&gbps=100&size=64MiB", Config::with_local(LOCAL_BYTES))
        .expect("emulated memory can be opened");
    let region = far.region(32 << 20).expect("there is room");
    let config = KvConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = KvServer::bind(config, region).expect("loopback has free ports");
    let (address, shutdown) = (server.tcp_address().expect("it listens for TCP"), server.shutdown());
    let (mut frontend, handler) = server.into_parts();
    let handler = Arc::new(handler);
    let sched = SchedConfig { workers: 2, ..SchedConfig::default() };
    std::thread::scope(|scope| {
        let dispatcher = scope.spawn({
            let far = &far;
            move || serve(&sched, far, &handler, &mut frontend, &SchedStats::default()).expect("the server runs")
        });
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || converse(address, number))).collect();
        for client in clients {
            client.join().expect("every value was right");
        }
        let mut client = connect(address);
        assert_eq!(stat(&mut client, "evictions"), 0);
        assert_eq!(stat(&mut client, "curr_items"), KEYS as u64);
        assert_eq!(stat(&mut client, "far_memory_errors"), 0);
        assert!(stat(&mut client, "bytes") > 4 * LOCAL_BYTES);
        shutdown.request();
        dispatcher.join().expect("the dispatcher does not panic");
    });
    assert!(far.stats().major_faults > 1000, "far memory was used");
}

/// Writes a client's share of the keys, then reads and rewrites random ones of them, in pipelined batches.
fn converse(address: SocketAddr, number: usize) {
    let mut client = connect(address);
    let own = || (number..KEYS).step_by(CLIENTS);
    for keys in own().collect::<Vec<_>>().chunks(BATCH) {
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        for key in keys {
            let value = stamped(*key as u64, value_bytes(*key));
            input.extend(format!("set {key} 0 0 {}\r\n", value.len()).bytes().chain(value).chain(*b"\r\n"));
            expected.extend(*b"STORED\r\n");
        }
        exchange(&mut client, &input, &expected);
    }
    let mut sequence = number as u64 + 1;
    for _ in 0..BATCHES {
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..BATCH {
            sequence = sequence.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (sequence >> 33) as usize % (KEYS / CLIENTS) * CLIENTS + number;
            let value = stamped(key as u64, value_bytes(key));
            input.extend(format!("get {key}\r\n").bytes());
            expected.extend(
                format!("VALUE {key} 0 {}\r\n", value.len()).bytes().chain(value.clone()).chain(*b"\r\nEND\r\n"),
            );
            if sequence.is_multiple_of(3) {
                input.extend(format!("set {key} 0 0 {}\r\n", value.len()).bytes().chain(value).chain(*b"\r\n"));
                expected.extend(*b"STORED\r\n");
            }
        }
        exchange(&mut client, &input, &expected);
    }
}

fn exchange(client: &mut std::net::TcpStream, input: &[u8], expected: &[u8]) {
    client.write_all(input).expect("the server listens");
    let mut output = Vec::new();
    while output.len() < expected.len() {
        output.extend(read_until(client, b"\r\n"));
    }
    assert!(output == expected, "{} came instead of {}", output.escape_ascii(), expected.escape_ascii());
}

fn value_bytes(key: usize) -> usize {
    200 + key * 7919 % 1500
}
