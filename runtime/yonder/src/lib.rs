//! Far memory for Rust programs.
//!
//! [`FarMemory`] is a share of a memory node with a limit of local memory; a [`Region`] of it is read and written like
//! memory, and whatever is not local is fetched when it is touched. On an ordinary thread the access waits; in a server
//! run by [`sched::serve`] it yields: the request that touched the missing page is parked and its worker serves others.
//! A program that is no server runs light threads ([`threads`]), which yield in the same way.
//!
//! [`alloc`] makes a region memory for collections: vectors and maps that are larger than local memory.
//!
//! [`clib`] is the other way to use a memory node: remote address spaces, with explicit reads and writes.
//!
//! ```no_run
//! use yonder::{Config, FarMemory};
//!
//! let far = FarMemory::open("emu://?latency=2.5us&gbps=100", Config::with_local(64 << 20))?;
//! let region = far.region(320 << 20)?;
//! region.write(5 << 20, b"kept far away")?;
//! let mut back = [0; 13];
//! region.read(5 << 20, &mut back)?;
//! assert_eq!(&back, b"kept far away");
//! # Ok::<(), yonder::FarError>(())
//! ```

#![forbid(unsafe_code)]

pub mod alloc;
pub mod clib;
mod cpu_pinning;

pub use cpu_pinning::{CpuPinning, place};
pub use yonder_clock as clock;
pub use yonder_fabric::{AdaptiveSpin, Copies, EmuControl, EmuFabric, Fabric, FabricError, SecondCopy, open};
pub use yonder_paging::{
    ADVISED_PAGES_MAX, Access, Advice, AdviceError, COLD_BANDS, Caught, ColdBand, Config, ConfigError, Deadlines,
    FarError, FarMemory, FaultPolicy, FaultStages, Hold, PagingCause, PagingError, Prefetch, QUOTA_BYTES_MIN, Reads,
    Region, RegionView, STANDBY_AGE_MIN, Shares, StageHistogram, Stats, Tuning, TuningCounts, TuningError, Verify,
    no_yield, try_far,
};
pub use yonder_uffd::{Abilities, probe as abilities};
pub use yonder_units as units;

/// Servers whose requests yield on page faults.
pub mod sched {
    pub use yonder_sched::{
        Activity, DispatchPolicy, Done, Frontend, Handler, Idle, InstallDelegation, Order, Outcome, PollingDelegation,
        Predictions, Reclaim, SchedConfig, SchedConfigError, SchedError, SchedStats, StageQuantiles, Timing,
        checkpoint, serve, serve_all, sleep_until, yield_now,
    };
}

/// Light threads that a program spawns itself, with locks, channels and sockets of their own: a page fault parks one
/// of them.
pub use yonder_sched::threads;

/// Locks that may be held across far-memory accesses.
pub mod sync {
    pub use yonder_sched::sync::{Condvar, Mutex};
}

/// What switching between unithreads costs, for the bench that compares it.
pub mod switch {
    pub use yonder_unithread::measure::{ucontext_ns, unithread_ns};
}
