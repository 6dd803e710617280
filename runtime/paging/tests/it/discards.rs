//! Discards whose end is not known: what is written after one is never undone by it, and another attempt asks the node.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use yonder_fabric::{Fabric, FabricError, Module, QueuePair, RemoteAddress, open};
use yonder_mapping::Mapping;
use yonder_paging::{Config, FarError, FarMemory, Region};

use crate::emulated::wait_for;

const PAGE: u64 = 4096;
const LOCAL: u64 = 2 << 20;
const BYTES: u64 = 4 << 20;
/// What the node has before a discard.
const OLD: u64 = 0x1111_0000_0000;

/// Far memory of a node that may take discards and not answer: they are executed when the test says so.
struct Slow {
    inner: Arc<dyn Fabric>,
    answers: AtomicBool,
    asked: AtomicUsize,
    waiting: Mutex<Vec<(RemoteAddress, u64)>>,
}

impl Slow {
    fn new() -> Arc<Self> {
        let inner = open("emu://?latency=1us&size=64MiB&reads=frames").unwrap();
        let (answers, asked, waiting) = (AtomicBool::new(true), AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { inner, answers, asked, waiting })
    }

    /// What was asked for and not answered is executed now.
    fn execute_late(&self) {
        for (start, bytes) in self.waiting.lock().unwrap().drain(..) {
            self.inner.discard(start, bytes).unwrap();
        }
    }
}

impl Fabric for Slow {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        self.inner.queue_pair(module, frames)
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        self.inner.allocate(bytes)
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        self.inner.release(start)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut waiting = self.waiting.lock().unwrap();
        if !self.answers.load(Ordering::SeqCst) {
            waiting.push((start, bytes));
            return Err(FabricError::Unreachable {
                url: self.url().to_owned(),
                cause: "it does not answer".to_owned(),
            });
        }
        // A lane sends it behind what was asked for before, which was executed or is aborted.
        waiting.clear();
        self.inner.discard(start, bytes)
    }

    fn mapped(&self) -> Option<&Arc<Mapping>> {
        self.inner.mapped()
    }
}

/// Far memory on `fabric`, or `None` and a line that says why there is none.
fn far_memory(fabric: &Arc<Slow>) -> Option<FarMemory> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    Some(FarMemory::new(Arc::clone(fabric) as Arc<dyn Fabric>, Config::with_local(LOCAL)).unwrap())
}

fn fill(region: &Region, value: u64) {
    (0..BYTES).step_by(PAGE as usize).for_each(|at| region.write_u64(at, at ^ value).unwrap());
}

fn check(region: &Region, value: u64) {
    for at in (0..BYTES).step_by(PAGE as usize) {
        assert_eq!(region.read_u64(at), Ok(at ^ value), "page {}", at / PAGE);
    }
}

fn await_confirmed(region: &Region) {
    wait_for("the discard is confirmed", || region.is_discard_confirmed(0, BYTES));
}

#[test]
fn what_is_written_after_a_discard_that_was_given_up_is_not_undone_by_it() {
    let fabric = Slow::new();
    let Some(far) = far_memory(&fabric) else { return };
    let (region, flush) = (far.region(BYTES).unwrap(), far.region(4 * LOCAL).unwrap());
    let evict = || (0..flush.bytes()).step_by(PAGE as usize).for_each(|at| flush.write_u64(at, at + 1).unwrap());
    fill(&region, OLD);
    evict();
    fabric.answers.store(false, Ordering::SeqCst);
    assert!(matches!(region.discard(0, BYTES), Err(FarError::Fabric(_))));
    assert!(!region.is_discard_confirmed(0, BYTES));
    // As much as may stay local is written and pressed out; what the node has been sent of it would be undone.
    let kept = (0..LOCAL / 4).step_by(PAGE as usize);
    kept.clone().for_each(|at| region.write_u64(at, at ^ 0x2222).unwrap());
    evict();
    fabric.execute_late();
    kept.clone().for_each(|at| assert_eq!(region.read_u64(at), Ok(at ^ 0x2222), "page {}", at / PAGE));
    fabric.answers.store(true, Ordering::SeqCst);
    await_confirmed(&region);
    evict();
    evict();
    kept.clone().for_each(|at| assert_eq!(region.read_u64(at), Ok(at ^ 0x2222), "page {}", at / PAGE));
    (LOCAL / 4..BYTES)
        .step_by(PAGE as usize)
        .for_each(|at| assert_eq!(region.read_u64(at), Ok(0), "page {}", at / PAGE));
    fill(&region, 0x3333);
    evict();
    check(&region, 0x3333);
}

/// A page that is written with what the node had before the discard is not taken for what the node has.
#[test]
fn the_old_content_written_again_is_not_clean_while_a_discard_may_come() {
    let fabric = Slow::new();
    let Some(far) = far_memory(&fabric) else { return };
    let (region, flush) = (far.region(BYTES).unwrap(), far.region(4 * LOCAL).unwrap());
    let evict = || (0..flush.bytes()).step_by(PAGE as usize).for_each(|at| flush.write_u64(at, at + 1).unwrap());
    fill(&region, OLD);
    evict();
    fabric.answers.store(false, Ordering::SeqCst);
    assert!(region.discard(0, BYTES).is_err());
    let kept = (0..LOCAL / 4).step_by(PAGE as usize);
    kept.clone().for_each(|at| region.write_u64(at, at ^ OLD).unwrap());
    evict();
    fabric.execute_late();
    kept.clone().for_each(|at| assert_eq!(region.read_u64(at), Ok(at ^ OLD), "page {}", at / PAGE));
    fabric.answers.store(true, Ordering::SeqCst);
    await_confirmed(&region);
    evict();
    kept.for_each(|at| assert_eq!(region.read_u64(at), Ok(at ^ OLD), "page {}", at / PAGE));
}

#[test]
fn another_attempt_of_a_discard_asks_the_node_again() {
    let fabric = Slow::new();
    let Some(far) = far_memory(&fabric) else { return };
    let region = far.region(BYTES).unwrap();
    fill(&region, 1);
    fabric.answers.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        let asked = fabric.asked.load(Ordering::SeqCst);
        assert!(region.discard(0, BYTES).is_err(), "the node was not asked");
        assert!(fabric.asked.load(Ordering::SeqCst) > asked);
    }
    fabric.answers.store(true, Ordering::SeqCst);
    region.discard(0, BYTES).unwrap();
    assert!(region.is_discard_confirmed(0, BYTES));
    let asked = fabric.asked.load(Ordering::SeqCst);
    region.discard(0, BYTES).unwrap();
    assert_eq!(fabric.asked.load(Ordering::SeqCst), asked, "the node has nothing of it any more");
}

#[test]
fn a_region_ends_while_a_discard_of_it_is_not_confirmed() {
    let fabric = Slow::new();
    let Some(far) = far_memory(&fabric) else { return };
    let region = far.region(BYTES).unwrap();
    fill(&region, 1);
    fabric.answers.store(false, Ordering::SeqCst);
    assert!(region.discard(0, BYTES).is_err());
    drop(region);
    let asked = fabric.asked.load(Ordering::SeqCst);
    // The addresses are another region's now, and nobody discards what is there.
    let other = far.region(BYTES).unwrap();
    fabric.answers.store(true, Ordering::SeqCst);
    fill(&other, 2);
    check(&other, 2);
    assert_eq!(fabric.asked.load(Ordering::SeqCst), asked);
}
