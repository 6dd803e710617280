//! Adios (EuroSys'25), sections 2 and 5: a compute node with a dispatcher, workers and a reclaimer, as Hermit, DiLOS,
//! DiLOS-P and Adios run it, and as Yonder would.
//!
//! Files, from the ground up: `system` says what each system does and what that costs, `workload` what a request
//! touches, `memory` which pages are local and who evicts them, `fabric` how a page comes, `state` what a run is made
//! of, `node` its events, `measure` what is kept of them; `sweep` runs them at a series of loads, and `figures` are the
//! paper's.

mod fabric;
mod figures;
mod measure;
mod memory;
mod node;
mod state;
mod sweep;
mod system;
#[cfg(test)]
mod tests;
mod workload;

pub(crate) use figures::{FIG2, FIG7, FIG8, FIG9, FIG10E, FIG11, HYBRID, SCALE, TABLE1};
