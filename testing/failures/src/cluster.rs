//! [`Cluster`]: a controller, its nodes and a server whose pages are on them; how they fail, and when they are well
//! again.
//!
//! All are processes that end with this one, also when it is killed while one of them stands still.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use yonder_e2e::{Process, Yonder};

use crate::impaired_path::{ImpairedPath, Impairment};
use crate::{Fault, Wish, pause};

const REGION_SIZE: &str = "4MiB";
/// How much of the server's memory a node has room for, so that all is well on few nodes too.
const NODE_MEMORY: u64 = 2;
/// How much of its memory is local.
const LOCAL: &str = "12.5%";
/// The way to a node that loses much.
const LOSSY: Impairment = Impairment { lost_of_1000: 50, ..Impairment::NONE };
/// The way to a node that takes 2 ms for an answer, ten times as long as the others under load, and loses a little.
const SLOW: Impairment =
    Impairment { lost_of_1000: 10, delay: Duration::from_micros(900), jitter: Duration::from_micros(200) };
/// How long the controller is away.
const CONTROLLER_AWAY: Duration = Duration::from_secs(1);
/// How long a node may be silent until the controller takes it for lost.
const NODE_LEASE: Duration = Duration::from_secs(3);
/// How long the controller stands still: long enough for all nodes to be taken for lost when it goes on.
const CONTROLLER_STILL: Duration = Duration::from_secs(10);
const _: () = assert!(CONTROLLER_STILL.as_secs() >= 2 * NODE_LEASE.as_secs());
/// How long all is to be well before it counts: what the controller is told of pages is a moment old.
const WELL_FOR: Duration = Duration::from_secs(1);
/// How often that is asked; each time takes a process.
const ASK_EACH: Duration = Duration::from_millis(100);
/// How long it may take until all is well.
const WELL_WITHIN: Duration = Duration::from_secs(120);

/// See the head of this file. Nodes that failed last are the last ones.
pub(crate) struct Cluster {
    yonder: Yonder,
    state: TempDir,
    node_memory: String,
    controller: Process,
    nodes: Vec<Node>,
    /// The way to the node that is asked by datagrams, if there is one, and the node.
    impaired: Option<(ImpairedPath, Process)>,
    server: Process,
    metrics: SocketAddr,
}

struct Node {
    process: Process,
    url: String,
}

/// What was done to a node, until it is mended.
pub(crate) enum Harm {
    None,
    /// The node at this URL is gone.
    Killed(String),
    /// The node at this URL, which is the last one, stands still.
    Stopped(String),
    /// The way to a node is impaired.
    Impaired,
}

