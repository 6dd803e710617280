//! The structures and numbers of `yonder_guide.h`. That they are the same is tested with a C compiler.
//!
//! UNSAFETY: functions in C, and a structure with pointers that is shared between threads.

use std::ffi::{c_char, c_int, c_void};

/// The version of the interface.
pub const VERSION: u32 = 1;
/// Most bytes of a state.
pub const STATE_BYTES_MAX: usize = 1 << 20;
/// What a state's address is a multiple of.
pub const STATE_ALIGN: usize = 16;

/// [`RawTouch::cause`].
pub mod cause {
    /// [`Cause::Miss`](yonder_guide::Cause::Miss).
    pub const MISS: u32 = 0;
    /// [`Cause::Hit`](yonder_guide::Cause::Hit).
    pub const HIT: u32 = 1;
}

/// What [`RawGuide::touched`] returns.
pub mod verdict {
    use std::ffi::c_int;

    /// [`Verdict::Unknown`](yonder_guide::Verdict::Unknown).
    pub const UNKNOWN: c_int = 0;
    /// [`Verdict::Known`](yonder_guide::Verdict::Known).
    pub const KNOWN: c_int = 1;
}

/// What [`RawReach::read`] returns.
pub mod reading {
    use std::ffi::c_int;

    /// [`Reading::Done`](yonder_guide::Reading::Done).
    pub const DONE: c_int = 0;
    /// [`Reading::Coming`](yonder_guide::Reading::Coming).
    pub const COMING: c_int = 1;
    /// [`Reading::Refused`](yonder_guide::Reading::Refused).
    pub const REFUSED: c_int = 2;
}

/// `struct yonder_payoff`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawPayoff {
    /// As in [`Payoff`](yonder_guide::Payoff).
    pub fetched_pages: u64,
    /// The same.
    pub hits: u64,
    /// The same.
    pub unused_pages: u64,
}

/// `struct yonder_touch`.
#[repr(C)]
#[derive(Debug)]
pub struct RawTouch {
    /// One of [`cause`].
    pub cause: u32,
    /// How many registers there are.
    pub register_count: u32,
    /// As in [`Touch`](yonder_guide::Touch).
    pub address: u64,
    /// The registers, and words of the stack.
    pub registers: *const u64,
    /// Addresses of the last misses.
    pub history: *const u64,
    /// How many there are.
    pub history_count: u64,
    /// As in [`Touch`](yonder_guide::Touch).
    pub payoff: RawPayoff,
}

/// `struct yonder_arrived`.
#[repr(C)]
#[derive(Debug)]
pub struct RawArrived {
    /// As in [`Arrived`](yonder_guide::Arrived).
    pub address: u64,
    /// The bytes.
    pub bytes: *const c_void,
    /// How many there are.
    pub count: u64,
    /// As in [`Arrived`](yonder_guide::Arrived).
    pub note: u64,
}

/// `struct yonder_reach`.
#[repr(C)]
#[derive(Debug)]
pub struct RawReach {
    /// What the functions get back.
    pub context: *mut c_void,
    /// [`Reach::prefetch`](yonder_guide::Reach::prefetch).
    pub prefetch: unsafe extern "C" fn(*mut c_void, u64, u64) -> c_int,
    /// [`Reach::peek`](yonder_guide::Reach::peek).
    pub peek: unsafe extern "C" fn(*mut c_void, u64, *mut c_void, u64) -> c_int,
    /// [`Reach::read`](yonder_guide::Reach::read).
    pub read: unsafe extern "C" fn(*mut c_void, u64, *mut c_void, u64, u64) -> c_int,
}

/// `struct yonder_guide`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawGuide {
    /// [`VERSION`].
    pub version: u32,
    /// Bytes of this structure.
    pub bytes: u32,
    /// Its name.
    pub name: *const c_char,
    /// Bytes of a state.
    pub state_bytes: usize,
    /// Makes more of a state than zeros.
    pub start: Option<unsafe extern "C" fn(*mut c_void)>,
    /// [`Guide::touched`](yonder_guide::Guide::touched).
    pub touched: Option<unsafe extern "C" fn(*mut c_void, *const RawTouch, *const RawReach) -> c_int>,
    /// [`Guide::arrived`](yonder_guide::Guide::arrived).
    pub arrived: Option<unsafe extern "C" fn(*mut c_void, *const RawArrived, *const RawReach)>,
}

// SAFETY: the name and the functions are those of a library that stays, and nobody changes them.
unsafe impl Send for RawGuide {}
// SAFETY: as above.
unsafe impl Sync for RawGuide {}
