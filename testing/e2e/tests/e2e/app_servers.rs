//! `yonder serve` and `yonder load`: applications that are asked by datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;

use rustix::process::Signal;
use yonder_e2e::{Process, TIMEOUT, Yonder, alone};

use crate::bench_apps::has_faiss;
use crate::bench_rocksdb::has_rocksdb;

const SERVER: [&str; 8] = ["serve", "rocksdb", "--listen", "127.0.0.1:0", "--memory", "24MiB", "--local", "5MiB"];

fn server(yonder: Yonder, more: &[&str]) -> Process {
    yonder.serve(&[&SERVER[..], more].concat())
}

/// What a server says to one request that is none, once it knows the address that asks.
fn reply_to(server: SocketAddr, body: &[u8]) -> Vec<u8> {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(server).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let ask = |token: &[u8]| {
        client.send(&[&[9; 8][..], token, b"yonder:2", body].concat()).unwrap();
        let mut reply = [0; 2000];
        let bytes = client.recv(&mut reply).unwrap();
        assert_eq!(reply[..8], [9; 8]);
        reply[16..bytes].to_vec()
    };
    let token = ask(&[0; 8]);
    assert_eq!(token.len(), 8, "{token:?}");
    ask(&token)
}

/// A load on a server, with JSON as its result.
fn load(yonder: Yonder, target: &str, more: &[&str]) -> serde_json::Value {
    let flags = ["load", "rocksdb", "--target", target, "--json"];
    yonder.run(&[&flags[..], more].concat()).object()
}

#[test]
fn rocksdb_answers_gets_and_scans_over_udp_and_ends_when_it_is_told_to() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    if !has_rocksdb(yonder) {
        return;
    }
    let mut server = server(yonder, &["--metrics", "127.0.0.1:0"]);
    let target = server.udp_address().to_string();
    let _metrics = server.metrics_address();
    let flags = ["--rate", "1k", "--duration", "400ms", "--scans", "5%", "--patience", "20s"];
    let open = load(yonder, &target, &flags);
    assert_eq!((&open["load"], &open["failed"], &open["lost"]), (&"rocksdb".into(), &0.into(), &0.into()), "{open}");
    let count = |kind: &str| open["kinds"][kind]["count"].as_u64().unwrap();
    assert!((250..550).contains(&(count("get") + count("scan"))) && count("scan") > 0, "{open}");
    let closed = load(yonder, &target, &["--duration", "400ms", "--threads", "2", "--window", "4", "--scan-rows", "9"]);
    assert!(closed["ops_per_s"].as_f64() > Some(50.0), "{closed}");
    assert_eq!((&closed["failed"], &closed["first_failure"]), (&0.into(), &serde_json::Value::Null), "{closed}");
    let text = yonder.run(&["load", "rocksdb", "--target", &target, "--duration", "100ms", "--window", "4"]);
    assert!(text.stdout.contains("get ") && text.stdout.contains("lost 0"), "{}", text.stdout);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn tpcc_runs_over_udp_and_its_tables_are_checked_at_the_end() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let words = "serve tpcc --listen 127.0.0.1:0 --memory 30MiB --local 20% --shrink 10 --orders 100000";
    let server = yonder.serve(&words.split(' ').collect::<Vec<_>>());
    let target = server.udp_address().to_string();
    let words = format!("load tpcc --target {target} --rate 300 --duration 800ms --patience 20s --json");
    let loaded = yonder.run(&words.split(' ').collect::<Vec<_>>()).object();
    assert_eq!(
        (&loaded["load"], &loaded["failed"], &loaded["lost"]),
        (&"tpcc".into(), &0.into(), &0.into()),
        "{loaded}"
    );
    let count = |kind: &str| loaded["kinds"][kind]["count"].as_u64().unwrap();
    assert!(count("new_order") > 50 && count("payment") > 50 && count("delivery") > 0, "{loaded}");
    // Another's load does not take it for its own.
    let other = yonder.run(&["load", "rocksdb", "--target", &target]);
    assert!(other.complaint(1).contains("is no rocksdb but {\"app\":\"tpcc\""), "{}", other.stderr);
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("the tables are consistent after "), "{}", ended.stderr);
}