impl Cluster {
    /// Starts all of it.
    pub(crate) fn start(wish: &Wish) -> Self {
        let yonder = Yonder::found();
        let state = tempfile::tempdir().expect("a temporary folder");
        let controller = start_controller(yonder, &state, "tcp://127.0.0.1:0");
        let at = controller.url("tcp");
        let node_memory = (NODE_MEMORY * wish.memory_bytes).to_string();
        let mut nodes = wish.protection.nodes();
        let is_impaired = |fault: &Fault| matches!(fault, Fault::Loss | Fault::Slow);
        let impaired = wish.faults.iter().any(is_impaired).then(|| {
            nodes -= 1;
            let address = at.trim_start_matches("tcp://").to_owned();
            let path = ImpairedPath::new(address).expect("this machine has free ports");
            let node = start_node(yonder, "udp", &path.controller, &node_memory);
            (path, node)
        });
        let nodes = (0..nodes).map(|_| Node::start(yonder, &at, &node_memory)).collect();
        let far = format!("{}?{}", at.replace("tcp://", "yonder://"), wish.protection);
        let memory = wish.memory_bytes.to_string();
        let flags = ["kv", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--memory", &memory];
        let mut server = guarded(yonder, &[&flags[..], &["--local", LOCAL, "--far", &far]].concat());
        let metrics = server.metrics_address();
        Self { yonder, state, node_memory, controller, nodes, impaired, server, metrics }
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len() + usize::from(self.impaired.is_some())
    }

    /// Where the server listens.
    pub(crate) fn server(&self) -> String {
        self.server.address().to_string()
    }

    /// Where it tells what it counts.
    pub(crate) fn metrics(&self) -> SocketAddr {
        self.metrics
    }

    /// Lets something fail, now.
    pub(crate) fn inject(&mut self, fault: Fault) -> Harm {
        match fault {
            Fault::None => Harm::None,
            Fault::Kill => {
                let harm = self.kill(|_| ());
                self.add_node();
                harm
            }
            Fault::KillBoth => {
                let harm = self.kill(|controller| controller.signal(Signal::KILL));
                pause(CONTROLLER_AWAY);
                let listen = self.controller.url("tcp");
                self.controller = start_controller(self.yonder, &self.state, &listen);
                self.add_node();
                harm
            }
            Fault::Controller => {
                self.controller.signal(Signal::STOP);
                pause(CONTROLLER_STILL);
                self.controller.signal(Signal::CONT);
                Harm::None
            }
            Fault::Stop => {
                let node = self.victim();
                node.process.signal(Signal::STOP);
                let url = node.url.clone();
                self.nodes.push(node);
                Harm::Stopped(url)
            }
            Fault::Loss => self.impair(LOSSY),
            Fault::Slow => self.impair(SLOW),
        }
    }

    /// Waits until all pages are at as many nodes as was asked for, without the one that was harmed; since when they
    /// are. None if nothing had to be done for that.
    pub(crate) fn protected_again(&mut self, harm: &Harm) -> Result<Option<Instant>, String> {
        let without = match harm {
            Harm::None | Harm::Impaired => return Ok(None),
            Harm::Killed(url) | Harm::Stopped(url) => url.clone(),
        };
        let since = self.well_since(|cluster| {
            let nodes = cluster.ask("nodes");
            let is_free = |node: &Value| node["urls"][0] != without.as_str() || node["regions"] == 0;
            let health = cluster.ask("health");
            // A controller that does not answer says nothing.
            !nodes.is_empty() && nodes.iter().all(is_free) && health.iter().any(|health| health["spaces_below"] == 0)
        });
        since.map(Some)
    }

    /// Makes good what can be, and waits until `yonder controller health` finds nothing amiss.
    pub(crate) fn mend(&mut self, harm: Harm) -> Result<(), String> {
        match harm {
            Harm::None | Harm::Killed(_) => {}
            Harm::Stopped(_) => self.nodes.last().expect("it is the last one").process.signal(Signal::CONT),
            Harm::Impaired => _ = self.impair(Impairment::NONE),
        }
        self.well_since(|cluster| cluster.ask("health").iter().any(|health| health["healthy"] == true)).map(drop)
    }

    fn impair(&self, impairment: Impairment) -> Harm {
        let (path, _) = self.impaired.as_ref().expect("a node has a path where that is to be impaired");
        path.impair(impairment);
        Harm::Impaired
    }

    /// Ends the server, which is to end well.
    pub(crate) fn end(self) -> Result<(), String> {
        let ended = self.server.stop();
        if ended.code == Some(0) { Ok(()) } else { Err(format!("the server has not ended well: {}", ended.stderr)) }
    }

    /// Kills a node and, at the same moment, does something to the controller.
    fn kill(&mut self, to_controller: impl FnOnce(&Process)) -> Harm {
        let Node { process, url } = self.victim();
        process.signal(Signal::KILL);
        to_controller(&self.controller);
        process.kill();
        Harm::Killed(url)
    }

    fn add_node(&mut self) {
        self.nodes.push(Node::start(self.yonder, &self.controller.url("tcp"), &self.node_memory));
    }

    /// Takes out the node that has been well longest of those with something on them.
    fn victim(&mut self) -> Node {
        let views = self.ask("nodes");
        let has_regions =
            |node: &Node| views.iter().any(|view| view["urls"][0] == node.url.as_str() && view["regions"] != 0);
        let victim = self.nodes.iter().position(has_regions).unwrap_or(0);
        self.nodes.remove(victim)
    }

    /// What the controller answers to a question, a line an object; nothing if it does not answer.
    fn ask(&self, what: &str) -> Vec<Value> {
        self.yonder.run(&["controller", what, "--json", "--at", &self.controller.url("tcp")]).objects()
    }

    /// Asks until all has been well for a while: since when it was.
    fn well_since(&self, is_well: impl Fn(&Self) -> bool) -> Result<Instant, String> {
        let (start, mut since) = (Instant::now(), None);
        while start.elapsed() < WELL_WITHIN {
            if is_well(self) {
                let since = *since.get_or_insert_with(Instant::now);
                if since.elapsed() >= WELL_FOR {
                    return Ok(since);
                }
            } else {
                since = None;
            }
            pause(ASK_EACH);
        }
        let health = self.yonder.run(&["controller", "health", "--at", &self.controller.url("tcp")]);
        Err(format!("it is not well after {} s: {}", WELL_WITHIN.as_secs(), health.stdout.replace('\n', "; ")))
    }
}

impl Node {
    fn start(yonder: Yonder, controller: &str, memory: &str) -> Self {
        let process = start_node(yonder, "tcp", controller, memory);
        let url = process.url("tcp");
        Self { process, url }
    }
}

/// Starts a process that ends with this one, and waits until it listens.
fn guarded(yonder: Yonder, args: &[&str]) -> Process {
    yonder.serve(&[&["bench", "guarded", "--", yonder.path()], args].concat())
}

fn start_node(yonder: Yonder, scheme: &str, controller: &str, memory: &str) -> Process {
    let listen = format!("{scheme}://127.0.0.1:0");
    let flags = ["node", "--listen", &listen, "--memory", memory, "--page-size", "64KiB", "--data-threads", "1"];
    guarded(yonder, &[&flags[..], &["--controller", controller, "--region-size", REGION_SIZE]].concat())
}

fn start_controller(yonder: Yonder, state: &TempDir, listen: &str) -> Process {
    let state = state.path().join("state").display().to_string();
    let lease = format!("{}s", NODE_LEASE.as_secs());
    let flags = ["controller", "--listen", listen, "--state", &state, "--region-size", REGION_SIZE, "--lease", &lease];
    guarded(yonder, &flags)
}
