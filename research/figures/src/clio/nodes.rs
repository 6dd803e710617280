//! Goodput by memory nodes: regions of one address space, placed by the real controller (Clio, section 4.7).
//!
//! The paper's testbed has four boards; this goes on to 16. A client thread works in each region, so a node that was
//! given more regions than others has more to do, and one that was given few idles. Beside the controller stands
//! chance.

use std::rc::Rc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use yonder_placement::{
    Actions, Answer, Asker, Capabilities, Capability, ClusterId, Command, Config, Controller, Domains, Event, Key,
    Keys, NodeId, NodeReport, Registration, Request, Ticket,
};
use yonder_report::Quantity;
use yonder_units::Nanos;
use yonder_wire::{Kind, Rights};

use super::node::{Node, Space};
use super::random;
use super::thread::{Load, Pace};
use super::world::{Measured, World};
use crate::costs::clio::PAGE;
use crate::figure::{Figure, Outcome, Run, Table, picture, row};

/// The figure.
pub(crate) const FIGURE: Figure = Figure {
    name: "yonder-nodes",
    source: "Clio, section 4.7",
    title: "Goodput by memory nodes, regions placed by the controller or by chance",
    run,
};

/// Memory nodes of each point.
const NODES: [usize; 5] = [1, 2, 4, 8, 16];
/// Regions of the address space, each with a client thread.
const REGIONS: usize = 64;
/// Pages that are allocated in a region.
const REGION_PAGES: u64 = 64;
/// Bytes of a request.
const BYTES: u64 = 1024;
/// Requests of each point of a full run.
const REQUESTS: u64 = 80_000;
/// Memory of a node, enough for all regions.
const NODE_PAGES: u32 = 1 << 15;

fn run(run: &mut Run<'_>) -> Outcome {
    let requests = run.requests(REQUESTS);
    let columns = [
        ("placement", 0),
        ("nodes", 0),
        ("goodput_gbps", 2),
        ("mean_us", 2),
        ("regions_most", 0),
        ("regions_least", 0),
    ];
    let mut table = Table::new("goodput", "Goodput of 1 KiB reads by 64 synchronous threads", &columns);
    let mut lines = Vec::new();
    for (index, (name, place)) in PLACEMENTS.into_iter().enumerate() {
        let mut points = Vec::new();
        for count in NODES {
            let done = index as f64 + points.len() as f64 / NODES.len() as f64;
            (run.progress)(&format!("{count} nodes, by {name}"), done / PLACEMENTS.len() as f64);
            let mut rng = random(run.seed, (index * 100 + count) as u64);
            let mut nodes: Vec<_> = (0..count).map(|_| Node::hardware(NODE_PAGES, &mut rng)).collect();
            let placed = place(&mut nodes, &mut rng);
            let regions = |node| placed.iter().filter(|(at, _)| *at == node).count() as f64;
            let most = (0..count).map(regions).fold(0.0, f64::max);
            let least = (0..count).map(regions).fold(f64::INFINITY, f64::min);
            let measured = measure(nodes, &placed, rng, requests);
            let goodput = measured.gbps(BYTES);
            table.push(row([name], [count as f64, goodput, measured.mean_us(), most, least]));
            points.push((count as f64, goodput));
        }
        lines.push((format!("placed by {name}"), points));
    }
    Outcome {
        tables: vec![table],
        pictures: vec![picture(
            "yonder-nodes",
            ["Goodput by memory nodes", "1 KiB reads of 64 regions, a port of 10 Gbps a node; higher is better"],
            [Quantity::Counts("nodes"), Quantity::Number("Gbps")],
            lines,
        )],
        notes: vec![
            "The paper has no numbers of this. With 16 nodes their ports take as much as the four compute nodes can send."
                .into(),
            "The controller gives every node the same share; chance gives some more regions than their port serves, while \
             others idle."
                .into(),
        ],
        requests: requests * (PLACEMENTS.len() * NODES.len()) as u64,
        ..Outcome::default()
    }
}

/// Nodes and what is on them, a region each.
type Placed = Vec<(usize, Rc<Space>)>;
type Place = fn(&mut [Node], &mut ChaCha8Rng) -> Placed;

