//! What a process is to the system, before it has threads: [`detach`] leaves a helper beside it, [`User`] is whose it
//! becomes, and [`Sandbox`] is all that it may do from then on.
//!
//! Neighbours: `edge/cli`, whose `run` leaves a helper behind and executes the program, and whose servers give up what
//! they no longer need; `runtime/node` says what a memory node needs.
//!
//! UNSAFETY: in `detach`, `sandbox` and `user`, which say why.

mod detach;
mod sandbox;
mod user;

pub use detach::{Side, detach};
pub use sandbox::{Call, Entered, FORBIDDEN, Ports, Sandbox, has_filters, landlock_version};
pub use user::{User, UserError};

/// Whether the calling thread is the only one of its process. What the kernel keeps for each thread is then that of the
/// process, and of all threads that it makes.
fn is_single_threaded() -> bool {
    // Without `/proc` there is no telling, and no reason to refuse.
    std::fs::read_dir("/proc/self/task").map_or(true, |threads| threads.count() == 1)
}
