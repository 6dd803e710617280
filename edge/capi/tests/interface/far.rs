//! Programs in C whose memory is far, over emulated memory and over a node.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use yonder_node::{Listen, Node, NodeConfig};

use crate::toolchain::{Toolchain, file, succeed};

pub(crate) const MIB: u64 = 1 << 20;
/// The emulated link is fast, so that tests are.
const EMULATED: &str = "emu://?latency=2us&gbps=100";

/// The toolchain, if far memory can be had here; else prints `SKIP`.
pub(crate) fn ready() -> Option<Toolchain> {
    if let Err(error) = yonder::abilities().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    Toolchain::ready()
}

/// A node, for as long as `test` runs, and its URL.
pub(crate) fn with_node(toolchain: &Toolchain, memory: u64, test: impl Fn(&str)) {
    let listen = vec![Listen::Tcp("127.0.0.1:0".to_owned()), Listen::Shm(toolchain.folder().join("far.sock"))];
    let node = Node::start(NodeConfig::new(listen, memory)).unwrap();
    let before = node.stats();
    for address in node.addresses() {
        test(&address.to_string());
    }
    assert_eq!(node.stats().allocated_bytes, before.allocated_bytes, "the node has all of its memory again");
}

#[test]
fn far_memory_does_what_the_header_says() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("tests/interface/far_rules.c"));
    let nowhere = format!("shm://{}/nowhere.sock", toolchain.folder().display());
    let run = |url: &str| {
        let said = succeed(Command::new(&program).args([url, &nowhere])).stdout;
        assert_eq!(String::from_utf8_lossy(&said), "done\n");
    };
    run(EMULATED);
    with_node(&toolchain, 64 * MIB, run);
}

#[test]
fn advice_does_what_the_header_says() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("tests/interface/swap_advise.c"));
    let said = String::from_utf8(succeed(Command::new(&program).arg(EMULATED)).stdout).unwrap();
    assert!(said.ends_with("done\n"), "{said}");
}

#[test]
fn misuse_ends_the_program_with_one_line() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("tests/interface/far_rules.c"));
    for how in ["twice", "inside", "foreign", "closed", "elsewhere"] {
        let output = Command::new(&program).args([EMULATED, how]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.signal(), said.lines().count()), (Some(6), 1), "{how}: {said}");
        assert!(said.starts_with("yonder: nothing is allocated at address 0x"), "{how}: {said}");
        assert!(output.stdout.is_empty(), "{how}");
    }
}

#[test]
fn threads_keep_what_they_store_in_far_memory() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("tests/interface/far_heap.c"));
    let run = |url: &str, seed: &str| {
        let said = succeed(Command::new(&program).args([url, seed])).stdout;
        assert_eq!(String::from_utf8_lossy(&said), "done\n");
    };
    (1..4).for_each(|seed| run(EMULATED, &seed.to_string()));
    with_node(&toolchain, 512 * MIB, |url| run(url, "4"));
}

#[test]
fn the_example_uses_more_than_is_local() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("examples/far_array.c"));
    let run = |url: &str| {
        let said = String::from_utf8(succeed(Command::new(&program).arg(url)).stdout).unwrap();
        assert!(said.contains("the sum is 8796090925056\n"), "{said}");
        let local =
            said.split("32 MiB were used, and at most ").nth(1).and_then(|rest| rest.split_once(" MiB of them local"));
        assert!(local.is_some_and(|(local, _)| local.parse().is_ok_and(|local: u64| local <= 4)), "{said}");
    };
    run(EMULATED);
    with_node(&toolchain, 64 * MIB, run);
}

/// Far memory that takes no writes, and fetches nothing.
const FAILING: &str = "emu://?latency=2us&error=1";

#[test]
fn paging_errors_are_caught() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("tests/interface/far_errors.c"));
    let said = succeed(Command::new(&program).args(["full", FAILING])).stdout;
    assert_eq!(String::from_utf8_lossy(&said), "done\n");
    let output = Command::new(&program).args(["uncaught", FAILING]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.signal(), said.lines().count()), (Some(6), 1), "{said}");
    assert!(
        said.starts_with("yonder: paging error at address 0x") && said.contains("local memory stays full"),
        "{said}"
    );
}

#[test]
fn a_program_outlives_its_node() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("tests/interface/far_errors.c"));
    let node = Node::start(NodeConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())], 64 * MIB)).unwrap();
    let url = node.addresses()[0].to_string();
    let mut command = Command::new(&program);
    let mut child = command.args(["lost", &url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    drop(node);
    child.stdin.take().unwrap().write_all(b"!").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "done");
    assert!(child.wait().unwrap().success());
}
