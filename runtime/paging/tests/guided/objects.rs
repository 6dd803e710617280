//! Objects of a heap whose memory is far: what they should be, and what they are.

use std::sync::{Arc, Mutex};

use yonder_fabric::{EmuControl, EmuFabric, Fabric, Lz4Fabric, TierFabric};
use yonder_heap::{Freed, Heap, PageMap};
use yonder_mapping::Mapping;
use yonder_paging::{Access, Config, FarMemory, Liveness, Region};
use yonder_units::{PAGE_BYTES, PageIndex};

pub(crate) const PAGE: u64 = PAGE_BYTES as u64;

/// An object, which has the content that `number` gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) number: u64,
}

impl Object {
    pub(crate) fn content(&self) -> Vec<u8> {
        let mut state = self.number;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8 | 1
        };
        (0..self.bytes).map(|_| byte()).collect()
    }

    pub(crate) fn page(&self) -> PageIndex {
        PageIndex::containing(self.offset)
    }
}

/// A heap in a region, whose paging it guides, and a region to fill local memory with.
pub(crate) struct World {
    pub(crate) far: FarMemory,
    pub(crate) control: Arc<EmuControl>,
    /// What the fabric maps, if it does. The region's bytes are the first.
    pub(crate) node: Option<Arc<Mapping>>,
    pub(crate) region: Region,
    heap: Mutex<Heap>,
    pub(crate) map: Arc<PageMap>,
    ballast: Region,
}

impl World {
    /// With a heap of `bytes`, or `None` (and a line that says so) where userfaultfd is missing.
    pub(crate) fn new(settings: &str, bytes: u64, config: Config) -> Option<Self> {
        let world = Self::unguided(settings, bytes, config)?;
        world.region.guide_paging(world.map.clone());
        Some(world)
    }

    /// As [`World::new`], with other words on what is live.
    pub(crate) fn guided_by(
        guide: impl FnOnce(&Self) -> Arc<dyn Liveness>,
        settings: &str,
        bytes: u64,
        config: Config,
    ) -> Option<Self> {
        let world = Self::unguided(settings, bytes, config)?;
        world.region.guide_paging(guide(&world));
        Some(world)
    }

    fn unguided(settings: &str, bytes: u64, config: Config) -> Option<Self> {
        if let Err(error) = yonder_uffd::probe().userfaultfd {
            println!("SKIP: {error}");
            return None;
        }
        // What is behind a `+` is a layer over the node.
        let (settings, layer) = settings.split_once('+').unwrap_or((settings, ""));
        let emulated =
            |settings: &str| Arc::new(EmuFabric::open(&format!("emu://?latency=1us&size=256MiB{settings}")).unwrap());
        let node = emulated(settings);
        let control = node.control();
        let fabric: Arc<dyn Fabric> = match layer {
            "" => node,
            "lz4" => Arc::new(Lz4Fabric::over(node).unwrap()),
            "tier" => Arc::new(TierFabric::over("tier+", node, Some(bytes / 2), emulated("")).unwrap()),
            _ => panic!("{layer} is no layer"),
        };
        let node = fabric.mapped().cloned();
        let far = FarMemory::new(fabric, config).unwrap();
        let region = far.region(bytes).unwrap().with_access(Access::Trap);
        let heap = Heap::new(bytes);
        let (map, ballast) = (heap.map().clone(), far.region(2 * config.local_bytes).unwrap());
        Some(Self { far, control, node, region, heap: Mutex::new(heap), map, ballast })
    }

    /// Makes an object and stores its content.
    pub(crate) fn make(&self, bytes: usize, number: u64) -> Option<Object> {
        let object = Object { offset: self.place(bytes)?, bytes, number };
        self.store(&object);
        Some(object)
    }

    /// A place for an object, without a content.
    pub(crate) fn place(&self, bytes: usize) -> Option<u64> {
        self.heap.lock().unwrap().alloc(bytes as u64, 16)
    }

    pub(crate) fn store(&self, object: &Object) {
        self.region.write(object.offset, &object.content()).unwrap();
    }

    pub(crate) fn check(&self, object: &Object) {
        let mut found = vec![0; object.bytes];
        self.region.read(object.offset, &mut found).unwrap();
        assert_same(object, &found);
    }

    /// Frees what is at `offset`, without a look at it.
    pub(crate) fn free(&self, offset: u64) {
        let freed = self.heap.lock().unwrap().free(offset).unwrap();
        if let Freed::Run(retired) = freed {
            self.region.discard(retired.first().offset(), u64::from(retired.pages()) * PAGE).unwrap();
            self.heap.lock().unwrap().release(retired);
        }
    }

    /// Sends everything of the heap to the node.
    pub(crate) fn send_away(&self) {
        loop {
            let was_mapped = self.region.mapped_pages().unwrap() > 0;
            (0..2).for_each(|_| self.press());
            if !was_mapped && self.far.stats().writing_pages == 0 {
                break;
            }
        }
        // Leaves room for what comes back, so that nothing is swept meanwhile.
        self.ballast.discard(0, self.ballast.bytes()).unwrap();
    }

    /// Touches more memory than there is room for. It needs no node.
    pub(crate) fn press(&self) {
        (0..self.ballast.bytes()).step_by(PAGE_BYTES).for_each(|at| self.ballast.probe(at).unwrap());
    }

    /// Bytes that are live on the pages of `objects`.
    pub(crate) fn live_bytes(&self, objects: &[Object]) -> (u64, u64) {
        let mut pages: Vec<_> = objects.iter().map(Object::page).collect();
        pages.sort_unstable();
        pages.dedup();
        (
            pages.iter().map(|page| self.map.live(*page).map_or(0, yonder_units::Vector::bytes) as u64).sum(),
            pages.len() as u64,
        )
    }
}

pub(crate) fn assert_same(object: &Object, found: &[u8]) {
    let expected = object.content();
    if let Some(byte) = (0..object.bytes).find(|byte| found[*byte] != expected[*byte]) {
        panic!("byte {byte} of {object:?} is {}, not {}", found[byte], expected[byte]);
    }
}
