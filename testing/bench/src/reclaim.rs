//! Reclaim: the policy's decision before each step, and the hand's search for a block.

use std::hint::black_box;
use std::mem::discriminant;

use criterion::{Criterion, Throughput};
use yonder_pager::reclaim::{Action, Policy, Shares, SweepHand, Usage, Visit};

/// Local memory: 64 MiB.
const LIMIT_PAGES: u64 = 1 << 14;
/// Blocks of two regions, of which one is sealed.
const BLOCKS: [usize; 2] = [128, 4096];

/// Local memory at rest, with too much on standby, with writes to wait for, and with a block to sweep; and the kind of
/// action that each leads to.
fn usages() -> [(Usage, Action); 4] {
    let at = |charged: u64, spare_frames: u64, standby: u64, writing: u64| Usage {
        charged,
        spare_frames,
        standby,
        writing,
        resident: charged - spare_frames - standby - writing,
        headroom: LIMIT_PAGES - charged,
        ..Usage::default()
    };
    [
        (at(LIMIT_PAGES / 2, 0, 0, 0), Action::Rest),
        (at(LIMIT_PAGES * 95 / 100, 16, LIMIT_PAGES / 5, 0), Action::Drain(0)),
        (at(LIMIT_PAGES - 8, 0, 0, 512), Action::AwaitWrites),
        (at(LIMIT_PAGES * 95 / 100, 512, 0, 0), Action::Sweep(0)),
    ]
}

/// The benchmarks of this file.
pub fn benches(criterion: &mut Criterion) {
    let policy = Policy::new(LIMIT_PAGES, Shares::default()).expect("the default shares");
    let usages = usages();
    for (usage, expected) in &usages {
        let action = policy.decide(usage);
        assert_eq!(discriminant(&action), discriminant(expected), "{usage:?} led to {action:?}");
    }
    let mut group = criterion.benchmark_group("reclaim");
    group.throughput(Throughput::Elements(usages.len() as u64));
    group.bench_function("decide", |bencher| {
        bencher.iter(|| usages.each_ref().map(|(usage, _)| policy.decide(black_box(usage))));
    });
    group.throughput(Throughput::Elements(1));
    let mut hand = SweepHand::default();
    // Half of the blocks have too little that is mapped.
    group.bench_function("next block", |bencher| {
        let visit = |region, block| if (region + block) % 2 == 0 { Visit::Take } else { Visit::Skip };
        bencher.iter(|| hand.advance(black_box(&BLOCKS), visit));
    });
    group.finish();
}
