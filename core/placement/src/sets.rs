//! Coding sets: few sets of nodes, such that the places of a group are all in one. Nodes that fail at once lose a group
//! only if enough of them are in one set; of places anywhere, any of them do (copysets, Cidon et al., ATC'13; coding
//! sets, Hydra, FAST'22).
//!
//! Each node has a *seat*, for as long as it is known, and the one that is started in its place has the same. Seats are
//! divided into blocks of [`BLOCK_SEATS`], in which no two nodes are in one domain of the narrowest level, such as a
//! rack, and blocks into sets of a size that depends on how many places a group has. So a node that comes or goes
//! changes its own set; what is left of one that has become too small joins its neighbours.
//!
//! A set has some nodes more than a group has places: the emptiest of them are chosen, and one that fails leaves others
//! to go to. The more there are, the faster a node that has failed is rebuilt, and the more groups share its fate.
//!
//! All is pure: the same seats make the same sets. `group` chooses among them.

pub mod odds;

use std::collections::{BTreeMap, BTreeSet};

use crate::domains::Domains;
use crate::names::NodeId;

/// Seats of a block. It has many divisors, so that sets of most sizes fill it.
pub const BLOCK_SEATS: u32 = 24;

/// A node that may have places.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The node.
    pub node: NodeId,
    /// Its seat.
    pub seat: u32,
    /// What fails together with it.
    pub domains: &'a Domains,
}

/// Seats of a set for groups with so many places, if it is to have `spares` more: the next divisor of
/// [`BLOCK_SEATS`].
#[must_use]
pub fn set_seats(places: u32, spares: u32) -> u32 {
    let wanted = places.saturating_add(spares).clamp(1, BLOCK_SEATS);
    (wanted..=BLOCK_SEATS).find(|seats| BLOCK_SEATS.is_multiple_of(*seats)).expect("a block is one set")
}

/// The seat for a node that has none, where these are taken.
///
/// All nodes of one domain, a rack, have the same place in their blocks, and those blocks are of the same racks: so the
/// sets of all blocks are of the same few combinations of racks, and racks that fail at once seldom make one up. The
/// first node of a rack takes a place that no rack of those blocks has, as far as can be from racks in the same wider
/// domains; the others go to the first block where it is free.
#[must_use]
pub fn free_seat<'a>(domains: &Domains, taken: impl IntoIterator<Item = (u32, &'a Domains)>) -> u32 {
    let mut blocks: BTreeMap<u32, Vec<Taken<'a>>> = BTreeMap::new();
    for (seat, domains) in taken {
        blocks.entry(seat / BLOCK_SEATS).or_default().push(Taken { place: seat % BLOCK_SEATS, domains });
    }
    let unused = (0..).find(|block| !blocks.contains_key(block)).expect("there are fewer nodes than numbers");
    for band in bands(&blocks) {
        let nodes = || band.iter().flat_map(|block| &blocks[block]);
        if let Some(beside) = nodes().find(|other| domains.are_beside(other.domains)) {
            let is_free = |block: &&u32| {
                blocks[*block].iter().all(|other| other.place != beside.place && !domains.are_beside(other.domains))
            };
            return band.iter().find(is_free).unwrap_or(&unused) * BLOCK_SEATS + beside.place;
        }
    }
    let free = bands(&blocks).into_iter().find_map(|band| {
        let nodes: Vec<Taken<'_>> = band.iter().flat_map(|block| blocks[block].iter().copied()).collect();
        let free = (0..BLOCK_SEATS).filter(|place| nodes.iter().all(|other| other.place != *place));
        let farthest = free.min_by_key(|place| (nearness(*place, domains, &nodes), *place))?;
        Some(band[0] * BLOCK_SEATS + farthest)
    });
    free.unwrap_or(unused * BLOCK_SEATS)
}

/// A seat of a block that is taken.
#[derive(Clone, Copy)]
struct Taken<'a> {
    place: u32,
    domains: &'a Domains,
}

/// Blocks of the same racks, and of racks that are with those in others: lowest first.
fn bands(blocks: &BTreeMap<u32, Vec<Taken<'_>>>) -> Vec<Vec<u32>> {
    let mut bands: Vec<Band<'_>> = Vec::new();
    for (block, nodes) in blocks {
        let mut joined = Band { blocks: Vec::new(), racks: BTreeSet::new() };
        joined.racks.extend(nodes.iter().filter_map(|node| node.domains.narrowest()));
        let is_same = |band: &mut Band<'_>| !band.racks.is_disjoint(&joined.racks);
        for same in bands.extract_if(.., is_same).collect::<Vec<_>>() {
            joined.blocks.extend(same.blocks);
            joined.racks.extend(same.racks);
        }
        joined.blocks.push(*block);
        bands.push(joined);
    }
    for band in &mut bands {
        band.blocks.sort_unstable();
    }
    bands.sort_unstable_by_key(|band| band.blocks[0]);
    bands.into_iter().map(|band| band.blocks).collect()
}

/// Blocks, and the racks in them.
struct Band<'a> {
    blocks: Vec<u32>,
    racks: BTreeSet<(&'a str, &'a str)>,
}

