//! RocksDB with its tables in far memory: the shortest adapter of a library whose memory is what it maps.
//!
//! ```text
//! cargo run --release -p yonder-rocksdb --example gets
//! ```
//!
//! RocksDB maps its tables, and gets far memory for it, a fifth of it local. A GET is parked, in the middle of RocksDB,
//! while a page is on its way.

use std::sync::Arc;

use yonder::sched::{Outcome, SchedConfig, serve_all};
use yonder::{Config, FarMemory};
use yonder_rocksdb::{Request, Rocks, Rows, STACK_BYTES};

const GETS: u64 = 5000;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = Rows::of_bytes(16 << 20);
    let far = FarMemory::open("emu://?latency=2.5us&gbps=100", Config::with_local(rows.bytes() / 5))?;
    let rocks = Arc::new(Rocks::filled(rows, &far, &mut |_, _| ())?);

    let get = |number: u64| Request::Get(rows.key(number * 7919 % rows.count));
    let config = SchedConfig { stack_bytes: STACK_BYTES, ..SchedConfig::with_workers(1) };
    let outcomes = serve_all(&config, &far, &rocks, (0..GETS).map(get))?;
    for outcome in &outcomes {
        let Outcome::Reply(Ok(found)) = outcome else { return Err("a GET has failed".into()) };
        let number = found.first().and_then(|(key, _)| rows.number(key)).ok_or("a row is missing")?;
        assert!(rows.are(number, 1, found), "row {number} is another");
    }
    println!("{} GETs, {} pages fetched", outcomes.len(), far.stats().major_faults);
    Ok(())
}
