//! [`describe`]: a guide in Rust as C sees it. `export_guide!` is a static with what it returns.
//!
//! Everything is generic, so that a guide's library has its own and a call costs no more than in C.
//!
//! UNSAFETY: functions that C calls with pointers.

use std::ffi::{c_int, c_void};
use std::slice;

use yonder_guide::{Arrived, Cause, Guide, Payoff, Reach, Reading, Touch, Verdict};

use crate::interface::{
    RawArrived, RawGuide, RawReach, RawTouch, STATE_ALIGN, STATE_BYTES_MAX, VERSION, cause, reading, verdict,
};

/// What C sees of the guide `G`. The name ends with a NUL.
///
/// # Panics
/// If the name has no NUL at its end, or a `G` is too large for a state.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a structure is smaller than 4 GiB")]
pub const fn describe<G: Guide + Default>(name: &'static str) -> RawGuide {
    assert!(matches!(name.as_bytes(), [.., 0]), "C looks for the end of a name");
    assert!(size_of::<G>() <= STATE_BYTES_MAX && align_of::<G>() <= STATE_ALIGN, "a state is not like that");
    RawGuide {
        version: VERSION,
        bytes: size_of::<RawGuide>() as u32,
        name: name.as_ptr().cast(),
        state_bytes: size_of::<G>(),
        start: Some(start::<G>),
        touched: Some(touched::<G>),
        arrived: Some(arrived::<G>),
    }
}

// The functions below are called with a state of `size_of::<G>()` bytes at a multiple of `STATE_ALIGN`, once by `start`
// and then by the others, one at a time. A panic in them ends the process, as in every `extern "C"` function.

unsafe extern "C" fn start<G: Guide + Default>(state: *mut c_void) {
    // SAFETY: the state is large and aligned enough for a `G`.
    unsafe { state.cast::<G>().write(G::default()) }
}

unsafe extern "C" fn touched<G: Guide>(state: *mut c_void, touch: *const RawTouch, reach: *const RawReach) -> c_int {
    // SAFETY: the state holds a `G` that nobody else uses now; the host's structures outlive the call.
    let (guide, touch, reach) = unsafe { (&mut *state.cast::<G>(), &*touch, &*reach) };
    // SAFETY: the arrays are as long as the host says.
    let (registers, history) =
        unsafe { (array(touch.registers, touch.register_count.into()), array(touch.history, touch.history_count)) };
    let told = Touch {
        cause: if touch.cause == cause::HIT { Cause::Hit } else { Cause::Miss },
        address: touch.address,
        registers,
        history,
        payoff: Payoff {
            fetched_pages: touch.payoff.fetched_pages,
            hits: touch.payoff.hits,
            unused_pages: touch.payoff.unused_pages,
        },
    };
    match guide.touched(&told, &mut ByHost(reach)) {
        Verdict::Known => verdict::KNOWN,
        Verdict::Unknown => verdict::UNKNOWN,
    }
}

unsafe extern "C" fn arrived<G: Guide>(state: *mut c_void, arrived: *const RawArrived, reach: *const RawReach) {
    // SAFETY: as above.
    let (guide, arrived, reach) = unsafe { (&mut *state.cast::<G>(), &*arrived, &*reach) };
    // SAFETY: as above.
    let bytes = unsafe { array(arrived.bytes.cast(), arrived.count) };
    guide.arrived(&Arrived { address: arrived.address, bytes, note: arrived.note }, &mut ByHost(reach));
}

/// What is at `first`, which may be null if it is nothing.
///
/// # Safety
/// There are `count` of them, which live as long as `'a` and which nobody changes.
#[expect(clippy::cast_possible_truncation, reason = "a process has as many bytes as a pointer counts")]
unsafe fn array<'a, T>(first: *const T, count: u64) -> &'a [T] {
    // SAFETY: the caller's.
    if count == 0 { &[] } else { unsafe { slice::from_raw_parts(first, count as usize) } }
}

/// The reach that the host gives.
struct ByHost<'a>(&'a RawReach);

