//! LightSwap (sections 4.2, 5.2 and 5.3): how long a page fault takes, by how many threads fault at a time, and on
//! what.
//!
//! Each thread faults, is handled, thinks and faults again; what a fault goes through is a row of stages. Costs are in
//! [`crate::costs::lightswap`]. The paper says neither how often its threads fault nor what makes the kernel slower
//! with more of them, so one cost stands for each, fixed by one number; the others follow.
//!
//! Files: `stages` threads and resources, `systems` the systems and their stages, `latency` Table 1 and Figure 10,
//! `breakdown` Figure 11.

mod breakdown;
mod latency;
mod stages;
mod systems;

use crate::figure::Figure;

/// Table 1, of eBPF.
pub(crate) const TABLE1: Figure = Figure {
    name: "lightswap-table1",
    source: "LightSwap, Table 1 (eBPF)",
    title: "From a page fault to its handler in user space, by threads",
    run: latency::table1,
};

/// Figure 10.
pub(crate) const FIG10: Figure = Figure {
    name: "lightswap-fig10",
    source: "LightSwap, Figure 10",
    title: "How long handling a page fault takes, by threads",
    run: latency::fig10,
};

/// Figure 11.
pub(crate) const FIG11: Figure = Figure {
    name: "lightswap-fig11",
    source: "LightSwap, Figure 11",
    title: "Where the time of a page fault goes, one thread",
    run: breakdown::fig11,
};
