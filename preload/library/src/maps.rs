//! `mmap` and its kin: large anonymous mappings are far memory.
//!
//! A mapping is a run of the far heap, and what is known of all of them stands in [`Maps`]. What is protected against
//! reading is unreadable, since the reclaimer reads what it takes.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::{c_int, c_long, c_void};
use std::ops::Range;

use libc::{off_t, size_t};
use yonder_heap::{Freed, Resized};
use yonder_intercept::Call;
use yonder_paging::far_heap::Misuse;
use yonder_preload_protocol::WINDOW;
use yonder_trap::hold_back;
use yonder_units::PAGE_BYTES;

use crate::far::{Far, far, far_for, is_far};
use crate::libc_own::{as_c, errno, failed, own, set_errno};
use crate::mapped::{self, PLAIN, is_any_protected, maps};
use crate::{advice, callers, calls, locked, reserved, robust};

/// Smallest mapping that is far.
const FAR_BYTES_MIN: usize = 256 << 10;

/// The pages of a range that begins with one; `None` if it is none, or longer than memory is.
pub(crate) fn range_of(address: usize, bytes: usize) -> Option<Range<usize>> {
    let end = address.checked_add(whole_pages(bytes)?)?;
    address.is_multiple_of(PAGE_BYTES).then_some(address..end)
}

pub(crate) fn whole_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE_BYTES).filter(|bytes| *bytes > 0)
}

