//! The dispatcher and its workers, and light threads, over emulated far memory.

mod predicted;
mod preemption;
mod serve;
mod sleeping;
mod threads;
mod threads_net;
mod threads_turns;
