//! A controller and its nodes, all processes, under a program that uses their memory as one address space: regions are
//! placed, move when a node is drained, and are found again after the controller has started anew. Nothing is ever
//! lost.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::Value;
use yonder::clib::{Permission, Process as Space, Thread};
use yonder_e2e::{Process, TIMEOUT, Yonder};

const REGION_BYTES: u64 = 1 << 20;
const REGION_SIZE: &str = "1MiB";
/// An allocation that leaves no room for another one in its region.
const PART_BYTES: u64 = REGION_BYTES - (64 << 10);
const PARTS: usize = 6;
/// Bytes that are written and read at a time.
const STEP_BYTES: u64 = 8 << 10;

/// A controller and nodes with room for more than `PARTS` regions each.
pub(crate) struct Cluster {
    pub(crate) yonder: Yonder,
    controller: Process,
    folder: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let yonder = Yonder::found();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let controller = start_controller(yonder, folder.path(), "tcp://127.0.0.1:0");
        Self { yonder, controller, folder }
    }

    pub(crate) fn at(&self) -> String {
        self.controller.url("tcp")
    }

    pub(crate) fn node(&self, scheme: &str) -> Process {
        let (listen, at) = (format!("{scheme}://127.0.0.1:0"), self.at());
        let flags = ["node", "--listen", &listen, "--memory", "16MiB", "--page-size", "64KiB", "--data-threads", "1"];
        self.yonder.serve(&[&flags[..], &["--controller", &at, "--region-size", REGION_SIZE]].concat())
    }

    fn space(&self) -> Space {
        Space::create(&self.at().replace("tcp://", "controller://")).expect("the controller serves")
    }

    /// Kills the controller, as a crash would, and starts another one in its place.
    pub(crate) fn restart_controller(&mut self) {
        let (other, listen) = (self.yonder.spawn(&["--version"]), self.at());
        std::mem::replace(&mut self.controller, other).kill();
        self.controller = start_controller(self.yonder, self.folder.path(), &listen);
    }

    /// What `yonder controller nodes` says of a node.
    pub(crate) fn view(&self, node: &str) -> Option<Value> {
        let ended = self.yonder.run(&["controller", "nodes", "--json", "--at", &self.at()]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.objects().into_iter().find(|object| object["urls"][0] == node)
    }

    /// What `yonder controller spaces` says of all address spaces.
    fn spaces(&self) -> Vec<Value> {
        let ended = self.yonder.run(&["controller", "spaces", "--json", "--at", &self.at()]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.objects()
    }

    /// Asks `yonder controller health` until all is well, or too long.
    pub(crate) fn is_well_in_time(&self) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let ended = self.yonder.run(&["controller", "health", "--json", "--at", &self.at()]);
            // It fails for as long as anything is missing.
            let said = ended.objects();
            assert_eq!(said.len(), 1, "{} {}", ended.stdout, ended.stderr);
            assert_eq!(ended.code == Some(0), said[0]["healthy"] == true, "{}", said[0]);
            if ended.code == Some(0) {
                return true;
            }
        }
        false
    }

    /// Asks for a node until it is as it should be, or too long.
    pub(crate) fn wait_until(&self, node: &str, is_right: impl Fn(Option<&Value>) -> bool) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if is_right(self.view(node).as_ref()) {
                return true;
            }
        }
        false
    }

    /// Asks for a node until it is as it should be.
    fn until(&self, node: &str, what: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let view = self.view(node);
            if let Some(view) = view.as_ref().filter(|view| is_right(view)) {
                return view.clone();
            }
            assert!(Instant::now() < deadline, "{node} is not {what}: {view:?}");
        }
    }
}

fn start_controller(yonder: Yonder, folder: &Path, listen: &str) -> Process {
    let state = folder.join("state").display().to_string();
    yonder.serve(&["controller", "--listen", listen, "--state", &state, "--region-size", REGION_SIZE, "--lease", "2s"])
}

