//! Coding sets: few sets of nodes, such that the places of a group are all in one. Nodes that fail at once lose a group
//! only if enough of them are in one set; of places anywhere, any of them do (copysets, Cidon et al., ATC'13; coding
//! sets, Hydra, FAST'22).
//!
//! Each node has a *seat*, for as long as it is known, and the one that is started in its place has the same. Seats are
//! divided into blocks of [`BLOCK_SEATS`], in which no two nodes are in one domain of the narrowest level, and blocks
//! into sets of a size that depends on how many places a group has. So a node that comes or goes changes its own set;
//! what is left of one that has become too small joins its neighbours.
//!
//! A set has some nodes more than a group has places: the emptiest of them are chosen, and one that fails leaves others
//! to go to. The more there are, the faster a node that has failed is rebuilt, and the more groups share its fate.
//!
//! All is pure: the same seats make the same sets. `group` chooses among them.

pub mod odds;

use std::collections::BTreeMap;

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

/// The seat for a node that has none, where these are taken: in the first block in which no node is in its domain of
/// the narrowest level, and there as far as can be from nodes that are in wider ones.
#[must_use]
pub fn free_seat<'a>(domains: &Domains, taken: impl IntoIterator<Item = (u32, &'a Domains)>) -> u32 {
    let mut blocks: BTreeMap<u32, Vec<(u32, &Domains)>> = BTreeMap::new();
    for (seat, other) in taken {
        blocks.entry(seat / BLOCK_SEATS).or_default().push((seat, other));
    }
    let is_open = |block: &u32| {
        blocks.get(block).is_none_or(|taken| {
            let seats = (0..BLOCK_SEATS).map(|seat| block * BLOCK_SEATS + seat);
            seats.into_iter().any(|seat| taken.iter().all(|(other, _)| *other != seat))
                && taken.iter().all(|(_, other)| !domains.are_beside(other))
        })
    };
    let block = (0..u32::MAX / BLOCK_SEATS).find(is_open).unwrap_or(0);
    let taken = blocks.get(&block).map_or(&[][..], Vec::as_slice);
    let seats = block * BLOCK_SEATS..(block + 1) * BLOCK_SEATS;
    let free = seats.filter(|seat| taken.iter().all(|(other, _)| other != seat));
    free.min_by_key(|seat| (nearness(*seat, domains, taken), *seat)).unwrap_or(block * BLOCK_SEATS)
}

/// In how many sets, of all sizes, a node in this seat is with others, for each level at which it fails with them.
fn nearness(seat: u32, domains: &Domains, taken: &[(u32, &Domains)]) -> u32 {
    let sizes = || (2..BLOCK_SEATS).filter(|seats| BLOCK_SEATS.is_multiple_of(*seats));
    let sets_with = |other: u32| sizes().map(|seats| u32::from(other / seats == seat / seats)).sum::<u32>();
    taken.iter().map(|(other, theirs)| domains.shared_with(theirs) * sets_with(*other)).sum()
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
    let mut seen = std::collections::BTreeSet::new();
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
