//! Tests of programs whose node's slow path stands still: what they give back and take again is never undone later.
//!
//! An errand holds the slow path, so nothing depends on time but how long a call waits.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use yonder_fabric::lane::{CallError, Lane, NodeAddress, NodeSession};
use yonder_fabric::{SpaceLease, SpaceLeaseError};
use yonder_paging::far_heap::{FarHeap, Magazine};
use yonder_paging::{Config, FarMemory, Region};
use yonder_wire::{ErrorCode, Kind};

use crate::{Listen, Node, NodeConfig, Shared};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn node(bytes: u64) -> Node {
    let mut config = NodeConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())], bytes);
    config.data_threads = NonZeroUsize::new(1);
    Node::start(config).unwrap()
}

/// Far memory on `node`, or `None` and a line that says why there is none.
fn far_memory(node: &Node, local: u64) -> Option<FarMemory> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    Some(FarMemory::open(&node.addresses()[0].to_string(), Config::with_local(local)).unwrap())
}

/// A slow path that stands still until this is dropped.
pub(crate) struct Held {
    release: Option<Sender<()>>,
    errand: Option<JoinHandle<()>>,
}

impl Held {
    pub(crate) fn of(node: &Node) -> Self {
        let (release, released): (Sender<()>, Receiver<()>) = channel();
        let (reached, is_held) = channel();
        let shared: Arc<Shared> = Arc::clone(&node.shared);
        let errand = std::thread::spawn(move || {
            let held = shared.on_slow_path(move |_, _| {
                reached.send(()).unwrap();
                // It ends when the sender is gone.
                let _ = released.recv();
            });
            held.unwrap();
        });
        is_held.recv().unwrap();
        Self { release: Some(release), errand: Some(errand) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.release.take());
        self.errand.take().unwrap().join().unwrap();
    }
}

fn fill(region: &Region, offset: u64, bytes: u64, value: u64) {
    (offset..offset + bytes).step_by(PAGE as usize).for_each(|at| region.write_u64(at, at ^ value).unwrap());
}

fn check(region: &Region, offset: u64, bytes: u64, value: u64) {
    for at in (offset..offset + bytes).step_by(PAGE as usize) {
        assert_eq!(region.read_u64(at), Ok(at ^ value), "page {}", at / PAGE);
    }
}

#[test]
fn an_object_is_never_zeroed_by_the_free_of_the_one_before() {
    const BYTES: u64 = 16 * MIB;
    let node = node(256 * MIB);
    let Some(far) = far_memory(&node, 4 * MIB) else { return };
    let heap = FarHeap::new(far.region(64 * MIB).unwrap());
    let flush = far.region(16 * MIB).unwrap();
    let evict = || fill(&flush, 0, flush.bytes(), 1);
    let (region, mut magazine) = (heap.region(), Magazine::new());
    let offset = |address: usize| (address - region.address()) as u64;
    let first = heap.alloc(&mut magazine, BYTES as usize, 4096).unwrap();
    fill(region, offset(first), BYTES, 0x1111 << 32);
    evict();
    let held = Held::of(&node);
    heap.free(&mut magazine, first).unwrap();
    assert_eq!(heap.quarantined_bytes(), BYTES);
    let second = heap.alloc(&mut magazine, BYTES as usize, 4096).unwrap();
    assert_ne!(first, second, "memory is given out whose discard may still be executed");
    fill(region, offset(second), BYTES, 0x2222 << 32);
    evict();
    drop(held);
    while heap.quarantined_bytes() > 0 {
        std::thread::yield_now();
    }
    let third = heap.alloc(&mut magazine, 2 * BYTES as usize, 4096);
    fill(region, offset(third.unwrap()), 2 * BYTES, 0x3333 << 32);
    evict();
    check(region, offset(second), BYTES, 0x2222 << 32);
    check(region, offset(third.unwrap()), 2 * BYTES, 0x3333 << 32);
}

#[test]
fn what_is_written_after_a_discard_that_timed_out_is_there_when_the_node_goes_on() {
    const BYTES: u64 = 2 * MIB;
    let node = node(256 * MIB);
    let Some(far) = far_memory(&node, 8 * MIB) else { return };
    let (region, flush) = (far.region(BYTES).unwrap(), far.region(32 * MIB).unwrap());
    let evict = || fill(&flush, 0, flush.bytes(), 1);
    fill(&region, 0, BYTES, 0x1111 << 32);
    evict();
    let held = Held::of(&node);
    region.discard(0, BYTES).unwrap_err();
    region.discard(0, BYTES).expect_err("the second attempt asks the node too");
    fill(&region, 0, BYTES, 0x2222 << 32);
    evict();
    drop(held);
    while !region.is_discard_confirmed(0, BYTES) {
        std::thread::yield_now();
    }
    evict();
    check(&region, 0, BYTES, 0x2222 << 32);
}

/// All that a lane holds may be waiting for aborts: it goes on with them, and is of use again.
#[test]
fn a_lane_that_is_full_of_what_was_given_up_goes_on() {
    let node = node(64 * MIB);
    let address = NodeAddress::resolve(&node.addresses()[0].to_string()).unwrap().remove(0);
    let lane = Lane::open(&address, 1, &Arc::new(NodeSession::default())).unwrap().lane;
    let space_lease =
        SpaceLease::create(lane, Duration::ZERO).map_err(|error: SpaceLeaseError| error.to_string()).unwrap();
    let held = Held::of(&node);
    assert_eq!(space_lease.call(Kind::Free, 1 << 30, 0, &[]), Err(CallError::TimedOut));
    drop(held);
    let refused = Err(CallError::Refused(ErrorCode::BadAddress));
    assert_eq!(space_lease.call(Kind::Free, 1 << 30, 0, &[]), refused, "the lane is of no use any more");
}

#[test]
fn a_large_free_at_a_healthy_node_undoes_nothing() {
    const BYTES: u64 = 6 << 30;
    let node = node(BYTES + 256 * MIB);
    let Some(far) = far_memory(&node, 32 * MIB) else { return };
    let heap = FarHeap::new(far.region(BYTES).unwrap());
    let flush = far.region(64 * MIB).unwrap();
    let evict = || fill(&flush, 0, flush.bytes(), 1);
    let (region, mut magazine) = (heap.region(), Magazine::new());
    let first = heap.alloc(&mut magazine, BYTES as usize, 4096).unwrap();
    // Something in each of many blocks, so that the node has much to forget.
    (0..BYTES).step_by(64 << 20).for_each(|at| region.write_u64(at, 7).unwrap());
    evict();
    heap.free(&mut magazine, first).unwrap();
    assert_eq!(heap.quarantined_bytes(), 0, "the node did not do it in time");
    assert_eq!(heap.alloc(&mut magazine, BYTES as usize, 4096), Some(first));
    let middle = BYTES / 2;
    fill(region, middle, 32 * MIB, 0x3333 << 40);
    evict();
    check(region, middle, 32 * MIB, 0x3333 << 40);
    assert_eq!(region.read_u64(0), Ok(0));
}
