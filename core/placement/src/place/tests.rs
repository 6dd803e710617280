//! The search for regions against a plain one, which tries every row with all of it counted anew.

use proptest::prelude::*;

use super::*;
use crate::live::Link;
use crate::message::{NodeReport, RegionReport};
use crate::record::{Duty, Move, NodeRecord, Record};
use crate::{ClusterId, Config, Domains, MoveId, Registration};

const REGION: u64 = 1 << 30;
/// Regions of the world have smaller numbers.
const REGION_END: u32 = 40;
const PID: Pid = Pid::FIRST;

/// What a node is like: quarters of regions that it has and that are in use, the logarithm of its pages, whether it is
/// connected. Of pages of one byte it reaches 4 regions.
type NodeShape = (u64, u64, u32, bool);
/// What a region is like: its node, whether it is empty, moves, and has memory although it is empty.
type RegionShape = (usize, bool, bool, bool);

fn controller(nodes: &[NodeShape], regions: &[(u32, RegionShape)], overcommit_percent: u32) -> Controller {
    let config = Config { region_bytes: REGION, overcommit_percent, ..Config::default() };
    let id = |index: usize| NodeId(1 + index as u64 % nodes.len() as u64);
    let mut records = Vec::new();
    for (index, (quarters, _, page_bits, _)) in nodes.iter().enumerate() {
        let (memory_bytes, page_bytes) = (quarters * REGION / 4, 1 << page_bits);
        let (name, urls) = (None, vec!["tcp://node:1".to_owned()]);
        let (region_bytes, domains) = (REGION, Domains::default());
        let facts = Registration { node: id(index), name, urls, memory_bytes, page_bytes, region_bytes, domains };
        records.push(Record::Node(NodeRecord { facts, duty: Duty::Serving, seat: None }));
    }
    for (region, (owner, _, moves, _)) in regions {
        let mut record = RegionRecord::new(id(*owner));
        record.moving = moves.then(|| Move { id: MoveId(1), to: id(owner + 1) });
        records.push(Record::Region { pid: PID, region: *region, record });
    }
    // The space itself has no record, and its regions would be gone with it.
    let mut controller = Controller::restore(config, ClusterId(1), [], 0).unwrap();
    records.into_iter().for_each(|record| controller.state.load(record));
    for (index, (quarters, used, _, is_connected)) in nodes.iter().enumerate() {
        let mut live = crate::live::Live::silent(0);
        let free_bytes = quarters.saturating_sub(*used) * REGION / 4;
        live.report(&NodeReport { free_bytes, ..NodeReport::default() }, 0, 1);
        live.link = if *is_connected { Link::Connected } else { Link::Silent };
        controller.live.insert(id(index), live);
    }
    for (region, (_, is_empty, _, has_memory)) in regions {
        let mut usage = Usage::empty();
        let (allocated_bytes, resident_bytes) = (u64::from(!is_empty) << 12, u64::from(*has_memory) << 12);
        usage.report(Some(&RegionReport { pid: PID, region: *region, allocated_bytes, resident_bytes, heat: 0 }));
        controller.usage.insert((PID, *region), usage);
    }
    controller
}

impl Controller {
    fn plain_parts(&self, bytes: u64, avoid: &BTreeSet<u32>) -> Option<Vec<Part>> {
        let mut starts = REGION_FIRST..2 * REGION_END;
        if bytes > REGION {
            // The plain search leaps as this one does: behind the region that was in the way.
            while let Some(start) = starts.next() {
                match self.plain_row(start, bytes, avoid) {
                    Ok(parts) => return Some(parts),
                    Err(blocked) => starts.start = blocked + 1,
                }
            }
            return None;
        }
        let fullness = self.fullness();
        let is_free = |region: &u32| !avoid.contains(region);
        let exists = |region: &u32| self.state.regions.contains_key(&(PID, *region));
        let existing = starts
            .clone()
            .filter(is_free)
            .find_map(|region| self.plain_part(region, bytes, REGION - bytes, &fullness).filter(|_| exists(&region)));
        let new = || self.plain_part(starts.find(|region| is_free(region) && !exists(region))?, bytes, 0, &fullness);
        existing.or_else(new).map(|part| vec![part])
    }

