//! Nanoseconds from the time stamp counter.
//!
//! [`now`] costs a few nanoseconds and never enters the kernel, so the fault path can read it. The counter's rate is
//! measured once against the monotonic clock. Machines without an invariant counter, and other architectures, use the
//! monotonic clock itself.
//!
//! [`boottime`] is the clock that goes on while the machine sleeps.
//!
//! UNSAFETY: `_rdtsc` and `__cpuid` are intrinsics that Rust marks unsafe; `clock_gettime` is a foreign function.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use yonder_units::{Nanos, Narrow as _};

/// How long the counter is compared with the monotonic clock, once per process.
const CALIBRATION: Duration = Duration::from_millis(10);
/// Fixed-point position of [`Scale::nanos_per_tick`].
const SCALE_SHIFT: u32 = 32;

/// How ticks become nanoseconds.
struct Scale {
    start_ticks: u64,
    start: Instant,
    /// Nanoseconds per tick, as a fixed-point number; 0 if the counter cannot be used.
    nanos_per_tick: u64,
}

static SCALE: OnceLock<Scale> = OnceLock::new();

/// Nanoseconds since the first call of this process. Monotonic on machines whose counters are synchronised, which the
/// kernel checks before it offers the invariant flag.
#[must_use]
#[inline]
pub fn now() -> Nanos {
    let scale = SCALE.get_or_init(calibrate);
    if scale.nanos_per_tick == 0 {
        return scale.start.elapsed().as_nanos().narrow_u64();
    }
    let ticks = ticks().saturating_sub(scale.start_ticks);
    ((u128::from(ticks) * u128::from(scale.nanos_per_tick)) >> SCALE_SHIFT).narrow_u64()
}

/// Nanoseconds of CLOCK_BOOTTIME, which goes on while the machine sleeps, as the counter may not. Some 30 ns, without a
/// system call where the kernel offers that.
#[must_use]
#[inline]
pub fn boottime() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that the call may write.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    assert_eq!(result, 0, "Linux has this clock since 2.6.39");
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Cycles of the counter per second, or `None` where the counter is not used.
#[must_use]
pub fn counter_hz() -> Option<f64> {
    let scale = SCALE.get_or_init(calibrate);
    (scale.nanos_per_tick != 0).then(|| 1e9 * (1u64 << SCALE_SHIFT) as f64 / scale.nanos_per_tick as f64)
}

fn calibrate() -> Scale {
    let (start_ticks, start) = both_clocks();
    if start_ticks == 0 {
        return Scale { start_ticks, start, nanos_per_tick: 0 };
    }
    while start.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let (end_ticks, end) = both_clocks();
    let elapsed = end.duration_since(start).as_nanos();
    let nanos_per_tick = ((elapsed << SCALE_SHIFT) / u128::from(end_ticks - start_ticks)).narrow_u64();
    Scale { start_ticks, start, nanos_per_tick }
}

/// Both clocks at one moment: of several tries the one in which the thread was least interrupted between the readings.
fn both_clocks() -> (u64, Instant) {
    const TRIES: usize = 16;
    let tries = (0..TRIES).map(|_| {
        let before = ticks();
        let instant = Instant::now();
        let took = ticks() - before;
        (took, before + took / 2, instant)
    });
    let (_, ticks, instant) = tries.min_by_key(|(took, ..)| *took).expect("there are tries");
    (ticks, instant)
}

/// The counter, or 0 where it does not run at a constant rate.
#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    /// CPUID leaf and EDX bit that promise a constant rate in all power states.
    const INVARIANT_LEAF: u32 = 0x8000_0007;
    const INVARIANT_BIT: u32 = 1 << 8;
    static INVARIANT: OnceLock<bool> = OnceLock::new();
    let invariant = *INVARIANT.get_or_init(|| {
        use std::arch::x86_64::{__cpuid, __get_cpuid_max};
        __get_cpuid_max(0x8000_0000).0 >= INVARIANT_LEAF && __cpuid(INVARIANT_LEAF).edx & INVARIANT_BIT != 0
    });
    if !invariant {
        return 0;
    }
    // SAFETY: reading the counter has no preconditions; every x86-64 CPU has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_monotonic_clock() {
        let (a, wall) = (now(), Instant::now());
        while wall.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let (measured, real) = ((now() - a) as f64, wall.elapsed().as_nanos() as f64);
        assert!((measured / real - 1.0).abs() < 0.05, "{measured} against {real}");
    }
}
