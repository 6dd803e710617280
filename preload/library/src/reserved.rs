//! Memory that is reserved first and used later: mappings that nobody may touch, and what replaces parts of them.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{off_t, size_t};
use yonder_intercept::Call;
use yonder_trap::hold_back;
use yonder_units::Narrow as _;

use crate::far::{Far, far, far_for};
use crate::libc_own::{errno, own};
use crate::mapped::{self, maps};
use crate::maps::{not_mapped, protect, range_of, whole_pages};
use crate::{calls, locked};

/// One of how many parts of far memory may be reserved and not in use.
const RESERVED_SHARE: usize = 2;
/// Whether the program has ever reserved any.
static RESERVES: AtomicBool = AtomicBool::new(false);

/// Whether somebody needs a reservation where he asks for it, as the collector of a Java machine that tells the state
/// of objects by one bit of their addresses. Other wishes are no more than that: for a low place or a round one, which
/// make an engine's addresses shorter, and for one that was drawn by lot.
pub(crate) fn is_wanted_there(hint: usize) -> bool {
    const FIRST: usize = 1 << 40;
    hint >= FIRST && hint.is_power_of_two()
}

/// Far memory that nobody may touch before it is protected otherwise, as heaps are reserved; `None` if it is to be the
/// kernel's: there is no room for it, or reservations, of which most is perhaps never used, would leave too little to
/// others.
pub(crate) fn reserve(bytes: usize) -> Option<usize> {
    let far = far_for(bytes)?;
    let whole = whole_pages(bytes)?;
    if !may_reserve(far, whole) {
        return None;
    }
    RESERVES.store(true, Ordering::Relaxed);
    let _not_in_use = mapped::NotInUse::of(whole);
    let new = far.map(whole)?;
    if protect(far, new, whole, libc::PROT_NONE) != 0 {
        far.unmap(new..new + whole);
        return None;
    }
    Some(new)
}

/// Whether so much more may be reserved.
pub(crate) fn may_reserve(far: &Far, bytes: usize) -> bool {
    mapped::untouchable_bytes() + bytes <= far.region().bytes().narrow_usize() / RESERVED_SHARE
}

/// Whether a part of what is mapped may be reserved only.
pub(crate) fn reserves() -> bool {
    RESERVES.load(Ordering::Relaxed)
}

/// What a mapping that is not anonymous is of.
#[derive(Clone, Copy)]
pub(crate) struct File {
    pub(crate) fd: c_int,
    pub(crate) offset: off_t,
}

/// A new mapping in the place of a far one: as good as new if it is anonymous, a copy of the file if it is a private
/// one, refused if it is to be shared.
pub(crate) fn replace(address: usize, bytes: usize, prot: c_int, flags: c_int, file: File) -> *mut c_void {
    let (Some(far), Some(range)) = (far(), range_of(address, bytes)) else { return not_mapped(libc::EINVAL) };
    if flags & libc::MAP_PRIVATE == 0 || far.offset(range.end - 1).is_none() {
        return not_mapped(libc::ENOMEM);
    }
    let file = (flags & libc::MAP_ANONYMOUS == 0).then_some(file);
    if let Some(error) = file.and_then(|file| file.refuses(bytes, prot)) {
        return not_mapped(error);
    }
    if !hold_back(|| maps().cover(range.clone())) {
        // It is somebody else's by now, or may be soon.
        return not_mapped(libc::ENOMEM);
    }
    let _not_in_use = mapped::NotInUse::of(if prot == libc::PROT_NONE { range.len() } else { 0 });
    if !far.unprotect(range.clone()) {
        return not_mapped(libc::ENOMEM);
    }
    locked::forget(&range);
    far.clear(address, range.len() as u64);
    hold_back(|| maps().set_copied(range.clone(), file.is_some()));
    if let Some(Err(error)) = file.map(|file| file.copy_to(address, range.len())) {
        return not_mapped(error);
    }
    if protect(far, address, bytes, prot) == 0 {
        std::ptr::with_exposed_provenance_mut(address)
    } else {
        libc::MAP_FAILED
    }
}

impl File {
    /// Why the kernel would not map it; only where it is known before anything has changed.
    fn refuses(self, bytes: usize, prot: c_int) -> Option<c_int> {
        let own = own!(mmap: fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void);
        // SAFETY: a mapping of its own, which is gone again in a moment.
        let tried = unsafe { own(std::ptr::null_mut(), bytes, prot, libc::MAP_PRIVATE, self.fd, self.offset) };
        if tried == libc::MAP_FAILED {
            return Some(errno());
        }
        let own = own!(munmap: fn(*mut c_void, size_t) -> c_int);
        // SAFETY: it is the mapping that was just made.
        let _ = unsafe { own(tried, bytes) };
        None
    }

    /// Copies what the file has to far memory: what is stored to a private mapping is nobody else's, and whether it
    /// shows what is stored to the file later is left open. Behind its end there are zeros.
    fn copy_to(self, address: usize, bytes: usize) -> Result<(), c_int> {
        let mut done = 0;
        while done < bytes {
            let to = (address + done) as u64;
            let arguments = [self.fd as u64, to, (bytes - done) as u64, self.offset as u64 + done as u64, 0, 0];
            match calls::answer(&Call { number: libc::SYS_pread64, arguments }) {
                0 => break,
                read @ 1.. => done += read as usize,
                error if error == -i64::from(libc::EINTR) => {}
                error => return Err(-error as c_int),
            }
        }
        Ok(())
    }
}
