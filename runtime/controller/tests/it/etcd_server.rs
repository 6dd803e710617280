//! [`Etcd`]: an etcd on this machine, for one test.
//!
//! The tests of this crate have it, and so have those of `testing/e2e`, by its path: nothing may depend on a crate of
//! `testing`, and a library has nothing that only tests need.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

/// A running etcd, which ends with the test.
pub(crate) struct Etcd {
    process: Child,
    endpoint: String,
    _folder: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself; nothing else can be wrong with a child of ours.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Etcd {
    /// Starts one, and returns once it serves. `None`, with the reason printed, if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with("http", &[])
    }

    /// As [`Etcd::start`], with clients over this scheme and more flags.
    pub(crate) fn start_with(scheme: &str, flags: &[String]) -> Option<Self> {
        const SERVES: &str = "ready to serve client requests";
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Both are held until both are chosen, so that they differ.
        let sockets =
            [0; 2].map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("loopback has free ports"));
        let [clients, peers] = sockets.map(|socket| socket.local_addr().expect("it is bound"));
        let (clients, peers) = (format!("{scheme}://{clients}"), format!("http://{peers}"));
        let started = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.path())
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = match started {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("SKIP: etcd is not installed: apt-get install etcd-server");
                return None;
            }
            Err(error) => panic!("etcd does not start: {error}"),
        };
        let mut log = BufReader::new(process.stderr.take().expect("piped")).lines();
        let serves = log.by_ref().map_while(Result::ok).any(|line| line.contains(SERVES));
        assert!(serves, "etcd ends instead of serving");
        // What it says later must be read, or it would wait for that.
        std::thread::spawn(move || log.for_each(drop));
        Some(Self { process, endpoint: clients, _folder: folder })
    }

    /// Where it serves.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}
