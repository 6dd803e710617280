//! Paging over the layers of fabrics, tiered and compressed: nothing is lost while the node comes and goes.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use yonder_fabric::{Counter, EmuControl, EmuFabric, Fabric, Lz4Fabric, TierFabric};
use yonder_paging::{Config, Deadlines, FarMemory, PagingCause, PagingError, Region, Verify};
use yonder_units::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
const MEMORY: u64 = 16 << 20;
/// Less than the region has, so that the node is full.
const NEAR: u64 = 6 << 20;

/// Far memory and what its fabrics are, or `None` (and a line that says so) where userfaultfd is missing.
struct World {
    fabric: Arc<dyn Fabric>,
    far: FarMemory,
    region: Region,
    node: Arc<EmuControl>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layers {
    Compressed,
    Tiered,
    CompressedAndTiered,
    TieredOverCompressed,
}

impl World {
    fn new(layers: Layers, config: Config) -> Option<Self> {
        if let Err(error) = yonder_uffd::probe().userfaultfd {
            println!("SKIP: {error}");
            return None;
        }
        let [node, other] = ["emu://?latency=1us&size=64MiB", "emu://?latency=5us&size=64MiB"]
            .map(|url| Arc::new(EmuFabric::open(url).unwrap()));
        let control = node.control();
        let packed = |below: Arc<dyn Fabric>| -> Arc<dyn Fabric> { Arc::new(Lz4Fabric::over(below).unwrap()) };
        let tiered = |near: Arc<dyn Fabric>, far: Arc<dyn Fabric>| -> Arc<dyn Fabric> {
            Arc::new(TierFabric::over("tier+emu://", near, Some(NEAR), far).unwrap())
        };
        let fabric = match layers {
            Layers::Compressed => packed(node),
            Layers::Tiered => tiered(node, other),
            Layers::CompressedAndTiered => packed(tiered(node, other)),
            Layers::TieredOverCompressed => tiered(packed(node), packed(other)),
        };
        let far = FarMemory::new(Arc::clone(&fabric), config).unwrap();
        let region = far.region(MEMORY).unwrap();
        Some(Self { fabric, far, region, node: control })
    }

    fn counter(&self, name: &str) -> u64 {
        self.fabric.counters().iter().find(|counter: &&Counter| counter.name == name).map_or(0, |counter| counter.value)
    }
}

fn word(page: u64, round: u64) -> u64 {
    (page + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round
}

/// Words of a page, those of every third page such that they cannot be compressed.
fn words(page: u64, round: u64) -> impl Iterator<Item = (u64, u64)> {
    let step = if page.is_multiple_of(3) { 8 } else { 512 };
    (0..PAGE).step_by(step).map(move |byte| (page * PAGE + byte, word(page << 12 | byte, round)))
}

fn write(region: &Region, page: u64, round: u64) {
    for (offset, word) in words(page, round) {
        // A deadline that a busy machine can miss.
        while region.write_u64(offset, word).is_err() {}
    }
}

fn check(region: &Region, page: u64, round: u64) {
    for (offset, word) in words(page, round) {
        let found = (0..100).find_map(|_| region.read_u64(offset).ok());
        assert_eq!(found, Some(word), "page {page} in round {round}");
    }
}

#[test]
fn what_is_written_is_read_through_every_layer() {
    for layers in [Layers::Compressed, Layers::Tiered, Layers::CompressedAndTiered, Layers::TieredOverCompressed] {
        let config = Config { verify: Verify::On, ..Config::with_local(LOCAL) };
        let Some(world) = World::new(layers, config) else { return };
        let pages = MEMORY / PAGE;
        for round in 0..4 {
            (0..pages).filter(|page| page % (round + 1) == 0).for_each(|page| write(&world.region, page, round));
            // The reclaimer and the mover work meanwhile.
            for page in 0..pages {
                let last = (0..=round).rev().find(|round| page % (round + 1) == 0).expect("all were written once");
                check(&world.region, page, last);
            }
        }
        let stats = world.far.stats();
        assert!(stats.major_faults > pages && stats.written_bytes > MEMORY && stats.paging_errors == 0, "{stats:?}");
        if layers != Layers::Tiered {
            let (packed, stored) = (world.counter("lz4_packed_bytes"), world.counter("lz4_stored_bytes"));
            assert!(stored > packed / 4 && stored < packed * 3 / 4, "{layers:?}: {packed} bytes have become {stored}");
        }
        if layers != Layers::Compressed {
            let (near, far) = (world.counter("tier_near_writes"), world.counter("tier_far_writes"));
            let demoted = world.counter("tier_demoted_pages");
            assert!(near > 0 && far + demoted > 0, "{layers:?}: {:?}", world.fabric.counters());
        }
    }
}

/// A page that was on the node is an error while the node is away, and never what the other tier has of it; what is
/// written then is right.
#[test]
fn a_lost_node_is_an_error_and_no_older_page() {
    let deadlines = Deadlines { fault: Duration::from_millis(30), attempt: Duration::from_millis(5) };
    let config = Config { deadlines, verify: Verify::On, ..Config::with_local(LOCAL) };
    let Some(world) = World::new(Layers::Tiered, config) else { return };
    let pages = MEMORY / PAGE;
    for round in 0..2 {
        (0..pages).for_each(|page| write(&world.region, page, round));
    }
    world.node.set_dead(true);
    let mut lost = Vec::new();
    for page in 0..pages {
        // On a busy machine it may be that nobody has made room for 30 ms.
        let read = || world.region.read_u64(page * PAGE);
        let is_too_late =
            |read: &Result<u64, PagingError>| matches!(read, Err(error) if error.cause == PagingCause::LocalMemoryFull);
        let mut tries = iter::repeat_with(read).take(1_000).skip_while(is_too_late);
        match tries.next().expect("room is made in the end") {
            Ok(found) => assert_eq!(found, word(page << 12, 1), "page {page}"),
            Err(error) => {
                assert_eq!(error.cause, PagingCause::NodeLost);
                lost.push(page);
            }
        }
    }
    assert!(!lost.is_empty() && (lost.len() as u64) < NEAR / PAGE + 1, "{} pages are lost", lost.len());
    let kept: Vec<u64> = (0..pages).filter(|page| !lost.contains(page)).collect();
    kept.iter().for_each(|page| write(&world.region, *page, 2));
    kept.iter().for_each(|page| check(&world.region, *page, 2));
    world.node.set_dead(false);
    lost.iter().for_each(|page| check(&world.region, *page, 1));
    (0..pages).for_each(|page| write(&world.region, page, 3));
    (0..pages).for_each(|page| check(&world.region, page, 3));
}
