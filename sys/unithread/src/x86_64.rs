//! The context switch for x86-64 (System V): [`Context`], [`exchange`] and the frame in which a unithread starts.
//!
//! A slot holds ONE context, that of the side which is not running. [`exchange`] swaps it with the registers of the
//! caller, so resuming and suspending are the same instructions and touch the same two cache lines:
//!
//! ```text
//!   resumer                          slot                          unithread
//!   rsp -> | frame of resume() |     | Context of the unithread |
//!                                          exchange
//!          | frame of resume() |     | Context of the resumer   |     rsp -> | frame of suspend() |
//!
//!   A stack that has not run yet (the slot's header lies right above it):
//!
//!   header -> +---------------------------+ 64-byte aligned; rsp of the fresh context points here
//!             | return into `trampoline`  | pushed by its `call`; `.cfi_undefined rip`: unwinders stop here
//!             +---------------------------+
//!             | frame of the body         | catches panics, never returns
//! ```
//!
//! The switch ends with a jump. Ending it with `ret` would mispredict every time, because the return address on top of
//! the CPU's return stack is that of the other side; for the same reason the switch is inlined and not called.
//! The floating-point control words are compared first and loaded only where they differ, because the loads are several
//! times slower than the rest of the switch; storing MXCSR alone takes most of the switch's time (3 of 6 ns on Zen 5),
//! so it comes first and the rest hides behind it. Vector registers and flags are the compiler's to save around it.
//!
//! Neighbours: `slot.rs` places the context, `unithread.rs` calls the switch.

// UNSAFETY: switching stacks is not expressible without assembly.

use core::arch::{asm, naked_asm};
use core::mem::offset_of;

/// MXCSR of a new unithread: every exception masked, round to nearest, as the kernel starts a process.
const MXCSR_DEFAULT: u32 = 0x1f80;
/// The control bits of MXCSR. The low six are status flags, which the ABI does not preserve across calls.
const MXCSR_CONTROL: u32 = 0xffc0;
/// x87 control word of a new unithread: every exception masked, 64-bit precision, round to nearest.
const X87_CONTROL_DEFAULT: u16 = 0x037f;

/// What a function call preserves: all that is left of a side while the other one runs.
#[repr(C)]
pub(crate) struct Context {
    rbx: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rsp: u64,
    rip: u64,
    /// The argument register (rdi) in which a fresh unithread's body finds its argument.
    rdi: u64,
    mxcsr: u32,
    x87_control: u16,
    _padding: u16,
}

const _: () = assert!(size_of::<Context>() == 80, "Adios section 3.2: a unithread's context is 80 bytes");

/// The first function on a fresh stack. It must leave by [`exchange`] and not return.
pub(crate) type Body = unsafe extern "C" fn(argument: *mut ()) -> !;

impl Context {
    /// A context that calls `body(argument)` on the stack which ends below `stack_top` (16-byte aligned).
    pub(crate) fn fresh(stack_top: *mut (), body: Body, argument: *mut ()) -> Self {
        debug_assert!(stack_top.addr().is_multiple_of(16));
        Self {
            rbx: body as *const () as u64,
            rbp: 0,
            r12: 0,
            r13: 0,
            r14: 0,
            r15: 0,
            rsp: stack_top as u64,
            rip: trampoline as *const () as u64,
            rdi: argument as u64,
            mxcsr: MXCSR_DEFAULT,
            x87_control: X87_CONTROL_DEFAULT,
            _padding: 0,
        }
    }
}

/// Calls the body of a fresh unithread. It has no caller: rbp is zero and unwinding ends here.
///
/// # Safety
/// Only [`exchange`] may enter it, from a context made by [`Context::fresh`].
#[unsafe(naked)]
unsafe extern "C" fn trampoline() -> ! {
    naked_asm!(".cfi_startproc", ".cfi_undefined rip", "call rbx", "ud2", ".cfi_endproc")
}

/// The address of the stack pointer, to check which stack the caller is on.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let rsp: usize;
    // SAFETY: the instruction only reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) rsp, options(nomem, nostack, preserves_flags)) };
    rsp
}

/// Begins to bring the cache line at `address` into this CPU's cache.
#[inline(always)]
pub(crate) fn prefetch_line(address: *const u8) {
    // SAFETY: a prefetch has no effect that a program can see, whatever the address.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast()) };
}

/// Swaps the running side with the one in `context`. Returns when the other side exchanges the same context again.
///
/// # Safety
/// `context` was made by [`Context::fresh`] or left by an `exchange` of the other side, which has not run since; the
/// stack it names is alive and belongs to the calling thread. Whoever resumes the caller must do so on this thread.
#[inline(always)]
pub(crate) unsafe fn exchange(context: *mut Context) {
    // SAFETY: the caller vouches for the context. The registers that a call preserves are the same when the other side
    // switches back, because it swaps them back; every other one is declared as clobbered, and so is memory. Without
    // `nostack` the compiler keeps no data below rsp, so the eight bytes there are free for loading MXCSR.
    unsafe {
        asm!(
            "mov eax, [rdx + {MXCSR}]",
            "movzx ecx, word ptr [rdx + {X87}]",
            "stmxcsr [rdx + {MXCSR}]",
            "fnstcw [rdx + {X87}]",
            "lea rsi, [rip + 5f]",
            "mov r10, [rdx + {RBX}]",
            "mov [rdx + {RBX}], rbx",
            "mov rbx, r10",
            "mov r11, [rdx + {RBP}]",
            "mov [rdx + {RBP}], rbp",
            "mov rbp, r11",
            "mov r8, [rdx + {R12}]",
            "mov [rdx + {R12}], r12",
            "mov r12, r8",
            "mov r9, [rdx + {R13}]",
            "mov [rdx + {R13}], r13",
            "mov r13, r9",
            "mov r10, [rdx + {R14}]",
            "mov [rdx + {R14}], r14",
            "mov r14, r10",
            "mov r11, [rdx + {R15}]",
            "mov [rdx + {R15}], r15",
            "mov r15, r11",
            "mov rdi, [rdx + {RDI}]",
            "mov r8, [rdx + {RSP}]",
            "mov [rdx + {RSP}], rsp",
            "mov rsp, r8",
            "mov r9, [rdx + {RIP}]",
            "mov [rdx + {RIP}], rsi",
            "mov r10d, [rdx + {MXCSR}]",
            "xor r10d, eax",
            "test r10d, {MXCSR_CONTROL}",
            "jnz 3f",
            "2:",
            "cmp cx, [rdx + {X87}]",
            "jne 4f",
            "jmp r9",
            "3:",
            "mov [rsp - 8], eax",
            "ldmxcsr [rsp - 8]",
            "jmp 2b",
            "4:",
            "mov [rsp - 8], cx",
            "fldcw [rsp - 8]",
            "jmp r9",
            "5:",
            RBX = const offset_of!(Context, rbx),
            RBP = const offset_of!(Context, rbp),
            R12 = const offset_of!(Context, r12),
            R13 = const offset_of!(Context, r13),
            R14 = const offset_of!(Context, r14),
            R15 = const offset_of!(Context, r15),
            RSP = const offset_of!(Context, rsp),
            RIP = const offset_of!(Context, rip),
            RDI = const offset_of!(Context, rdi),
            MXCSR = const offset_of!(Context, mxcsr),
            X87 = const offset_of!(Context, x87_control),
            MXCSR_CONTROL = const MXCSR_CONTROL,
            inout("rdx") context => _,
            clobber_abi("sysv64"),
        );
    }
}
