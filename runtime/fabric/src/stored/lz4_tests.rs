//! Compressed pages over other fabrics: what is written is read, whatever becomes of the bytes below.

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, PAGE_BYTES};

use super::lz4::{Lz4, Lz4Fabric};
use super::scene::{self, PAGE, noise, text};
use crate::adversarial::model::{Layers, PAGES, run_seeds};
use crate::adversarial::{AdversarialFabric, Reads};
use crate::vector::MoveBytes as _;
use crate::{Completion, Fabric, Module, QueuePair, ReadInto, RemoteAddress, Status, Vector, WorkId};

type Scene = scene::Scene<Lz4>;

#[test]
fn what_is_written_is_read_and_less_is_moved() {
    let mut scene = Scene::new();
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, [0; PAGE_BYTES]));
    for (page, content) in (0..).zip([text(), [0; PAGE_BYTES], [7; PAGE_BYTES], noise(1)]) {
        let before = scene.counter("lz4_stored_bytes");
        assert_eq!(scene.write(page, Vector::WHOLE, &content), Status::Done);
        let stored = scene.counter("lz4_stored_bytes") - before;
        assert!(if page == 3 { stored == PAGE } else { stored < PAGE / 2 }, "page {page} has become {stored} bytes");
        assert_eq!(scene.read(page, Vector::WHOLE), (Status::Done, content));
    }
    assert_eq!(scene.counter("lz4_packed_bytes"), 4 * PAGE);
    scene.fabric.discard(scene.start, 2 * PAGE).unwrap();
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, [0; PAGE_BYTES]));
    assert_eq!(scene.read(2, Vector::WHOLE), (Status::Done, [7; PAGE_BYTES]));
}

#[test]
fn parts_are_read_of_whole_pages_and_kept_alone() {
    let mut scene = Scene::new();
    let parts = [Vector::new([16..32, 100..200, 4000..4096]), Vector::new([112..128, 4032..4096])];
    for (page, content) in (0..).zip([text(), noise(2)]) {
        scene.write(page, Vector::WHOLE, &content);
        for part in parts {
            let (status, found) = scene.read(page, part);
            let mut expected = [0xee; PAGE_BYTES];
            part.segments().for_each(|segment| expected[segment.clone()].copy_from_slice(&content[segment]));
            assert!(status == Status::Done && found == expected);
        }
        assert_eq!(scene.write(page, parts[0], &[3; PAGE_BYTES]), Status::Done);
        assert_eq!(scene.read(page, parts[1]), (Status::Done, parts[1].filled(3, 0xee)));
        let (status, found) = scene.read(page, Vector::WHOLE);
        assert_eq!((status, found), (Status::Failed, [0xee; PAGE_BYTES]), "nobody has written the rest");
    }
}

/// Whatever becomes of the bytes below: an error, and not a byte of it in the frame.
#[test]
fn damage_is_an_error() {
    let mut scene = Scene::new();
    for content in [text(), noise(3), [5; PAGE_BYTES]] {
        let before = scene.counter("lz4_stored_bytes");
        scene.write(0, Vector::WHOLE, &content);
        let stored = scene.counter("lz4_stored_bytes") - before;
        let below = Arc::clone(scene.emu.mapped().unwrap());
        let mut kept = vec![0; stored as usize];
        below.read(scene.start.0, &mut kept);
        for byte in (0..stored).step_by(3) {
            let flipped = kept[byte as usize] ^ 1 << (byte % 8);
            below.write(scene.start.0 + byte, &[flipped]);
            assert_eq!(scene.read(0, Vector::WHOLE), (Status::Failed, [0xee; PAGE_BYTES]), "byte {byte}");
            below.write(scene.start.0 + byte, &kept[byte as usize..][..1]);
        }
        // Cut off: the rest is what it was before.
        below.write(scene.start.0 + stored / 2, &vec![0xaa; (stored - stored / 2) as usize]);
        assert_eq!(scene.read(0, Vector::WHOLE).0, Status::Failed);
        below.write(scene.start.0, &kept);
        assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, content));
        // Another page's bytes.
        scene.write(1, Vector::WHOLE, &content);
        scene.write(2, Vector::WHOLE, &[1; PAGE_BYTES]);
        below.write(scene.page(2).0, &kept);
        assert_eq!(scene.read(2, Vector::WHOLE).0, Status::Failed);
    }
}

#[test]
fn a_cancelled_write_ends_behind_the_posters_back() {
    let mut scene = Scene::new();
    scene.write(0, Vector::WHOLE, &[1; PAGE_BYTES]);
    let id = scene.post(0, Vector::WHOLE, &[2; PAGE_BYTES]);
    scene.queue.cancel(id);
    scene.frames.write(0, &[9; PAGE_BYTES]);
    assert_eq!(scene.queue.outstanding(), 0);
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, [2; PAGE_BYTES]));
    let id = scene.post(0, Vector::WHOLE, &[3; PAGE_BYTES]);
    scene.queue.cancel(id);
    assert_eq!(scene.write(0, Vector::WHOLE, &[4; PAGE_BYTES]), Status::Done);
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, [4; PAGE_BYTES]));
}

