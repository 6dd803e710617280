//! `yonder cluster roll`: all nodes and controllers are restarted, one after the other, under a server whose client
//! reads and writes all the time. None of it may fail, or be anything but what was written last.
//!
//! What is restarted the command says itself: a line in a pipe that the test reads, who answers in another one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use yonder_e2e::{Client, Content, Ended, Process, TIMEOUT, Yonder};

use crate::etcd_server::Etcd;

/// Many times what is local.
const CONTENT: Content = Content { name: "rolling", keys: 12_000, value_bytes: 1000 };
/// Keys with the same remainder have the same version.
const CLASSES: usize = 10;
/// How long the command may take: a lease and a drain for each node.
const ROLL_TIMEOUT: std::time::Duration = TIMEOUT.saturating_mul(3);

/// A server that can be restarted where it was.
struct Server {
    process: Process,
    flags: Vec<String>,
}

/// The binary that each part of a cluster is, or becomes when it is restarted.
#[derive(Clone, Copy)]
pub(crate) struct Binaries {
    pub(crate) controllers: Yonder,
    pub(crate) nodes: Yonder,
    /// Of the server whose pages are on the nodes.
    pub(crate) kv: Yonder,
}

impl Binaries {
    pub(crate) fn all(yonder: Yonder) -> Self {
        Self { controllers: yonder, nodes: yonder, kv: yonder }
    }

    fn of(self, flags: &[String]) -> Yonder {
        if flags[0] == "controller" { self.controllers } else { self.nodes }
    }
}

/// Controllers and nodes, by their URLs.
pub(crate) struct Cluster {
    /// What asks it.
    yonder: Yonder,
    pub(crate) binaries: Binaries,
    servers: BTreeMap<String, Server>,
    /// Addresses of the controllers, with commas between.
    at: String,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// A controller with its state in a file.
    fn start(nodes: usize) -> Self {
        Self::start_of(Binaries::all(Yonder::found()), nodes)
    }

    pub(crate) fn start_of(binaries: Binaries, nodes: usize) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state").display().to_string();
        Self::start_with(binaries, folder, (nodes, 1), &["--state", &state])
    }

    fn start_with(
        binaries: Binaries,
        folder: tempfile::TempDir,
        (nodes, controllers): (usize, usize),
        state: &[&str],
    ) -> Self {
        let (yonder, servers) = (Yonder::found(), BTreeMap::new());
        let mut cluster = Self { yonder, binaries, servers, at: String::new(), folder };
        let addresses = free_addresses(controllers);
        for (index, address) in addresses.iter().enumerate() {
            let url = format!("tcp://{address}");
            let flags = ["controller", "--listen", &url, "--region-size", "1MiB", "--lease", "2s"];
            let says = if index == 0 { "Ctrl-C ends it" } else { "waiting to take over" };
            cluster.serve(&url, &[&flags[..], state].concat(), says);
        }
        cluster.at = addresses.join(",");
        for address in free_addresses(nodes) {
            let (url, at) = (format!("tcp://{address}"), cluster.at.clone());
            let flags = ["node", "--listen", &url, "--memory", "48MiB", "--page-size", "64KiB", "--data-threads", "1"];
            let flags = [&flags[..], &["--controller", &at, "--region-size", "1MiB"]].concat();
            cluster.serve(&url, &flags, "Ctrl-C ends it");
        }
        cluster
    }

    fn serve(&mut self, url: &str, flags: &[&str], says: &str) {
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let mut process = self.spawn(&flags);
        process.wait_for(says);
        self.servers.insert(url.to_owned(), Server { process, flags });
    }

    /// Ends a server, as systemd would, and starts it anew at the same address.
    fn restart(&mut self, url: &str) {
        let Server { process, flags } =
            self.servers.remove(url).unwrap_or_else(|| panic!("{url} is no server of ours"));
        process.signal(Signal::TERM);
        let ended = process.end();
        assert!(ended.code == Some(0) && !ended.stderr.contains("are gone"), "{url}: {}", ended.stderr);
        let process = self.spawn(&flags);
        self.servers.insert(url.to_owned(), Server { process, flags });
    }

    fn spawn(&self, flags: &[String]) -> Process {
        self.binaries.of(flags).spawn(&flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn ask(&self, what: &str) -> Ended {
        self.yonder.run(&["controller", what, "--json", "--at", &self.at])
    }

    fn nodes(&self) -> Vec<Value> {
        let ended = self.ask("nodes");
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.objects()
    }

    fn numbers(&self) -> BTreeSet<String> {
        self.nodes().iter().map(|node| node["node"].as_str().expect("a number").to_owned()).collect()
    }

    /// A server of keys and values whose pages are on the nodes, full.
    fn kv(&self, query: &str) -> Process {
        let far = format!("yonder://{}{query}", self.at);
        let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "24MiB", "--local", "4MiB", "--far", &far];
        let server = self.binaries.kv.serve(&flags);
        Client::connect(server.address()).fill(&CONTENT, 0..CONTENT.keys, 1);
        server
    }

    fn roll(&self, flags: &[&str]) -> Process {
        self.yonder.spawn(&[&["cluster", "roll", "--json", "--at", &self.at], flags].concat())
    }
}

