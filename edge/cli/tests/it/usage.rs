//! The command line from outside: what is wrong is one line on standard error that says what to type, the exit code
//! tells scripts, and `--json` prints JSON Lines and nothing else on standard output.
//!
//! Exit code 2 is for what cannot be understood, 1 for what cannot be done. Longer scenarios are in `testing/e2e`.

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn yonder(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yonder"));
    command.args(args).env_remove("YONDER_LOG");
    command.output().expect("the binary can be started")
}

/// Runs a command line that is wrong and returns its complaint.
fn complaint(args: &[&str], code: i32) -> String {
    let output = yonder(args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?} said: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?} printed: {}", String::from_utf8_lossy(&output.stdout));
    let line = stderr.strip_suffix('\n').unwrap_or_else(|| panic!("{args:?} said no line: '{stderr}'"));
    assert!(line.starts_with("yonder: ") && !line.contains(['\n', '\r', '\u{1b}']), "{args:?} said: {stderr}");
    line.to_owned()
}

/// An address that is taken, so that a server that ignores a bad flag ends with another complaint instead of serving.
fn taken_address() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

#[test]
fn what_cannot_be_understood_says_what_to_type() {
    let (_listener, taken) = taken_address();
    let taken = taken.to_string();
    for (args, wrong, right) in [
        (&["frobnicate"][..], "'frobnicate'", "yonder --help"),
        (&["demmo"], "'demmo'", "'demo'"),
        (&["kv", "--listen", &taken, "--memroy", "1GiB"], "'--memroy'", "'--memory'"),
        (&["kv", "--listen", &taken, "extra"], "'extra'", "yonder kv --help"),
        (&["kv", "--listen", &taken, "--memory", "64mb"], "'64mb'", "64MiB"),
        (&["kv", "--listen", &taken, "--memory", "-1GiB"], "'-1'", "yonder kv --help"),
        (&["kv", "--listen", &taken, "--memory", "lots"], "'lots'", "64MiB"),
        (&["kv", "--listen", &taken, "--local", "120%"], "'120%'", "20%"),
        (&["kv", "--listen", &taken, "--local", "0%"], "'0%'", "20%"),
        (&["kv", "--listen", &taken, "--faults", "lazy"], "'lazy'", "busy"),
        (&["kv", "--listen", &taken, "--dispatch", "random"], "'random'", "pf-aware"),
        (&["kv", "--listen", &taken, "--dispatch", "guessed"], "'guessed'", "predicted"),
        (&["kv", "--listen", &taken, "--delegation", "maybe"], "'maybe'", "off"),
        (&["kv", "--listen", &taken, "--deadline", "5"], "'5'", "ms"),
        (&["kv", "--listen", &taken, "--deadline", "0s"], "'0s'", "5s"),
        (&["kv", "--listen", &taken, "--workers", "0"], "'0'", "at least 1"),
        (&["kv", "--listen", &taken, "--max-inflight", "0"], "'0'", "at least 1"),
        (&["kv", "--listen", &taken, "--connections", "0"], "'0'", "at least 1"),
        (&["kv", "--listen", "127.0.0.1:99999"], "'127.0.0.1:99999'", "127.0.0.1:11211"),
        (&["kv", "--listen", "here"], "'here'", "unix:///"),
        (&["kv", "--listen", &taken, "--udp", "127.0.0.1:99999"], "'127.0.0.1:99999'", "yonder kv --help"),
        (&["node", "--memory", "64MiB"], "--listen", "yonder node --help"),
        (&["node", "--listen", "tcp://127.0.0.1:0"], "--memory", "yonder node --help"),
        (&["node", "--listen", "http://x", "--memory", "1GiB"], "'http://x'", "tcp://"),
        (&["node", "--listen", "tcp://127.0.0.1:0", "--memory", "1GiB", "--controller", "x"], "'x'", "HOST:PORT"),
        (
            &["node", "--listen", "tcp://127.0.0.1:0", "--memory", "1GiB", "--region-size", "1GiB"],
            "--controller",
            "node --help",
        ),
        (&["controller"], "--listen", "yonder controller --help"),
        (&["controller", "--listen", "udp://127.0.0.1:0"], "'udp://127.0.0.1:0'", "HOST:PORT"),
        (&["controller", "--listen", &taken, "--lease", "0s"], "'0s'", "5s"),
        (&["controller", "--listen", &taken, "--region-size", "1gb"], "'1gb'", "64MiB"),
        (&["controller", "--listen", &taken, "--etcd", "127.0.0.1:2379"], "'127.0.0.1:2379'", "https://HOST:PORT"),
        (&["controller", "--listen", &taken, "--etcd", "http://h:1", "--state", "x"], "--state", "controller --help"),
        (&["controller", "--listen", &taken, "nodes", "--at", &taken], "--listen", "controller --help"),
        (&["controller", "list"], "'list'", "yonder controller --help"),
        (&["controller", "nodes"], "--at", "yonder controller nodes --help"),
        (&["controller", "nodes", "--at", "here"], "'here'", "HOST:PORT"),
        (&["controller", "nodes", "--at", &taken, "--identity", "a", "--key", "b"], "--key", "nodes --help"),
        (&["controller", "spaces"], "--at", "yonder controller spaces --help"),
        (&["controller", "tenants"], "--at", "yonder controller tenants --help"),
        (&["controller", "drain", "--at", &taken], "<NODE>", "yonder controller drain --help"),
        (&["cluster", "add", "king", "arthur"], "'king'", "operator"),
        (&["cluster", "add", "node"], "<NAME>", "yonder cluster add --help"),
        (&["cluster", "add", "node", "n1", "--days", "0"], "'0'", "1..=3650"),
        (&["cluster", "key"], "<FILE>", "yonder cluster key --help"),
        (&["load", "kv", "--rate", "fast"], "'fast'", "max"),
        (&["load", "kv", "--rate", "0"], "'0'", "max"),
        (&["load", "kv", "--dist", "zipf:-1"], "'zipf:-1'", "zipf:0.99"),
        (&["load", "kv", "--mix", "get=50,set=60"], "110", "get=95,set=5"),
        (&["load", "redis"], "'redis'", "yonder load --help"),
        (&["doctor", "--verbose"], "'--verbose'", "yonder doctor --help"),
        (&["papers", "cots"], "'cots'", "type `yonder papers costs`"),
        (&["sim", "costs", "frobnicate"], "'frobnicate'", "type one of costs"),
        (&["papers", "all", "--seed", "lucky"], "'lucky'", "yonder papers --help"),
        (&["report", "--sets", "sim,poster"], "'poster'", "breakdown"),
        (&["top", "--interval", "often"], "'often'", "ms"),
    ] {
        let line = complaint(args, 2);
        assert!(line.contains(wrong) && line.contains(right), "{args:?} said: {line}");
    }
}

