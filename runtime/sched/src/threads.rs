//! Light threads as a library (LightSwap, section 3): a program spawns threads of its own, and a page fault parks one
//! of them.
//!
//! [`run`] starts workers and runs a function as the first light thread; that one [`spawn`]s others, which any worker
//! may start. A light thread that has started never leaves its worker. It parks there while it waits for a page, for a
//! lock or message ([`sync`]), for a socket ([`net`]), for another's end ([`JoinHandle::join`]), or for a time
//! ([`sleep`]), and its worker runs others meanwhile.
//!
//! ```text
//!   spawn ---> queue of new ones ---> worker's loop ------------------------> ended: run returns after the last
//!                                      ^   |  runs one until it suspends
//!                     ready, in order  |   |
//!                                      |   +--> waits for a page ----- the port sees it arrive ------+
//!                                      |   +--> parked on a lock ----- the unlock names its token ---+
//!                                      |   +--> sleeps --------------- its time comes ---------------+
//!                                      |   +--> has yielded ---------- all others had a turn --------+
//!                                      +-------------------------------------------------------------+
//! ```
//!
//! ```text
//! let far = FarMemory::open("emu://", yonder_paging::Config::with_local(64 << 20))?;
//! let region = Arc::new(far.region(1 << 30)?);
//! let config = threads::Config::with_workers(2);
//! let sum: u64 = threads::run(&config, &far, move || {
//!     let parts: Vec<_> = (0..64)
//!         .map(|part| {
//!             let region = Arc::clone(&region);
//!             threads::spawn(move || sum_of(&region, part))
//!         })
//!         .collect();
//!     parts.into_iter().map(|part| part.join().unwrap()).sum()
//! })?;
//! ```
//!
//! What stays as it is: [`yield_now`], [`crate::sleep_until`], [`crate::checkpoint`] and [`crate::sync`] work on light
//! threads too.
//!
//! # What blocks a worker
//! A light thread that computes for long, or makes a call that blocks in the kernel, keeps its worker, and with it the
//! light threads that have started there: yield now and then. So does one that waits, for whatever it be, in a no-yield
//! section, while it unwinds, or on a stack that is not its own, such as that of a coroutine or of a signal handler
//! ([`blocks_worker`]): if what it waits for is another light thread of that worker, such as the holder of a lock that
//! a `Drop` takes, it waits for ever. The other workers go on, also where they want a page that the blocked one has
//! begun to fetch.
//!
//! # What light threads share
//! Thread-locals are the worker's, and a light thread may be left at any touch of far memory. So no lock of the
//! standard library, nor of another library, is held across one: the next light thread that wants it would block the
//! worker, or pass it, where it is re-entrant. That holds for `println!` of something far: format it into a local
//! `String` first.
//!
//! Files: `run` starts and ends workers, `worker` is their loop, `spawn` the life of a light thread, `local` what a
//! worker shares, `inbox` how others name its light threads, `parker` how a thread waits and is woken, `wait_word` why
//! it is woken once, `guarded` the lock of what is looked at for a moment.

mod config;
mod guarded;
mod inbox;
mod local;
pub mod net;
mod parker;
mod run;
mod spawn;
pub mod sync;
mod wait_word;
mod worker;

use std::time::Duration;

use yonder_units::saturating_nanos;

pub use self::config::{Config, ConfigError};
pub use self::run::run;
pub use self::spawn::{JoinHandle, SpawnError, spawn, try_spawn};
pub use crate::worker::yield_now;

/// Whether the caller is a light thread.
#[must_use]
pub fn is_light_thread() -> bool {
    local::Local::current().is_some()
}

/// Whether the caller is a light thread that cannot be left here: what it waits for, it waits for together with its
/// worker, and for ever if another light thread of that would have to go on. See [the module][self], "What blocks a
/// worker".
#[must_use]
pub fn blocks_worker() -> bool {
    yonder_unithread::must_stay() && is_light_thread()
}

/// Sleeps this long, or a little longer; other light threads of this worker run meanwhile. An ordinary thread sleeps
/// itself.
pub fn sleep(span: Duration) {
    crate::worker::sleep_until(yonder_clock::now().saturating_add(saturating_nanos(span)));
}
