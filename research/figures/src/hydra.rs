//! Hydra's coding sets (FAST'22), after copysets (Cidon et al., ATC'13): how likely nodes that fail at once are to lose
//! a group, by where its places are; how even loads are; and how long a node that has failed takes to be rebuilt.
//!
//! The sets are the controller's own, `core/placement`'s `sets`: nodes come in any order, take their seats, and a group
//! goes to the emptiest nodes of the emptiest set. Beside them stands chance: any nodes in different racks. Closed
//! forms stand beside what is simulated (`sets::odds`).
//!
//! Files: `cluster` places groups, fails nodes and rebuilds them; here are the tables.

mod cluster;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use yonder_placement::sets::{odds, set_seats};
use yonder_report::Quantity;

use crate::costs::hydra::{FAILED, NODES, REBUILD, REGION, REGIONS};
use crate::figure::{Cell, Check, Figure, Outcome, Run, Table, picture, row};
use cluster::{Cluster, Placed};

/// The figure.
pub(crate) const FIGURE: Figure = Figure {
    name: "coding-sets",
    source: "Hydra, CodingSets",
    title: "Groups lost by nodes that fail at once, with places anywhere and in coding sets",
    run,
};

/// How a group is kept.
#[derive(Clone, Copy, Debug)]
struct Scheme {
    name: &'static str,
    /// Nodes that have a part.
    places: u32,
    /// How many of them lose it.
    lost: u32,
    /// How many others a place is made of.
    sources: u32,
}

const SCHEMES: [Scheme; 4] = [
    Scheme { name: "copies=2", places: 2, lost: 2, sources: 1 },
    Scheme { name: "copies=3", places: 3, lost: 3, sources: 1 },
    Scheme { name: "code=4+1", places: 5, lost: 2, sources: 4 },
    Scheme { name: "code=8+2", places: 10, lost: 3, sources: 8 },
];
/// Nodes that sets have more than groups have places; the last is as many as there can be.
const SPARES: [u32; 5] = [0, 1, 2, 6, 22];
/// What the controller takes unless it is told otherwise.
const SPARES_DEFAULT: u32 = 1;
/// Draws of nodes that fail, of a full run.
const TRIALS: u64 = 100_000;
/// Draws of racks that fail: each is of many nodes.
const RACK_TRIALS: u64 = 10_000;
/// Regions of a node in the second table.
const REGIONS_TRIED: [u32; 5] = [4, 16, 64, 256, 1024];

fn run(run: &mut Run<'_>) -> Outcome {
    let columns = [
        ("scheme", 0),
        ("placement", 0),
        ("set_nodes", 0),
        ("node_sets", 0),
        ("partners", 1),
        ("loss_nodes_percent", 3),
        ("loss_nodes_computed_percent", 3),
        ("racks_failed", 0),
        ("loss_racks_percent", 2),
        ("load_max_over_mean", 3),
        ("rebuild_s", 2),
        ("rebuild_computed_s", 2),
    ];
    let title =
        "1,000 nodes in 40 racks, 16 regions of groups each; 10 nodes fail at once, or as many racks as can lose";
    let mut table = Table::new("placements", title, &columns);
    let (mut lines, mut checks) = (Vec::new(), Vec::new());
    let trials = Trials { nodes: run.requests(TRIALS), racks: run.requests(RACK_TRIALS) };
    for (index, scheme) in SCHEMES.into_iter().enumerate() {
        let mut rng = random(run.seed, index as u64);
        let cluster = Cluster::new(&mut rng);
        let mut sizes = SPARES.map(|spares| set_seats(scheme.places, spares)).to_vec();
        sizes.dedup();
        (run.progress)(&format!("{}, anywhere", scheme.name), index as f64 / SCHEMES.len() as f64);
        let anywhere = cluster.place_anywhere(scheme.places, &mut rng);
        let anywhere = Measured::of(&anywhere, &cluster, scheme, &trials, &mut rng);
        table.push(anywhere.row(scheme, "anywhere", NODES.value));
        let mut points = Vec::new();
        for size in sizes {
            (run.progress)(&format!("{}, sets of {size}", scheme.name), (index as f64 + 0.5) / SCHEMES.len() as f64);
            let placed = cluster.place_in_sets(scheme.places, size - scheme.places, &mut rng);
            let measured = Measured::of(&placed, &cluster, scheme, &trials, &mut rng);
            table.push(measured.row(scheme, "coding sets", size.into()));
            points.push((size.into(), measured.loss_nodes));
            if scheme.places == 10 && size == set_seats(10, SPARES_DEFAULT) {
                let ratio = anywhere.loss_nodes / measured.loss_nodes;
                checks.push(Check::new("loss anywhere / in coding sets, code=8+2", 10.0, ratio).within(50.0));
            }
        }
        lines.push((scheme.name, points));
    }
    let placements = table.rows.len() as u64;
    Outcome {
        tables: vec![table, by_regions()],
        pictures: vec![picture(
            "coding-sets",
            ["Groups lost by nodes of a set", "1 % of 1,000 nodes fail at once; lower is better"],
            [Quantity::Counts("nodes of a set"), Quantity::Number("% of failures that lose a group")],
            lines,
        )],
        checks,
        notes: NOTES.map(str::to_owned).to_vec(),
        requests: placements * (trials.nodes + trials.racks),
        ..Outcome::default()
    }
}