    fn plain_row(&self, start: u32, bytes: u64, avoid: &BTreeSet<u32>) -> Result<Vec<Part>, u32> {
        let (mut fullness, mut left, mut parts) = (self.fullness(), bytes, Vec::new());
        for region in start..start + u32::try_from(bytes.div_ceil(REGION)).unwrap() {
            let part = self.plain_part(region, left.min(REGION), 0, &fullness);
            let part = part.filter(|_| !avoid.contains(&region)).ok_or(region)?;
            fullness.give(part.node, part.bytes);
            left -= left.min(REGION);
            parts.push(part);
        }
        Ok(parts)
    }

    fn plain_part(&self, region: u32, bytes: u64, allocated_max: u64, fullness: &Fullness) -> Option<Part> {
        let bytes = self.on_pages(bytes);
        let Some(record) = self.state.regions.get(&(PID, region)) else {
            return fullness.node_for(region, bytes).map(|node| Part { region, node, bytes });
        };
        let allocated = self.usage[&(PID, region)].allocated(REGION);
        let is_free = record.is_stable() && allocated <= allocated_max && allocated + bytes <= REGION;
        let part = Part { region, node: record.owner, bytes };
        (is_free && fullness.has_room(record.owner, region, bytes)).then_some(part)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "a thousand worlds take minutes")]
    fn regions_are_found_as_by_a_plain_search(
        nodes in prop::collection::vec(
            (1..40u64, 0..16u64, prop_oneof![1 => Just(0u32), 1 => 1..4u32, 4 => Just(12)], prop::bool::weighted(0.9)),
            1..6,
        ),
        regions in prop::collection::btree_map(
            REGION_FIRST..REGION_END,
            (0..5usize, prop::bool::weighted(0.8), prop::bool::weighted(0.1), any::<bool>()),
            0..20,
        ),
        avoid in prop::collection::btree_set(0..REGION_END, 0..6),
        quarters in 1..48u64,
        is_odd in any::<bool>(),
        overcommit_percent in prop_oneof![Just(100u32), Just(150)],
    ) {
        let regions: Vec<(u32, RegionShape)> = regions.into_iter().collect();
        let controller = controller(&nodes, &regions, overcommit_percent);
        let bytes = quarters * REGION / 4 - u64::from(is_odd);
        prop_assert_eq!(controller.find_parts(PID, bytes, &avoid), controller.plain_parts(bytes, &avoid));
    }
}

#[test]
fn a_row_is_found_behind_all_regions_in_the_way() {
    let controller = controller(&[(400, 0, 12, true), (400, 0, 12, true)], &[(70, (0, false, false, false))], 100);
    let avoid: BTreeSet<u32> = (1..=u32::try_from(AVOIDED_PER_REQUEST_MAX).unwrap()).map(|step| 60 * step).collect();
    let last = *avoid.last().unwrap();
    let parts = controller.find_parts(PID, 64 * REGION, &avoid).unwrap();
    assert_eq!((parts[0].region, parts.len()), (last + 1, 64));
    assert_eq!(controller.find_parts(PID, 64 * REGION, &(1..=last).collect()).unwrap(), parts);
}

/// The end of a row needs less room than its other parts.
#[test]
fn a_row_ends_in_an_empty_region_that_has_room_for_its_end_alone() {
    let controller = controller(&[(9, 0, 12, true), (2, 0, 12, true)], &[(3, (1, true, false, false))], 100);
    let parts = controller.find_parts(PID, 5 * REGION / 2, &BTreeSet::new()).unwrap();
    let at = |part: &Part| (part.region, part.node.0, part.bytes);
    assert_eq!(parts.iter().map(at).collect::<Vec<_>>(), [(1, 1, REGION), (2, 1, REGION), (3, 2, REGION / 2)]);
}
