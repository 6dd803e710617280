//! Leaving a signal handler without the kernel.
//!
//! `rt_sigreturn` is a system call that restores registers, floating-point state and the signal mask. The SIGBUS
//! handler never changes the mask, so all it needs can be done in user mode: restore the floating-point state from the
//! frame, load the registers, and `iretq`. Measured at a quarter of the system call's cost.
//!
//! ```text
//!   higher   interrupted code's stack
//!            red zone, 128 bytes
//!            floating-point state (XSAVE area)      <- context.uc_mcontext.fpregs
//!            siginfo, ucontext                      <- context
//!            frames of the handler
//!   lower    the five words that iretq pops         <- rsp
//! ```
//!
//! UNSAFETY: replaces every register from a frame that the kernel built.

use std::mem::offset_of;
use std::sync::OnceLock;

const MCONTEXT: usize = offset_of!(libc::ucontext_t, uc_mcontext);
const GREGS: usize = MCONTEXT + offset_of!(libc::mcontext_t, gregs);
const FPREGS: usize = MCONTEXT + offset_of!(libc::mcontext_t, fpregs);
/// Offset in an FXSAVE area of the words by which the kernel says that an XSAVE area follows.
const SOFTWARE_WORDS: usize = 464;
const XSTATE_MAGIC: u32 = 0x4650_5853;
/// `ARCH_SHSTK_STATUS` of arch_prctl.
const SHADOW_STACK_STATUS: libc::c_int = 0x5005;

/// Offset of a general register in a ucontext.
#[expect(clippy::cast_sign_loss, reason = "libc's names of registers are indexes")]
const fn register(index: libc::c_int) -> usize {
    GREGS + index as usize * 8
}

/// Whether handlers may leave through [`resume`]: not with a shadow stack, where only the kernel may change the flow.
pub(crate) fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let mut features = 0u64;
        // SAFETY: the call writes one word. Kernels without shadow stacks refuse it.
        let status = unsafe { libc::syscall(libc::SYS_arch_prctl, SHADOW_STACK_STATUS, &raw mut features) };
        status != 0 || features == 0
    })
}

/// Continues at `context`.
///
/// # Safety
/// `context` is the frame of the signal whose handler calls this, the handler holds nothing that a return would
/// release, the signal mask is that of the interrupted code, and [`is_possible`].
pub(crate) unsafe fn resume(context: *const libc::ucontext_t) -> ! {
    // SAFETY: the frame holds a complete state of this thread, made by the kernel; all of it is loaded.
    unsafe {
        std::arch::asm!(
            "mov rbx, rdi",
            "mov rsi, [rbx + {fpregs}]",
            "test rsi, rsi",
            "jz 3f",
            "cmp dword ptr [rsi + {software_words}], {magic}",
            "jne 2f",
            "mov eax, [rsi + {software_words} + 8]",
            "mov edx, [rsi + {software_words} + 12]",
            "xrstor64 [rsi]",
            "jmp 3f",
            "2:",
            "fxrstor64 [rsi]",
            "3:",
            "mov rax, [rbx + {csgsfs}]",
            "movzx ecx, ax",
            "shr rax, 48",
            "push rax",
            "push qword ptr [rbx + {rsp}]",
            "push qword ptr [rbx + {flags}]",
            "push rcx",
            "push qword ptr [rbx + {rip}]",
            "mov r8, [rbx + {r8}]",
            "mov r9, [rbx + {r9}]",
            "mov r10, [rbx + {r10}]",
            "mov r11, [rbx + {r11}]",
            "mov r12, [rbx + {r12}]",
            "mov r13, [rbx + {r13}]",
            "mov r14, [rbx + {r14}]",
            "mov r15, [rbx + {r15}]",
            "mov rdi, [rbx + {rdi}]",
            "mov rsi, [rbx + {rsi}]",
            "mov rbp, [rbx + {rbp}]",
            "mov rdx, [rbx + {rdx}]",
            "mov rax, [rbx + {rax}]",
            "mov rcx, [rbx + {rcx}]",
            "mov rbx, [rbx + {rbx}]",
            "iretq",
            in("rdi") context,
            fpregs = const FPREGS,
            software_words = const SOFTWARE_WORDS,
            magic = const XSTATE_MAGIC,
            csgsfs = const register(libc::REG_CSGSFS),
            rsp = const register(libc::REG_RSP),
            flags = const register(libc::REG_EFL),
            rip = const register(libc::REG_RIP),
            r8 = const register(libc::REG_R8),
            r9 = const register(libc::REG_R9),
            r10 = const register(libc::REG_R10),
            r11 = const register(libc::REG_R11),
            r12 = const register(libc::REG_R12),
            r13 = const register(libc::REG_R13),
            r14 = const register(libc::REG_R14),
            r15 = const register(libc::REG_R15),
            rdi = const register(libc::REG_RDI),
            rsi = const register(libc::REG_RSI),
            rbp = const register(libc::REG_RBP),
            rdx = const register(libc::REG_RDX),
            rax = const register(libc::REG_RAX),
            rcx = const register(libc::REG_RCX),
            rbx = const register(libc::REG_RBX),
            options(noreturn),
        )
    }
}