const NOTES: [&str; 4] = [
    "The paper's abstract says that coding sets lose groups an order of magnitude more seldom; no other number is compared.",
    "Computed is for sets in which every combination of nodes is some group's. With few groups a set has fewer.",
    "As many racks fail as lose a group at least. One fewer loses none, whatever the placement: no two places of a group \
     are in one rack.",
    "Rebuilding is bound by what partners read, the nodes that have the other places. Computed is for reads that are \
     shared out evenly.",
];

/// How often something fails.
struct Trials {
    nodes: u64,
    racks: u64,
}

/// What became of groups that were placed in one way.
struct Measured {
    node_sets: f64,
    partners: f64,
    /// Failures of nodes that lose a group, in percent: simulated, and computed.
    loss_nodes: f64,
    loss_nodes_computed: f64,
    loss_racks: f64,
    imbalance: f64,
    rebuild_s: f64,
    rebuild_computed_s: f64,
}

impl Measured {
    fn of(placed: &Placed, cluster: &Cluster, scheme: Scheme, trials: &Trials, rng: &mut ChaCha8Rng) -> Self {
        let (rebuild_s, rebuild_computed_s) = rebuild(placed, scheme, rng);
        Self {
            node_sets: placed.node_sets() as f64,
            partners: placed.partners(),
            loss_nodes: loss_of_nodes(placed, scheme, trials.nodes, rng),
            loss_nodes_computed: 100.0 * computed_loss(placed, scheme),
            loss_racks: loss_of_racks(placed, cluster, scheme, trials.racks, rng),
            imbalance: placed.imbalance(),
            rebuild_s,
            rebuild_computed_s,
        }
    }

    fn row(&self, scheme: Scheme, placement: &str, set_nodes: f64) -> Vec<Cell> {
        let numbers = [
            set_nodes,
            self.node_sets,
            self.partners,
            self.loss_nodes,
            self.loss_nodes_computed,
            f64::from(scheme.lost),
            self.loss_racks,
            self.imbalance,
            self.rebuild_s,
            self.rebuild_computed_s,
        ];
        row([scheme.name, placement], numbers)
    }
}

/// Random numbers for one scheme.
fn random(seed: u64, scheme: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(scheme);
    rng
}

fn loss_of_nodes(placed: &Placed, scheme: Scheme, trials: u64, rng: &mut ChaCha8Rng) -> f64 {
    let mut failing = placed.failing(scheme.lost);
    let losses = (0..trials).filter(|_| {
        let failed = rand::seq::index::sample(rng, NODES.value as usize, FAILED.value as usize);
        failing.loses(failed.iter())
    });
    100.0 * losses.count() as f64 / trials as f64
}

fn loss_of_racks(placed: &Placed, cluster: &Cluster, scheme: Scheme, trials: u64, rng: &mut ChaCha8Rng) -> f64 {
    let mut failing = placed.failing(scheme.lost);
    let losses = (0..trials).filter(|_| {
        let racks = rand::seq::index::sample(rng, cluster.racks(), scheme.lost as usize);
        failing.loses(racks.iter().flat_map(|rack| cluster.nodes_of(rack)))
    });
    100.0 * losses.count() as f64 / trials as f64
}

fn computed_loss(placed: &Placed, scheme: Scheme) -> f64 {
    let (nodes, failed) = (NODES.value as u32, FAILED.value as u32);
    match &placed.set_sizes {
        Some(sizes) => odds::any_set(sizes, failed, scheme.lost),
        None => odds::any_group_anywhere(nodes, failed, scheme.places, scheme.lost, placed.groups()),
    }
}

/// Seconds that a node's places take to be made anew: as simulated for some nodes, and as computed.
fn rebuild(placed: &Placed, scheme: Scheme, rng: &mut ChaCha8Rng) -> (f64, f64) {
    const NODES_TRIED: usize = 50;
    let bytes_per_second = REBUILD.value * 1e9 / 8.0;
    let (mut seconds, mut computed) = (0.0, 0.0);
    for node in rand::seq::index::sample(rng, NODES.value as usize, NODES_TRIED) {
        let rebuilt = placed.rebuild(node, scheme.sources, rng);
        seconds += rebuilt.busiest_bytes as f64 / bytes_per_second;
        computed +=
            odds::rebuild_seconds(rebuilt.bytes as f64, rebuilt.partners as f64, scheme.sources, bytes_per_second);
    }
    (seconds / NODES_TRIED as f64, computed / NODES_TRIED as f64)
}

/// What more groups change: places anywhere become certain to lose one, sets lose what they lose.
fn by_regions() -> Table {
    let (nodes, failed) = (NODES.value as u32, FAILED.value as u32);
    let columns = [("scheme", 0), ("regions_per_node", 0), ("anywhere_percent", 3), ("coding_sets_percent", 3)];
    let mut table =
        Table::new("regions", "The same by groups, computed: 1 % of the nodes fail, default sets", &columns);
    for scheme in SCHEMES {
        let size = set_seats(scheme.places, SPARES_DEFAULT);
        let sizes = vec![size; (nodes / size) as usize];
        let covered = odds::any_set(&sizes, failed.min(sizes.iter().sum()), scheme.lost);
        for regions in REGIONS_TRIED {
            let groups = nodes * regions / scheme.places;
            let anywhere = odds::any_group_anywhere(nodes, failed, scheme.places, scheme.lost, groups);
            table.push(row([scheme.name], [f64::from(regions), 100.0 * anywhere, 100.0 * covered.min(anywhere)]));
        }
    }
    table
}

/// Bytes of a place at most.
fn region_bytes() -> u64 {
    REGION.value as u64
}

/// Places of groups on each node.
fn regions_per_node() -> u64 {
    REGIONS.value as u64
}

#[cfg(test)]
mod tests;