#[test]
fn benchmarks_that_cannot_be_understood_say_what_to_type() {
    for (args, wrong, right) in [
        (&["bench", "arry"][..], "'arry'", "'array'"),
        (&["bench", "array", "--rate", "10k,fast"], "'fast'", "max"),
        (&["bench", "array", "--duration", "0s"], "'0s'", "5s"),
        (&["bench", "programs", "--programs", "sort,quake"], "'quake'", "redis-server, memcached"),
        (&["bench", "programs", "--local", "25%,0%"], "'0%'", "20%"),
        (&["bench", "programs", "--legs", "native,disk"], "'disk'", "zram"),
        (&["bench", "redis", "--queries", "get-4k,set"], "'set'", "get-64k, get-mixed, lrange"),
        (&["bench", "redis", "--ahead", "oracle"], "'oracle'", "guide"),
        (&["bench", "redis", "--runs", "0"], "'0'", "whole number"),
        (&["bench", "ycsb", "--dispatch", "pf-aware,fair"], "'fair'", "predicted"),
        (&["bench", "ycsb", "--rate", "fast"], "'fast'", "max"),
        (&["bench", "poster", "--sets", "emulated,real"], "'real'", "paged"),
        (&["bench", "poster", "--fault-share", "100%"], "'100%'", "30%"),
        (&["bench", "poster", "--fetch-time", "3"], "'3'", "ms"),
        (&["bench", "fault-breakdown", "--faults", "yield,sleep"], "'sleep'", "busy"),
        (&["bench", "fault-breakdown", "--runs", "99"], "'99'", "from 1 to 50"),
        (&["bench", "fault-breakdown", "--touches", "0"], "'0'", "at least 1"),
        (&["bench", "switch", "--switches", "0"], "'0'", "yonder bench switch --help"),
        (&["bench", "array", "--dist", "pareto"], "'pareto'", "zipf:0.99"),
        (&["bench", "array", "--reclaim", "nobody"], "'nobody'", "dispatcher"),
    ] {
        let line = complaint(args, 2);
        assert!(line.contains(wrong) && line.contains(right), "{args:?} said: {line}");
    }
}

