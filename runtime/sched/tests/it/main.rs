//! The dispatcher and its workers over emulated far memory.

mod preemption;
mod serve;
mod sleeping;
