//! Vector search with lists in far memory: the shortest adapter of a library that is handed its memory.
//!
//! ```text
//! cargo run --release -p yonder-faiss --example nearest
//! ```
//!
//! Faiss reads its lists by pointer, a fifth of them local. A search is parked, in the middle of Faiss, while a page is
//! on its way.

use std::sync::Arc;

use yonder::sched::{Outcome, SchedConfig, serve_all};
use yonder::{Config, FarMemory};
use yonder_faiss::{Collection, Request, STACK_BYTES, Searcher, nearest, recall};

const LIST_BYTES: u64 = 16 << 20;
const QUERIES: usize = 50;
const NEIGHBOURS: usize = 10;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let collection = Collection::of_bytes(LIST_BYTES, 64)?;
    let (vectors, queries) = (collection.vectors(), collection.queries(QUERIES));
    let index = collection.index(&vectors, &mut |_| ())?;

    let far = FarMemory::open("emu://?latency=2.5us&gbps=100", Config::with_local(LIST_BYTES / 5))?;
    let searcher = Arc::new(Searcher::open(index, Some(far.region(2 * LIST_BYTES)?))?);

    let search = |at: usize| Request { query: queries.get(at).into(), k: NEIGHBOURS, nprobe: 8 };
    let config = SchedConfig { stack_bytes: STACK_BYTES, ..SchedConfig::with_workers(1) };
    let outcomes = serve_all(&config, &far, &searcher, (0..QUERIES).map(|at| (at as u32, search(at))))?;
    let mut found_of_all = 0.0;
    for outcome in &outcomes {
        let Outcome::Reply(Ok((number, found))) = outcome else { return Err("a search has failed".into()) };
        let truth = nearest(&vectors, queries.get(*number as usize), NEIGHBOURS);
        found_of_all += recall(found, &truth) / QUERIES as f64;
    }
    println!("recall {found_of_all:.3}, {} pages fetched", far.stats().major_faults);
    assert!(found_of_all > 0.8, "the nearest are not found");
    Ok(())
}