/// The ways to place regions.
const PLACEMENTS: [(&str, Place); 2] = [("controller", by_controller), ("chance", by_chance)];

/// One thread for each region.
fn measure(nodes: Vec<Node>, placed: &Placed, rng: ChaCha8Rng, requests: u64) -> Measured {
    let mut world = World::new(nodes, rng);
    for (node, space) in placed {
        world.add(*node, Load { kind: Kind::Read, bytes: BYTES, space: Rc::clone(space), pace: Pace::Always(1) });
    }
    world.warm_up(requests / 8 + 4 * REGIONS as u64);
    world.measure(requests)
}

/// Every region on a node that is drawn.
fn by_chance(nodes: &mut [Node], rng: &mut ChaCha8Rng) -> Placed {
    let mut place = |_| {
        let node = rng.random_range(0..nodes.len());
        (node, nodes[node].space(REGION_PAGES))
    };
    (0..REGIONS).map(&mut place).collect()
}

/// Every region where the controller says.
fn by_controller(nodes: &mut [Node], _: &mut ChaCha8Rng) -> Placed {
    let config = Config::default();
    let controller = Controller::restore(config, ClusterId(1), [], 0).expect("the defaults are good");
    let mut cluster = Cluster { controller, nodes, tickets: 0 };
    for node in 0..cluster.nodes.len() {
        let facts = Registration {
            node: NodeId(node as u64),
            name: None,
            urls: vec![format!("udp://10.0.0.{node}:7000")],
            memory_bytes: u64::from(NODE_PAGES) * PAGE.value as u64,
            page_bytes: PAGE.value as u64,
            region_bytes: config.region_bytes,
            domains: Domains::default(),
        };
        let report = NodeReport { free_bytes: facts.memory_bytes, ..NodeReport::default() };
        cluster.controller.handle(Event::Registered { facts, report, spaces: Vec::new() }, NOW);
    }
    let keys = Keys { owner: Key(1), read_write: Key(2), read: Key(3) };
    let Answer::SpaceCreated { pid, region_bytes, .. } = cluster.ask(Request::CreateSpace { keys, lease_ms: 0 }) else {
        panic!("there is room for an address space");
    };
    let mut place = |_| {
        let request = Request::PlaceRegion { pid, key: keys.owner, bytes: region_bytes, avoid: Vec::new() };
        let Answer::Placed { regions } = cluster.ask(request) else { panic!("there is room for every region") };
        let [region] = &regions[..] else { panic!("one region was asked for") };
        let (node, start) = (region.node.0 as usize, u64::from(region.region) * region_bytes);
        let window = start..start + region_bytes;
        (node, cluster.nodes[node].part(board_pid(pid), region.capability.0, REGION_PAGES, window))
    };
    (0..REGIONS).map(&mut place).collect()
}

/// Nothing here takes time.
const NOW: Nanos = 0;

/// A controller, and nodes that do what they are told.
struct Cluster<'a> {
    controller: Controller,
    nodes: &'a mut [Node],
    tickets: u64,
}

impl Cluster<'_> {
    /// The answer to a request, behind all that nodes have to do for it.
    fn ask(&mut self, request: Request) -> Answer {
        self.tickets += 1;
        let mut actions = self.controller.handle(Event::Asked(Ticket(self.tickets), Asker::local(), request), NOW);
        loop {
            let Actions { mut answers, commands, .. } = actions;
            if let Some((_, answer)) = answers.pop() {
                return answer;
            }
            let [(node, Command::CreateSpace { pid, .. })] = commands[..] else {
                panic!("{commands:?} is not what a new region needs");
            };
            let mut capability = |rights| Capability(self.nodes[node.0 as usize].adopt(board_pid(pid), rights));
            let [owner, read_write, read] = [Rights::Owner, Rights::ReadWrite, Rights::Read].map(&mut capability);
            let capabilities = Capabilities { owner, read_write, read };
            let outcome = yonder_placement::Outcome::SpaceCreated { pid, capabilities };
            actions = self.controller.handle(Event::Answered(node, outcome), NOW);
        }
    }
}

/// An address space's number as the board has it.
fn board_pid(pid: yonder_placement::Pid) -> yonder_board::Pid {
    yonder_board::Pid::new(pid.0).expect("a controller's numbers are not 0")
}
