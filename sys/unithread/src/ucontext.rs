//! The cost of glibc's `swapcontext`, for comparison: [`ucontext_ns`].
//!
//! Neighbour: `measure.rs`, which shows it to users beside the cost of our own switch.

// UNSAFETY: the C interface of ucontext.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::time::Instant;

use crate::STACK_BYTES_DEFAULT;
use crate::measure::per_switch_ns;

/// Nanoseconds of one `swapcontext` between two contexts of glibc.
#[must_use]
pub fn ucontext_ns(iterations: u64) -> f64 {
    let mut stack = vec![0u8; STACK_BYTES_DEFAULT];
    let mut pair = Pair { main: MaybeUninit::uninit(), other: MaybeUninit::uninit(), iterations };
    let raw = &raw mut pair;
    PAIR.set(raw);
    // SAFETY: `getcontext` initialises `other` before `makecontext` changes it; its stack outlives its last use below;
    // `bounce` swaps back `iterations` times and is then left where it is.
    let elapsed = unsafe {
        assert_eq!(libc::getcontext((*raw).other.as_mut_ptr()), 0);
        let other = (*raw).other.assume_init_mut();
        other.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        other.uc_stack.ss_size = stack.len();
        other.uc_link = std::ptr::null_mut();
        libc::makecontext(other, bounce, 0);
        let start = Instant::now();
        for _ in 0..iterations {
            libc::swapcontext((*raw).main.as_mut_ptr(), (*raw).other.as_ptr());
        }
        start.elapsed()
    };
    PAIR.set(std::ptr::null_mut());
    per_switch_ns(elapsed, iterations)
}

/// The two sides of the ucontext measurement.
struct Pair {
    main: MaybeUninit<libc::ucontext_t>,
    other: MaybeUninit<libc::ucontext_t>,
    iterations: u64,
}

thread_local! {
    /// How [`bounce`] finds its pair: `makecontext` passes only `int`s portably.
    static PAIR: Cell<*mut Pair> = const { Cell::new(std::ptr::null_mut()) };
}

extern "C" fn bounce() {
    let pair = PAIR.get();
    // SAFETY: `ucontext_ns` set the pointer to its own pair, which is alive while it swaps with this side.
    unsafe {
        for _ in 0..(*pair).iterations {
            libc::swapcontext((*pair).other.as_mut_ptr(), (*pair).main.as_ptr());
        }
    }
    unreachable!("the other side swaps in only as often as this one swaps back");
}
