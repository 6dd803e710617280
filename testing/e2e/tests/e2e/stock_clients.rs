//! Clients that others wrote: Debian's `libmemcached-tools`, and Python's `pymemcache` through `clients/*.py`.
//!
//! The server has less local memory than the clients' items take, so that these conversations are paged too.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use yonder_e2e::{Process, Yonder};

/// What a client script exits with where its library is missing.
const LIBRARY_MISSING: i32 = 77;

fn serve(yonder: Yonder) -> Process {
    yonder.serve(&["kv", "--listen", "127.0.0.1:0", "--memory", "64MiB", "--local", "4MiB"])
}

/// One of the tools of libmemcached, with their names in Debian.
fn run_tool(name: &str, server: SocketAddr, args: &[&str]) -> Option<Output> {
    match Command::new(name).arg(format!("--servers={server}")).args(args).output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("SKIP: {name} cannot be run ({error}): apt-get install libmemcached-tools");
            None
        }
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Files for `memccp`, which stores each under its name.
fn write_files(folder: &Path, files: &[(&str, &[u8])]) -> Vec<PathBuf> {
    let write = |(name, content): &(&str, &[u8])| {
        let path = folder.join(name);
        std::fs::write(&path, content).expect("a temporary folder takes files");
        path
    };
    files.iter().map(write).collect()
}

#[test]
fn debians_tools_store_read_touch_and_remove() {
    let Some(yonder) = Yonder::ready() else { return };
    let server = serve(yonder);
    let address = server.address();
    let Some(ping) = run_tool("memcping", address, &[]) else { return };
    assert!(ping.status.success(), "{ping:?}");
    let tool = |name, args: &[&str]| run_tool(name, address, args).expect("one tool is there, so all are");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let large = b"0123456789abcdef".repeat(32_000);
    let paths = write_files(folder.path(), &[("small", b"hello"), ("large", &large)]);
    for path in &paths {
        let copied = tool("memccp", &[path.to_str().expect("a plain name")]);
        assert!(copied.status.success(), "{copied:?}");
    }
    assert_eq!(stdout(&tool("memccat", &["small"])).trim_end(), "hello");
    assert!(stdout(&tool("memccat", &["large"])).trim_end().as_bytes() == large);
    assert!(tool("memcexist", &["small"]).status.success());
    assert!(tool("memctouch", &["--expire=1000", "small"]).status.success());
    assert!(tool("memcrm", &["small"]).status.success());
    assert!(!tool("memcexist", &["small"]).status.success());
    assert!(!tool("memctouch", &["--expire=1000", "small"]).status.success());
    assert!(!tool("memcrm", &["small"]).status.success());
    assert!(!tool("memccat", &["small"]).status.success());
    let stats = stdout(&tool("memcstat", &[]));
    assert!(stats.contains("curr_items: 1\n") && stats.contains("cmd_touch: 2\n"), "{stats}");
    assert!(tool("memcflush", &[]).status.success());
    assert!(!tool("memcexist", &["large"]).status.success());
}

#[test]
fn debians_load_generator_is_served() {
    let Some(yonder) = Yonder::ready() else { return };
    let server = serve(yonder);
    for test in ["--test=get", "--test=set", "--test=mget"] {
        let args = [test, "--concurrency=4", "--initial-load=2000", "--execute-number=2000"];
        let Some(output) = run_tool("memcslap", server.address(), &args) else { return };
        assert!(output.status.success(), "{test}: {output:?}");
    }
}

#[test]
fn libmemcacheds_conformance_suite_passes() {
    let Some(yonder) = Yonder::ready() else { return };
    let server = serve(yonder);
    let (host, port) = (server.address().ip().to_string(), server.address().port().to_string());
    // -a: the text protocol, the only one that is spoken here.
    let output = match Command::new("memccapable").args(["-a", "-h", &host, "-p", &port]).output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIP: memccapable cannot be run ({error}): apt-get install libmemcached-tools");
            return;
        }
    };
    let report = stdout(&output);
    assert!(output.status.success() && report.contains("All tests passed"), "{report}");
    assert!(report.matches("[pass]").count() >= 20, "{report}");
}

#[test]
fn pymemcache_gets_every_command_answered() {
    let Some(yonder) = Yonder::ready() else { return };
    let server = serve(yonder);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/pymemcache_all.py");
    let (host, port) = (server.address().ip().to_string(), server.address().port().to_string());
    let output = match Command::new("python3").args([script, &host, &port]).output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIP: python3 cannot be run ({error}): apt-get install python3");
            return;
        }
    };
    if output.status.code() == Some(LIBRARY_MISSING) {
        println!("SKIP: {}: python3 -m pip install pymemcache", stdout(&output).trim_end());
        return;
    }
    assert!(output.status.success(), "{}{}", stdout(&output), String::from_utf8_lossy(&output.stderr));
    assert!(stdout(&output).ends_with(" checks\n"), "{}", stdout(&output));
}
