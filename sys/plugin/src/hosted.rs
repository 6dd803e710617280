//! [`Hosted`]: a guide whose functions are in C, and the reach that they get.
//!
//! UNSAFETY: calls into a library, and calls from it with a context that is a pointer.

use std::ffi::{c_int, c_void};

use yonder_guide::{Arrived, Cause, Guide, READ_BYTES_MAX, Reach, Reading, Touch, Verdict};

use crate::interface::{RawArrived, RawGuide, RawPayoff, RawReach, RawTouch, STATE_ALIGN, cause, reading, verdict};

/// A part of a state.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Chunk([u8; STATE_ALIGN]);

const _: () = assert!(align_of::<Chunk>() == STATE_ALIGN && size_of::<Chunk>() == STATE_ALIGN);

/// A guide of a library, with a state of its own.
pub(crate) struct Hosted {
    raw: RawGuide,
    state: Box<[Chunk]>,
}

impl Hosted {
    /// Makes a state and starts it.
    ///
    /// # Safety
    /// The functions are there for good, and do what `yonder_guide.h` asks of them.
    pub(crate) unsafe fn new(raw: RawGuide) -> Self {
        let state = vec![Chunk([0; STATE_ALIGN]); raw.state_bytes.div_ceil(STATE_ALIGN)].into_boxed_slice();
        let mut new = Self { raw, state };
        if let Some(start) = raw.start {
            // SAFETY: the state is as large and aligned as it says, and the rest is the caller's promise.
            unsafe { start(new.state()) }
        }
        new
    }

    fn state(&mut self) -> *mut c_void {
        self.state.as_mut_ptr().cast()
    }
}

impl Guide for Hosted {
    fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
        let Some(touched) = self.raw.touched else { return Verdict::Unknown };
        let told = RawTouch {
            cause: match touch.cause {
                Cause::Miss => cause::MISS,
                Cause::Hit => cause::HIT,
            },
            register_count: u32::try_from(touch.registers.len()).expect("a processor has few registers"),
            address: touch.address,
            registers: touch.registers.as_ptr(),
            history: touch.history.as_ptr(),
            history_count: touch.history.len() as u64,
            payoff: RawPayoff {
                fetched_pages: touch.payoff.fetched_pages,
                hits: touch.payoff.hits,
                unused_pages: touch.payoff.unused_pages,
            },
        };
        let mut reach = reach;
        let given = reach_by(&mut reach);
        // SAFETY: what `new` was promised; everything that is passed outlives the call.
        match unsafe { touched(self.state(), &raw const told, &raw const given) } {
            verdict::KNOWN => Verdict::Known,
            _ => Verdict::Unknown,
        }
    }

    fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach) {
        let Some(function) = self.raw.arrived else { return };
        let told = RawArrived {
            address: arrived.address,
            bytes: arrived.bytes.as_ptr().cast(),
            count: arrived.bytes.len() as u64,
            note: arrived.note,
        };
        let mut reach = reach;
        let given = reach_by(&mut reach);
        // SAFETY: as above.
        unsafe { function(self.state(), &raw const told, &raw const given) }
    }
}

/// A reach for C, as long as `reach` lives.
fn reach_by(reach: &mut &mut dyn Reach) -> RawReach {
    RawReach { context: std::ptr::from_mut(reach).cast(), prefetch, peek, read }
}

unsafe extern "C" fn prefetch(context: *mut c_void, address: u64, bytes: u64) -> c_int {
    // SAFETY: from `reach_by`, which its reach outlives; one call at a time.
    let reach = unsafe { &mut *context.cast::<&mut dyn Reach>() };
    c_int::from(bytes > 0 && address.checked_add(bytes).is_some() && reach.prefetch(address, bytes))
}

unsafe extern "C" fn peek(context: *mut c_void, address: u64, into: *mut c_void, bytes: u64) -> c_int {
    // SAFETY: as above; the guide has room for as many bytes as it asks for.
    let (reach, into) = unsafe { (&mut *context.cast::<&mut dyn Reach>(), Room::new(into, bytes)) };
    let is_here = into.is_some_and(|mut into| {
        let is_here = reach.peek(address, into.local());
        if is_here {
            into.fill();
        }
        is_here
    });
    c_int::from(is_here)
}

unsafe extern "C" fn read(context: *mut c_void, address: u64, into: *mut c_void, bytes: u64, note: u64) -> c_int {
    // SAFETY: as above.
    let (reach, into) = unsafe { (&mut *context.cast::<&mut dyn Reach>(), Room::new(into, bytes)) };
    let Some(mut into) = into else { return reading::REFUSED };
    match reach.read(address, into.local(), note) {
        Reading::Done => {
            into.fill();
            reading::DONE
        }
        Reading::Coming => reading::COMING,
        Reading::Refused => reading::REFUSED,
    }
}

/// Room for bytes that a guide has asked for. What is there need not have been written yet, so they are read to a place
/// of ours.
struct Room {
    into: *mut u8,
    bytes: usize,
    local: [u8; READ_BYTES_MAX],
}

impl Room {
    /// None if there cannot be as many.
    ///
    /// # Safety
    /// There is room for `bytes` bytes at `into` as long as this is used, or it is null.
    unsafe fn new(into: *mut c_void, bytes: u64) -> Option<Self> {
        let is_right = !into.is_null() && (1..=READ_BYTES_MAX as u64).contains(&bytes);
        let bytes = usize::try_from(bytes).ok().filter(|_| is_right)?;
        Some(Self { into: into.cast(), bytes, local: [0; READ_BYTES_MAX] })
    }

    fn local(&mut self) -> &mut [u8] {
        &mut self.local[..self.bytes]
    }

    /// Gives the guide what was read.
    fn fill(&self) {
        // SAFETY: what `new` was promised, for no more bytes than `local` has.
        unsafe { self.into.copy_from_nonoverlapping(self.local.as_ptr(), self.bytes) }
    }
}
