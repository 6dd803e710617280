//! A server that runs out of file descriptors: it goes on serving, does not spin, and accepts again later.
//!
//! The limit concerns a whole process, so the test runs itself once more as a process of its own.

use std::net::TcpStream;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{Running, ask};
use crate::memory::FlatMemory;

const CHILD: &str = "YONDER_KV_TEST_FEW_FILES";
const FILES_MAX: u64 = 40;

#[test]
fn a_server_without_file_descriptors_serves_on_and_recovers() {
    if std::env::var_os(CHILD).is_some() {
        return exhausted();
    }
    let test = "exhaustion::a_server_without_file_descriptors_serves_on_and_recovers";
    let child = Command::new(std::env::current_exe().expect("the test has a path"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("the test can be run again");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}

fn exhausted() {
    let server = Running::start(FlatMemory::new(16 << 20), |_| {});
    let mut first = server.connect();
    ask(&mut first, b"set k 0 0 1\r\n1\r\n", b"STORED\r\n");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES_MAX), ..limit }).expect("limits can be lowered");
    // Both ends of each connection are ours, so the client's side runs out while the server's still waits to be
    // accepted, or the other way round.
    let mut clients: Vec<TcpStream> = Vec::new();
    while let Ok(client) = TcpStream::connect(server.tcp) {
        clients.push(client);
    }
    assert!(clients.len() >= 10, "{} connections", clients.len());
    for _ in 0..100 {
        assert_eq!(ask(&mut first, b"get k\r\n", b"END\r\n"), b"VALUE k 0 1\r\n1\r\nEND\r\n");
    }
    // The last client waits to be accepted until others leave.
    let mut last = clients.pop().expect("there are many");
    drop(clients);
    assert_eq!(ask(&mut last, b"get k\r\n", b"END\r\n"), b"VALUE k 0 1\r\n1\r\nEND\r\n");
}
