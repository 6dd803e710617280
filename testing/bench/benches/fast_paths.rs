//! All micro-benchmarks, under criterion.

use criterion::{criterion_group, criterion_main};
use yonder_microbench::{hashes, index, messages, pages, reclaim, requests};

criterion_group!(
    fast_paths,
    pages::benches,
    reclaim::benches,
    hashes::benches,
    requests::benches,
    messages::benches,
    index::benches
);
criterion_main!(fast_paths);
