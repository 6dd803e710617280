//! How likely it is that nodes which fail at once lose a group, and how long it takes to rebuild one: closed forms,
//! which `research/figures` puts beside simulations.
//!
//! A group is lost if so many of its places fail: all copies, or one more than a code has parity. In a set every
//! combination of nodes is taken to be some group's, as it is with many groups.

/// The probability that at least `lost` of `of` nodes are among `failed` that fail at once, of `nodes`.
#[must_use]
pub fn at_least(nodes: u32, failed: u32, of: u32, lost: u32) -> f64 {
    let hit = |hits: u32| choose(of, hits) * choose(nodes - of, failed.wrapping_sub(hits)) / choose(nodes, failed);
    (lost..=of.min(failed)).map(hit).sum()
}

/// The probability that one of `groups` that are anywhere loses `lost` of its `places`.
#[must_use]
pub fn any_group_anywhere(nodes: u32, failed: u32, places: u32, lost: u32, groups: u32) -> f64 {
    1.0 - (1.0 - at_least(nodes, failed, places, lost)).powi(groups.cast_signed())
}

/// The probability that one of some sets, which have no nodes in common and together all of them, loses `lost` nodes.
#[must_use]
pub fn any_set(sizes: &[u32], failed: u32, lost: u32) -> f64 {
    // How many ways there are to spread so many failures over the sets seen so far, none of which loses as many.
    let mut ways = vec![0.0; failed as usize + 1];
    ways[0] = 1.0;
    for size in sizes {
        let of_set: Vec<f64> = (0..lost).map(|hits| choose(*size, hits)).collect();
        for total in (0..ways.len()).rev() {
            let hits = of_set.iter().enumerate().take(total + 1);
            ways[total] = hits.map(|(hits, ways_in_set)| ways_in_set * ways[total - hits]).sum();
        }
    }
    1.0 - ways[failed as usize] / choose(sizes.iter().sum(), failed)
}

/// How long it takes to make the places of a node anew that has failed with `bytes`, on `partners` nodes that have the
/// other places of its groups, each of which reads and writes so many bytes a second at the same time. A byte is made
/// of `sources` others.
#[must_use]
pub fn rebuild_seconds(bytes: f64, partners: f64, sources: u32, bytes_per_second: f64) -> f64 {
    bytes * f64::from(sources.max(1)) / (partners * bytes_per_second)
}

/// How many ways there are to take `some` of `all`; none if that cannot be.
fn choose(all: u32, some: u32) -> f64 {
    if some > all {
        return 0.0;
    }
    (0..some).fold(1.0, |ways, taken| ways * f64::from(all - taken) / f64::from(taken + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::{Member, coding_sets, free_seat};
    use crate::{Domains, NodeId};

    /// Numbers that look drawn by chance.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: u32) -> u32 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            ((self.0 >> 33) % u64::from(end)) as u32
        }

        /// So many different nodes.
        fn nodes(&mut self, of: u32, count: u32) -> Vec<u32> {
            let mut drawn = Vec::new();
            while drawn.len() < count as usize {
                let node = self.below(of);
                if !drawn.contains(&node) {
                    drawn.push(node);
                }
            }
            drawn
        }
    }

    fn close(simulated: f64, computed: f64, trials: u32) {
        let error = (computed * (1.0 - computed) / f64::from(trials)).sqrt();
        assert!((simulated - computed).abs() <= 4.0 * error + 1e-9, "simulated {simulated}, computed {computed}");
    }

    #[test]
    fn small_cases_are_as_counted() {
        // Two of four fail: six ways, of which one hits both of a pair.
        assert!((at_least(4, 2, 2, 2) - 1.0 / 6.0).abs() < 1e-12);
        assert!((at_least(4, 2, 2, 1) - 5.0 / 6.0).abs() < 1e-12);
        assert!((any_set(&[2, 2], 2, 2) - 2.0 / 6.0).abs() < 1e-12);
        assert!((any_set(&[4], 2, 2) - 1.0).abs() < 1e-12);
        assert!((any_set(&[3, 1], 2, 2) - 0.5).abs() < 1e-12);
        assert!((any_group_anywhere(4, 2, 2, 2, 2) - 11.0 / 36.0).abs() < 1e-12);
        assert_eq!([any_set(&[5, 5], 2, 3), at_least(10, 2, 3, 3)], [0.0, 0.0]);
        assert!((rebuild_seconds(64.0, 4.0, 4, 2.0) - 32.0).abs() < 1e-12);
    }

    /// 1,000 nodes in 40 racks, which come in any order, of which 10 fail at once.
    #[test]
    #[cfg_attr(miri, ignore = "a hundred thousand draws take minutes")]
    fn a_thousand_nodes_lose_groups_as_computed_and_in_sets_far_more_seldom() {
        const NODES: u32 = 1000;
        const FAILED: u32 = 10;
        let mut chance = Chance(26);
        let mut order: Vec<u32> = (0..NODES).collect();
        (1..NODES).rev().for_each(|at| order.swap(at as usize, chance.below(at + 1) as usize));
        let domains: Vec<Domains> = order.iter().map(|node| format!("rack={}", node % 40).parse().unwrap()).collect();
        let mut seats: Vec<u32> = Vec::new();
        for own in &domains {
            seats.push(free_seat(own, seats.iter().copied().zip(&domains)));
        }
        let member = |at: usize| Member { node: NodeId(u64::from(order[at])), seat: seats[at], domains: &domains[at] };
        let members: Vec<Member<'_>> = (0..NODES as usize).map(member).collect();
        // Places, and how many of them lost lose a group: two copies, three, code 4+1, code 8+2.
        for (places, lost, groups) in [(2, 2, 8000), (3, 3, 5333), (5, 2, 3200), (10, 3, 1600)] {
            let sets = coding_sets(&members, places, 2);
            let mut set_of = vec![0; NODES as usize];
            for (number, set) in sets.iter().enumerate() {
                set.iter().for_each(|node| set_of[node.0 as usize] = number);
            }
            let trials = 20_000;
            let mut losses = 0;
            for _ in 0..trials {
                let mut hit: Vec<usize> =
                    chance.nodes(NODES, FAILED).iter().map(|node| set_of[*node as usize]).collect();
                hit.sort_unstable();
                losses += u32::from(hit.windows(lost).any(|run| run[0] == run[lost - 1]));
            }
            let sizes: Vec<u32> = sets.iter().map(|set| set.len() as u32).collect();
            let lost = lost as u32;
            let (simulated, computed) = (f64::from(losses) / f64::from(trials), any_set(&sizes, FAILED, lost));
            close(simulated, computed, trials);
            let mut losses = 0;
            let trials = 60;
            for _ in 0..trials {
                let failed = chance.nodes(NODES, FAILED);
                let is_lost =
                    |group: Vec<u32>| group.iter().filter(|node| failed.contains(node)).count() >= lost as usize;
                losses += u32::from((0..groups).any(|_| is_lost(chance.nodes(NODES, places))));
            }
            let anywhere = any_group_anywhere(NODES, FAILED, places, lost, groups);
            close(f64::from(losses) / f64::from(trials), anywhere, trials);
            assert!(computed < anywhere / 1.5, "{places} places: {computed} in sets, {anywhere} anywhere");
        }
    }
}
