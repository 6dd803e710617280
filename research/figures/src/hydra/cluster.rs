//! [`Cluster`]: nodes in racks, with seats; [`Placed`]: groups on them, which fail and are rebuilt.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use yonder_placement::sets::{Candidate, Member, coding_sets, emptiest, free_seat};
use yonder_placement::{Domains, NodeId};

use super::{region_bytes, regions_per_node};
use crate::costs::hydra::{NODES, RACKS};

/// Groups of an allocation.
const GROUPS_PER_ALLOCATION: u32 = 4;

/// Nodes, each in a rack, with the seats that they have taken in the order in which they came.
pub(super) struct Cluster {
    domains: Vec<Domains>,
    seats: Vec<u32>,
}

impl Cluster {
    pub(super) fn new(rng: &mut ChaCha8Rng) -> Self {
        let nodes = NODES.value as usize;
        let rack = |node: usize| format!("rack={}", node % RACKS.value as usize).parse().expect("it is a domain");
        let domains: Vec<Domains> = (0..nodes).map(rack).collect();
        let mut order: Vec<usize> = (0..nodes).collect();
        order.shuffle(rng);
        let (mut seats, mut taken) = (vec![0; nodes], Vec::new());
        for node in order {
            seats[node] = free_seat(&domains[node], taken.iter().copied());
            taken.push((seats[node], &domains[node]));
        }
        Self { domains, seats }
    }

    pub(super) fn racks(&self) -> usize {
        RACKS.value as usize
    }

    pub(super) fn nodes_of(&self, rack: usize) -> impl Iterator<Item = usize> {
        (rack..self.domains.len()).step_by(RACKS.value as usize)
    }

    /// Groups on any nodes in different racks.
    pub(super) fn place_anywhere(&self, places: u32, rng: &mut ChaCha8Rng) -> Placed {
        let mut placed = Placed::new(self.domains.len(), None);
        for _ in 0..groups(self.domains.len(), places) {
            let racks = rand::seq::index::sample(rng, self.racks(), places as usize);
            let of_rack = self.domains.len() / self.racks();
            let nodes = racks.iter().map(|rack| rack + self.racks() * rng.random_range(0..of_rack)).collect();
            placed.add(nodes, bytes_of_place(rng));
        }
        placed
    }

    /// Groups on the emptiest nodes of the emptiest set, as the controller places them.
    pub(super) fn place_in_sets(&self, places: u32, spares: u32, rng: &mut ChaCha8Rng) -> Placed {
        let members = self.domains.iter().zip(&self.seats).enumerate();
        let members: Vec<Member<'_>> =
            members.map(|(node, (domains, seat))| Member { node: NodeId(node as u64), seat: *seat, domains }).collect();
        let sets: Vec<Vec<usize>> = coding_sets(&members, places, spares)
            .into_iter()
            .map(|set| set.into_iter().map(|node| node.0 as usize).collect())
            .collect();
        let mut placed = Placed::new(self.domains.len(), Some(&sets));
        let mut by_load: BTreeSet<(u64, usize)> = (0..sets.len()).map(|set| (0, set)).collect();
        for _ in 0..groups(self.domains.len(), places) {
            let (_, set) = by_load.pop_first().expect("there are sets");
            let bytes = bytes_of_place(rng);
            let (_, nodes) = placed.emptiest(&sets[set], places, bytes);
            placed.add(nodes, bytes);
            by_load.insert((placed.emptiest(&sets[set], places, bytes).0, set));
        }
        placed
    }
}

fn groups(nodes: usize, places: u32) -> u64 {
    nodes as u64 * regions_per_node() / u64::from(places)
}

/// Most places are whole regions; the last of an allocation is a part of one.
fn bytes_of_place(rng: &mut ChaCha8Rng) -> u64 {
    if rng.random_range(0..GROUPS_PER_ALLOCATION) > 0 { region_bytes() } else { rng.random_range(1..=region_bytes()) }
}

/// One group.
struct Group {
    nodes: Vec<usize>,
    /// Bytes of each place.
    bytes: u64,
}

/// Groups on nodes.
pub(super) struct Placed {
    groups: Vec<Group>,
    /// The groups of each node.
    of_node: Vec<Vec<usize>>,
    loads: Vec<u64>,
    /// The set of each node, and the sets, if there are some.
    sets: Option<(Vec<usize>, Vec<Vec<usize>>)>,
    /// How many nodes each set has.
    pub(super) set_sizes: Option<Vec<u32>>,
}

/// How a node was rebuilt.
pub(super) struct Rebuilt {
    /// Bytes that it had.
    pub(super) bytes: u64,
    /// Nodes that have other places of its groups.
    pub(super) partners: usize,
    /// What the node has read, or written, that has most to do.
    pub(super) busiest_bytes: u64,
}