#[test]
fn searches_over_udp_find_what_an_index_of_the_client_does() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    if !has_faiss(yonder) {
        return;
    }
    let words = "serve vector --listen 127.0.0.1:0 --memory 8MiB --local 2MiB --lists 32";
    let server = yonder.serve(&words.split(' ').collect::<Vec<_>>());
    let target = server.udp_address().to_string();
    let words = format!("load vector --target {target} --rate 100 --duration 800ms --probes 2 --patience 20s --json");
    let loaded = yonder.run(&words.split(' ').collect::<Vec<_>>()).object();
    assert_eq!((&loaded["failed"], &loaded["lost"]), (&0.into(), &0.into()), "{loaded}");
    assert!(loaded["kinds"]["search"]["count"].as_u64() > Some(40), "{loaded}");
    // A query of another length than the vectors is refused, and the next is answered.
    let reply = reply_to(server.udp_address(), &[1, 1, 0, 0, 0, 0, 1, 1]);
    assert_eq!(reply, b"a query of 1 numbers among vectors of 128: give 128");
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn requests_that_are_none_are_refused_and_do_not_hurt_the_server() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    if !has_rocksdb(yonder) {
        return;
    }
    let server = server(yonder, &[]);
    // A key that RocksDB's tables cannot have, and a scan without end.
    let scan = [&[1][..], &u32::MAX.to_le_bytes(), &[b'0'; 50]].concat();
    for (body, text) in
        [(&b"\0short"[..], "a key of 5 bytes: all have 50"), (&scan, "a SCAN of 4294967295 rows: ask for 1 to 10000")]
    {
        assert_eq!(reply_to(server.udp_address(), body), text.as_bytes());
    }
    let after = load(yonder, &server.udp_address().to_string(), &["--duration", "1s"]);
    assert!(after["ops_per_s"].as_f64() > Some(50.0), "{after}");
}

/// Starts a server of an application with its data on a node, and loads it before and after the node is killed.
fn loses_its_node(yonder: Yonder, app: &str, flags: &str, asks: &str) {
    let node = yonder.serve(&["node", "--listen", "tcp://127.0.0.1:0", "--memory", "256MiB"]);
    let far = node.url("tcp");
    let words = format!("serve {app} --listen 127.0.0.1:0 --local 5MiB --far {far} --deadline 4s {flags}");
    let server = yonder.serve(&words.split(' ').collect::<Vec<_>>());
    let target = server.udp_address();
    let load = |more: &str| {
        let words = format!("load {app} --target {target} --patience 20s --json {asks} {more}");
        yonder.run(&words.split(' ').collect::<Vec<_>>()).object()
    };
    let before = load("--rate 100 --duration 2s");
    assert_eq!((&before["failed"], &before["lost"]), (&0.into(), &0.into()), "{before}");
    node.kill();
    let after = load("--rate 300 --duration 2s");
    assert!(after["failed"].as_u64() > Some(0), "{after}");
    assert!(after["first_failure"].as_str().is_some_and(|why| why.starts_with("far memory ")), "{after}");
    server.signal(Signal::INT);
    let ended = server.end();
    // Tables that cannot be read cannot be checked, and nothing says that they are consistent.
    assert_eq!(ended.code, Some(i32::from(app == "tpcc")), "{}", ended.stderr);
    assert!(!ended.stderr.contains("consistent"), "{}", ended.stderr);
}

#[test]
fn a_lost_node_fails_requests_and_the_server_goes_on() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    loses_its_node(yonder, "tpcc", "--memory 30MiB --shrink 10 --orders 100000", "--threads 1");
    if has_rocksdb(yonder) {
        loses_its_node(yonder, "rocksdb", "--memory 24MiB", "--scans 5%");
    }
    if has_faiss(yonder) {
        loses_its_node(yonder, "vector", "--memory 24MiB --lists 64", "--probes 2");
    }
}

#[test]
fn a_library_that_is_missing_is_named_with_its_package() {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("librocksdb.so"), "no library").unwrap();
    for (app, package) in [("rocksdb", "librocksdb-dev"), ("vector", "g++ libfaiss-dev")] {
        let ended = Command::new(yonder.path())
            .args(["serve", app, "--listen", "127.0.0.1:0", "--memory", "80MiB"])
            .env("LD_LIBRARY_PATH", folder.path())
            .env("PATH", folder.path())
            .env("XDG_CACHE_HOME", folder.path().join("kept"))
            .output()
            .unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(&format!("type: sudo apt-get install {package}")), "{said}");
    }
}

#[test]
fn what_cannot_be_asked_is_one_line_that_says_what_to_type() {
    let Some(yonder) = Yonder::ready() else { return };
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let nobody = yonder.run(&["load", "rocksdb", "--target", &free]);
    assert!(nobody.complaint(1).contains(&format!("start `yonder serve rocksdb --listen {free} ...` first")));
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = yonder.run(&["serve", "rocksdb", "--listen", &address]);
    assert!(refused.complaint(1).contains("type --listen with a free address"), "{}", refused.stderr);
    for flags in [&["--rate", "0"][..], &["--scan-rows", "10001"], &["--window", "0"], &["--scans", "101"]] {
        let ended = yonder.run(&[&["load", "rocksdb"][..], flags].concat());
        assert!(ended.complaint(2).contains("type "), "{}", ended.stderr);
    }
}
