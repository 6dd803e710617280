//! Copies of what was acknowledged, and of nothing else; and the layer as a fabric.

use std::sync::Arc;

use yonder_units::{FrameIndex, PageIndex};

use super::*;
use crate::adversarial::model::{Layers, PAGES, run_seeds};
use crate::adversarial::{AdversarialFabric, Reads};
use crate::{EmuControl, EmuFabric, Lz4Fabric, Vector};

const FRAME: FrameIndex = FrameIndex(0);

struct Scene {
    fabric: SecondCopy,
    control: Arc<EmuControl>,
    frames: Arc<Mapping>,
    queue: Box<dyn QueuePair>,
    start: RemoteAddress,
    now: Nanos,
}

impl Scene {
    fn new() -> Self {
        let below = EmuFabric::open("emu://?latency=1us&size=1MiB").unwrap();
        let control = below.control();
        let fabric = SecondCopy::over(Arc::new(below));
        let frames = Arc::new(Mapping::anonymous(PAGE_BYTES).unwrap());
        let queue = fabric.queue_pair(Module::WriteBack, Arc::clone(&frames)).unwrap();
        let start = fabric.allocate(4 * PAGE_BYTES as u64).unwrap();
        Self { fabric, control, frames, queue, start, now: 0 }
    }

    /// Writes a page of `fill` and waits until the write has ended, or was cancelled.
    fn write(&mut self, fill: u8, vector: Vector, cancelled: bool) {
        self.frames.write(0, &[fill; PAGE_BYTES]);
        self.queue.post_write_vector(WorkId(1), PageWrite { to: self.start, from: FRAME, vector }, self.now).unwrap();
        // It is not what was posted any more.
        if cancelled {
            self.queue.cancel(WorkId(1));
        }
        let mut completions = Vec::with_capacity(1);
        while self.queue.outstanding() > 0 {
            self.now += 1_000;
            self.queue.poll(self.now, &mut completions);
        }
    }

    fn compare(&self, vector: Vector, reads_as: ReadsAs, content: &Content) -> Option<Vec<Range<usize>>> {
        let before = self.fabric.copies().mismatches();
        let page_id = PageId { region: 3, page: PageIndex(7) };
        let copies = Fabric::copies(&self.fabric).unwrap();
        *copies.first.lock().unwrap() = None;
        copies.compare(&CleanDrop { page_id, address: self.start, vector, reads_as }, content);
        let found = copies.first_mismatch();
        assert_eq!(copies.mismatches() - before, u64::from(found.is_some()));
        found.map(|mismatch| mismatch.ranges)
    }

    fn differs(&self, fill: u8) -> bool {
        self.compare(Vector::WHOLE, ReadsAs::Fetched, &[fill; PAGE_BYTES]).is_some()
    }
}

#[test]
fn the_copy_is_what_was_acknowledged_last() {
    let mut scene = Scene::new();
    assert!(!scene.differs(0), "never written: zeros");
    scene.write(1, Vector::WHOLE, false);
    assert!(!scene.differs(1) && scene.differs(0));
    scene.control.set_errors(1.0);
    scene.write(2, Vector::WHOLE, false);
    scene.control.set_errors(0.0);
    assert!(!scene.differs(1), "the write has failed");
    scene.write(3, Vector::WHOLE, true);
    assert!(!scene.differs(1), "the write was cancelled");
    scene.fabric.discard(scene.start, PAGE_BYTES as u64).unwrap();
    assert!(!scene.differs(0), "discarded");
    scene.write(4, Vector::WHOLE, false);
    scene.fabric.release(scene.start).unwrap();
    assert!(!scene.differs(0), "released");
    assert_eq!(scene.fabric.copies().compared(), 7);
}

#[test]
fn a_mismatch_names_the_bytes_that_count_and_differ() {
    let mut scene = Scene::new();
    scene.write(1, Vector::WHOLE, false);
    let part = Vector::new([16..64, 512..1024]);
    scene.write(2, part, false);
    let mut content = [1; PAGE_BYTES];
    part.segments().for_each(|segment| content[segment].fill(2));
    assert_eq!(scene.compare(Vector::WHOLE, ReadsAs::Fetched, &content), None);
    for byte in [0, 17, 18, 600, 1024, 4095] {
        content[byte] = 9;
    }
    assert_eq!(scene.compare(part, ReadsAs::Fetched, &content), Some(vec![17..19, 600..601]));
    let all = scene.compare(Vector::WHOLE, ReadsAs::Fetched, &content);
    assert_eq!(all, Some(vec![0..1, 17..19, 600..601, 1024..1025, 4095..4096]));
    let said = scene.fabric.copies().first_mismatch().unwrap().to_string();
    assert!(said.starts_with("page 7 of region 3 (far address 0x"), "{said}");
    assert!(said.ends_with("its copy differs at bytes 0..1, 17..19, 600..601, 1024..1025, 4095..4096"), "{said}");
    let zeros = [0; PAGE_BYTES];
    assert_eq!(scene.compare(Vector::WHOLE, ReadsAs::Zeros, &zeros), None, "whatever far memory has");
    assert_eq!(scene.compare(Vector::WHOLE, ReadsAs::Fetched, &zeros), Some(std::iter::once(0..PAGE_BYTES).collect()));
}

#[test]
fn by_seeds_it_is_the_fabric_below() {
    run_seeds(200, |seed, _| {
        let below = AdversarialFabric::new(PAGES as usize, seed, Reads::Halves);
        let links = vec![Arc::clone(&below.link)];
        let below = Arc::new(Lz4Fabric::over(below).unwrap());
        (Arc::new(SecondCopy::over(below)), Layers { links, is_lost_by_failure: true, ..Layers::default() })
    });
}
