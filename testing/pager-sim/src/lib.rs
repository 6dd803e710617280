//! A simulator of the pager: the code that programs page with, on a model of the kernel, over a hostile far side.
//!
//! One seed is one run: its settings, its threads, their turns and all that goes wrong are drawn from it, so it can be
//! repeated. The pager (`core/pager`) takes its machine as a type parameter; here that is `machine::Simulated`, and
//! nothing else of the pager differs.
//!
//! Files: `world` has the clock, the random numbers and the turns of threads; `machine` is what the pager calls;
//! `memory` models what the kernel maps, `far` the far side and `refused` how it fails; `program` is how programs use
//! far memory, `guide` what guides them, `actors` who does what; `oracle` knows what every word should hold; `settings`
//! are drawn from the seed; `sabotage` breaks one thing, to prove that the oracle can fail.

#![forbid(unsafe_code)]

mod actors;
mod far;
mod guide;
mod lending;
mod machine;
mod memory;
mod oracle;
mod program;
mod refused;
mod run;
mod sabotage;
mod settings;
mod world;

pub use run::{Count, simulate};
pub use sabotage::Sabotage;
