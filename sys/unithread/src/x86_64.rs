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
//!   The upper end of a stack that runs:
//!
//!   header -> +---------------------------+ 64-byte aligned; rsp of `trampoline`, and rbp of the body's caller
//!             | rbp, rip of the resumer   | a frame record: walks along frame pointers pass through it
//!             | the rest of its context   |
//!             +---------------------------+
//!             | return into `trampoline`  | pushed by its `call`; its unwind information leads into the context above
//!             +---------------------------+
//!             | frame of the body         | catches panics, never returns
//! ```
//!
//! So the stack of the resumer goes on where that of a running unithread ends, for debuggers, profilers and backtraces
//! alike. A panic never gets there: the body catches it. A parked unithread has no resumer, and its context is its own.
//!
//! The switch ends with a jump. Ending it with `ret` would mispredict every time, because the return address on top of
//! the CPU's return stack is that of the other side; for the same reason the switch is inlined and not called. The
//! floating-point control words are compared first and loaded only where they differ, because the loads are several
//! times slower than the rest of the switch; storing MXCSR alone takes most of the switch's time (3 of 6 ns on Zen 5),
//! so it comes first and the rest hides behind it. The stack changes last: a profiler's sample in the wait for MXCSR
//! unwinds. Changing rbp as late costs 0.2 ns, and only walks along frame pointers mind. Vector registers and flags are
//! the compiler's to save around it.
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
    /// First, and followed by `rip`: together they are a frame record.
    rbp: u64,
    rip: u64,
    rsp: u64,
    rbx: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    /// The argument register (rdi) in which a fresh unithread's body finds its argument.
    rdi: u64,
    mxcsr: u32,
    x87_control: u16,
    _padding: u16,
}

const _: () = assert!(size_of::<Context>() == 80, "Adios section 3.2: a unithread's context is 80 bytes");
const _: () = assert!(offset_of!(Context, rbp) == 0 && offset_of!(Context, rip) == 8, "a frame record comes first");
const _: () = assert!(offset_of!(Context, r15) < 64, "the unwind information writes offsets in one byte");

/// The first function on a fresh stack. It must leave by [`exchange`] and not return.
pub(crate) type Body = unsafe extern "C" fn(argument: *mut ()) -> !;

impl Context {
    /// A context that calls `body(argument)` on the stack which ends below `stack_top` (16-byte aligned), where this
    /// context will lie.
    pub(crate) fn fresh(stack_top: *mut (), body: Body, argument: *mut ()) -> Self {
        debug_assert!(stack_top.addr().is_multiple_of(16));
        Self {
            rbp: stack_top as u64,
            rip: trampoline as *const () as u64,
            rsp: stack_top as u64,
            rbx: body as *const () as u64,
            r12: 0,
            r13: 0,
            r14: 0,
            r15: 0,
            rdi: argument as u64,
            mxcsr: MXCSR_DEFAULT,
            x87_control: X87_CONTROL_DEFAULT,
            _padding: 0,
        }
    }
}

