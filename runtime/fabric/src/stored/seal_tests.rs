//! Sealed pages over other fabrics: what is below is noise, and nothing but what was written last is a page.

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_units::PAGE_BYTES;

use super::Form as _;
use super::lz4::Lz4Fabric;
use super::scene::{self, PAGE, noise, text};
use super::seal::{Seal, SealFabric};
use crate::adversarial::model::{Layers, PAGES, run_seeds};
use crate::adversarial::{AdversarialFabric, Reads};
use crate::vector::MoveBytes as _;
use crate::{EmuFabric, Fabric, FabricError, Module, QueuePair, RemoteAddress, Status, Vector};

type Scene = scene::Scene<Seal>;

/// What is below at `page`.
fn below(scene: &Scene, page: u64) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    scene.emu.mapped().unwrap().read(scene.page(page).0, &mut bytes);
    bytes
}

fn put(scene: &Scene, page: u64, bytes: &[u8]) {
    scene.emu.mapped().unwrap().write(scene.page(page).0, bytes);
}

/// Bits that are set, of all.
fn share_of_ones(bytes: &[u8]) -> f64 {
    f64::from(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>()) / (8 * bytes.len()) as f64
}

#[test]
fn what_is_written_is_read_and_below_is_noise() {
    let mut scene = Scene::new();
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, [0; PAGE_BYTES]));
    let mut seen = Vec::new();
    for content in [text(), [0; PAGE_BYTES], [0; PAGE_BYTES], text()] {
        for page in [0, 1] {
            assert_eq!(scene.write(page, Vector::WHOLE, &content), Status::Done);
            assert_eq!(scene.read(page, Vector::WHOLE), (Status::Done, content));
            let kept = below(&scene, page);
            assert!((0.47..0.53).contains(&share_of_ones(&kept)), "{}", share_of_ones(&kept));
            // Not a block of it is as that of any other page, or of the same content before.
            let blocks: Vec<_> = kept.chunks(16).map(<[u8]>::to_vec).collect();
            assert!(blocks.iter().all(|block| !seen.contains(block)));
            seen.extend(blocks);
        }
    }
    scene.fabric.discard(scene.start, PAGE).unwrap();
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, [0; PAGE_BYTES]));
}

/// A node that answers with what it once had, or with another page, or that has never heard of a page.
#[test]
fn only_what_was_written_last_is_a_page() {
    let mut scene = Scene::new();
    let refused = (Status::Failed, [0xee; PAGE_BYTES]);
    scene.write(0, Vector::WHOLE, &text());
    let first = below(&scene, 0);
    scene.write(0, Vector::WHOLE, &[7; PAGE_BYTES]);
    let second = below(&scene, 0);
    put(&scene, 0, &first);
    assert_eq!(scene.read(0, Vector::WHOLE), refused, "an old version");
    put(&scene, 0, &[0; PAGE_BYTES]);
    assert_eq!(scene.read(0, Vector::WHOLE), refused, "nothing");
    put(&scene, 0, &second);
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, [7; PAGE_BYTES]));
    scene.write(1, Vector::WHOLE, &[7; PAGE_BYTES]);
    put(&scene, 1, &second);
    assert_eq!(scene.read(1, Vector::WHOLE), refused, "another page with the same content");
    // What was discarded is zeros, whatever is there.
    scene.fabric.discard(scene.start, PAGE).unwrap();
    put(&scene, 0, &second);
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, [0; PAGE_BYTES]));
    // Of the same content in another process' space, under another key.
    let mut other = Scene::new();
    other.write(0, Vector::WHOLE, &[7; PAGE_BYTES]);
    put(&other, 0, &second);
    assert_eq!(other.read(0, Vector::WHOLE), refused);
}

#[test]
fn every_bit_counts() {
    let mut scene = Scene::new();
    let part = Vector::new([16..32, 96..208, 4000..4096]);
    for vector in [Vector::WHOLE, part] {
        scene.write(0, vector, &noise(3));
        let kept = below(&scene, 0);
        for bit in (0..8 * vector.bytes()).step_by(37) {
            let mut bytes = kept;
            bytes[bit / 8] ^= 1 << (bit % 8);
            put(&scene, 0, &bytes);
            assert_eq!(scene.read(0, vector), (Status::Failed, [0xee; PAGE_BYTES]), "bit {bit}");
        }
        put(&scene, 0, &kept);
        assert_eq!(scene.read(0, vector).0, Status::Done);
    }
    assert_eq!(scene.write(0, part, &[3; PAGE_BYTES]), Status::Done);
    assert_eq!(scene.read(0, part), (Status::Done, part.filled(3, 0xee)));
    assert_eq!(scene.read(0, Vector::WHOLE).0, Status::Failed, "the rest was never written");
}

fn over(below: Arc<dyn Fabric>) -> Arc<dyn Fabric> {
    Arc::new(SealFabric::over(below).unwrap())
}

#[test]
fn by_seeds_never_a_wrong_page() {
    run_seeds(1000, |seed, _| {
        let below = AdversarialFabric::new(PAGES as usize, seed, Reads::Halves);
        let links = vec![Arc::clone(&below.link)];
        let fabric = match seed % 3 {
            0 => Arc::new(Lz4Fabric::over(over(below)).unwrap()),
            1 => over(Arc::new(Lz4Fabric::over(below).unwrap())),
            _ => over(below),
        };
        (fabric, Layers { links, is_lost_by_failure: true, ..Layers::default() })
    });
}

#[test]
fn by_seeds_never_a_wrong_page_over_a_tiered_store_and_in_one() {
    scene::by_seeds_with_tiers(over);
}

#[test]
fn it_says_what_it_is() {
    let scene = Scene::new();
    assert!(scene.fabric.url().starts_with("seal+emu://"));
    assert_eq!(format!("{:?}", Seal::new().unwrap()), "Seal", "its key is not told");
}

/// A node that gives out the same memory again and again.
struct Twice {
    below: Arc<EmuFabric>,
    start: RemoteAddress,
}

impl Fabric for Twice {
    fn url(&self) -> &str {
        self.below.url()
    }

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        self.below.queue_pair(module, frames)
    }

    fn allocate(&self, _bytes: u64) -> Result<RemoteAddress, FabricError> {
        Ok(self.start)
    }

    fn release(&self, _start: RemoteAddress) -> Result<(), FabricError> {
        Ok(())
    }

    fn discard(&self, _start: RemoteAddress, _bytes: u64) -> Result<(), FabricError> {
        Ok(())
    }
}

/// Two regions would share places, numbers and tags, and each could be answered with the other's pages.
#[test]
fn memory_that_is_given_out_twice_is_refused() {
    let below = Arc::new(EmuFabric::open("emu://?latency=0us&gbps=0&size=1MiB").unwrap());
    let start = below.allocate(16 * PAGE).unwrap();
    let fabric = SealFabric::over(Arc::new(Twice { below, start })).unwrap();
    fabric.allocate(8 * PAGE).unwrap();
    for pages in [1, 8, 16] {
        let refused = fabric.allocate(pages * PAGE).unwrap_err().to_string();
        assert!(refused.contains("given out the same memory twice"), "{refused}");
    }
    fabric.release(start).unwrap();
    fabric.allocate(4 * PAGE).unwrap();
}