impl Placed {
    fn new(nodes: usize, sets: Option<&[Vec<usize>]>) -> Self {
        let set_of = |sets: &[Vec<usize>]| {
            let mut of = vec![0; nodes];
            sets.iter().enumerate().for_each(|(set, members)| members.iter().for_each(|node| of[*node] = set));
            (of, sets.to_vec())
        };
        let set_sizes = sets.map(|sets| sets.iter().map(|set| set.len() as u32).collect());
        let (of_node, loads) = (vec![Vec::new(); nodes], vec![0; nodes]);
        Self { groups: Vec::new(), of_node, loads, sets: sets.map(set_of), set_sizes }
    }

    fn add(&mut self, nodes: Vec<usize>, bytes: u64) {
        for node in &nodes {
            self.of_node[*node].push(self.groups.len());
            self.loads[*node] += bytes;
        }
        self.groups.push(Group { nodes, bytes });
    }

    /// The nodes for the next group, as the controller chooses them, and their loads together.
    fn emptiest(&self, set: &[usize], places: u32, bytes: u64) -> (u64, Vec<usize>) {
        let candidate = |node: &usize| Candidate {
            node: NodeId(*node as u64),
            load: self.loads[*node].into(),
            slack: i128::from(bytes / 4),
        };
        let mut left: Vec<Candidate> = set.iter().map(candidate).collect();
        let (mut load, mut nodes) = (0, Vec::new());
        for _ in 0..places {
            let next = emptiest(&left, self.groups.len() as u64).expect("a set has as many nodes").node;
            left.retain(|candidate| candidate.node != next);
            load += self.loads[next.0 as usize];
            nodes.push(next.0 as usize);
        }
        (load, nodes)
    }

    pub(super) fn groups(&self) -> u32 {
        self.groups.len() as u32
    }

    /// How many different sets of nodes are some group's.
    pub(super) fn node_sets(&self) -> usize {
        let sorted = |group: &Group| group.nodes.iter().copied().collect::<BTreeSet<_>>();
        self.groups.iter().map(sorted).collect::<BTreeSet<_>>().len()
    }

    /// How many others have places of a node's groups, on average.
    pub(super) fn partners(&self) -> f64 {
        let sum: usize = (0..self.loads.len()).map(|node| self.partners_of(node).len()).sum();
        sum as f64 / self.loads.len() as f64
    }

    fn partners_of(&self, node: usize) -> BTreeSet<usize> {
        let groups = self.of_node[node].iter().map(|group| &self.groups[*group]);
        groups.flat_map(|group| group.nodes.iter().copied()).filter(|other| *other != node).collect()
    }

    /// The largest load as a share of the mean.
    pub(super) fn imbalance(&self) -> f64 {
        let most = self.loads.iter().max().copied().unwrap_or(0);
        most as f64 * self.loads.len() as f64 / self.loads.iter().sum::<u64>() as f64
    }

    /// To fail nodes of, again and again.
    pub(super) fn failing(&self, lost: u32) -> Failing<'_> {
        Failing { placed: self, lost, hits: vec![0; self.groups.len()], touched: Vec::new() }
    }

    /// Makes the places of a node anew: each of the least busy of its group's others, at the least busy node of the
    /// set that is not in it, or at any.
    pub(super) fn rebuild(&self, failed: usize, sources: u32, rng: &mut ChaCha8Rng) -> Rebuilt {
        let (mut reads, mut writes) = (BTreeMap::<usize, u64>::new(), BTreeMap::<usize, u64>::new());
        for group in self.of_node[failed].iter().map(|group| &self.groups[*group]) {
            let mut others: Vec<usize> = group.nodes.iter().copied().filter(|node| *node != failed).collect();
            others.sort_by_key(|node| reads.get(node).copied().unwrap_or(0));
            for source in others.iter().take(sources as usize) {
                *reads.entry(*source).or_default() += group.bytes;
            }
            let can_take = |node: &usize| !group.nodes.contains(node);
            let target = match &self.sets {
                Some((of, sets)) => {
                    let spare = sets[of[failed]].iter().copied().filter(can_take);
                    spare.min_by_key(|node| writes.get(node).copied().unwrap_or(0))
                }
                None => None,
            };
            let target = target.unwrap_or_else(|| {
                std::iter::repeat_with(|| rng.random_range(0..self.loads.len()))
                    .find(can_take)
                    .expect("others are many")
            });
            *writes.entry(target).or_default() += group.bytes;
        }
        let busiest_bytes = reads.values().chain(writes.values()).max().copied().unwrap_or(0);
        Rebuilt { bytes: self.loads[failed], partners: self.partners_of(failed).len().max(1), busiest_bytes }
    }
}

/// Nodes that fail, with what is counted of them.
pub(super) struct Failing<'a> {
    placed: &'a Placed,
    lost: u32,
    hits: Vec<u32>,
    touched: Vec<usize>,
}

impl Failing<'_> {
    /// Whether these nodes, failed at once, lose a group.
    pub(super) fn loses(&mut self, failed: impl Iterator<Item = usize>) -> bool {
        let mut loses = false;
        for group in failed.flat_map(|node| self.placed.of_node[node].iter()) {
            self.hits[*group] += 1;
            self.touched.push(*group);
            loses |= self.hits[*group] >= self.lost;
        }
        self.touched.drain(..).for_each(|group| self.hits[group] = 0);
        loses
    }
}