impl Reach for ByHost<'_> {
    fn prefetch(&mut self, address: u64, bytes: u64) -> bool {
        // SAFETY: the host's function with its own context, while the host waits for the guide.
        unsafe { (self.0.prefetch)(self.0.context, address, bytes) != 0 }
    }

    fn peek(&mut self, address: u64, into: &mut [u8]) -> bool {
        // SAFETY: as above, and `into` is as long as it says.
        unsafe { (self.0.peek)(self.0.context, address, into.as_mut_ptr().cast(), into.len() as u64) != 0 }
    }

    fn read(&mut self, address: u64, into: &mut [u8], note: u64) -> Reading {
        // SAFETY: as above.
        match unsafe { (self.0.read)(self.0.context, address, into.as_mut_ptr().cast(), into.len() as u64, note) } {
            reading::DONE => Reading::Done,
            reading::COMING => Reading::Coming,
            _ => Reading::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use yonder_guide::{FakeReach, word};

    use super::*;
    use crate::hosted::Hosted;

    /// Follows words, and writes down by what it fetches what it is told.
    #[derive(Default)]
    struct Witness {
        touches: u64,
    }

    impl Witness {
        fn say(reach: &mut dyn Reach, numbers: &[u64]) -> bool {
            numbers.iter().all(|number| reach.prefetch(*number, 1))
        }
    }

    impl Guide for Witness {
        fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
            self.touches += 1;
            Self::say(reach, &[self.touches, touch.cause as u64, touch.address]);
            Self::say(reach, touch.registers);
            Self::say(reach, touch.history);
            Self::say(reach, &[touch.payoff.fetched_pages, touch.payoff.hits, touch.payoff.unused_pages]);
            let mut bytes = [0; 8];
            let reading = reach.read(touch.address, &mut bytes, self.touches);
            let mut peeked = [0; 8];
            let is_here = reach.peek(touch.address, &mut peeked);
            let has_room = Self::say(reach, &[reading as u64, word(&bytes), is_here.into(), word(&peeked)]);
            if has_room { Verdict::Known } else { Verdict::Unknown }
        }

        fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach) {
            Self::say(reach, &[self.touches, arrived.address, word(arrived.bytes), arrived.note]);
        }
    }

    /// What a guide says and asks for in a life of touches and arrivals.
    fn life(mut guide: impl Guide) -> (Vec<Verdict>, Vec<u64>, usize) {
        let mut reach = FakeReach::default();
        reach.room = Some(40);
        reach.put(0x4000, &[7, 8, 9]);
        reach.make_far(0x4008..0x4010);
        let mut verdicts = Vec::new();
        let (numbers, payoff) = ([1, 2, 3], Payoff { fetched_pages: 4, hits: 5, unused_pages: 6 });
        for round in 0..4 {
            let cause = if round % 2 == 0 { Cause::Miss } else { Cause::Hit };
            let (registers, history) = (&numbers[..round % 3], &numbers[..(round + 1) % 3]);
            let touch = Touch { cause, address: 0x4000 + 8 * round as u64, registers, history, payoff };
            verdicts.push(guide.touched(&touch, &mut reach));
            while reach.deliver(&mut guide) {}
        }
        (verdicts, reach.prefetched.iter().map(|range| range.start).collect(), reach.reads)
    }

    #[test]
    fn a_guide_behind_the_c_interface_is_the_guide_itself() {
        let raw = describe::<Witness>("witness\0");
        // SAFETY: the functions are those of a guide in Rust.
        let hosted = unsafe { Hosted::new(raw) };
        let through = life(hosted);
        assert_eq!(through, life(Witness::default()));
        assert!(through.0.contains(&Verdict::Known) && through.0.contains(&Verdict::Unknown), "{:?}", through.0);
    }

    #[test]
    fn a_guide_without_a_state_works() {
        #[derive(Default)]
        struct Stateless;
        impl Guide for Stateless {
            fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
                reach.prefetch(touch.address, 4096);
                Verdict::Known
            }
            fn arrived(&mut self, _: &Arrived<'_>, _: &mut dyn Reach) {}
        }
        // SAFETY: as above.
        let hosted = unsafe { Hosted::new(describe::<Stateless>("stateless\0")) };
        assert_eq!(life(hosted), life(Stateless));
    }
}