/// The word at `address` in a round: no two are the same.
fn word(address: u64, round: u64) -> u64 {
    (address ^ (round << 48)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn step(address: u64, round: u64) -> Vec<u8> {
    (address..address + STEP_BYTES).step_by(8).flat_map(|at| word(at, round).to_le_bytes()).collect()
}

fn steps(part: u64) -> impl Iterator<Item = u64> {
    (part..part + PART_BYTES).step_by(STEP_BYTES as usize)
}

fn allocate(thread: &mut Thread) -> Vec<u64> {
    let part = |_| thread.ralloc(PART_BYTES, Permission::ReadWrite).expect("there is room");
    (0..PARTS).map(part).collect()
}

fn write(thread: &mut Thread, parts: &[u64], round: u64) {
    for address in parts.iter().flat_map(|part| steps(*part)) {
        thread.rwrite(address, &step(address, round)).expect("the memory can be written");
    }
}

fn check(thread: &mut Thread, parts: &[u64], round: u64) {
    let mut found = vec![0; STEP_BYTES as usize];
    for address in parts.iter().flat_map(|part| steps(*part)) {
        thread.rread(address, &mut found).expect("the memory can be read");
        assert!(found == step(address, round), "the memory at {address:#x} is not what was written last");
    }
}

#[test]
fn a_drained_node_is_empty_and_nothing_is_lost_from_udp_to_tcp() {
    a_drained_node_is_empty_and_nothing_is_lost("udp", "tcp");
}

#[test]
fn a_drained_node_is_empty_and_nothing_is_lost_from_tcp_to_udp() {
    a_drained_node_is_empty_and_nothing_is_lost("tcp", "udp");
}

fn a_drained_node_is_empty_and_nothing_is_lost(from: &str, to: &str) {
    let cluster = Cluster::start();
    let nodes = [cluster.node(from), cluster.node(to)];
    let urls = [nodes[0].url(from), nodes[1].url(to)];
    // So that all is on the first node: the other one gets nothing yet.
    let ended = cluster.yonder.run(&["controller", "drain", &urls[1], "--at", &cluster.at()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let space = cluster.space();
    let mut thread = space.thread().expect("the space can be used");
    let parts = allocate(&mut thread);
    write(&mut thread, &parts, 0);
    let regions = |url: &str| cluster.view(url).expect("the node is known")["regions"].as_u64().expect("a number");
    assert_eq!((regions(&urls[0]), regions(&urls[1])), (PARTS as u64, 0));
    let ended = cluster.yonder.run(&["controller", "undrain", &urls[1], "--at", &cluster.at()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);

    let is_drained = AtomicBool::new(false);
    let drained = std::thread::scope(|scope| {
        // Somebody writes all of it all the time.
        let writer = scope.spawn(|| {
            let mut thread = space.thread().expect("the space can be used");
            let mut round = 0;
            while !is_drained.load(Ordering::Acquire) {
                round += 1;
                write(&mut thread, &parts, round);
                check(&mut thread, &parts, round);
            }
            round
        });
        let ended = cluster.yonder.run(&["controller", "drain", &urls[0], "--at", &cluster.at()]);
        is_drained.store(true, Ordering::Release);
        let round = writer.join().expect("nothing was lost under the writer");
        check(&mut thread, &parts, round);
        write(&mut thread, &parts, round + 1);
        (ended, round + 1)
    });
    let (ended, round) = drained;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("is drained") && ended.stdout.lines().count() == 1, "{}", ended.stdout);
    assert!(ended.stderr.contains(&format!("0 of {PARTS} regions moved")), "{}", ended.stderr);
    assert_eq!((regions(&urls[0]), regions(&urls[1])), (0, PARTS as u64));
    assert_eq!(cluster.view(&urls[0]).expect("it is known")["condition"], "drained");

    // It has nothing that anybody needs.
    let [first, second] = nodes;
    let ended = first.stop();
    assert!(ended.code == Some(0) && !ended.stderr.contains("are gone"), "{}", ended.stderr);
    check(&mut thread, &parts, round);
    assert_eq!(second.stop().code, Some(0));
}

#[test]
fn one_space_spreads_over_nodes_and_is_listed() {
    let cluster = Cluster::start();
    let (at, table) = (cluster.at(), ["controller", "spaces", "--at"]);
    let nobody = cluster.yonder.run(&[&table[..], &[&at]].concat());
    assert_eq!((nobody.code, nobody.stdout.as_str()), (Some(0), ""), "{}", nobody.stderr);
    assert!(nobody.stderr.contains("no address space yet") && nobody.stderr.lines().count() == 1, "{}", nobody.stderr);

    let nodes = [cluster.node("udp"), cluster.node("tcp")];
    let space = cluster.space();
    let mut thread = space.thread().expect("the space can be used");
    let parts = allocate(&mut thread);
    write(&mut thread, &parts, 3);
    check(&mut thread, &parts, 3);
    let views = [nodes[0].url("udp"), nodes[1].url("tcp")].map(|url| cluster.view(&url).expect("the node is known"));
    let regions = views.each_ref().map(|view| view["regions"].as_u64().expect("a number"));
    assert_eq!(regions, [PARTS as u64 / 2; 2], "both nodes have their share");

    let listed = cluster.spaces();
    let [listed] = &listed[..] else { panic!("one address space, not {listed:?}") };
    let pid = space.own_ticket().pid();
    assert_eq!((&listed["pid"], &listed["regions"]), (&Value::from(pid), &Value::from(PARTS)));
    let on = listed["nodes"].as_array().expect("a list");
    assert!(on.len() == 2 && views.iter().all(|view| on.contains(&view["node"])), "{listed}");
    let allocated = listed["allocated_bytes"].as_u64().expect("a number");
    let exact = PARTS as u64 * PART_BYTES;
    assert!((exact..=PARTS as u64 * REGION_BYTES).contains(&allocated), "{allocated} of {exact} bytes");

    let rows = cluster.yonder.run(&[&table[..], &[&at]].concat()).stdout;
    let row = rows.lines().nth(1).expect("titles and one row").to_owned();
    assert!(rows.lines().count() == 2 && row.starts_with(&pid.to_string()), "{rows}");
    assert!(views.iter().all(|view| row.contains(view["node"].as_str().expect("a name"))), "{rows}");
    drop(space);
    assert_eq!(cluster.spaces(), [] as [Value; 0], "it has ended");
}

#[test]
fn a_drain_goes_on_without_who_watches_it_and_ends_when_there_is_room() {
    let cluster = Cluster::start();
    let first = cluster.node("tcp");
    let space = cluster.space();
    let mut thread = space.thread().expect("the space can be used");
    let parts = allocate(&mut thread);
    write(&mut thread, &parts, 0);
    let (url, at) = (first.url("tcp"), cluster.at());
    let drain = ["controller", "drain", &url, "--at", &at];
    let mut watching = cluster.yonder.spawn(&drain);
    watching.wait_for(&format!("0 of {PARTS} regions moved"));
    let ended = watching.stop();
    let complaint = ended.stderr.lines().last().unwrap_or_default();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{complaint}");
    assert!(complaint.contains("the drain goes on") && complaint.contains("undrain"), "{complaint}");
    assert_eq!(cluster.view(&url).expect("it is known")["condition"], "draining");

    let undrained = cluster.yonder.run(&["controller", "undrain", &url, "--at", &at]);
    assert_eq!(undrained.code, Some(0), "{}", undrained.stderr);
    assert_eq!(cluster.view(&url).expect("it is known")["condition"], "serving");

    let mut watching = cluster.yonder.spawn(&drain);
    watching.wait_for(&format!("0 of {PARTS} regions moved"));
    let second = cluster.node("udp");
    let ended = watching.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("{PARTS} of {PARTS} regions moved")), "{}", ended.stderr);
    check(&mut thread, &parts, 0);
    drop([first, second]);
}

#[test]
fn a_cluster_outlives_its_controller() {
    let mut cluster = Cluster::start();
    let nodes = [cluster.node("tcp"), cluster.node("udp")];
    let urls = [nodes[0].url("tcp"), nodes[1].url("udp")];
    let space = cluster.space();
    let mut thread = space.thread().expect("the space can be used");
    let parts = allocate(&mut thread);
    write(&mut thread, &parts, 1);
    cluster.restart_controller();
    // Reads and writes never pass the controller.
    check(&mut thread, &parts, 1);
    for url in &urls {
        cluster.until(url, "registered again", |view| view["condition"] == "serving");
    }
    let ended = cluster.yonder.run(&["controller", "drain", &urls[1], "--at", &cluster.at()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    check(&mut thread, &parts, 1);
    let more = thread.ralloc(PART_BYTES, Permission::ReadWrite).expect("the controller places allocations again");
    write(&mut thread, &[more], 2);
    check(&mut thread, &[more], 2);
}

#[test]
fn a_node_that_dies_is_shown_and_cannot_be_drained() {
    let cluster = Cluster::start();
    let node = cluster.node("tcp");
    let space = cluster.space();
    let mut thread = space.thread().expect("the space can be used");
    thread.ralloc(PART_BYTES, Permission::ReadWrite).expect("there is room");
    let (url, at) = (node.url("tcp"), cluster.at());
    node.kill();
    cluster.until(&url, "lost", |view| view["condition"] == "lost");
    let table = cluster.yonder.run(&["controller", "nodes", "--at", &at]);
    let row = table.stdout.lines().find(|row| row.contains(&url)).expect("it is in the table");
    assert!(row.contains("lost") && row.contains("unknown of 16 MiB"), "{row}");
    let ended = cluster.yonder.run(&["controller", "drain", &url, "--at", &at]);
    assert!(ended.complaint(1).contains(&url) && ended.complaint(1).contains("1 region"), "{}", ended.stderr);
    let ended = cluster.yonder.run(&["controller", "drain", "tcp://127.0.0.1:1", "--at", &at]);
    assert!(ended.complaint(1).contains("'tcp://127.0.0.1:1'"), "{}", ended.stderr);
}

#[test]
fn a_node_with_other_regions_is_turned_away() {
    let cluster = Cluster::start();
    let at = cluster.at();
    let flags = ["node", "--listen", "tcp://127.0.0.1:0", "--memory", "64MiB", "--controller", &at];
    let ended = cluster.yonder.run(&flags);
    let complaint = ended.complaint(1);
    assert!(complaint.contains("1 GiB") && complaint.contains("1 MiB"), "{complaint}");
}

#[test]
fn what_a_controller_and_a_node_of_it_count_is_there_as_metrics() {
    let cluster = Cluster::start();
    let state = cluster.folder.path().join("other").display().to_string();
    let flags = ["controller", "--listen", "tcp://127.0.0.1:0", "--state", &state, "--metrics", "127.0.0.1:0"];
    let mut controller = cluster.yonder.serve(&flags);
    let at = controller.url("tcp");
    let flags = ["node", "--listen", "tcp://127.0.0.1:0", "--memory", "64MiB", "--metrics", "127.0.0.1:0"];
    let mut node = cluster.yonder.serve(&[&flags[..], &["--controller", &at]].concat());
    let look = |address: &str| cluster.yonder.run(&["top", "--once", "--attach", address]).stdout;
    let shown = look(&controller.metrics_address().to_string());
    assert!(shown.contains("controller nodes serving"), "{shown}");
    let shown = look(&node.metrics_address().to_string());
    assert!(shown.contains("node controller connected"), "{shown}");
}

#[test]
fn what_was_on_a_drained_node_is_found_after_the_node_has_ended() {
    let cluster = Cluster::start();
    let first = cluster.node("tcp");
    let space = cluster.space();
    let mut thread = space.thread().expect("the space can be used");
    let parts = allocate(&mut thread);
    write(&mut thread, &parts, 0);
    let second = cluster.node("udp");
    let ended = cluster.yonder.run(&["controller", "drain", &first.url("tcp"), "--at", &cluster.at()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // The program has not touched anything since, so nobody has told it that regions have moved.
    assert_eq!(first.stop().code, Some(0));
    check(&mut thread, &parts, 0);
    drop(second);
}
