//! Programs in C against a node, over every transport.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use yonder_node::{Listen, Node, NodeConfig};

use crate::toolchain::{Toolchain, file, has, succeed};

const MIB: u64 = 1 << 20;

/// A node that listens on every transport.
fn start_node(folder: &Path) -> Node {
    let loopback = || "127.0.0.1:0".to_owned();
    let listen = vec![Listen::Udp(loopback()), Listen::Tcp(loopback()), Listen::Shm(folder.join("node.sock"))];
    Node::start(NodeConfig { page_bytes: Some(64 << 10), ..NodeConfig::new(listen, 64 * MIB) }).unwrap()
}

fn urls(node: &Node) -> Vec<String> {
    node.addresses().iter().map(ToString::to_string).collect()
}

/// An address at which there is no node.
fn nowhere(folder: &Path) -> String {
    format!("shm://{}/nowhere.sock", folder.display())
}

#[test]
fn every_function_does_what_the_header_says() {
    let Some(toolchain) = Toolchain::ready() else { return };
    let node = start_node(toolchain.folder());
    // The node's offloads have address spaces too.
    let before = node.stats();
    let program = toolchain.build(&file("tests/interface/calls.c"));
    for url in urls(&node) {
        succeed(Command::new(&program).args([&url, &nowhere(toolchain.folder())]));
    }
    let after = node.stats();
    assert_eq!((after.spaces, after.allocated_bytes), (before.spaces, before.allocated_bytes), "all is free again");
}

#[test]
fn valgrind_finds_nothing() {
    let Some(toolchain) = Toolchain::ready() else { return };
    if !has("valgrind") {
        println!("SKIP: no valgrind: type apt-get install valgrind");
        return;
    }
    let node = start_node(toolchain.folder());
    // A stream: under valgrind answers take so long that a lane of datagrams sees congestion and slows down to a crawl.
    let url = &urls(&node)[1];
    let sources = ["examples/counter.c", "examples/pipeline.c", "tests/interface/calls.c"].map(file);
    for source in sources {
        let program = toolchain.build(&source);
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        command.arg(&program).arg(url);
        if source.ends_with("calls.c") {
            command.arg(nowhere(toolchain.folder()));
        }
        succeed(&mut command);
    }
}

#[test]
fn a_node_that_goes_away_is_an_error_and_no_signal() {
    let Some(toolchain) = Toolchain::ready() else { return };
    let program = toolchain.build(&file("tests/interface/silence.c"));
    for transport in 0..3 {
        let node = start_node(toolchain.folder());
        let mut command = Command::new(&program);
        command.arg(&urls(&node)[transport]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        drop(node);
        drop(child.stdin.take());
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() && rest == "done\n", "transport {transport}: {status}: {rest}");
    }
}
