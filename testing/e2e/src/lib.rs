//! What the end-to-end tests are made of: real processes, real sockets, and values that can be told from any others.
//!
//! [`Yonder`] is the binary under test, [`Process`] a running one that ends with its guard, [`Client`] a plain
//! conversation in memcached's text protocol, [`Browser`] one that a test leads, [`Terminal`] a `yonder` on a screen of
//! its own, [`Content`] a data set whose every value can be checked, [`Program`] a program in C that `yonder run` can
//! run, and [`Guide`] one that it can run it with. The tests themselves are in `tests/e2e`; the stock clients' scripts
//! in `clients`, the programs in `programs`.
//!
//! Nothing here sleeps to wait for something: a process is ready when it says so, and everything that waits has an end
//! ([`TIMEOUT`]), so that a hang becomes a failed test.

#![forbid(unsafe_code)]

mod binary;
mod browser;
mod client;
mod content;
mod process;
mod program;
mod terminal;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

pub use binary::{Together, Yonder};
pub use browser::{Browser, Scheme};
pub use client::{Client, Got, Stats};
pub use content::Content;
pub use process::{Ended, Process, RUNTIME_DIR};
pub use program::{Guide, Linked, Program};
pub use terminal::{Left, Terminal};

/// How long anything may take that should be over long before. It only decides when a hang is called one.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Environment variable with the seconds for which load and soak tests run, in place of each test's own default.
const SECONDS_VARIABLE: &str = "YONDER_E2E_SECONDS";

/// For how many seconds a load or soak test runs: `default`, or what `YONDER_E2E_SECONDS` says.
///
/// # Panics
/// If the variable is set and not a number.
#[must_use]
pub fn seconds(default: u64) -> u64 {
    match std::env::var(SECONDS_VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{SECONDS_VARIABLE}={text} is not a number of seconds")),
        Err(_) => default,
    }
}

/// The CPUs: of one test that measures, or of all that only work hard.
static CPUS: RwLock<()> = RwLock::new(());

/// Held by a test that needs the CPUs for itself, because it measures time. One such test runs at a time, and none that
/// is [`busy`]; tests with neither go on beside it.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    // A test that failed while it held the lock leaves nothing behind that matters to the next.
    CPUS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that keeps the CPUs busy and gets its results however long that takes: others of its kind run beside
/// it.
pub fn busy() -> RwLockReadGuard<'static, ()> {
    CPUS.read().unwrap_or_else(PoisonError::into_inner)
}
