//! Clio's experiments (ASPLOS'22, section 7.1): the real `core/client` and `core/board`, joined by modelled CPUs,
//! links, a switch and a board's pipeline.
//!
//! ```text
//! client thread -- 40 Gbps --\                 /-- 10 Gbps, there --> board: pipeline, TLB, DRAM
//! client thread -- 40 Gbps ---+--> switch <---+                         core/board's fast path
//!   core/client               (waits for ports)\<- 10 Gbps, back ---
//! ```
//!
//! Every request is a message of `core/wire` that the board executes; what a read returns is checked against what was
//! written. Time comes from the one table of costs, [`costs::clio`](crate::costs::clio), and from waiting.
//!
//! Files: `world` lets events happen; `thread` is a client's thread, `node` a memory node, `link` a wire; `lru` is what
//! a TLB or a NIC caches, `rdma` the NIC. The figures: `processes` (4), `entries` (5), `goodput`
//! (8), `allocation` (13), with `by_page` for how Clio itself hashes; and `nodes`, with the real `core/placement`.
//!
//! Invariants: an operation completes once, and nothing is answered that was not asked: the shell asserts both.

mod allocation;
mod by_page;
mod entries;
mod goodput;
mod link;
mod lru;
mod node;
mod nodes;
mod processes;
mod rdma;
mod thread;
mod world;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub(crate) use allocation::FIGURE as FIG13;
pub(crate) use entries::FIGURE as FIG5;
pub(crate) use goodput::FIGURE as FIG8;
pub(crate) use nodes::FIGURE as NODES;
pub(crate) use processes::FIGURE as FIG4;

/// Bytes of a small request: what Figures 6 and 7 read and write.
const SMALL_BYTES: u64 = 16;

/// Random numbers for one point of a figure.
fn random(seed: u64, point: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(point);
    rng
}

#[cfg(test)]
mod tests;