#[test]
fn what_cannot_be_done_says_what_to_type() {
    let (_listener, taken) = taken_address();
    let taken = taken.to_string();
    // Bound and released: nothing listens there now.
    let nobody = taken_address().1.to_string();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [state, out] = ["state", "out"].map(|name| folder.path().join(name).display().to_string());
    for (args, wrong, right) in [
        (&["kv", "--listen", "127.0.0.1:0", "--far", "foo://x"][..], "'foo://x'", "tcp://host:port"),
        (&["kv", "--listen", "127.0.0.1:0", "--far", "tcp://127.0.0.1"], "'tcp://127.0.0.1'", "tcp://127.0.0.1:7000"),
        (&["kv", "--listen", "127.0.0.1:0", "--far", "shm://"], "'shm://'", "shm:///path.sock"),
        (&["kv", "--listen", "127.0.0.1:0", "--far", "rdma://x:1"], "'rdma://x:1'", "tcp://host:port"),
        (&["kv", "--listen", "127.0.0.1:0", "--far", "emu://?latency=soon"], "'soon'", "2.5us"),
        (&["kv", "--listen", "127.0.0.1:0", "--far", "emu://?speed=1"], "'speed'", "latency="),
        (&["kv", "--listen", "127.0.0.1:0", "--value-max", "64MiB"], "67108864", "--value-max"),
        (&["load", "kv", "--target", "nonsense"], "'nonsense'", "HOST:PORT"),
        (&["load", "kv", "--keys", "0"], "--keys 0", "type a number"),
        (&["load", "kv", "--value-size", "1"], "--value-size 1", "type a number"),
        (&["node", "--listen", "tcp://127.0.0.1:0", "--memory", "0B"], "0 bytes", "--memory 4GiB"),
        (&["node", "--listen", "shm:///no/such/folder/x", "--memory", "1GiB"], "/no/such/folder/x", "--listen"),
        (&["bench", "soak", "--local", "1KiB", "--duration", "1s"], "1 KiB", "2 MiB"),
        (&["bench", "soak", "--memory", "1KiB", "--duration", "1s"], "--memory", "1 MiB"),
        (&["bench", "array", "--memory", "0B", "--duration", "1s"], "0 B", "2 MiB"),
        (&["bench", "fault-breakdown", "--far", "foo://x"], "'foo://x'", "tcp://host:port"),
        (&["bench", "fault-breakdown", "--memory", "4MiB", "--local", "64MiB"], "no touch met", "--local"),
        (&["bench", "poster", "--value-size", "1"], "--value-size 1", "type a number"),
        (&["bench", "poster", "--memory", "64B", "--sets", "paged"], "--memory", "--value-size"),
        (&["demo", "--out", "/proc/no"], "/proc/no", "--out"),
        (&["report", "--sets", "sim", "--out", "/proc/no"], "/proc/no", "--out"),
        (&["report", "--sets", "sim", "--out", &out, "--results", "/proc/no/x.md"], "/proc/no/x.md", "--results"),
        (&["controller", "--listen", &taken, "--region-size", "3MiB"], "power of two", "1GiB"),
        (
            &["controller", "--listen", "127.0.0.1:0", "--state", "/no/such/folder/x"],
            "/no/such/folder/x",
            "name a file",
        ),
        (&["controller", "--listen", &taken, "--state", &state], &taken, "--listen"),
        (
            &["controller", "--listen", "no.such.host.invalid:1", "--state", &state],
            "no.such.host.invalid",
            "type a host",
        ),
        (
            &["controller", "--listen", "127.0.0.1:0", "--etcd", "http://127.0.0.1:1"],
            "http://127.0.0.1:1",
            "--state PATH",
        ),
        (
            &["node", "--listen", "tcp://127.0.0.1:0", "--memory", "64MiB", "--controller", &nobody],
            &nobody,
            "start one",
        ),
        (&["controller", "nodes", "--at", &nobody], &nobody, "yonder controller --listen"),
        (&["controller", "spaces", "--at", &nobody], &nobody, "yonder controller --listen"),
        (&["controller", "tenants", "--at", &nobody], &nobody, "yonder controller --listen"),
        (&["controller", "drain", "tcp://127.0.0.1:7000", "--at", &nobody], &nobody, "yonder controller --listen"),
    ] {
        let line = complaint(args, 1);
        assert!(line.contains(wrong) && line.contains(right), "{args:?} said: {line}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let (_listener, taken) = taken_address();
    let line = complaint(&["node", "--listen", &format!("tcp://{taken}"), "--memory", "16MiB"], 1);
    assert!(line.contains(&taken.to_string()) && line.contains("--listen"), "{line}");
}

#[test]
fn help_is_no_error_and_shows_every_command() {
    let help = yonder(&["--help"]);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.status.success() && help.stderr.is_empty());
    for command in
        ["doctor", "demo", "node", "controller", "cluster", "kv", "load", "bench", "papers", "report", "top", "try"]
    {
        assert!(text.contains(&format!("\n  {command}")), "{command} is not in: {text}");
        assert!(yonder(&[command, "--help"]).status.success(), "{command}");
    }
    let nothing = yonder(&[]);
    let text = String::from_utf8_lossy(&nothing.stdout);
    assert!(nothing.status.success() && text.contains("\nNext:\n") && text.ends_with("what each can do.\n"), "{text}");
}

#[test]
fn json_is_all_there_is_on_standard_output() {
    for (args, name, objects) in [
        (&["doctor", "--json"][..], "check", 5),
        (&["bench", "switch", "--switches", "10000", "--json"], "mechanism", 2),
        (&["papers", "costs", "--json"], "source", 3),
        (&["sim", "list", "--json"], "title", 1),
    ] {
        let output = yonder(args);
        let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{args:?} printed {line}: {error}")))
            .collect();
        assert!(lines.len() >= objects && lines.iter().all(|line| line[name].is_string()), "{text}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for args in [&["doctor", "--json"][..], &["bench", "switch", "--switches", "1000"], &["papers", "list"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_yonder"))
            .args(args)
            .env_remove("YONDER_LOG")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{args:?} said: {stderr}");
    }
}