/// In how many sets, of all sizes, a node at this place of its block is with others, for each level at which it fails
/// with them.
fn nearness(place: u32, domains: &Domains, taken: &[Taken<'_>]) -> u32 {
    let sizes = || (2..BLOCK_SEATS).filter(|seats| BLOCK_SEATS.is_multiple_of(*seats));
    let sets_with = |other: u32| sizes().map(|seats| u32::from(other / seats == place / seats)).sum::<u32>();
    taken.iter().map(|other| domains.shared_with(other.domains) * sets_with(other.place)).sum()
}

/// The sets for groups with so many places: every member is in one. Each has `places` nodes at least, in as many
/// domains as there are; all are together if they are too few for that.
#[must_use]
pub fn coding_sets(members: &[Member<'_>], places: u32, spares: u32) -> Vec<Vec<NodeId>> {
    let mut members = members.to_vec();
    members.sort_unstable_by_key(|member| (member.seat, member.node));
    let size = set_seats(places, spares);
    let domains = distinct(&members).min(places as usize);
    let is_enough = |set: &[Member<'_>]| set.len() >= places as usize && distinct(set) >= domains;
    let (mut sets, mut rest) = (Vec::new(), Vec::new());
    for block in members.chunk_by(|a, b| a.seat / BLOCK_SEATS == b.seat / BLOCK_SEATS) {
        match sets_of_block(block, size, &is_enough) {
            Ok(found) => sets.extend(found),
            Err(few) => rest.push((block[0].seat / BLOCK_SEATS, few)),
        }
    }
    let left = join(&rest, u32::BITS, &is_enough, &mut sets);
    if sets.is_empty() {
        sets.push(left);
    } else {
        spread(&mut sets, left);
    }
    sets.into_iter().map(|set| set.into_iter().map(|member| member.node).collect()).collect()
}

/// A node that may have the next place of a group.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// How full it is.
    pub load: i128,
    /// How much fuller than the emptiest it may be and still count as one: a quarter of what is to be placed.
    pub slack: i128,
}

/// The emptiest of some nodes. Of several it is another one for each `group`: nodes that had the last group together
/// are as full as one another, and would have all others together too, so that one alone had to rebuild the other.
#[must_use]
pub fn emptiest(candidates: &[Candidate], group: u64) -> Option<Candidate> {
    let least = candidates.iter().map(|candidate| candidate.load).min()?;
    let as_empty = candidates.iter().filter(|candidate| candidate.load <= least + candidate.slack);
    as_empty.min_by_key(|candidate| (turn(candidate.node, group), candidate.node)).copied()
}

/// An order of nodes that is another one for each group.
fn turn(node: NodeId, group: u64) -> u64 {
    let mixed = (node.0 ^ group.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

/// How many of some nodes are in different domains of the narrowest level.
fn distinct(members: &[Member<'_>]) -> usize {
    let mut seen = BTreeSet::new();
    let alone = members.iter().filter(|member| member.domains.is_empty()).count();
    seen.extend(members.iter().filter_map(|member| member.domains.narrowest()));
    alone + seen.len()
}

/// The sets of a block; or its nodes, if they are too few for one. Neighbours that are too small are one.
fn sets_of_block<'a>(
    block: &[Member<'a>],
    size: u32,
    is_enough: &impl Fn(&[Member<'_>]) -> bool,
) -> Result<Vec<Vec<Member<'a>>>, Vec<Member<'a>>> {
    let (mut sets, mut small) = (Vec::new(), Vec::new());
    for set in block.chunk_by(|a, b| a.seat / size == b.seat / size) {
        if is_enough(set) {
            sets.push(set.to_vec());
        } else {
            small.extend_from_slice(set);
            if is_enough(&small) {
                sets.push(std::mem::take(&mut small));
            }
        }
    }
    if sets.is_empty() {
        return Err(small);
    }
    spread(&mut sets, small);
    Ok(sets)
}

/// Puts nodes into the smallest sets.
fn spread<'a>(sets: &mut [Vec<Member<'a>>], members: Vec<Member<'a>>) {
    for member in members {
        let smallest = sets.iter_mut().min_by_key(|set| set.len()).expect("there is a set");
        smallest.push(member);
    }
}

/// Makes sets of what blocks have left, which are numbered: those whose numbers begin alike are joined first, so that
/// one that comes or goes changes little. Returns what is left at last.
fn join<'a>(
    blocks: &[(u32, Vec<Member<'a>>)],
    bits: u32,
    is_enough: &impl Fn(&[Member<'_>]) -> bool,
    sets: &mut Vec<Vec<Member<'a>>>,
) -> Vec<Member<'a>> {
    match (blocks, bits.checked_sub(1)) {
        ([], _) => Vec::new(),
        ([(_, block)], _) => block.clone(),
        (_, None) => unreachable!("blocks have different numbers"),
        (_, Some(bit)) => {
            let (low, high) = blocks.split_at(blocks.partition_point(|(number, _)| number >> bit & 1 == 0));
            let mut both = join(low, bit, is_enough, sets);
            both.extend(join(high, bit, is_enough, sets));
            if low.is_empty() || high.is_empty() || !is_enough(&both) {
                return both;
            }
            sets.push(both);
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests;