#[test]
fn a_page_that_is_written_meanwhile_is_read_again() {
    let mut scene = Scene::new();
    scene.write(0, Vector::WHOLE, &text());
    let mut guide = scene.fabric.queue_pair(Module::Guide, Arc::clone(&scene.frames)).unwrap();
    guide.post_read(WorkId(1), scene.start, ReadInto::Frame(FrameIndex(2)), 0).unwrap();
    scene.write(0, Vector::WHOLE, &noise(4));
    let mut completions = Vec::with_capacity(1);
    while completions.is_empty() {
        guide.poll(0, &mut completions);
    }
    assert_eq!(completions, [Completion { id: WorkId(1), status: Status::Done }]);
    assert!(scene.frames.with_page(FrameIndex(2).offset(), |found| *found == noise(4)));
}

#[test]
fn a_page_whose_write_failed_is_unknown_until_it_is_written() {
    let mut scene = Scene::new();
    scene.write(0, Vector::WHOLE, &[1; PAGE_BYTES]);
    scene.emu.control().set_errors(1.0);
    assert_eq!(scene.write(0, Vector::WHOLE, &[2; PAGE_BYTES]), Status::Failed);
    scene.emu.control().set_errors(0.0);
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Failed, [0xee; PAGE_BYTES]));
    assert_eq!(scene.write(0, Vector::WHOLE, &[3; PAGE_BYTES]), Status::Done);
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Done, [3; PAGE_BYTES]));
    scene.emu.control().set_dead(true);
    assert_eq!(scene.read(0, Vector::WHOLE), (Status::Disconnected, [0xee; PAGE_BYTES]));
    // A queue pair that ends with a write leaves nobody waiting.
    scene.emu.control().set_dead(false);
    scene.post(0, Vector::WHOLE, &[4; PAGE_BYTES]);
    scene.queue = scene.fabric.queue_pair(Module::Fault, Arc::clone(&scene.frames)).unwrap();
    assert_eq!(scene.read(0, Vector::WHOLE).0, Status::Failed);
}

#[test]
fn addresses_outside_fail_and_the_depth_holds() {
    let mut scene = Scene::new();
    for address in [scene.page(16).0, scene.page(0).0 + 1, u64::MAX] {
        let into = ReadInto::Frame(FrameIndex(1));
        scene.queue.post_read(WorkId(address), RemoteAddress(address), into, 0).unwrap();
        assert_eq!(scene.finish(WorkId(address)), Status::Failed);
        scene.queue.post_write(WorkId(address), RemoteAddress(address), FrameIndex(1), 0).unwrap();
        assert_eq!(scene.finish(WorkId(address)), Status::Failed);
    }
    scene.write(0, Vector::WHOLE, &text());
    let depth = scene.queue.depth();
    for id in 0..depth as u64 {
        scene.queue.post_read(WorkId(id), scene.start, ReadInto::Frame(FrameIndex(1)), 0).unwrap();
    }
    assert_eq!(scene.queue.outstanding(), depth);
    assert!(scene.queue.post_read(WorkId(9999), scene.start, ReadInto::Frame(FrameIndex(1)), 0).is_err());
    let mut completions = Vec::with_capacity(5);
    scene.queue.poll(0, &mut completions);
    assert_eq!((completions.len(), completions.capacity(), scene.queue.outstanding()), (5, 5, depth - 5));
}

fn over(below: Arc<dyn Fabric>) -> Arc<dyn Fabric> {
    Arc::new(Lz4Fabric::over(below).unwrap())
}

#[test]
fn by_seeds_never_a_wrong_page() {
    run_seeds(1000, |seed, _| {
        let below = AdversarialFabric::new(PAGES as usize, seed, Reads::Halves);
        let links = vec![Arc::clone(&below.link)];
        (over(below), Layers { links, is_lost_by_failure: true, ..Layers::default() })
    });
}

#[test]
fn by_seeds_never_a_wrong_page_over_a_tiered_store_and_in_one() {
    scene::by_seeds_with_tiers(over);
}

/// A cancelled write goes on below; an area that begins where that of its page was must not be written beside it.
#[test]
fn a_write_of_an_area_that_has_ended_is_behind_those_of_the_next_one_there() {
    let below = AdversarialFabric::new(16, 3, Reads::Whole);
    let fabric = Lz4Fabric::over(below.clone()).unwrap();
    let frames = Arc::new(Mapping::anonymous(2 * PAGE_BYTES).unwrap());
    let mut queue = fabric.queue_pair(Module::WriteBack, Arc::clone(&frames)).unwrap();
    let start = fabric.allocate(4 * PAGE).unwrap();
    let post = |queue: &mut Box<dyn QueuePair>, id: u64, byte: u8| {
        frames.write(0, &[byte; PAGE_BYTES]);
        while queue.post_write(WorkId(id), start, FrameIndex(0), 0).is_err() {}
    };
    post(&mut queue, 1, 1);
    queue.cancel(WorkId(1));
    fabric.release(start).unwrap();
    assert_eq!(fabric.allocate(4 * PAGE).unwrap(), start);
    post(&mut queue, 2, 2);
    let mut completions: Vec<Completion> = Vec::with_capacity(4);
    while completions.is_empty() {
        queue.poll(0, &mut completions);
    }
    assert_eq!(completions, [Completion { id: WorkId(2), status: Status::Done }]);
    for round in 0..100 {
        while queue.post_read(WorkId(3 + round), start, ReadInto::Frame(FrameIndex(1)), 0).is_err() {}
        completions.clear();
        while completions.is_empty() {
            queue.poll(0, &mut completions);
        }
        let mut bytes = [0; PAGE_BYTES];
        frames.read(PAGE, &mut bytes);
        assert_eq!((completions[0].status, bytes), (Status::Done, [2; PAGE_BYTES]));
    }
}