/// Addresses that nothing listens at. All are held until all are chosen, so that they differ.
fn free_addresses(count: usize) -> Vec<String> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    let held: Vec<TcpListener> = (0..count).map(bind).collect();
    held.iter().map(|socket| socket.local_addr().expect("it is bound").to_string()).collect()
}

fn keys(class: usize) -> impl Iterator<Item = u64> {
    (class as u64..CONTENT.keys).step_by(CLASSES)
}

/// Reads and writes all items in turn until told to stop, each time another version; returns the versions.
fn use_all(server: SocketAddr, is_done: &AtomicBool) -> [u64; CLASSES] {
    let (mut client, mut versions) = (Client::connect(server), [1; CLASSES]);
    let mut rounds = 0;
    while !is_done.load(Ordering::Acquire) || rounds < CLASSES {
        let (read, written) = (rounds % CLASSES, (rounds + 3) % CLASSES);
        client.verify(&CONTENT, keys(read), versions[read]);
        versions[written] += 1;
        client.fill(&CONTENT, keys(written), versions[written]);
        rounds += 1;
    }
    versions
}

/// Does something while a client uses a server; all that it has written is there afterwards.
fn under_load<R>(server: Process, work: impl FnOnce() -> R) -> R {
    let is_done = AtomicBool::new(false);
    let (result, versions) = thread::scope(|scope| {
        let (is_done, address) = (&is_done, server.address());
        let user = scope.spawn(move || use_all(address, is_done));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_done.store(true, Ordering::Release);
        (result, user.join().expect("nothing fails, and nothing is lost"))
    });
    let mut client = Client::connect(server.address());
    (0..CLASSES).for_each(|class| client.verify(&CONTENT, keys(class), versions[class]));
    let stats = client.stats();
    assert_eq!(stats.number("paging_errors"), 0);
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Two pipes: what is to be restarted, and that it was.
struct Pipes {
    asks: PathBuf,
    answers: PathBuf,
}

impl Pipes {
    fn make(folder: &Path) -> Self {
        let pipes = Self { asks: folder.join("asks"), answers: folder.join("answers") };
        let made = Command::new("mkfifo").args([&pipes.asks, &pipes.answers]).status().expect("coreutils are there");
        assert!(made.success());
        pipes
    }

    /// What restarts: it asks, and ends when it is answered.
    fn command(&self) -> String {
        format!("echo {{url}} > {}; read done < {}", self.asks.display(), self.answers.display())
    }

    /// Both ends of a pipe, so that opening it waits for nobody.
    fn open(path: &Path) -> File {
        File::options().read(true).write(true).open(path).expect("it was made")
    }

    /// Says that nothing more is asked.
    fn end(&self) {
        writeln!(Self::open(&self.asks), "end").expect("it is read");
    }

    /// Restarts what is asked for, until nothing more is.
    fn serve(&self, asks: File, mut answers: File, cluster: &mut Cluster) -> Vec<String> {
        let mut restarted = Vec::new();
        for url in BufReader::new(asks).lines() {
            let url = url.expect("a line of text");
            if url == "end" {
                break;
            }
            cluster.restart(&url);
            writeln!(answers, "done").expect("it is read");
            restarted.push(url);
        }
        restarted
    }
}

/// Restarts all of a cluster under load, and returns what was restarted, in order.
fn roll_all(cluster: Cluster, query: &str) -> (Cluster, Vec<String>) {
    let same = cluster.binaries;
    roll_all_to(same, cluster, query)
}

/// As [`roll_all`], with what comes back being other binaries.
pub(crate) fn roll_all_to(binaries: Binaries, mut cluster: Cluster, query: &str) -> (Cluster, Vec<String>) {
    let before = cluster.numbers();
    let server = cluster.kv(query);
    cluster.binaries = binaries;
    let pipes = Pipes::make(cluster.folder.path());
    let (asks, answers) = (Pipes::open(&pipes.asks), Pipes::open(&pipes.answers));
    let (ended, restarted) = under_load(server, || {
        let command = pipes.command();
        let roll = cluster.roll(&["--restart", &command, "--restart-controller", &command]);
        thread::scope(|scope| {
            let (pipes, cluster) = (&pipes, &mut cluster);
            let restarter = scope.spawn(move || pipes.serve(asks, answers, cluster));
            let mut roll = roll;
            let is_over = roll.ends_within(ROLL_TIMEOUT);
            pipes.end();
            assert!(is_over, "the cluster is not rolled in time");
            (roll.end(), restarter.join().expect("all that is asked for is restarted"))
        })
    });
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let steps = ended.objects();
    assert_eq!(steps.last().expect("there are steps")["step"], "done");
    let after = cluster.numbers();
    assert!(before.is_disjoint(&after) && before.len() == after.len(), "{before:?} {after:?}");
    assert!(cluster.nodes().iter().all(|node| node["condition"] == "serving"), "{:?}", cluster.nodes());
    let health = cluster.ask("health");
    assert_eq!(health.code, Some(0), "{}", health.stdout);
    assert_eq!(restarted.iter().collect::<BTreeSet<_>>(), cluster.servers.keys().collect(), "each is restarted once");
    assert_eq!(restarted.len(), cluster.servers.len());
    (cluster, restarted)
}

#[test]
fn a_cluster_is_restarted_and_no_client_notices_where_there_are_copies() {
    let (cluster, restarted) = roll_all(Cluster::start(4), "?copies=2");
    assert_eq!(restarted.last(), Some(&format!("tcp://{}", cluster.at)), "the controller is last");
}

#[test]
fn a_cluster_is_restarted_and_no_client_notices_where_each_page_is_at_one_node() {
    roll_all(Cluster::start(3), "");
}

#[test]
fn controllers_on_etcd_are_restarted_and_the_one_that_leads_is_last() {
    let Some(etcd) = Etcd::start() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Nothing serves there, so that the command ends, whatever it was built with.
    let ended = Yonder::found().run(&["controller", "--listen", "tcp://127.0.0.1:0", "--etcd", "http://127.0.0.1:1"]);
    if ended.complaint(1).contains("--features etcd") {
        println!("SKIP: yonder was built without etcd: cargo build -p yonder-cli --features etcd");
        return;
    }
    let cluster = Cluster::start_with(Binaries::all(Yonder::found()), folder, (4, 3), &["--etcd", etcd.endpoint()]);
    let first = format!("tcp://{}", cluster.at.split(',').next().expect("there are three"));
    let (_cluster, restarted) = roll_all(cluster, "?copies=2");
    assert_eq!(restarted.last(), Some(&first), "the one that leads is last");
}

#[test]
fn nodes_are_restarted_by_hand_where_no_command_does() {
    let mut cluster = Cluster::start(3);
    let before = cluster.numbers();
    let server = cluster.kv("");
    under_load(server, || {
        let mut roll = cluster.roll(&[]);
        for _ in 0..3 {
            let said = roll.wait_for("\"step\":\"restart\"");
            let step: Value = serde_json::from_str(&said).expect("a line of JSON");
            assert_eq!(step["by_hand"], true);
            cluster.restart(step["urls"][0].as_str().expect("a URL"));
        }
        let ended = roll.end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("now; waiting for it"), "{}", ended.stderr);
    });
    assert!(before.is_disjoint(&cluster.numbers()));
}

