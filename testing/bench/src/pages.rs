//! The page table: what a probe of residency and a page's way through its states cost.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use yonder_pager::pagetable::{Event, PageTable};
use yonder_units::{FrameIndex, PageIndex};

/// Pages of the table: 256 MiB of far memory, whose entries do not fit a first-level cache.
const PAGES: usize = 1 << 16;
/// Odd, so that steps of it visit every page, each far from the one before.
const STRIDE: usize = 40_503;

/// A major fault, and the sweep that takes the page away again when its copy on the node is still good.
const FAULT_AND_SWEEP: [Event; 5] =
    [Event::Fetch { port: 1, slot: 7 }, Event::Installed, Event::Evict, Event::Evicted(FrameIndex(3)), Event::Clean];

/// The benchmarks of this file.
pub fn benches(criterion: &mut Criterion) {
    let table = PageTable::new(PAGES);
    let mut at = 0;
    let mut next = move || {
        at = (at + STRIDE) % PAGES;
        PageIndex(at as u32)
    };
    for page in 0..PAGES {
        // Every page has been on the node once.
        for event in [Event::Install, Event::Installed, Event::Evict, Event::Dropped] {
            table.advance_owned(PageIndex(page as u32), event);
        }
    }
    let mut group = criterion.benchmark_group("page table");
    group.throughput(Throughput::Elements(1));
    group.bench_function("probe", |bencher| bencher.iter(|| black_box(table.load(next()).is_resident())));
    group.throughput(Throughput::Elements(FAULT_AND_SWEEP.len() as u64));
    group.bench_function("major fault and clean sweep", |bencher| {
        bencher.iter(|| {
            let page = next();
            for event in black_box(FAULT_AND_SWEEP) {
                table.advance(page, table.load(page), event).expect("nobody else changes the page");
            }
        });
    });
    group.finish();
}