/// Whose call about a range of addresses it is.
enum About {
    /// The program's, about far memory.
    Far(&'static Far),
    /// The paging runtime's, about what is behind far memory: the filter must not send it back.
    Behind,
    /// Somebody's, about other memory.
    Other,
}

fn about(address: usize, caller: usize) -> About {
    match far().filter(|_| is_far(address)) {
        None => About::Other,
        Some(_) if callers::is_own(caller) => About::Behind,
        Some(far) => About::Far(far),
    }
}

/// Whether a mapping that begins there is in the window, or where the filter's code has its place before it.
fn touches_window(start: usize, bytes: usize) -> bool {
    start < WINDOW.end && start.saturating_add(bytes) > yonder_intercept::STUB.start
}

/// Makes a call of the paging runtime.
fn behind(number: c_long, arguments: [u64; 3]) -> c_int {
    let [a, b, c] = arguments;
    as_c(calls::make(&Call { number, arguments: [a, b, c, 0, 0, 0] })) as c_int
}

pub(crate) fn not_mapped(errno: c_int) -> *mut c_void {
    set_errno(errno);
    libc::MAP_FAILED
}

callers::tell_caller! {
    mmap(hint: *mut c_void, bytes: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void
        = mmap_for, "push qword ptr [rsp]", "call {}", "pop rcx", "ret";
    mmap64(hint: *mut c_void, bytes: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void
        = mmap_for, "push qword ptr [rsp]", "call {}", "pop rcx", "ret";
    munmap(start: *mut c_void, bytes: size_t) -> c_int = munmap_for, "mov rdx, [rsp]", "jmp {}";
    mremap(old: *mut c_void, old_bytes: size_t, new_bytes: size_t, flags: c_int, wanted: *mut c_void) -> *mut c_void
        = mremap_for, "mov r9, [rsp]", "jmp {}";
    mprotect(start: *mut c_void, bytes: size_t, prot: c_int) -> c_int = mprotect_for, "mov rcx, [rsp]", "jmp {}";
    madvise(start: *mut c_void, bytes: size_t, advice: c_int) -> c_int = madvise_for, "mov rcx, [rsp]", "jmp {}";
}

/// The seventh argument, who has called, is on the stack.
unsafe extern "C" fn mmap_for(
    hint: *mut c_void,
    bytes: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
    caller: usize,
) -> *mut c_void {
    /// A mapping with any of these is for somebody who needs it where and as it is.
    const NOT_FAR: c_int = libc::MAP_FIXED
        | libc::MAP_FIXED_NOREPLACE
        | libc::MAP_GROWSDOWN
        | libc::MAP_HUGETLB
        | libc::MAP_LOCKED
        | libc::MAP_STACK
        | libc::MAP_32BIT;
    if is_far(hint as usize) && flags & libc::MAP_FIXED != 0 && !callers::is_local(caller) {
        return reserved::replace(hint as usize, bytes, prot, flags, reserved::File { fd, offset });
    }
    let can_be_far = flags & (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
        && flags & NOT_FAR == 0
        && bytes >= FAR_BYTES_MIN
        && !callers::is_local(caller);
    if can_be_far
        && prot == PLAIN
        && let Some(far) = far_for(bytes)
    {
        return far.map(bytes).map_or_else(|| not_mapped(libc::ENOMEM), std::ptr::with_exposed_provenance_mut);
    }
    if can_be_far
        && prot == libc::PROT_NONE
        && !reserved::is_wanted_there(hint as usize)
        && let Some(new) = reserved::reserve(bytes)
    {
        return std::ptr::with_exposed_provenance_mut(new);
    }
    let own = own!(mmap: fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void);
    let is_ours_to_say = touches_window(hint as usize, bytes) && !callers::is_known_local(caller);
    if is_ours_to_say && flags & libc::MAP_FIXED_NOREPLACE != 0 {
        return not_mapped(libc::EEXIST);
    }
    // A place in the window is a wish that cannot come true.
    let hint = if is_ours_to_say { std::ptr::null_mut() } else { hint };
    // SAFETY: the caller's.
    unsafe { own(hint, bytes, prot, flags, fd, offset) }
}

unsafe extern "C" fn munmap_for(start: *mut c_void, bytes: size_t, caller: usize) -> c_int {
    match about(start as usize, caller) {
        About::Far(far) => unmap(far, start as usize, bytes),
        About::Behind => behind(libc::SYS_munmap, [start as u64, bytes as u64, 0]),
        About::Other => {
            let own = own!(munmap: fn(*mut c_void, size_t) -> c_int);
            // SAFETY: the caller's.
            unsafe { own(start, bytes) }
        }
    }
}

fn unmap(far: &Far, address: usize, bytes: usize) -> c_int {
    let Some(range) = range_of(address, bytes) else { return failed(libc::EINVAL) };
    if far.unmap(range.start..range.end.min(WINDOW.end)) { 0 } else { failed(libc::ENOMEM) }
}

unsafe extern "C" fn mremap_for(
    old: *mut c_void,
    old_bytes: size_t,
    new_bytes: size_t,
    flags: c_int,
    wanted: *mut c_void,
    caller: usize,
) -> *mut c_void {
    let About::Far(far) = about(old as usize, caller) else {
        let own = own!(mremap: fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void);
        // SAFETY: the caller's.
        return unsafe { own(old, old_bytes, new_bytes, flags, wanted) };
    };
    let (Some(all), Some(new_bytes)) = (range_of(old as usize, old_bytes), whole_pages(new_bytes)) else {
        return not_mapped(libc::EINVAL);
    };
    if flags & !libc::MREMAP_MAYMOVE != 0 {
        return not_mapped(libc::EINVAL);
    }
    let is_there = if new_bytes > all.len() { all.clone() } else { all.start..all.start + PAGE_BYTES };
    let of_all = || {
        let maps = maps();
        if maps.cover(is_there.clone()) { maps.protection(is_there.clone()) } else { None }
    };
    // The kernel's mappings end where the protection changes, and only one can grow.
    let Some(prot) = hold_back(of_all) else { return not_mapped(libc::EFAULT) };
    if new_bytes <= all.len() {
        far.unmap(all.start + new_bytes..all.end);
        return old;
    }
    let more = new_bytes - all.len();
    // Of a file's copy, what the file has behind it is not known any more.
    if hold_back(|| maps().has_copied(&all)) || prot == libc::PROT_NONE && !reserved::may_reserve(far, more) {
        return not_mapped(libc::ENOMEM);
    }
    let _not_in_use = mapped::NotInUse::of(if prot == libc::PROT_NONE { new_bytes } else { 0 });
    let new = match hold_back(|| far.grow(all.clone(), new_bytes)) {
        Some(()) => {
            // What is new of it may have been protected while it was nobody's.
            if !far.unprotect(all.end..all.start + new_bytes) {
                far.unmap(all.end..all.start + new_bytes);
                return not_mapped(libc::ENOMEM);
            }
            all.start
        }
        None if flags & libc::MREMAP_MAYMOVE == 0 => return not_mapped(libc::ENOMEM),
        // It would leave, and what it was is read where it was.
        None if locked::has_any(&all) => return not_mapped(libc::EAGAIN),
        None => {
            let Some(new) = far.map(new_bytes) else { return not_mapped(libc::ENOMEM) };
            let to = std::ptr::with_exposed_provenance_mut::<u8>(new);
            if !far.unprotect(all.clone()) {
                far.unmap(new..new + new_bytes);
                return not_mapped(libc::ENOMEM);
            }
            // SAFETY: both ranges are mapped, and the new one is nobody else's.
            unsafe { std::ptr::copy_nonoverlapping(old.cast::<u8>(), to, all.len()) };
            far.unmap(all);
            new
        }
    };
    // It goes on for what is new of it, and moves with the mapping.
    if prot != PLAIN {
        protect(far, new, new_bytes, prot);
    }
    std::ptr::with_exposed_provenance_mut(new)
}

unsafe extern "C" fn mprotect_for(start: *mut c_void, bytes: size_t, prot: c_int, caller: usize) -> c_int {
    match about(start as usize, caller) {
        About::Far(far) => protect(far, start as usize, bytes, prot),
        About::Behind => behind(libc::SYS_mprotect, [start as u64, bytes as u64, prot as u64]),
        About::Other => {
            let own = own!(mprotect: fn(*mut c_void, size_t, c_int) -> c_int);
            // SAFETY: the caller's.
            unsafe { own(start, bytes, prot) }
        }
    }
}

unsafe extern "C" fn madvise_for(start: *mut c_void, bytes: size_t, advice: c_int, caller: usize) -> c_int {
    match about(start as usize, caller) {
        About::Far(far) => as_c(advice::advise(far, start as usize, bytes, advice)) as c_int,
        About::Behind => behind(libc::SYS_madvise, [start as u64, bytes as u64, advice as u64]),
        About::Other => {
            let own = own!(madvise: fn(*mut c_void, size_t, c_int) -> c_int);
            // SAFETY: the caller's.
            unsafe { own(start, bytes, advice) }
        }
    }
}

/// Changes the protection of far memory.
pub(crate) fn protect(far: &'static Far, address: usize, bytes: usize, prot: c_int) -> c_int {
    let Some(bytes) = whole_pages(bytes).filter(|_| far.offset(address).is_some()) else { return 0 };
    if !address.is_multiple_of(PAGE_BYTES) {
        return failed(libc::EINVAL);
    }
    if address.checked_add(bytes - 1).and_then(|last| far.offset(last)).is_none() {
        // The kernel would change a part of it before it refuses.
        return failed(libc::ENOMEM);
    }
    let range = address..address + bytes;
    hold_back(|| {
        let mut maps = maps();
        let result = far.set_protection(range.clone(), prot);
        if result == 0 {
            maps.protect(range, prot);
            return result;
        }
        let errno = errno();
        // A part of it may have been changed.
        if far.set_protection(range.clone(), PLAIN) == 0 {
            let before = maps.protections(range);
            before.into_iter().for_each(|(part, prot)| _ = far.set_protection(part, prot));
        } else {
            maps.protect(range, prot);
        }
        set_errno(errno);
        result
    })
}

/// `mincore`: the range or what is told of it may be far.
fn mincore(far: &'static Far, call: &Call) -> i64 {
    let [_, bytes, told, ..] = call.arguments;
    let Some(pages) = whole_pages(bytes as usize).map(|bytes| bytes / PAGE_BYTES).filter(|_| is_far(told as usize))
    else {
        return calls::make(call);
    };
    let local = match far.bounces.local(pages) {
        Ok(local) => local,
        Err(errno) => return errno,
    };
    let mut call = *call;
    call.arguments[2] = local.address() as u64;
    let result = calls::make(&call);
    // SAFETY: so many bytes are there, and nobody else has them.
    let copy = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(local.address()), pages) };
    if result == 0 { far.put(told as usize, copy).map_or_else(|errno| errno, |()| 0) } else { result }
}

fn as_answer(result: Result<(), c_int>) -> i64 {
    result.map_or_else(|errno| -i64::from(errno), |()| 0)
}

/// What a system call that changes far mappings without the C library comes to.
pub(crate) fn answer(call: &Call) -> i64 {
    let [start, bytes, third, ..] = call.arguments;
    let Some(far) = far() else { return -i64::from(libc::EFAULT) };
    let result = match call.number {
        libc::SYS_munmap => unmap(far, start as usize, bytes as usize),
        libc::SYS_mprotect => protect(far, start as usize, bytes as usize, third as c_int),
        libc::SYS_madvise => return advice::advise(far, start as usize, bytes as usize, third as c_int),
        libc::SYS_mincore => return mincore(far, call),
        libc::SYS_mlock | libc::SYS_mlock2 => return as_answer(locked::lock(far, start as usize, bytes as usize)),
        libc::SYS_munlock => return as_answer(locked::unlock(start as usize, bytes as usize)),
        libc::SYS_msync => return calls::make(call),
        _ => return -i64::from(libc::ENOMEM),
    };
    if result == 0 { 0 } else { -i64::from(libc::ENOMEM) }
}

impl Far {
    /// A new mapping of zeros.
    pub(crate) fn map(&self, bytes: usize) -> Option<usize> {
        let bytes = whole_pages(bytes)?;
        let new = self.heap.alloc_run(bytes, PAGE_BYTES)?;
        // Memory that was nobody's may have been protected.
        let is_usable = self.unprotect(new..new + bytes);
        self.clear(new, bytes as u64);
        hold_back(|| maps().runs.insert(new, bytes));
        if !is_usable {
            self.unmap(new..new + bytes);
            return None;
        }
        Some(new)
    }

    /// Gives back what is mapped of a range. Whether it has: not if the kernel has no more mappings, and then all of it
    /// stays mapped, because nobody else may get what is protected.
    pub(crate) fn unmap(&self, range: Range<usize>) -> bool {
        let _not_in_use = mapped::NotInUse::of(if reserved::reserves() { range.len() } else { 0 });
        if !self.unprotect(range.clone()) {
            return false;
        }
        let gone = hold_back(|| {
            let mut maps = maps();
            maps.split_at(self, range.start);
            maps.split_at(self, range.end);
            let gone: Vec<usize> = maps.runs.range(range.clone()).map(|(start, _)| *start).collect();
            gone.iter().for_each(|start| _ = maps.runs.remove(start));
            maps.set_copied(range.clone(), false);
            gone
        });
        robust::forget(range.clone());
        locked::forget(&range);
        for start in gone {
            let freed = self.heap.with(|heap| heap.free((start - WINDOW.start) as u64));
            match freed {
                Ok(Freed::Run(retired)) => self.heap.retire(retired),
                Ok(Freed::Object(_)) => unreachable!("a mapping is a run"),
                Err(_) => crate::malloc::die_of(Misuse { address: start }),
            }
        }
        true
    }

    /// Makes a mapping `new` bytes long where it is; `None` if it has to move. For who keeps handlers of signals away.
    fn grow(&self, old: Range<usize>, new: usize) -> Option<()> {
        let mut maps = maps();
        if maps.runs.get(&old.start) != Some(&old.len()) {
            return None;
        }
        let resized = self.heap.with(|heap| heap.resize_in_place((old.start - WINDOW.start) as u64, new as u64));
        match resized.unwrap_or_else(|_| crate::malloc::die_of(Misuse { address: old.start })) {
            Resized::Refused => return None,
            Resized::Shrunk(_) => unreachable!("it grows"),
            Resized::Done => self.clear(old.end, (new - old.len()) as u64),
        }
        maps.runs.insert(old.start, new);
        Some(())
    }

    /// Makes a range readable and writable again, as all memory is that is given out. Whether all of it is: the kernel
    /// may have no more mappings. What is left stays known to be protected.
    pub(crate) fn unprotect(&self, range: Range<usize>) -> bool {
        let again = |range: Range<usize>| {
            let is_plain = self.set_protection(range.clone(), PLAIN) == 0;
            if !is_plain {
                hold_back(|| maps().protect(range, libc::PROT_NONE));
            }
            is_plain
        };
        let were = if is_any_protected() { hold_back(|| maps().forget_protection(range)) } else { Vec::new() };
        // All of them, also behind one that cannot be.
        were.into_iter().map(again).fold(true, |all, is_plain| all & is_plain)
    }

    /// What the kernel lets anybody do with whole pages of far memory. The reclaimer can read what it sweeps at all
    /// times.
    fn set_protection(&self, range: Range<usize>, prot: c_int) -> c_int {
        hold_back(|| {
            let offset = self.offset(range.start).expect("the range is far");
            // What can be written can be read, by the processor's page tables.
            let can_be_read = prot & PLAIN != 0;
            if !can_be_read {
                self.region().mark_unreadable(offset, range.len() as u64);
            }
            let result = behind(libc::SYS_mprotect, [range.start as u64, range.len() as u64, prot as u64]);
            if can_be_read && result == 0 {
                self.region().mark_readable(offset, range.len() as u64);
                // What is held for good and could not be mapped, as nobody could touch it. If that fails, its next
                // touch brings it.
                let _ = self.bring_held(range.start, range.len() as u64);
            }
            result
        })
    }
}