#[test]
fn the_settings_in_force_are_in_the_result() {
    if !yonder(&["doctor"]).status.success() {
        println!("SKIP: this machine cannot run far memory: yonder doctor says why");
        return;
    }
    let run = &["bench", "array", "--json", "--memory", "16MiB", "--local", "4MiB", "--duration", "50ms"];
    for (flags, name, wanted) in [
        (&["--reclaim", "thread"][..], "reclaim", Value::from("thread")),
        (&["--reclaim", "dispatcher"], "reclaim", Value::from("dispatcher")),
        (&["--faults", "hybrid"], "faults", Value::from("hybrid")),
        (&["--faults", "busy"], "max_inflight", Value::from(1)),
        (&["--dispatch", "round-robin"], "dispatch", Value::from("round-robin")),
        (&["--dispatch", "predicted", "--rate", "10k"], "dispatch", Value::from("predicted")),
        (&["--dist", "zipf:0.99"], "dist", Value::from("zipf:0.99")),
        (&["--delegation", "off"], "delegation", Value::from("off")),
        (&["--reclaim-start", "20", "--reclaim-end", "30"], "reclaim_end_percent", Value::from(30.0)),
        (&["--preempt", "5us"], "preempt_us", Value::from(5.0)),
        (&["--probe"], "probe", Value::from(true)),
        (&["--rate", "10k"], "offered_per_s", Value::from(10_000.0)),
    ] {
        let output = yonder(&[&run[..], flags].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let result: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{flags:?}: {text}: {error}"));
        assert_eq!(result[name], wanted, "{flags:?}: {result}");
        assert_eq!((&result["errors"], &result["local_bytes"]), (&Value::from(0), &Value::from(4 << 20)), "{result}");
    }
}
