//! This thread's magazine of the far heap, and malloc's calls with it.
//!
//! The heap itself is `runtime/paging`. What is here is what the place behind malloc asks for: magazines that are
//! made and given back without an allocation in the wrong moment, and an end of the process where the program frees
//! what it has not.
//!
//! UNSAFETY: a thread-local that is a raw pointer, because one with a destructor would allocate when it is first used.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;

use yonder_paging::FarError;
use yonder_paging::far_heap::{Magazine, Misuse};
use yonder_units::PAGE_BYTES;

use crate::far::Far;
use crate::mapped::is_any_protected;

/// The key whose destructor gives a thread's magazine back when it ends.
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

thread_local! {
    static MAGAZINE: Cell<*mut Magazine> = const { Cell::new(std::ptr::null_mut()) };
}

impl Far {
    /// The address of `bytes` bytes of far memory, or 0 if there is no room.
    #[inline]
    pub(crate) fn alloc(&self, bytes: usize, align: usize) -> usize {
        self.heap.alloc(magazine(), bytes, align).unwrap_or(0)
    }

    /// As [`Far::alloc`], and the bytes are zeros.
    pub(crate) fn alloc_zeroed(&self, bytes: usize) -> usize {
        let new = self.alloc(bytes, 16);
        if new != 0 {
            self.heap.zero(new).unwrap_or_else(|error| die_of_clearing(&error));
            self.bring_held(new, bytes as u64).unwrap_or_else(|error| die_of_clearing(&error.into()));
        }
        new
    }

    /// Makes the pages of a range read as zeros.
    pub(crate) fn clear(&self, address: usize, bytes: u64) {
        self.heap.clear(address, bytes).unwrap_or_else(|error| die_of_clearing(&error));
        self.bring_held(address, bytes).unwrap_or_else(|error| die_of_clearing(&error.into()));
    }

    /// Takes back what [`Far::alloc`] gave out. An error if it did not.
    #[inline]
    pub(crate) fn free(&self, old: usize) -> Result<(), Misuse> {
        if is_any_protected() {
            self.unprotect_pages(old, 0)?;
        }
        self.heap.free(magazine(), old)
    }

    /// Makes the pages that are an allocation's alone, but those of its first bytes, as memory is that is given out.
    #[cold]
    pub(crate) fn unprotect_pages(&self, address: usize, first_bytes: usize) -> Result<(), Misuse> {
        let pages = self.heap.own_pages(address)?;
        let kept = if first_bytes > 0 { (address + first_bytes).next_multiple_of(PAGE_BYTES) } else { pages.start };
        let given_back = kept.max(pages.start)..pages.end;
        if !given_back.is_empty() {
            // What stays protected ends the program at its next touch, and never has what is wrong.
            let _ = self.unprotect(given_back);
        }
        Ok(())
    }
}

#[cold]
fn die_of_clearing(error: &FarError) -> ! {
    crate::complain(&format!("memory could not be cleared: {error}"));
    std::process::abort()
}

/// This thread's magazine.
#[inline]
fn magazine() -> &'static mut Magazine {
    let mine = MAGAZINE.get();
    let mine = if mine.is_null() { make_magazine() } else { mine };
    // SAFETY: it is this thread's alone, and no call that uses it is entered again: signal handlers do not allocate.
    unsafe { &mut *mine }
}

/// Makes the key. To be called while there is one thread: a child that is forked while another makes it would wait for
/// ever.
pub(crate) fn key() -> libc::pthread_key_t {
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the key is a local, and the destructor takes what `pthread_setspecific` is given.
        let refused = unsafe { libc::pthread_key_create(&raw mut key, Some(end_of_thread)) };
        assert!(refused == 0, "the program has taken all thread keys");
        key
    })
}

#[cold]
fn make_magazine() -> *mut Magazine {
    let key = key();
    let mine = Box::into_raw(Box::new(Magazine::new()));
    MAGAZINE.set(mine);
    // SAFETY: the key was made above. If the value is not kept, the magazine is lost when the thread ends.
    let _ = unsafe { libc::pthread_setspecific(key, mine.cast()) };
    mine
}

/// Gives the magazine of a thread that ends back.
unsafe extern "C" fn end_of_thread(magazine: *mut c_void) {
    MAGAZINE.set(std::ptr::null_mut());
    // SAFETY: it came from `Box::into_raw` in `make_magazine`, and only the thread that ends knew it.
    let mut magazine = unsafe { Box::from_raw(magazine.cast::<Magazine>()) };
    let Some(far) = crate::far::far() else { return };
    if let Err(misuse) = far.heap.flush_all(&mut magazine) {
        crate::malloc::die_of(misuse);
    }
}
