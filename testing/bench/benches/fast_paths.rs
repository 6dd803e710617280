//! All micro-benchmarks, under criterion.

use criterion::{criterion_group, criterion_main};
use yonder_microbench::{messages, pages, reclaim, requests};

criterion_group!(fast_paths, pages::benches, reclaim::benches, requests::benches, messages::benches);
criterion_main!(fast_paths);
