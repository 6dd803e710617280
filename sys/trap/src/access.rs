//! Copies and loads that a paging error can end.
//!
//! Each routine is a leaf without a stack frame, so the SIGBUS handler can end it at any instruction: it puts an error
//! code into the return register and continues at the routine's return address.
//!
//! UNSAFETY: raw copies between memory that the compiler does not know, in assembly so that the handler knows every
//! instruction that can fault.

use std::num::NonZeroU32;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("yonder-trap knows the fault frames of x86-64 Linux only: build with --target x86_64-unknown-linux-gnu");

std::arch::global_asm!(
    ".pushsection .text.yonder_access, \"ax\", @progbits",
    ".balign 64",
    ".globl yonder_access_begin, yonder_access_copy, yonder_access_load, yonder_access_store",
    ".globl yonder_access_end, yonder_access_failed",
    "yonder_access_begin:",
    // All of it are leaves without a frame, so one entry of unwind information suffices: a profiler sees who accesses.
    ".cfi_startproc",
    // rdi = to, rsi = from, rdx = bytes. A fault in the middle leaves rdi, rsi and rcx at the byte to retry.
    "yonder_access_copy:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    // rdi = from, rsi = to (local)
    "yonder_access_load:",
    "mov rax, [rdi]",
    "mov [rsi], rax",
    "xor eax, eax",
    "ret",
    // rdi = to, rsi = value
    "yonder_access_store:",
    "mov [rdi], rsi",
    "xor eax, eax",
    "ret",
    "yonder_access_end:",
    // The handler continues here, with the error code in eax.
    "yonder_access_failed:",
    "ret",
    ".cfi_endproc",
    ".popsection",
);

unsafe extern "C" {
    fn yonder_access_copy(to: *mut u8, from: *const u8, bytes: usize) -> u32;
    fn yonder_access_load(from: *const u64, to: *mut u64) -> u32;
    fn yonder_access_store(to: *mut u64, value: u64) -> u32;
    static yonder_access_begin: u8;
    static yonder_access_end: u8;
    static yonder_access_failed: u8;
}

/// Copies `bytes` from `from` to `to`. An error is the code that the [`FaultHandler`](crate::FaultHandler) gave; a part
/// may have been copied then.
///
/// # Safety
/// Both ranges are mapped with the needed permission, or belong to a registered region whose handler decides about
/// them, and they do not overlap.
#[inline]
pub unsafe fn try_copy(to: *mut u8, from: *const u8, bytes: usize) -> Result<(), NonZeroU32> {
    // SAFETY: the caller's promise is exactly the routine's condition.
    result(unsafe { yonder_access_copy(to, from, bytes) })
}

/// Loads the aligned word at `from`, in one access.
///
/// # Safety
/// As for [`try_copy`]; `from` is 8-byte aligned.
#[inline]
pub unsafe fn try_load(from: *const u64) -> Result<u64, NonZeroU32> {
    let mut value = 0;
    // SAFETY: the caller's promise covers `from`; `value` is a local word.
    result(unsafe { yonder_access_load(from, &raw mut value) }).map(|()| value)
}

/// Stores `value` to the aligned word at `to`, in one access.
///
/// # Safety
/// As for [`try_copy`]; `to` is 8-byte aligned.
#[inline]
pub unsafe fn try_store(to: *mut u64, value: u64) -> Result<(), NonZeroU32> {
    // SAFETY: the caller's promise covers `to`.
    result(unsafe { yonder_access_store(to, value) })
}

fn result(code: u32) -> Result<(), NonZeroU32> {
    NonZeroU32::new(code).map_or(Ok(()), Err)
}

/// Where execution continues when the instruction at `instruction` cannot have its page, or `None` if the instruction
/// is not one of this module's.
pub(crate) fn landing(instruction: usize) -> Option<usize> {
    let (begin, end) = (&raw const yonder_access_begin as usize, &raw const yonder_access_end as usize);
    (begin..end).contains(&instruction).then_some(&raw const yonder_access_failed as usize)
}