/// Calls the body of a fresh unithread. For unwinders its caller is the side that resumed it last: rsp is the address
/// of the context in which [`exchange`] has left that side's registers. It is marked as a signal's frame, because only
/// through those does gdb follow a chain of frames to a stack at lower addresses.
///
/// # Safety
/// Only [`exchange`] may enter it, from a context made by [`Context::fresh`] that lies at the stack's top.
#[unsafe(naked)]
unsafe extern "C" fn trampoline() -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_signal_frame",
        // DW_CFA_def_cfa_expression: the frame ends where [rsp + RSP] points (DW_OP_breg7, DW_OP_deref).
        ".cfi_escape 0x0f, 3, 0x77, {RSP}, 0x06",
        // DW_CFA_expression, for each register by its number (rip is 16): its value is in memory at rsp + offset.
        ".cfi_escape 0x10, 3, 2, 0x77, {RBX}",
        ".cfi_escape 0x10, 6, 2, 0x77, {RBP}",
        ".cfi_escape 0x10, 12, 2, 0x77, {R12}",
        ".cfi_escape 0x10, 13, 2, 0x77, {R13}",
        ".cfi_escape 0x10, 14, 2, 0x77, {R14}",
        ".cfi_escape 0x10, 15, 2, 0x77, {R15}",
        ".cfi_escape 0x10, 16, 2, 0x77, {RIP}",
        "call rbx",
        "ud2",
        ".cfi_endproc",
        RBX = const offset_of!(Context, rbx),
        RBP = const offset_of!(Context, rbp),
        R12 = const offset_of!(Context, r12),
        R13 = const offset_of!(Context, r13),
        R14 = const offset_of!(Context, r14),
        R15 = const offset_of!(Context, r15),
        RSP = const offset_of!(Context, rsp),
        RIP = const offset_of!(Context, rip),
    )
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
            "mov r10, [rdx + {R12}]",
            "mov [rdx + {R12}], r12",
            "mov r12, r10",
            "mov r10, [rdx + {R13}]",
            "mov [rdx + {R13}], r13",
            "mov r13, r10",
            "mov r10, [rdx + {R14}]",
            "mov [rdx + {R14}], r14",
            "mov r14, r10",
            "mov r10, [rdx + {R15}]",
            "mov [rdx + {R15}], r15",
            "mov r15, r10",
            "mov rdi, [rdx + {RDI}]",
            "mov r8, [rdx + {RSP}]",
            "mov [rdx + {RSP}], rsp",
            "mov r11, [rdx + {RBP}]",
            "mov [rdx + {RBP}], rbp",
            "mov r9, [rdx + {RIP}]",
            "mov [rdx + {RIP}], rsi",
            "mov r10d, [rdx + {MXCSR}]",
            "mov rbp, r11",
            "xor r10d, eax",
            "test r10d, {MXCSR_CONTROL}",
            "jnz 3f",
            "2:",
            "cmp cx, [rdx + {X87}]",
            "jne 4f",
            "6:",
            "mov rsp, r8",
            "jmp r9",
            "3:",
            "mov [rsp - 8], eax",
            "ldmxcsr [rsp - 8]",
            "jmp 2b",
            "4:",
            "mov [rsp - 8], cx",
            "fldcw [rsp - 8]",
            "jmp 6b",
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a function that keeps a frame pointer pushes first: rbp names the newest one.
    #[repr(C)]
    struct FrameRecord {
        caller: *const FrameRecord,
        return_address: u64,
    }

    /// A stack with its context at its end, and what its body has found.
    #[repr(C, align(64))]
    struct Stack {
        memory: [u8; 4096],
        context: Context,
        return_addresses: [u64; 4],
    }

    #[unsafe(naked)]
    unsafe extern "C" fn body_with_frame_pointer(stack: *mut ()) -> ! {
        naked_asm!("push rbp", "mov rbp, rsp", "mov rsi, rbp", "call {}", sym walk_and_leave)
    }

    unsafe extern "C" fn walk_and_leave(stack: *mut Stack, mut record: *const FrameRecord) -> ! {
        // SAFETY: the test keeps the stack and its own frame alive; every record leads to the next.
        unsafe {
            for address in &mut (*stack).return_addresses {
                if record.is_null() {
                    break;
                }
                *address = (*record).return_address;
                record = (*record).caller;
            }
            exchange(&raw mut (*stack).context);
        }
        unreachable!("a test resumes its body once")
    }

    /// Enters the stack from a function whose frame pointer names `record`.
    #[unsafe(naked)]
    unsafe extern "C" fn enter_below(record: *const FrameRecord, stack: *mut Stack) {
        naked_asm!("push rbp", "mov rbp, rdi", "mov rdi, rsi", "call {}", "pop rbp", "ret", sym enter)
    }

    unsafe extern "C" fn enter(stack: *mut Stack) {
        // SAFETY: the test has made the context.
        unsafe { exchange(&raw mut (*stack).context) };
    }

    #[test]
    fn frame_pointers_lead_to_the_resumer() {
        const LAST: u64 = 0x1a57;
        let mut stack = Box::new(Stack {
            memory: [0; 4096],
            context: Context::fresh(std::ptr::null_mut(), body_with_frame_pointer, std::ptr::null_mut()),
            return_addresses: [0; 4],
        });
        let raw = &raw mut *stack;
        let last = FrameRecord { caller: std::ptr::null(), return_address: LAST };
        // SAFETY: the stack is alive and its own; its top, which is a multiple of 64, is where the context lies.
        unsafe {
            let top = (&raw mut (*raw).context).cast();
            (*raw).context = Context::fresh(top, body_with_frame_pointer, raw.cast());
            enter_below(&raw const last, raw);
        }
        let [into_trampoline, into_resumer, rest @ ..] = stack.return_addresses;
        let within = |address: u64, function: *const ()| (1..256).contains(&address.wrapping_sub(function as u64));
        assert!(within(into_trampoline, trampoline as *const ()), "{:x?}", stack.return_addresses);
        assert!(within(into_resumer, enter as *const ()), "{:x?}", stack.return_addresses);
        // `enter` may have a record of its own, as the compiler likes.
        assert!(rest[0] == LAST || rest[1] == LAST, "{:x?}", stack.return_addresses);
    }
}
