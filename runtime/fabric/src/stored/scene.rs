//! A layer over an emulated node whose memory tests can look at and damage.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};
use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, PAGE_BYTES};

use super::{Form, StoredFabric};
use crate::adversarial::model::{Layers, PAGES, run_seeds};
use crate::adversarial::{AdversarialFabric, Reads};
use crate::{
    Completion, EmuFabric, Fabric, Module, PageRead, PageWrite, QueuePair, ReadInto, RemoteAddress, Status, Vector,
    WorkId,
};

pub(super) const PAGE: u64 = PAGE_BYTES as u64;
const FRAMES: usize = 8;
/// Polls in which an operation over an emulated node without latency has to end.
const POLLS_MAX: usize = 1000;

/// A queue pair over an emulated node, whose memory the test can damage.
pub(super) struct Scene<F: Form> {
    pub(super) emu: Arc<EmuFabric>,
    pub(super) fabric: StoredFabric<F>,
    pub(super) frames: Arc<Mapping>,
    pub(super) queue: Box<dyn QueuePair>,
    pub(super) start: RemoteAddress,
    next: u64,
}

impl<F: Form> Scene<F> {
    pub(super) fn new() -> Self {
        let emu = Arc::new(EmuFabric::open("emu://?latency=0us&gbps=0&size=1MiB").unwrap());
        let fabric = StoredFabric::over(emu.clone()).unwrap();
        let frames = Arc::new(Mapping::anonymous(FRAMES * PAGE_BYTES).unwrap());
        let queue = fabric.queue_pair(Module::Fault, Arc::clone(&frames)).unwrap();
        let start = fabric.allocate(16 * PAGE).unwrap();
        Self { emu, fabric, frames, queue, start, next: 0 }
    }

    pub(super) fn page(&self, page: u64) -> RemoteAddress {
        RemoteAddress(self.start.0 + page * PAGE)
    }

    pub(super) fn id(&mut self) -> WorkId {
        self.next += 1;
        WorkId(self.next)
    }

    pub(super) fn post(&mut self, page: u64, vector: Vector, content: &[u8; PAGE_BYTES]) -> WorkId {
        let (id, to) = (self.id(), self.page(page));
        self.frames.write(0, content);
        self.queue.post_write_vector(id, PageWrite { to, from: FrameIndex(0), vector }, 0).unwrap();
        id
    }

    pub(super) fn write(&mut self, page: u64, vector: Vector, content: &[u8; PAGE_BYTES]) -> Status {
        let id = self.post(page, vector, content);
        self.finish(id)
    }

    /// Reads into a frame of `0xee`.
    pub(super) fn read(&mut self, page: u64, vector: Vector) -> (Status, [u8; PAGE_BYTES]) {
        let (id, from) = (self.id(), self.page(page));
        self.frames.write(PAGE, &[0xee; PAGE_BYTES]);
        self.queue.post_read_vector(id, PageRead { from, into: ReadInto::Frame(FrameIndex(1)), vector }, 0).unwrap();
        let (status, mut bytes) = (self.finish(id), [0; PAGE_BYTES]);
        self.frames.read(PAGE, &mut bytes);
        (status, bytes)
    }

    pub(super) fn finish(&mut self, id: WorkId) -> Status {
        let mut completions: Vec<Completion> = Vec::with_capacity(1);
        for _ in 0..POLLS_MAX {
            self.queue.poll(0, &mut completions);
            if let Some(completion) = completions.pop() {
                assert_eq!(completion.id, id);
                return completion.status;
            }
        }
        panic!("{id:?} does not end");
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        self.fabric.counters().iter().find(|counter| counter.name == name).expect("it is counted").value
    }
}

pub(super) fn text() -> [u8; PAGE_BYTES] {
    let text = b"Call me Ishmael. Some years ago, never mind how long precisely, having little or no money";
    std::array::from_fn(|byte| text[(byte + byte / 512) % text.len()])
}

pub(super) fn noise(seed: u64) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut page);
    page
}

/// The layer over a tiered store, and both of such a store's tiers in it.
pub(super) fn by_seeds_with_tiers(over: fn(Arc<dyn Fabric>) -> Arc<dyn Fabric>) {
    run_seeds(1000, |seed, _| {
        let near = AdversarialFabric::new(PAGES as usize, seed, Reads::Halves);
        let far = AdversarialFabric::new(PAGES as usize, seed + 1, Reads::Whole);
        let links = vec![Arc::clone(&near.link), Arc::clone(&far.link)];
        let (fabric, layers) = match seed % 2 {
            0 => {
                let (tiers, layers) = crate::tier::tests::layers(near, PAGES / 2, far);
                (over(tiers), layers)
            }
            _ => crate::tier::tests::layers(over(near), PAGES / 2, over(far)),
        };
        (fabric, Layers { links, is_lost_by_failure: true, ..layers })
    });
}
