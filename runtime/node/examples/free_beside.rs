//! How long a tenant's allocation takes, alone and while another tenant frees 64 GiB at the same node.
//!
//! `cargo run --release -p yonder-node --example free_beside`. The node has pages of 4 KiB, the smallest there are, so
//! that there is most to do. Of the 64 GiB, 1 GiB has memory of its own and the rest is reserved, so no machine needs
//! that much.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use yonder_fabric::SpaceLease;
use yonder_fabric::lane::{CallError, Lane, NodeAddress, NodeSession};
use yonder_node::{Listen, Node, NodeConfig};
use yonder_wire::{AllocateRequest, Backing, Body, Kind, Permission};

const GIB: u64 = 1 << 30;
const PAGE: u64 = 4096;
/// What the other tenant frees: so many ranges of so many bytes, and how many of them have memory.
const RANGES: u64 = 256;
const RANGE_BYTES: u64 = GIB / 4;
const WITH_MEMORY: u64 = 4;
const ALONE: usize = 20_000;

fn main() {
    let mut config = NodeConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())], 128 * GIB);
    (config.page_bytes, config.data_threads) = (Some(PAGE), NonZeroUsize::new(1));
    let node = Node::start(config).expect("a node can be started here");
    let address = NodeAddress::resolve(&node.addresses()[0].to_string()).expect("it has an address").remove(0);
    let (one, other) = (tenant(&address), tenant(&address));
    let backing = |range| if range < WITH_MEMORY { Backing::Now } else { Backing::OnDemand };
    let make = |range| allocate(&other, RANGE_BYTES, backing(range)).expect("the node has room");
    let ranges: Vec<u64> = (0..RANGES).map(make).collect();
    let mut alone: Vec<Duration> = (0..ALONE).map(|_| allocate_and_free(&one)).collect();
    let is_over = AtomicBool::new(false);
    let mut beside = Vec::new();
    let took = std::thread::scope(|scope| {
        let freeing = scope.spawn(|| {
            let begun = yonder_clock::now();
            for start in ranges {
                free(&other, start);
            }
            is_over.store(true, Ordering::Release);
            Duration::from_nanos(yonder_clock::now() - begun)
        });
        while !is_over.load(Ordering::Acquire) {
            beside.push(allocate_and_free(&one));
        }
        freeing.join().expect("nothing panics there")
    });
    let (alone, beside) = (percentiles(&mut alone), percentiles(&mut beside));
    println!("ralloc alone:  P50 {:?}, P99 {:?}, of {}", alone.0, alone.1, alone.2);
    println!("ralloc beside: P50 {:?}, P99 {:?}, of {}; 64 GiB were freed in {took:?}", beside.0, beside.1, beside.2);
    println!("P99 beside / alone: {:.2}", beside.1.as_secs_f64() / alone.1.as_secs_f64());
}

fn tenant(address: &NodeAddress) -> SpaceLease {
    let lane = Lane::open(address, 32, &Arc::new(NodeSession::default())).expect("the node listens").lane;
    SpaceLease::create(lane, Duration::ZERO).expect("the node makes address spaces")
}

fn allocate(tenant: &SpaceLease, bytes: u64, backing: Backing) -> Result<u64, CallError> {
    let request = AllocateRequest { bytes, permission: Permission::ReadWrite, backing, from: 0, to: 0 };
    let mut body = [0; AllocateRequest::BYTES];
    request.write_to(&mut body);
    Ok(tenant.call(Kind::Allocate, 0, 0, &body)?.header.address)
}

/// Frees, as often as it takes: the node may be slower than a call waits.
fn free(tenant: &SpaceLease, start: u64) {
    while tenant.call(Kind::Free, start, 0, &[]) == Err(CallError::TimedOut) {}
}

/// How long the allocation took.
fn allocate_and_free(tenant: &SpaceLease) -> Duration {
    let begun = yonder_clock::now();
    let start = allocate(tenant, PAGE, Backing::OnDemand).expect("there is room for a page");
    let took = Duration::from_nanos(yonder_clock::now() - begun);
    free(tenant, start);
    took
}

fn percentiles(times: &mut [Duration]) -> (Duration, Duration, usize) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100], times.len())
}