/// The last line that a command says, which has failed.
fn last_complaint(ended: &Ended) -> &str {
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    ended.stderr.lines().last().expect("it says why")
}

#[test]
fn a_roll_that_cannot_go_on_stops_and_says_how_to() {
    let mut cluster = Cluster::start(2);
    let urls: Vec<String> = cluster.servers.keys().filter(|url| !url.ends_with(&cluster.at)).cloned().collect();
    let server = cluster.kv("");
    let failed = under_load(server, || cluster.roll(&["--restart", "exit 3 # {url}"]).end());
    let complaint = last_complaint(&failed);
    assert!(complaint.contains("has failed with exit code 3") && complaint.contains("--only "), "{complaint}");
    let steps = failed.objects();
    let last = steps.last().expect("there are steps");
    let left: Vec<&str> = last["left"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!((&last["step"], left.len()), (&Value::from("failed"), 2));
    // What it says to type goes on where it has stopped: at the one that is drained.
    let drained = cluster.nodes().into_iter().find(|node| node["condition"] == "drained").expect("one is drained");
    assert_eq!(drained["urls"][0], left[0]);
    let mut roll = cluster.roll(&["--only", &left.join(",")]);
    for url in left {
        let said = roll.wait_for("\"step\":\"restart\"");
        assert!(said.contains(url), "{said}");
        cluster.restart(url);
    }
    let ended = roll.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);

    // There is no room for what is on the only node that is left; it serves on.
    let gone = cluster.servers.remove(&urls[0]).expect("it is there");
    drop(gone.process.stop());
    let server = cluster.kv("");
    let failed = cluster.roll(&["--restart", "exit 3"]).end();
    let complaint = last_complaint(&failed);
    assert!(complaint.contains(&urls[1]) && complaint.contains("no other node"), "{complaint}");
    assert_eq!(cluster.nodes()[0]["condition"], "serving");
    assert_eq!(server.stop().code, Some(0));
    // A node that does not come back.
    let failed = cluster.roll(&["--restart", "true", "--timeout", "100ms"]).end();
    let complaint = last_complaint(&failed);
    assert!(complaint.contains("has not ended") && complaint.contains("--only "), "{complaint}");
}
